"""Parses one YAML file into plain data with a position for every value. Never executes anything.

The parser uses the event stream of libyaml instead of PyYAML's constructors. This gives YAML 1.2
core scalars (``1e-3`` is a number, ``on`` is a string, ``012`` is 12), a position and the raw text
of each value, errors for repeated keys, and limits on size, depth and aliases that apply before
data is built.
"""

import os
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from torch_conformance.language.read.document import ROWS, SPEC, Kind
from torch_conformance.model.diagnostics import (
    Diagnostic,
    InvalidSpecs,
    Position,
    odd_character,
    shown_path,
)
from torch_conformance.model.document import DataPath, Document, Mark
from torch_conformance.model.protocol import Json

# -- problems of YAML ------------------------------------------------------------------------------


_QUOTED = re.compile(r"'.*'|but found .*", re.DOTALL)


def _unquoted(problem: Diagnostic) -> Diagnostic:
    """Return a problem without its quotations of the file: the texts among its arguments.

    The messages of libyaml's C parser are fixed.
    """

    def shown(name: str, value: str | int) -> str | int:
        if name == "problem":
            return value if hasattr(yaml, "CSafeLoader") else _QUOTED.sub("...", str(value))
        return "..." if name in ("tag", "name", "word", "byte") else value

    return replace(
        problem, arguments=tuple((name, shown(name, value)) for name, value in problem.arguments)
    )


def _failure(path: Path, before: str, code: str, **arguments: str | int) -> InvalidSpecs:
    """Return the exception for a problem of a file that follows the text ``before``."""
    line, column = _end(before)
    position = Position(file=shown_path(path), line=line, column=column)
    return InvalidSpecs([Diagnostic.of(code, **arguments).at(position)])


def _end(text: str) -> tuple[int, int]:
    """Return line and column, from 1, of what follows a text."""
    return text.count("\n") + 1, len(text) - text.rfind("\n")


_FOREIGN_BREAK = re.compile("[\x85\u2028\u2029]")
_ESCAPES = {"\x85": r"\N", "\u2028": r"\L", "\u2029": r"\P"}


def _syntax_problem(file: str, text: str, error: yaml.YAMLError) -> Diagnostic:
    """Return the diagnostic of an error of PyYAML.

    The first words of ``_SYNTAX`` in its message say which hint it has.
    """
    context = getattr(error, "context_mark", None)
    mark = getattr(error, "problem_mark", None) or context
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    lines = dict(enumerate(text.split("\n"), start=1))
    this, before = lines.get(line, ""), lines.get(line - 1, "")
    code = next((code for words, code in _SYNTAX.items() if words in problem), "yaml-syntax")
    if isinstance(error, yaml.reader.ReaderError):
        line, column = _end(text[: max(int(getattr(error, "position", 0)), 0)])
        code = "yaml-control-character"
    elif "tab" in problem.split() or (
        "cannot start any token" in problem and this[column - 1 : column] == "\t"
    ):
        code = "yaml-tab"
    elif strange := [*_STRANGE_SPACE.finditer(f"{before}\n{this}"[: len(before) + 1 + column])]:
        code, at = "yaml-strange-space", strange[-1].start() - len(before)
        line, column = (line, at) if at > 0 else (line - 1, at + len(before) + 1)
        problem = odd_character(strange[-1][0]).partition(" is ")[2]
    elif "{{" in this or "{{" in before:
        code = "yaml-unquoted-template"
    unplaced = Diagnostic.of(code, problem=problem, line=context.line + 1 if context else "?")
    return unplaced.at(Position(file=file, line=line, column=column))


_STRANGE_SPACE = re.compile(r"[^\S \t\r\n]")
"""It looks as a space does, and YAML takes it for a letter."""

_SYNTAX = {
    "end of stream": "yaml-open-quote",
    "',' or ']'": "yaml-open-list",
    "',' or '}'": "yaml-open-map",
    "escape": "yaml-escape",
    "comment or line break": "yaml-block",
    "directive": "yaml-syntax-directive",
    "mapping values": "yaml-colon",
    "alphabetic or numeric": "yaml-alias-syntax",
    "cannot start any token": "yaml-special-character",
}


# -- scalars ---------------------------------------------------------------------------------------


MAX_DIGITS = 100
"""The most characters of a whole number, leading zeros included."""

WHOLE = range(-(1 << 63), 1 << 64)
"""The whole numbers of the language: those of torch's dtypes, which a plan can hold."""


_WORDS = {
    **dict.fromkeys(["", "~", "null", "Null", "NULL"]),
    **dict.fromkeys(["true", "True", "TRUE"], True),
    **dict.fromkeys(["false", "False", "FALSE"], False),
}
_WHOLE = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def resolve(text: str) -> Json:
    """Return the YAML 1.2 core value of a plain scalar; raise ``ValueError`` for a whole number of
    more than 64 bits.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if _WHOLE.fullmatch(text):
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        if len(text) > MAX_DIGITS or (number := int(text, base)) not in WHOLE:
            raise ValueError(text)
        return number
    if _FLOAT.fullmatch(text):
        return float(text)
    return float(text.replace(".", "")) if _SPECIAL.fullmatch(text) else text


# -- data from events ------------------------------------------------------------------------------


MAX_NODES = 100_000
MAX_TEXT = 4 << 20
"""The maximum number of characters of all texts after expansion of aliases.

A file without aliases cannot reach it.
"""
MAX_DEPTH = 64


class _Stop(Exception):
    """Nothing below a problem can be read."""


class _Reader:
    """Makes data of a parser's events.

    Everything has a limit: an alias counts as often as it is used.
    """

    def __init__(self, loader: Any, file: str, kind: Kind) -> None:
        self.root: Json = None
        """Where reading stops early, the top-level keys that are complete."""
        self.is_whole = False
        self.unread: list[DataPath] = []
        self.marks: dict[DataPath, Mark] = {}
        self.key_marks: dict[DataPath, Mark] = {}
        self.problems: list[Diagnostic] = []
        self.documents = 0
        self._loader, self._file, self._kind = loader, file, kind
        self._anchors: dict[str, tuple[Any, int, int, int] | None] = {}
        """The value of each anchor, and its size after expansion: number of values, number of
        characters, depth; None within it.
        """
        self._nodes = 0
        self._text = 0

    def read(self) -> None:
        """Read all events, or as many as can be read; raise PyYAML's errors.

        Depth is limited, so recursion is.
        """
        while self._loader.check_event():
            event = self._loader.get_event()
            if isinstance(event, yaml.DocumentStartEvent):
                self.documents += 1
                if event.version not in (None, (1, 2)) or event.tags:
                    self._problem(event, "yaml-directive")
                if self.documents > 1:
                    raise self._stop(
                        event,
                        "yaml-second-document",
                        what="spec" if self._kind is SPEC else "document",
                    )
            elif isinstance(event, yaml.NodeEvent):
                self.is_whole = False
                self.root = self._value(event, (), 0)
                self.is_whole = True

    def _value(self, event: yaml.Event, path: DataPath, depth: int) -> Json:
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event, path, depth)
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        tag = "" if event.tag in (None, "!") else str(event.tag)
        if tag:
            self.unread.append(path)
            self._problem(event, "yaml-tag", tag=tag.replace("tag:yaml.org,2002:", "!!"))
        if isinstance(event, yaml.ScalarEvent):
            self._count(event, 1, len(event.value))
            value = None if tag else self._scalar(event, path)
            if event.anchor:
                self._anchors[event.anchor] = (value, 1, len(event.value), 0)
            self.marks[path] = _mark(event)
            return value
        if depth >= MAX_DEPTH:
            self.root = None
            raise self._stop(event, "yaml-too-deep", depth=MAX_DEPTH)
        self._count(event, 1, 0)
        self.marks[path] = _mark(event)
        self._anchors |= {event.anchor: None} if event.anchor else {}
        data: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        if not path:
            self.root = data
        while not isinstance(inner := self._loader.get_event(), yaml.CollectionEndEvent):
            if isinstance(data, list):
                data.append(self._value(inner, (*path, len(data)), depth + 1))
            else:
                key = self._key(inner, path, in_flow=bool(event.flow_style))
                data[key] = self._value(self._loader.get_event(), (*path, key), depth + 1)
        if event.anchor:
            self._anchors[event.anchor] = (data, *_measure(data))
        return data

    def _scalar(self, event: yaml.ScalarEvent, path: DataPath) -> Json:
        if event.style or event.tag is not None:
            # a plain scalar has the style "" in libyaml and None in the pure parser
            return event.value
        try:
            return resolve(event.value)
        except ValueError:
            self.unread.append(path)
            self._problem(event, "yaml-long-number")
            return None

    def _key(self, event: yaml.Event, above: DataPath, *, in_flow: bool) -> str:
        if isinstance(event, yaml.AliasEvent):
            raise self._stop(
                event,
                "yaml-alias-as-key" if event.anchor in self._anchors else "yaml-unknown-alias",
                name=str(event.anchor),
            )
        if not isinstance(event, yaml.ScalarEvent):
            raise self._stop(
                event,
                "yaml-open-template"
                if isinstance(event, yaml.CollectionStartEvent) and event.flow_style and in_flow
                else "yaml-bad-key",
            )
        key: str = event.value
        path = (*above, key)
        if event.tag not in (None, "!"):
            self.unread.append(above)
            self._problem(event, "yaml-tag", tag=event.tag.replace("tag:yaml.org,2002:", "!!"))
        self._scalar(event, above)
        if key == "<<" and not event.style:
            self.unread.append(path)
            self._problem(event, "yaml-merge-key")
        if path in self.key_marks:
            self.unread.append(path)
            self._problem(event, "yaml-repeated-key", word=key, line=self.key_marks[path].line)
        self.key_marks[path] = _mark(event)
        return key

    def _aliased(self, event: yaml.AliasEvent, path: DataPath, depth: int) -> Json:
        name = str(event.anchor)
        if (anchored := self._anchors.get(name)) is None:
            raise self._stop(
                event,
                "yaml-alias-in-itself" if name in self._anchors else "yaml-unknown-alias",
                name=name,
            )
        value, nodes, text, deep = anchored
        if depth + deep > MAX_DEPTH:
            raise self._stop(event, "yaml-too-deep", depth=MAX_DEPTH)
        self._count(event, nodes, text)
        self.marks[path] = _mark(event)
        return value

    def _count(self, event: yaml.Event, nodes: int, text: int) -> None:
        self._nodes += nodes
        self._text += text
        if self._nodes > MAX_NODES or self._text > MAX_TEXT:
            self.root = None
            least = (
                {"values": f"{MAX_NODES:,}"}
                if self._nodes > MAX_NODES
                else {"characters": f"{MAX_TEXT:,}"}
            )
            raise self._stop(event, "yaml-too-large", **least, rows="rows" * (self._kind is ROWS))

    def _stop(self, event: yaml.Event, code: str, **arguments: str | int) -> _Stop:
        self._problem(event, code, **arguments)
        return _Stop()

    def _problem(self, event: yaml.Event, code: str, **arguments: str | int) -> None:
        mark = _mark(event)
        position = Position(file=self._file, line=mark.line, column=mark.column)
        self.problems.append(Diagnostic.of(code, **arguments).at(position))


def _mark(event: yaml.Event) -> Mark:
    assert event.start_mark is not None, "a parser marks every event"
    written = (event.value, event.style) if isinstance(event, yaml.ScalarEvent) else ()
    return Mark(event.start_mark.line + 1, event.start_mark.column + 1, *written)


def _measure(value: Json) -> tuple[int, int, int]:
    """Return the number of values in a value including itself, the number of characters, and the
    depth.
    """
    if not isinstance(value, dict | list):
        return 1, len(value) if isinstance(value, str) else 0, 0
    below = [
        (0, 0, 0),
        *(_measure(item) for item in (value.values() if isinstance(value, dict) else value)),
    ]
    nodes, text, depth = zip(*below, strict=True)
    return 1 + sum(nodes), sum(text), 1 + max(depth)


# -- files -----------------------------------------------------------------------------------------


MAX_BYTES = 1 << 20
_LOADER: Any = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # libyaml is eight times as fast, but PyYAML without it works too


def read(path: Path, kind: Kind = SPEC) -> Document:
    """Parse one YAML file; raise ``InvalidSpecs`` with a positioned diagnostic for each problem."""
    return _whole(read_partly(path, kind))


def parse(text: str, *, path: Path, kind: Kind = SPEC) -> Document:
    """Like ``read``, for a text of the file ``path``."""
    return _whole(_parse(text.encode("utf-8"), path, kind))


def _whole(document: Document) -> Document:
    if document.problems:
        raise InvalidSpecs(document.problems)
    return document


def read_partly(path: Path, kind: Kind = SPEC, content: bytes | None = None) -> Document:
    """Parse one YAML file as far as possible; raise ``InvalidSpecs`` if nothing can be parsed.

    Diagnostics of a file that is not of the expected kind quote nothing. ``content`` is parsed in
    the place of the file's bytes.
    """
    data = read_bytes(path, article=kind.article) if content is None else content
    try:
        document = _parse(data, path, kind)
    except InvalidSpecs as error:
        raise InvalidSpecs(
            error.diagnostics if recognised(path, data, kind) else map(_unquoted, error.diagnostics)
        ) from error
    if document.problems and not recognised(path, data, kind, document.data):
        raise InvalidSpecs(map(_unquoted, document.problems))
    return document


def recognised(path: Path, content: bytes, kind: Kind, data: Json = None) -> bool:
    """Whether a file is of a kind. The name of a link is that of its target."""
    return kind.recognises(
        content.decode("utf-8-sig", "replace"), os.path.basename(os.path.realpath(path)), data
    )


def read_bytes(path: Path, limit: int = MAX_BYTES, article: str = "a spec") -> bytes:
    """Return the file's bytes; raise ``InvalidSpecs`` for a file that cannot be a spec: too large,
    a device, unreadable.

    ``article`` names the expected kind of file in hints.
    """
    try:
        # checked before opening, because opening has side effects on some devices
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise _failure(path, "", "not-a-regular-file", article=article)
        # O_NONBLOCK: opening a named pipe that has replaced the file must not block
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _failure(path, "", "not-a-regular-file", article=article)
            # a file of /proc has the size 0, any contents, and may return None
            data = b"" if status.st_size > limit else stream.read(limit + 1) or b""
    except OSError as error:
        raise _failure(path, "", "unreadable-file", reason=error.strerror or "") from error
    if max(status.st_size, len(data)) > limit:
        code = "too-large-file" if status.st_size > limit else "endless-file"
        spec = article if article == SPEC.article else ""
        raise _failure(path, "", code, size=f"{status.st_size:,}", limit=f"{limit:,}", spec=spec)
    return data


def decoded(content: bytes, path: Path, kind: Kind) -> str:
    """Return the text of a file; raise ``InvalidSpecs`` for bytes that YAML does not allow."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _failure(path, "", "not-utf-8-but-16")
    if b"\0" in content:
        before = content.partition(b"\0")[0].decode("utf-8", "replace")
        raise _failure(path, before, "binary-file", article=kind.article)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", "replace")
        raise _failure(path, before, "not-utf-8", byte=f"0x{content[error.start]:02x}") from error
    if foreign := _FOREIGN_BREAK.search(text):
        # libyaml counts these as line ends, as in YAML 1.1: all later positions would be wrong
        escape = _ESCAPES[foreign[0]]
        raise _failure(
            path,
            text[: foreign.start()],
            "foreign-line-end",
            name=f"U+{ord(foreign[0]):04X}",
            escape=escape,
        )
    return text


def _parse(content: bytes, path: Path, kind: Kind) -> Document:
    """Parse as far as possible; raise ``InvalidSpecs`` for bytes that YAML does not allow."""
    text, file = decoded(content, path, kind), shown_path(path)
    for loader_class in (_LOADER, yaml.SafeLoader):
        reader = _Reader(loader_class(text), file, kind)
        try:
            reader.read()
        except _Stop:
            pass
        except yaml.YAMLError as error:
            if loader_class is not yaml.SafeLoader and "exceeded maximum nesting depth" in str(
                error
            ):
                # libyaml reads ahead within a line, beyond the position that the reader refuses;
                # the parser in Python does not
                continue
            reader.problems.append(_syntax_problem(file, text, error))
            reader.is_whole = False
        break
    if reader.documents == 0 and not reader.problems:
        empty = Diagnostic.of("empty-file", form="" if kind is SPEC else kind.form)
        reader.problems.append(empty.at(Position(file=file)))
    return Document(
        path=path,
        file=file,
        data=reader.root,
        marks=reader.marks,
        key_marks=reader.key_marks,
        content=content,
        problems=tuple(reader.problems),
        unread=tuple(reader.unread),
        is_whole=reader.is_whole,
    )
