"""Reads one YAML file into plain data with a position for every value. Never runs anything.

The reader is built on the event stream of libyaml, not on PyYAML's constructors: that gives YAML 1.2 core scalars
(``1e-3`` is a number, ``on`` is a string, ``012`` is 12), a position and the raw text of each value, repeated keys as
errors, and bounds on size, depth and alias growth that hold before anything is built.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from runner.core.diagnostics import InvalidSpecs, shown_path
from runner.language.read.builder import Builder
from runner.language.read.document import Document
from runner.language.read.kinds import SPEC, Kind
from runner.language.read.syntax import ESCAPES, FOREIGN_BREAK, failure, line_column, place, syntax_problem, unquoted

MAX_BYTES = 1 << 20


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is eight times as fast; a PyYAML without it still works


def read(path: Path, kind: Kind = SPEC) -> Document:
    """Read one YAML file; raise ``InvalidSpecs`` with a positioned diagnostic for whatever is wrong with it."""
    document = read_partly(path, kind)
    if document.problems:
        raise InvalidSpecs(document.problems)
    return document


def read_partly(path: Path, kind: Kind = SPEC) -> Document:
    """Read what can be read of one YAML file; raise ``InvalidSpecs`` when that is nothing.

    Of a file that is not of the kind that was expected no diagnostic quotes anything.
    """
    data = read_bytes(path, article=kind.article)
    try:
        document = _parse(_decode(path, data, kind.article), path=path, content=data, kind=kind)
    except InvalidSpecs as error:
        if recognised(path, data, kind):
            raise
        raise InvalidSpecs(unquoted(problem) for problem in error.diagnostics) from error
    if not document.problems or recognised(path, data, kind, document.data):
        return document
    raise InvalidSpecs(unquoted(problem) for problem in document.problems)


def recognised(path: Path, content: bytes, kind: Kind, data: Any = None) -> bool:
    """Whether a file is of a kind. A link has the name of the file that it leads to."""
    return kind.recognises(content.decode("utf-8-sig", "replace"), os.path.basename(os.path.realpath(path)), data)


def read_bytes(path: Path, limit: int = MAX_BYTES, article: str = "a spec") -> bytes:
    """Return the file's bytes, or raise ``InvalidSpecs`` for what cannot be a spec: too large, a device, unreadable.

    ``article`` says in hints what kind of file is expected.
    """
    try:
        # before it is opened: opening alone does something to some devices
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise failure(path, "is not a regular file", f"{article} is a text file")
        # O_NONBLOCK: a named pipe that took its place must not make the reader wait for a writer that never comes
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise failure(path, f"cannot be read: {error.strerror}", "check the path and its permissions") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise failure(path, "is not a regular file", f"{article} is a text file")
    with os.fdopen(descriptor, "rb") as stream:
        try:
            # a file of /proc says that it is empty, gives what it likes, and may have nothing to give at the moment
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
        raise failure(path, "is not UTF-8: it begins as UTF-16 does", "save the file as UTF-8")
    if b"\0" in data:
        line, column = line_column(data, data.index(b"\0"))
        raise failure(path, "is a binary file: it holds a NUL byte", f"{article} is UTF-8 text", line, column)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = line_column(data, error.start)
        message = f"is not UTF-8: byte 0x{data[error.start]:02x} cannot be decoded"
        raise failure(path, message, "save the file as UTF-8", line, column) from error


def parse(text: str, *, path: Path, content: bytes = b"", kind: Kind = SPEC) -> Document:
    """Parse YAML text that came from ``path``; raise ``InvalidSpecs`` for whatever is wrong with it."""
    document = _parse(text, path=path, content=content, kind=kind)
    if document.problems:
        raise InvalidSpecs(document.problems)
    return document


def _parse(text: str, *, path: Path, content: bytes, kind: Kind) -> Document:
    """Parse what can be parsed."""
    file = shown_path(path)
    foreign = FOREIGN_BREAK.search(text)
    if foreign is not None:
        # libyaml counts these as the ends of lines, as YAML 1.1 did: every position below would be wrong
        message = f"the character U+{ord(foreign[0]):04X} ends a line for some readers and not for others"
        line, column = place(text, foreign.start())
        raise failure(path, message, f'write it as an escape in a double-quoted string: "{ESCAPES[foreign[0]]}"', line, column)
    builder = Builder(file, kind)
    try:
        for event in _events(text):
            if builder.feed(event):
                break
    except yaml.YAMLError as error:
        builder.give_up(syntax_problem(file, text, error))
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


def _events(text: str) -> Iterator[Any]:
    # libyaml is driven event by event: no recursion that a deeply nested file could exhaust
    loader = _LOADER(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()
