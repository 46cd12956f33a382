"""Parses one YAML file into plain data with a position for every value. Never executes anything.

The parser uses the event stream of libyaml instead of PyYAML's constructors. This gives YAML 1.2 core scalars (``1e-3`` is a number, ``on``
is a string, ``012`` is 12), a position and the raw text of each value, errors for repeated keys, and limits on size, depth and aliases that
apply before data is built.
"""

import math
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from runner.core.diagnostics import Diagnostic, InvalidSpecs, Position, shown_path
from runner.language.read.document import SPEC, DataPath, Document, Kind, Mark

# -- problems of YAML -------------------------------------------------------------------------------------------------


_QUOTED = re.compile(r"'.*'|but found .*|byte 0x[0-9a-f]+|U\+[0-9A-F]+", re.DOTALL)


def unquoted(problem: Diagnostic) -> Diagnostic:
    """Return a problem without its quotations of the file. Messages of libyaml's C parser and all hints are fixed texts."""
    fixed = problem.message.startswith("YAML syntax: ") and hasattr(yaml, "CSafeLoader")
    message = problem.message if fixed else _QUOTED.sub("...", problem.message)
    return replace(problem, message=message)


def line_column(data: bytes, offset: int) -> tuple[int, int]:
    """Return line and column, from 1, of an offset in bytes."""
    start = data.rfind(b"\n", 0, offset) + 1
    return data.count(b"\n", 0, offset) + 1, len(data[start:offset].decode("utf-8", "replace")) + 1


def failure(path: Path, message: str, hint: str, line: int = 1, column: int = 1) -> InvalidSpecs:
    """Return the exception for one problem of a file."""
    position = Position(file=shown_path(path), line=line, column=column)
    return InvalidSpecs([Diagnostic(position=position, message=message, hint=hint, code="unreadable-file")])


FOREIGN_BREAK = re.compile("[\x85\u2028\u2029]")
ESCAPES = {"\x85": r"\N", "\u2028": r"\L", "\u2029": r"\P"}


def place(text: str, offset: int) -> tuple[int, int]:
    """Return line and column, from 1, of an offset in characters."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def syntax_problem(file: str, text: str, error: yaml.YAMLError) -> Diagnostic:
    """Return the diagnostic of an error of PyYAML."""
    if isinstance(error, yaml.reader.ReaderError):
        line, column = place(text, max(int(getattr(error, "position", 0)), 0))
        position = Position(file=file, line=line, column=column)
        hint = "write it as an escape in a double-quoted string"
        return Diagnostic(position=position, message="YAML syntax: a control character", hint=hint, code="yaml-syntax")
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    position = Position(file=file, line=line, column=column)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    if "tab" in problem.split() or ("cannot start any token" in problem and "\t" in _line(text, line)[column - 1 : column]):
        return Diagnostic(position=position, message="a tab cannot indent YAML", hint="use spaces", code="yaml-syntax")
    templated = "{{" in _line(text, line) or "{{" in _line(text, line - 1)
    return Diagnostic(
        position=position, message=f"YAML syntax: {problem}", hint=QUOTE if templated else _syntax_hint(problem, error), code="yaml-syntax"
    )


QUOTE = 'put quotes around it: "{{ ... }}"'


_SYNTAX_HINTS = {
    "end of stream": "the quoted text from line {} has no closing quote",
    "',' or ']'": "the list from line {} has no ']', or a ',' is missing",
    "',' or '}'": "the map from line {} has no '}}', or a ',' is missing",
    "escape": "in double quotes a backslash begins an escape: write \\\\, or use single quotes",
    "comment or line break": "the text begins on the line below the | or >",
    "directive": "remove the line that begins with %",
    "mapping values": "check the indentation, and put quotes around a value that contains ': '",
    "alphabetic or numeric": "put quotes around a value that begins with * or &",
    "cannot start any token": "put quotes around a value that begins with a special character",
}
"""Hints by a part of libyaml's message. ``{}`` is the first line of the unclosed part."""


def _syntax_hint(problem: str, error: yaml.YAMLError) -> str:
    context = getattr(error, "context_mark", None)
    hint = next((hint for words, hint in _SYNTAX_HINTS.items() if words in problem), "check the indentation and the quotes")
    return hint.format(context.line + 1 if context else "?")


def _line(text: str, number: int) -> str:
    lines = text.split("\n")
    return lines[number - 1] if 1 <= number <= len(lines) else ""


# -- scalars ----------------------------------------------------------------------------------------------------------


MAX_DIGITS = 100
"""The maximum of a whole number. Python does not print numbers with more than 4,300 digits; arithmetic in templates stays below that."""


_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+\Z")
_OCT = re.compile(r"0o[0-7]+\Z")
_HEX = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_INF = re.compile(r"[-+]?\.(inf|Inf|INF)\Z")
_NAN = {".nan", ".NaN", ".NAN"}


def resolve(text: str) -> Any:
    """Return the YAML 1.2 core value of a plain scalar; raise ``ValueError`` for a number with too many digits."""
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


# -- data from events -------------------------------------------------------------------------------------------------


MAX_NODES = 100_000
MAX_TEXT = 4 << 20
"""The maximum number of characters of all texts after expansion of aliases. A file without aliases cannot reach it."""
MAX_DEPTH = 64


@dataclass(slots=True)
class _Frame:
    """An open list or map. ``key`` is set while a map waits for the value of that key."""

    value: Any
    path: DataPath
    anchor: str | None
    flow: bool
    key: str | None = None

    @property
    def needs_key(self) -> bool:
        return isinstance(self.value, dict) and self.key is None

    @property
    def child(self) -> DataPath:
        return (*self.path, self.key if isinstance(self.value, dict) and self.key is not None else len(self.value))


@dataclass(frozen=True, slots=True)
class _Anchored:
    """The value of an anchor, and its size after expansion: number of values, number of characters, depth."""

    value: Any
    nodes: int
    text: int
    depth: int


class Builder:
    """Builds data from events. Problems are collected, so that one pass finds all of them."""

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
        """Process one event; return True if parsing must stop."""
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
                self._problem(event, "a directive (%YAML or %TAG)", "specs are YAML 1.2: remove the line")
            if self._documents > 1:
                hint = f"a file contains one {'spec' if self.kind is SPEC else 'document'}: remove the '---'"
                self._problem(event, "a second document", hint, stop=True)
        return self._stopped

    def fail(self, problem: Diagnostic) -> None:
        """Add a problem after which the rest of the file cannot be parsed."""
        self.problems.append(problem)
        self.is_whole = False

    def finish(self) -> None:
        """Report an empty file. Of a partly parsed file keep the top-level keys that are complete."""
        if self._documents == 0 and not self.problems:
            hint = "a spec needs at least summary, backends, function, inputs and expect" if self.kind is SPEC else self.kind.form
            self.problems.append(Diagnostic(position=Position(file=self.file), message="the file is empty", hint=hint, code="empty-file"))
        if self._stack:
            self.is_whole = False
            self.root = self._stack[0].value if not self._too_large else None

    def _add_scalar(self, event: Any) -> None:
        value = self._scalar(event)
        if self._stack and self._stack[-1].needs_key:
            self._key(self._stack[-1], event)
            return
        self._count(event, 1, len(event.value))
        self.marks[_child(self._stack)] = _mark(event)
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(value, 1, len(event.value), 0)
        self._attach(value)

    def _scalar(self, event: Any) -> Any:
        if event.tag is not None and event.tag != "!":
            self._refuse_tag(event)
            return None
        if event.style or event.tag is not None:  # a plain scalar is "" in libyaml and None in the pure parser
            return event.value
        try:
            return resolve(event.value)
        except ValueError:
            self._mark_unread()
            self._problem(event, f"a number of more than {MAX_DIGITS} digits", "put quotes around it if it is text")
            return None

    def _open(self, value: Any, event: Any) -> None:
        if event.tag is not None and event.tag != "!":
            self._refuse_tag(event)
        if len(self._stack) >= MAX_DEPTH:
            self._too_large = True
            self._problem(event, f"nested more than {MAX_DEPTH} deep", "no part of the language is that deep", stop=True)
            return
        if self._stack and self._stack[-1].needs_key:
            templated = event.flow_style and self._stack[-1].flow
            hint = QUOTE if templated else "a key is one plain word"
            self._problem(event, "an unquoted {{" if templated else "a key that is a list or a map", hint, stop=True)
            return
        path = _child(self._stack)
        self._count(event, 1)
        self.marks[path] = _mark(event)
        self._stack.append(_Frame(value, path, event.anchor, bool(event.flow_style)))

    def _refuse_tag(self, event: Any) -> None:
        self._mark_unread()
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
            self._problem(event, "the merge key '<<'", "YAML 1.2 has no merge keys: write the keys out")
        if key in frame.value:
            self.unread.append((*frame.path, key))
            first = self.key_marks[(*frame.path, key)]
            self._problem(event, f"the key '{key}' is repeated", f"it is first on line {first.line}")
        self.key_marks[(*frame.path, key)] = _mark(event)
        frame.key = key

    def _alias(self, event: Any) -> None:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            inside = any(frame.anchor == event.anchor for frame in self._stack)
            what = "is inside its own anchor" if inside else "has no anchor above it"
            self._problem(event, f"the alias '*{event.anchor}' {what}", "write the value out", stop=True)
        elif self._stack and self._stack[-1].needs_key:
            self._problem(event, "an alias as a key", "a key is one plain word", stop=True)
        elif len(self._stack) + anchored.depth > MAX_DEPTH:
            self._problem(event, f"nested more than {MAX_DEPTH} deep", "no part of the language is that deep", stop=True)
        else:
            self._count(event, anchored.nodes, anchored.text)
            self.marks[_child(self._stack)] = _mark(event)
            self._attach(anchored.value)

    def _mark_unread(self) -> None:
        """Record that the current value or key could not be read."""
        frame = self._stack[-1] if self._stack else None
        self.unread.append(frame.path if frame is not None and frame.needs_key else _child(self._stack))

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
            self._problem(event, f"more than {much} after expansion of aliases", "use a matrix instead of aliases", stop=True)

    def _problem(self, event: Any, message: str, hint: str, *, stop: bool = False) -> None:
        start = event.start_mark
        position = Position(file=self.file, line=start.line + 1, column=start.column + 1)
        self.problems.append(Diagnostic(position=position, message=message, hint=hint, code="yaml-syntax"))
        self._stopped |= stop


def _child(stack: Sequence[_Frame]) -> DataPath:
    """Return the path of the next value."""
    return stack[-1].child if stack else ()


def _mark(event: Any) -> Mark:
    start = event.start_mark
    if type(event) is yaml.ScalarEvent:
        return Mark(start.line + 1, start.column + 1, event.value, event.style)
    return Mark(start.line + 1, start.column + 1)


def _measure(value: Any) -> tuple[int, int, int]:
    """Return the number of values in a value including itself, the number of characters, and the depth."""
    if not isinstance(value, dict | list):
        return 1, len(value) if isinstance(value, str) else 0, 0
    below = [_measure(item) for item in (value.values() if isinstance(value, dict) else value)]
    nodes, text, depth = (list(column) for column in zip(*below, strict=True)) if below else ([], [], [])
    return 1 + sum(nodes), sum(text), 1 + max(depth, default=0)


# -- files ------------------------------------------------------------------------------------------------------------


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


def read_bytes(path: Path, limit: int = MAX_BYTES, article: str = "a spec") -> bytes:
    """Return the file's bytes; raise ``InvalidSpecs`` for a file that cannot be a spec: too large, a device, unreadable.

    ``article`` names the expected kind of file in hints.
    """
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
