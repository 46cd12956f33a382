"""Reads one YAML file into plain data with a position for every value. Never runs anything.

The reader is built on the event stream of libyaml, not on PyYAML's constructors: that gives YAML 1.2 core scalars
(``1e-3`` is a number, ``on`` is a string, ``012`` is 12), a position and the raw text of each value, repeated keys as
errors, and bounds on size, depth and alias growth that hold before anything is built.
"""

import math
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from runner.core.diagnostics import Diagnostic, InvalidSpecs, Position, shown_path
from runner.language.read.kinds import SPEC, Kind

DataPath = tuple[str | int, ...]

MAX_BYTES = 1 << 20
MAX_NODES = 100_000
MAX_TEXT = 4 << 20
"""Characters of all texts, once aliases are written out: more than a file without aliases can hold."""
MAX_DEPTH = 64
MAX_DIGITS = 100
"""Of a whole number. Python refuses to write out one of more than 4,300, and no product of a few may get there."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is eight times as fast; a PyYAML without it still works

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+\Z")
_OCT = re.compile(r"0o[0-7]+\Z")
_HEX = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_INF = re.compile(r"[-+]?\.(inf|Inf|INF)\Z")
_NAN = {".nan", ".NaN", ".NAN"}


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a value stands (line and column from 1) and, for a scalar, how it was written."""

    line: int
    column: int
    raw: str | None = None
    style: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A YAML file as data. ``marks`` and ``key_marks`` are keyed by the path of keys and indices to a value."""

    path: Path
    file: str
    data: Any
    marks: dict[DataPath, Mark]
    key_marks: dict[DataPath, Mark]
    content: bytes = b""
    """The file's bytes."""
    problems: tuple[Diagnostic, ...] = ()
    """What could not be read; ``data`` is the rest."""
    unread: tuple[DataPath, ...] = ()
    """Paths whose values are not what the file says, because they could not be read."""
    is_whole: bool = True
    """False when the file could be read up to some place only: ``data`` has the keys of the top that ended above it."""

    @property
    def digest(self) -> str:
        """The sha256 of the file."""
        import hashlib

        return hashlib.sha256(self.content).hexdigest()

    def position(self, path: DataPath, *, key: bool = False) -> Position:
        """Return where ``path`` stands; the nearest enclosing value when it stands nowhere itself."""
        for end in range(len(path), -1, -1):
            table = self.key_marks if key and end == len(path) else self.marks
            mark = table.get(path[:end]) or self.marks.get(path[:end])
            if mark is not None:
                return Position(file=self.file, line=mark.line, column=mark.column)
        return Position(file=self.file)

    def value(self, path: DataPath) -> Any:
        """Return the value at ``path``."""
        value = self.data
        for key in path:
            value = value[key]
        return value

    def problem(self, path: DataPath, message: str, hint: str = "", *, key: bool = False) -> Diagnostic:
        """Return a diagnostic at ``path`` (at its key when ``key``)."""
        return Diagnostic(position=self.position(path, key=key), message=message, hint=hint)


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


_QUOTED = re.compile(r"'.*'|but found .*|byte 0x[0-9a-f]+|U\+[0-9A-F]+", re.DOTALL)


def unquoted(problem: Diagnostic) -> Diagnostic:
    """Return a problem of reading without what it quotes of the file. The words of libyaml's C parser, and all hints, are fixed."""
    fixed = problem.message.startswith("YAML syntax: ") and hasattr(yaml, "CSafeLoader")
    message = problem.message if fixed else _QUOTED.sub("...", problem.message)
    return replace(problem, message=message)


def read_bytes(path: Path, limit: int = MAX_BYTES, article: str = "a spec") -> bytes:
    """Return the file's bytes, or raise ``InvalidSpecs`` for what cannot be a spec: too large, a device, unreadable.

    ``article`` says in hints what kind of file is expected.
    """
    try:
        # before it is opened: opening alone does something to some devices
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise _failure(path, "is not a regular file", f"{article} is a text file")
        # O_NONBLOCK: a named pipe that took its place must not make the reader wait for a writer that never comes
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise _failure(path, f"cannot be read: {error.strerror}", "check the path and its permissions") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise _failure(path, "is not a regular file", f"{article} is a text file")
    with os.fdopen(descriptor, "rb") as stream:
        try:
            # a file of /proc says that it is empty, gives what it likes, and may have nothing to give at the moment
            data = b"" if status.st_size > limit else stream.read(limit + 1) or b""
        except OSError as error:
            raise _failure(path, f"cannot be read: {error.strerror}", f"{article} is a text file") from error
    if max(status.st_size, len(data)) > limit:
        size = f"{status.st_size:,}" if status.st_size > limit else f"more than {limit:,}"
        raise _failure(
            path, f"is {size} bytes; at most {limit:,} are read", "a spec is one claim: split it" if article == SPEC.article else "split it"
        )
    return data


def _decode(path: Path, data: bytes, article: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _failure(path, "is not UTF-8: it begins as UTF-16 does", "save the file as UTF-8")
    if b"\0" in data:
        line, column = _line_column(data, data.index(b"\0"))
        raise _failure(path, "is a binary file: it holds a NUL byte", f"{article} is UTF-8 text", line, column)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _line_column(data, error.start)
        message = f"is not UTF-8: byte 0x{data[error.start]:02x} cannot be decoded"
        raise _failure(path, message, "save the file as UTF-8", line, column) from error


def _line_column(data: bytes, offset: int) -> tuple[int, int]:
    start = data.rfind(b"\n", 0, offset) + 1
    return data.count(b"\n", 0, offset) + 1, len(data[start:offset].decode("utf-8", "replace")) + 1


def _failure(path: Path, message: str, hint: str, line: int = 1, column: int = 1) -> InvalidSpecs:
    position = Position(file=shown_path(path), line=line, column=column)
    return InvalidSpecs([Diagnostic(position=position, message=message, hint=hint)])


def parse(text: str, *, path: Path, content: bytes = b"", kind: Kind = SPEC) -> Document:
    """Parse YAML text that came from ``path``; raise ``InvalidSpecs`` for whatever is wrong with it."""
    document = _parse(text, path=path, content=content, kind=kind)
    if document.problems:
        raise InvalidSpecs(document.problems)
    return document


def _parse(text: str, *, path: Path, content: bytes, kind: Kind) -> Document:
    """Parse what can be parsed."""
    file = shown_path(path)
    foreign = _FOREIGN_BREAK.search(text)
    if foreign is not None:
        # libyaml counts these as the ends of lines, as YAML 1.1 did: every position below would be wrong
        message = f"the character U+{ord(foreign[0]):04X} ends a line for some readers and not for others"
        line, column = _place(text, foreign.start())
        raise _failure(path, message, f'write it as an escape in a double-quoted string: "{_ESCAPES[foreign[0]]}"', line, column)
    builder = _Builder(file, kind)
    try:
        for event in _events(text):
            if builder.feed(event):
                break
    except yaml.YAMLError as error:
        builder.give_up(_syntax_problem(file, text, error))
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


_FOREIGN_BREAK = re.compile("[\x85\u2028\u2029]")
_ESCAPES = {"\x85": r"\N", "\u2028": r"\L", "\u2029": r"\P"}


def _place(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _syntax_problem(file: str, text: str, error: yaml.YAMLError) -> Diagnostic:
    if isinstance(error, yaml.reader.ReaderError):
        return _reader_problem(file, text, error)
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    position = Position(file=file, line=line, column=column)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    if "tab" in problem.split() or ("cannot start any token" in problem and "\t" in _line(text, line)[column - 1 : column]):
        return Diagnostic(position=position, message="a tab cannot indent YAML", hint="use spaces")
    templated = "{{" in _line(text, line) or "{{" in _line(text, line - 1)
    return Diagnostic(position=position, message=f"YAML syntax: {problem}", hint=_QUOTE if templated else _syntax_hint(problem, error))


_QUOTE = 'put quotes around it: "{{ ... }}"'

_SYNTAX_HINTS = {
    "end of stream": "the quoted text that begins on line {} has no closing quote",
    "',' or ']'": "the list that begins on line {} has no ']', or a ',' is missing",
    "',' or '}'": "the map that begins on line {} has no '}}', or a ',' is missing",
    "escape": "in double quotes a backslash begins an escape: write \\\\, or use single quotes",
    "comment or line break": "the text begins on the line below the | or >",
    "directive": "remove the line that begins with %",
    "mapping values": "check the indentation, and put quotes around a value that holds ': '",
    "alphabetic or numeric": "put quotes around a value that begins with * or &",
    "cannot start any token": "put quotes around a value that begins with a special character",
}
"""By a part of libyaml's words: what to do. ``{}`` is the line on which the part that is not closed begins."""


def _syntax_hint(problem: str, error: yaml.YAMLError) -> str:
    context = getattr(error, "context_mark", None)
    hint = next((hint for words, hint in _SYNTAX_HINTS.items() if words in problem), "check the indentation and the quotes")
    return hint.format(context.line + 1 if context else "?")


def _reader_problem(file: str, text: str, error: Any) -> Diagnostic:
    line, column = _place(text, max(int(getattr(error, "position", 0)), 0))
    hint = "write it as an escape in a double-quoted string"
    return Diagnostic(position=Position(file=file, line=line, column=column), message="YAML syntax: a control character", hint=hint)


def _line(text: str, number: int) -> str:
    lines = text.split("\n")
    return lines[number - 1] if 1 <= number <= len(lines) else ""


def resolve(text: str) -> Any:
    """Return the YAML 1.2 core value of a plain scalar. ValueError for a number with more digits than anyone can mean."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text[0] not in "+-.0123456789":
        return text
    if len(text) > MAX_DIGITS and (_INT.match(text) or _OCT.match(text) or _HEX.match(text)):
        raise ValueError(text)
    if _INT.match(text):
        return int(text)
    if _OCT.match(text):
        return int(text[2:], 8)
    if _HEX.match(text):
        return int(text[2:], 16)
    if _FLOAT.match(text):
        return float(text)
    if _INF.match(text):
        return -math.inf if text.startswith("-") else math.inf
    return math.nan if text in _NAN else text


@dataclass(slots=True)
class _Frame:
    """A list or map that is still open. ``key`` is set while a map waits for the value of that key."""

    value: Any
    path: DataPath
    anchor: str | None
    flow: bool
    key: str | None = None

    @property
    def wants_key(self) -> bool:
        return isinstance(self.value, dict) and self.key is None

    @property
    def child(self) -> DataPath:
        return (*self.path, self.key if isinstance(self.value, dict) and self.key is not None else len(self.value))


@dataclass(frozen=True, slots=True)
class _Anchored:
    """What an alias stands for, and how much that is once written out: values, characters, and how deep they are nested."""

    value: Any
    nodes: int
    text: int
    depth: int


class _Builder:
    """Turns events into data. Problems are collected, so that one file shows all of them."""

    def __init__(self, file: str, kind: Kind) -> None:
        self.file = file
        self.kind = kind
        self.root: Any = None
        self.unread: list[DataPath] = []
        self.is_whole = True
        self.marks: dict[DataPath, Mark] = {}
        self.key_marks: dict[DataPath, Mark] = {}
        self.problems: list[Diagnostic] = []
        self._stack: list[_Frame] = []
        self._anchors: dict[str, _Anchored] = {}
        self._documents = 0
        self._nodes = 0
        self._text = 0
        self._stopped = False
        self._too_large = False

    def feed(self, event: Any) -> bool:
        """Take one event; return True when reading on makes no sense."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._add_scalar(event)
        elif kind is yaml.MappingStartEvent:
            self._open({}, event)
        elif kind is yaml.SequenceStartEvent:
            self._open([], event)
        elif kind in (yaml.MappingEndEvent, yaml.SequenceEndEvent):
            self._close()
        elif kind is yaml.AliasEvent:
            self._alias(event)
        elif kind is yaml.DocumentStartEvent:
            self._documents += 1
            if event.version not in (None, (1, 2)) or event.tags:
                self._problem(event, "a directive (%YAML or %TAG)", "the language is YAML 1.2: remove the line")
            if self._documents > 1:
                hint = f"a file holds one {'spec' if self.kind is SPEC else 'document'}: remove the '---'"
                self._stop(event, "a second document", hint)
        return self._stopped

    def give_up(self, problem: Diagnostic) -> None:
        """Note that what follows cannot be read."""
        self.problems.append(problem)
        self.is_whole = False

    def finish(self) -> None:
        """Report a file without any content; of a file that was read up to some place keep what ended above it."""
        if self._documents == 0 and not self.problems:
            hint = "a spec needs at least summary, backends, function, inputs and expect" if self.kind is SPEC else self.kind.form
            self.problems.append(Diagnostic(position=Position(file=self.file), message="the file is empty", hint=hint))
        if self._stack:
            self.is_whole = False
            self.root = self._stack[0].value if not self._too_large else None

    def _add_scalar(self, event: Any) -> None:
        value = self._scalar(event)
        if self._stack and self._stack[-1].wants_key:
            self._key(self._stack[-1], event)
            return
        self._count(event, 1, len(event.value))
        self.marks[self._child()] = _mark(event)
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(value, 1, len(event.value), 0)
        self._attach(value)

    def _scalar(self, event: Any) -> Any:
        if event.tag is not None and event.tag != "!":
            self._refuse_tag(event)
            return None
        if event.style or event.tag is not None:  # libyaml says "" for plain, the pure parser says None
            return event.value
        try:
            return resolve(event.value)
        except ValueError:
            self._lose()
            self._problem(event, f"a number of more than {MAX_DIGITS} digits", "put quotes around it if it is text")
            return None

    def _open(self, value: Any, event: Any) -> None:
        if event.tag is not None and event.tag != "!":
            self._refuse_tag(event)
        if len(self._stack) >= MAX_DEPTH:
            self._too_large = True
            self._stop(event, f"nested more than {MAX_DEPTH} deep", "no part of the language is that deep")
            return
        if self._stack and self._stack[-1].wants_key:
            templated = event.flow_style and self._stack[-1].flow
            hint = _QUOTE if templated else "a key is one plain word"
            self._stop(event, "an unquoted {{" if templated else "a key that is a list or a map", hint)
            return
        path = self._child()
        self._count(event, 1)
        self.marks[path] = _mark(event)
        self._stack.append(_Frame(value, path, event.anchor, bool(event.flow_style)))

    def _refuse_tag(self, event: Any) -> None:
        self._lose()
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        self._problem(event, f"the tag '{tag}' is not part of the language", "write the plain value")

    def _close(self) -> None:
        frame = self._stack.pop()
        if frame.anchor:
            self._anchors[frame.anchor] = _Anchored(frame.value, *_measure(frame.value))
        self._attach(frame.value)

    def _key(self, frame: _Frame, event: Any) -> None:
        key = event.value
        if key == "<<" and not event.style:
            self.unread.append((*frame.path, key))
            self._problem(event, "the merge key '<<'", "YAML 1.2 has none: write the keys out")
        if key in frame.value:
            self.unread.append((*frame.path, key))
            first = self.key_marks[(*frame.path, key)]
            self._problem(event, f"the key '{key}' is repeated", f"it stands first on line {first.line}")
        self.key_marks[(*frame.path, key)] = _mark(event)
        frame.key = key

    def _alias(self, event: Any) -> None:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            inside = any(frame.anchor == event.anchor for frame in self._stack)
            what = "stands inside what it names" if inside else "names no anchor above it"
            self._stop(event, f"the alias '*{event.anchor}' {what}", "write the value out")
        elif self._stack and self._stack[-1].wants_key:
            self._stop(event, "an alias as a key", "a key is one plain word")
        elif len(self._stack) + anchored.depth > MAX_DEPTH:
            self._stop(event, f"nested more than {MAX_DEPTH} deep", "no part of the language is that deep")
        else:
            self._count(event, anchored.nodes, anchored.text)
            self.marks[self._child()] = _mark(event)
            self._attach(anchored.value)

    def _child(self) -> DataPath:
        return self._stack[-1].child if self._stack else ()

    def _lose(self) -> None:
        """Note that the value, or the key, that stands here is not what the file says."""
        frame = self._stack[-1] if self._stack else None
        self.unread.append(frame.path if frame is not None and frame.wants_key else self._child())

    def _attach(self, value: Any) -> None:
        if not self._stack:
            self.root = value
            return
        frame = self._stack[-1]
        if isinstance(frame.value, dict):
            frame.value[frame.key] = value
            frame.key = None
        else:
            frame.value.append(value)

    def _count(self, event: Any, nodes: int, text: int = 0) -> None:
        self._nodes += nodes
        self._text += text
        if self._nodes > MAX_NODES or self._text > MAX_TEXT:
            self._too_large = True
            much = f"{MAX_NODES:,} values" if self._nodes > MAX_NODES else f"{MAX_TEXT:,} characters"
            self._stop(event, f"more than {much} once its aliases are written out", "use a matrix, not aliases, to multiply")

    def _problem(self, event: Any, message: str, hint: str) -> None:
        start = event.start_mark
        position = Position(file=self.file, line=start.line + 1, column=start.column + 1)
        self.problems.append(Diagnostic(position=position, message=message, hint=hint))

    def _stop(self, event: Any, message: str, hint: str) -> None:
        self._problem(event, message, hint)
        self._stopped = True


def _mark(event: Any) -> Mark:
    start = event.start_mark
    if type(event) is yaml.ScalarEvent:
        return Mark(start.line + 1, start.column + 1, event.value, event.style)
    return Mark(start.line + 1, start.column + 1)


def _measure(value: Any) -> tuple[int, int, int]:
    """Return how many values a value holds, itself included, how many characters, and how deep they are nested."""
    if not isinstance(value, dict | list):
        return 1, len(value) if isinstance(value, str) else 0, 0
    below = [_measure(item) for item in (value.values() if isinstance(value, dict) else value)]
    nodes, text, depth = (list(column) for column in zip(*below, strict=True)) if below else ([], [], [])
    return 1 + sum(nodes), sum(text), 1 + max(depth, default=0)
