"""The points of a spec: every backend with every combination of its matrix, less what is excluded."""

import itertools
import math
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.backends import Backend
from runner.diagnostics import Diagnostic, one_of, unknown
from runner.language.source import Document

MAX_POINTS = 10_000
RESERVED = ("backend", "device", "facts", "params", "torch")
"""Names that templates or preludes have for something else."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One key of the matrix: its values, and how each stands in an id."""

    key: str
    values: tuple[Any, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One backend with one value of each key."""

    backend: Backend
    values: Mapping[str, Any]
    labels: Mapping[str, str]

    @property
    def names(self) -> dict[str, Any]:
        """What a template may name, but for facts."""
        return {**self.values, "backend": self.backend.name, "device": self.backend.device}

    @property
    def bracket(self) -> str:
        """The bracketed part of the case's id."""
        pairs = [("backend", self.backend.name), *self.labels.items()]
        return "[" + ",".join(f"{key}={_quoted(label)}" for key, label in pairs) + "]"


_SAFE = frozenset(string.ascii_letters + string.digits + "_.+-")


def _quoted(label: str) -> str:
    """Percent-encode what could be mistaken for a part of the id."""
    if _SAFE.issuperset(label):
        return label
    encoded = label.encode("utf-8", "surrogatepass")
    return "".join(chr(byte) if chr(byte) in _SAFE else f"%{byte:02X}" for byte in encoded)


def axes(document: Document) -> tuple[tuple[Axis, ...], list[Diagnostic]]:
    """Read the matrix; return its axes and what is wrong with it."""
    found: list[Axis] = []
    problems: list[Diagnostic] = []
    for key, entries in document.data.get("matrix", {}).items():
        if key in RESERVED:
            problems.append(
                document.problem(("matrix", key), f"the matrix key '{key}' is taken", f"taken are {one_of(RESERVED)}", key=True)
            )
        labels = [_label(document, key, index, entry) for index, entry in enumerate(entries)]
        for index, label in enumerate(labels):
            if label in labels[:index]:
                problems.append(
                    document.problem(("matrix", key, index), f"the value {label} of '{key}' is repeated", "give each another id")
                )
        values = [entry["value"] if isinstance(entry, dict) else entry for entry in entries]
        found.append(Axis(key, tuple(values), tuple(labels)))
    return tuple(found), problems


def _label(document: Document, key: str, index: int, entry: Any) -> str:
    path = ("matrix", key, index, "id") if isinstance(entry, dict) else ("matrix", key, index)
    mark = document.marks.get(path)
    # values stand in the id as they stand in the file; below an alias there is no mark of its own
    value = entry["id"] if isinstance(entry, dict) else entry
    raw = mark.raw if mark is not None and mark.raw is not None else str(value)
    return raw if raw else "null"


def size_problem(document: Document, axes: Sequence[Axis], backends: int) -> Diagnostic | None:
    """Return a problem when the matrix has more points than anyone can mean."""
    count = math.prod(len(axis.values) for axis in axes) * backends
    if count <= MAX_POINTS:
        return None
    message = f"a matrix of {count:,} cases; at most {MAX_POINTS:,} are expanded"
    return document.problem(("matrix",), message, "name fewer values, or write several specs", key=True)


def points(document: Document, axes: Sequence[Axis], backends: Sequence[Backend]) -> Iterator[Point]:
    """Yield the points in the order of the file, backends outermost, without those that are excluded."""
    exclusions = document.data.get("exclude", [])
    keys = [axis.key for axis in axes]
    for backend in backends:
        for indices in itertools.product(*(range(len(axis.values)) for axis in axes)):
            values = {axis.key: axis.values[index] for axis, index in zip(axes, indices, strict=True)}
            if not any(_excludes(exclusion, values, backend) for exclusion in exclusions):
                labels = {key: axis.labels[index] for key, axis, index in zip(keys, axes, indices, strict=True)}
                yield Point(backend, values, labels)


def _excludes(exclusion: Mapping[str, Any], values: Mapping[str, Any], backend: Backend) -> bool:
    for key, wanted in exclusion.items():
        if key == "reason":
            continue
        allowed = wanted if isinstance(wanted, list) else [wanted]
        if key == "backend":
            if not backend.names & set(map(str, allowed)):
                return False
        elif not any(_same(values[key], value) for value in allowed):
            return False
    return True


def _same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and bool(value == other)


def exclusion_problems(document: Document, axes: Sequence[Axis], backends: Sequence[Backend]) -> list[Diagnostic]:
    """Return what is wrong with ``exclude``: unknown keys, and values that exclude nothing."""
    problems: list[Diagnostic] = []
    by_key = {axis.key: axis for axis in axes}
    names = {name for backend in backends for name in backend.names}
    for index, exclusion in enumerate(document.data.get("exclude", [])):
        for key, wanted in exclusion.items():
            if key == "reason":
                continue
            path = ("exclude", index, key)
            if key != "backend" and key not in by_key:
                message, hint = unknown("matrix key", key, [*by_key, "backend", "reason"])
                problems.append(document.problem(path, message, hint, key=True))
                continue
            for value in wanted if isinstance(wanted, list) else [wanted]:
                known = value in names if key == "backend" else any(_same(value, other) for other in by_key[key].values)
                if not known:
                    allowed = names if key == "backend" else by_key[key].labels
                    problems.append(
                        document.problem(path, f"'{key}' is never {value}: this excludes nothing", f"it is one of {one_of(allowed)}")
                    )
    return problems
