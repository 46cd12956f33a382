"""Parses one YAML file into plain data with a position for every value. Never executes anything.

The parser uses the event stream of libyaml instead of PyYAML's constructors. This gives YAML 1.2 core scalars (``1e-3`` is a number, ``on``
is a string, ``012`` is 12), a position and the raw text of each value, errors for repeated keys, and limits on size, depth and aliases that
apply before data is built.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from runner.core.diagnostics import InvalidSpecs, shown_path
from runner.language.read.builder import Builder
from runner.language.read.document import Document
from runner.language.read.kinds import SPEC, Kind
from runner.language.read.syntax import ESCAPES, FOREIGN_BREAK, failure, line_column, place, syntax_problem, unquoted

MAX_BYTES = 1 << 20


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is eight times as fast, but PyYAML without it works too


def read(path: Path, kind: Kind = SPEC) -> Document:
    """Parse one YAML file; raise ``InvalidSpecs`` with a positioned diagnostic for each problem."""
    document = read_partly(path, kind)
    if document.problems:
        raise InvalidSpecs(document.problems)
    return document


def read_partly(path: Path, kind: Kind = SPEC, content: bytes | None = None) -> Document:
    """Parse one YAML file as far as possible; raise ``InvalidSpecs`` if nothing can be parsed.

    Diagnostics of a file that is not of the expected kind quote nothing. ``content`` is parsed in the place of the file's bytes.
    """
    data = read_bytes(path, article=kind.article) if content is None else content
    try:
        document = _parse(_decode(path, data, kind.article), path=path, file=shown_path(path), content=data, kind=kind)
    except InvalidSpecs as error:
        if recognised(path, data, kind):
            raise
        raise InvalidSpecs(unquoted(problem) for problem in error.diagnostics) from error
    if not document.problems or recognised(path, data, kind, document.data):
        return document
    raise InvalidSpecs(unquoted(problem) for problem in document.problems)


def recognised(path: Path, content: bytes, kind: Kind, data: Any = None) -> bool:
    """Whether a file is of a kind. The name of a link is that of its target."""
    return kind.recognises(content.decode("utf-8-sig", "replace"), os.path.basename(os.path.realpath(path)), data)


BUFFERS: ContextVar[Mapping[Path, bytes]] = ContextVar("BUFFERS", default=MappingProxyType({}))
"""The contents of files that an editor has not saved yet, by their absolute paths: they are read in place of the files."""


def read_bytes(path: Path, limit: int = MAX_BYTES, article: str = "a spec") -> bytes:
    """Return the file's bytes; raise ``InvalidSpecs`` for a file that cannot be a spec: too large, a device, unreadable.

    ``article`` names the expected kind of file in hints.
    """
    buffers = BUFFERS.get()
    if buffers and Path(os.path.abspath(path)) in buffers:
        content = buffers[Path(os.path.abspath(path))]
        if len(content) > limit:
            raise failure(path, f"is larger than {limit} bytes", f"{article} is a text file")
        return content
    try:
        # checked before opening, because opening has side effects on some devices
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise failure(path, "is not a regular file", f"{article} is a text file")
        # O_NONBLOCK: opening a named pipe that has replaced the file must not block
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise failure(path, f"cannot be read: {error.strerror}", "check the path and its permissions") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise failure(path, "is not a regular file", f"{article} is a text file")
    with os.fdopen(descriptor, "rb") as stream:
        try:
            # a file of /proc has the size 0, any contents, and may return None
            data = b"" if status.st_size > limit else stream.read(limit + 1) or b""
        except OSError as error:
            raise failure(path, f"cannot be read: {error.strerror}", f"{article} is a text file") from error
    if max(status.st_size, len(data)) > limit:
        size = f"{status.st_size:,}" if status.st_size > limit else f"more than {limit:,}"
        raise failure(
            path, f"is {size} bytes; at most {limit:,} are read", "a spec is one claim: split it" if article == SPEC.article else "split it"
        )
    return data


def _decode(path: Path, data: bytes, article: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise failure(path, "is not UTF-8: it begins with a UTF-16 byte order mark", "save the file as UTF-8")
    if b"\0" in data:
        line, column = line_column(data, data.index(b"\0"))
        raise failure(path, "is a binary file: it contains a NUL byte", f"{article} is UTF-8 text", line, column)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = line_column(data, error.start)
        message = f"is not UTF-8: byte 0x{data[error.start]:02x} cannot be decoded"
        raise failure(path, message, "save the file as UTF-8", line, column) from error


def parse(text: str, *, path: Path, content: bytes = b"", kind: Kind = SPEC) -> Document:
    """Parse YAML text of the file ``path``; raise ``InvalidSpecs`` with a diagnostic for each problem."""
    document = _parse(text, path=path, file=shown_path(path), content=content, kind=kind)
    if document.problems:
        raise InvalidSpecs(document.problems)
    return document


def _parse(text: str, *, path: Path, file: str, content: bytes, kind: Kind) -> Document:
    """Parse as far as possible. ``file`` is the path in messages."""
    foreign = FOREIGN_BREAK.search(text)
    if foreign is not None:
        # libyaml counts these as line ends, as in YAML 1.1: all later positions would be wrong
        message = f"the character U+{ord(foreign[0]):04X} is a line end for some parsers only"
        line, column = place(text, foreign.start())
        raise failure(path, message, f'write it as an escape in a double-quoted string: "{ESCAPES[foreign[0]]}"', line, column)
    builder = _built(file, kind, text, _LOADER)
    builder.finish()
    return Document(
        path=path,
        file=file,
        data=builder.root,
        marks=builder.marks,
        key_marks=builder.key_marks,
        content=content,
        problems=tuple(builder.problems),
        unread=tuple(builder.unread),
        is_whole=builder.is_whole,
    )


def _built(file: str, kind: Kind, text: str, loader: Any) -> Builder:
    """Return a builder that has read the events of a loader, up to the first problem after which the rest cannot be parsed."""
    builder = Builder(file, kind)
    try:
        for event in _events(text, loader):
            if builder.feed(event):
                break
    except yaml.YAMLError as error:
        if loader is not yaml.SafeLoader and _TOO_DEEP in str(error):
            # libyaml reads ahead within a line, beyond the position that the builder refuses: the parser in Python has no such limit
            return _built(file, kind, text, yaml.SafeLoader)
        builder.fail(syntax_problem(file, text, error))
    return builder


_TOO_DEEP = "exceeded maximum nesting depth"


def _events(text: str, made: Any) -> Iterator[Any]:
    # event by event, without recursion that a deeply nested file could exhaust
    loader = made(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()
