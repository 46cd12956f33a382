"""Builds data with positions from the events of libyaml, with limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from runner.core.diagnostics import Diagnostic, Position
from runner.language.read.document import DataPath, Mark
from runner.language.read.kinds import SPEC, Kind
from runner.language.read.scalars import MAX_DIGITS, resolve
from runner.language.read.syntax import QUOTE

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
            self.problems.append(Diagnostic(position=Position(file=self.file), message="the file is empty", hint=hint))
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
        self.problems.append(Diagnostic(position=position, message=message, hint=hint))
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
