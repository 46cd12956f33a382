"""The points of a spec: every backend with every combination of matrix values, without the excluded ones."""

import itertools
import json
import math
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.core.conditions import as_list
from runner.core.diagnostics import Diagnostic, one_of, unknown
from runner.core.targets import AXIS
from runner.language.backends import Backend
from runner.language.read.document import DataPath, Document

TARGETS = "targets"
"""The key of a spec that adds the first axis."""
MAX_POINTS = 10_000
MAX_EXCLUSIONS = 1_000
RESERVED = ("backend", "device", "facts", "params", "torch")
"""Names with another meaning in templates or preludes."""
REPEAT = "repeat"
"""The matrix key that only repeats a case: it need not be used anywhere."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One key of the matrix: its values, the text of each in a case's id, and whether the text was given as ``id``."""

    key: str
    values: tuple[Any, ...]
    labels: tuple[str, ...]
    named: tuple[bool, ...]

    def places(self, wanted: Any) -> frozenset[int]:
        """Return the indices of the values that an exclusion selects, by value or by given id."""
        found = zip(self.values, self.labels, self.named, strict=True)
        return frozenset(
            index for index, (value, label, named) in enumerate(found) if _same(value, wanted) or (named and label == _text(wanted))
        )


@dataclass(frozen=True, slots=True)
class Point:
    """One backend with one value of each key."""

    backend: Backend
    values: Mapping[str, Any]
    labels: Mapping[str, str]

    @property
    def names(self) -> dict[str, Any]:
        """The names that a template may use, except ``facts``."""
        return {**self.values, "backend": self.backend.name, "device": self.backend.device}

    @property
    def bracket(self) -> str:
        """The bracketed part of the case's id."""
        pairs = [("backend", self.backend.name), *self.labels.items()]
        return "[" + ",".join(f"{key}={_quoted(label)}" for key, label in pairs) + "]"


_SAFE = frozenset(string.ascii_letters + string.digits + "_.+-")


def _quoted(label: str) -> str:
    """Percent-encode characters with a meaning in an id."""
    if _SAFE.issuperset(label):
        return label
    encoded = label.encode("utf-8", "surrogatepass")
    return "".join(chr(byte) if chr(byte) in _SAFE else f"%{byte:02X}" for byte in encoded)


def axes(document: Document) -> tuple[tuple[Axis, ...], list[Diagnostic]]:
    """Read the matrix; return its axes and its problems."""
    found: list[Axis] = []
    problems: list[Diagnostic] = []
    reserved: tuple[str, ...] = RESERVED
    if targets := document.data.get(TARGETS):
        reserved = (*RESERVED, AXIS)
        found.append(Axis(AXIS, tuple(targets), tuple(targets), (False,) * len(targets)))
    for key, entries in document.data.get("matrix", {}).items():
        if key in reserved:
            problems.append(
                document.problem(
                    ("matrix", key),
                    f"the matrix key '{key}' is reserved",
                    f"reserved keys: {one_of(reserved)}",
                    key=True,
                    code="reserved-name",
                )
            )
        labels = [_label(document, key, index, entry) for index, entry in enumerate(entries)]
        seen: set[str] = set()
        for index, label in enumerate(labels):
            if label in seen:
                problems.append(
                    document.problem(
                        ("matrix", key, index),
                        f"the value {label} of '{key}' is repeated",
                        "give each a different id",
                        code="repeated-entry",
                    )
                )
            seen.add(label)
        values = [entry["value"] if isinstance(entry, dict) else entry for entry in entries]
        found.append(Axis(key, tuple(values), tuple(labels), tuple(isinstance(entry, dict) for entry in entries)))
    return tuple(found), problems


def _label(document: Document, key: str, index: int, entry: Any) -> str:
    path = ("matrix", key, index, "id") if isinstance(entry, dict) else ("matrix", key, index)
    mark = document.marks.get(path)
    # an id shows values as written in the file; values below an alias have no mark
    value = entry["id"] if isinstance(entry, dict) else entry
    if mark is None or mark.raw is None:
        return _text(value)
    return mark.raw if mark.raw or mark.style else "null"


def _text(value: Any) -> str:
    """Return a value as text of YAML's core schema."""
    return {True: "true", False: "false", None: "null"}[value] if value is None or isinstance(value, bool) else str(value)


def size_problem(document: Document, axes: Sequence[Axis], backends: int) -> Diagnostic | None:
    """Return a problem if the matrix has too many points or too many exclusions."""
    count = math.prod(len(axis.values) for axis in axes) * backends
    if count > MAX_POINTS:
        # Python does not print numbers with thousands of digits
        shown = f"{count:,}" if count < _COUNTABLE else f"more than {_COUNTABLE:,}"
        message = f"a matrix of {shown} cases; at most {MAX_POINTS:,} are expanded"
        return document.problem(("matrix",), message, "use fewer values, or write several specs", key=True, code="too-many-cases")
    exclusions = len(document.data.get("exclude", []))
    if exclusions > MAX_EXCLUSIONS:
        message = f"{exclusions:,} exclusions; at most {MAX_EXCLUSIONS:,} are compared"
        return document.problem(("exclude",), message, "write a list of values in one exclusion", key=True, code="too-many-cases")
    return None


_COUNTABLE = 10**15


@dataclass(frozen=True, slots=True)
class _Exclusion:
    """One entry of ``exclude``: its backends (None for all), and the selected indices of each axis that it names."""

    backends: frozenset[str] | None
    places: tuple[tuple[int, frozenset[int]], ...]

    def holds(self, backend: Backend, indices: tuple[int, ...]) -> bool:
        """Whether the point is excluded."""
        if self.backends is not None and not backend.names & self.backends:
            return False
        return all(indices[axis] in allowed for axis, allowed in self.places)


def _read_exclusion(exclusion: Mapping[str, Any], axes: Sequence[Axis]) -> _Exclusion:
    places = [
        (index, frozenset().union(*map(axis.places, as_list(exclusion[axis.key]))))
        for index, axis in enumerate(axes)
        if axis.key in exclusion
    ]
    backends = frozenset(map(str, as_list(exclusion["backend"]))) if "backend" in exclusion else None
    return _Exclusion(backends, tuple(places))


def points(document: Document, axes: Sequence[Axis], backends: Sequence[Backend]) -> Iterator[Point]:
    """Yield the points that are not excluded, in file order, with backends outermost."""
    exclusions = [_read_exclusion(exclusion, axes) for exclusion in document.data.get("exclude", [])]
    for backend in backends:
        for indices in itertools.product(*(range(len(axis.values)) for axis in axes)):
            if not any(exclusion.holds(backend, indices) for exclusion in exclusions):
                chosen = list(zip(axes, indices, strict=True))
                values = {axis.key: axis.values[index] for axis, index in chosen}
                yield Point(backend, values, {axis.key: axis.labels[index] for axis, index in chosen})


def _same(value: Any, other: Any) -> bool:
    # 1, 1.0 and true differ, because their ids differ; NaN equals NaN
    return type(value) is type(other) and bool(value == other or (value != value and other != other))


def exclusion_problems(document: Document, axes: Sequence[Axis], backends: Sequence[Backend]) -> list[Diagnostic]:
    """Return the problems of ``exclude``: unknown keys, and values that exclude nothing."""
    problems: list[Diagnostic] = []
    by_key = {axis.key: axis for axis in axes}
    names = {name for backend in backends for name in backend.names}
    for index, exclusion in enumerate(document.data.get("exclude", [])):
        for key, wanted in exclusion.items():
            path: DataPath = ("exclude", index, key)
            if key == "reason":
                continue
            if key != "backend" and key not in by_key:
                message, hint = unknown("matrix key", key, [*by_key, "backend"])
                problems.append(document.problem(path, message, hint, key=True, code="unknown-name"))
                continue
            if wanted == []:
                problems.append(
                    document.problem(path, f"an empty list for '{key}': this excludes nothing", "remove the key", code="excludes-nothing")
                )
            for place, value in enumerate(as_list(wanted)):
                if not (str(value) in names if key == "backend" else by_key[key].places(value)):
                    message = f"'{key}' is never {json.dumps(value)}: this excludes nothing"
                    hint = f"it is one of {one_of(names if key == 'backend' else by_key[key].labels)}"
                    problems.append(
                        document.problem((*path, place) if isinstance(wanted, list) else path, message, hint, code="excludes-nothing")
                    )
    return problems
