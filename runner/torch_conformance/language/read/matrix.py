"""The points of a spec: every backend with every combination of matrix values, without the excluded
ones.
"""

import functools
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from torch_conformance.language.backends import Backend
from torch_conformance.language.read.document import DataPath, Document, walk
from torch_conformance.model.conditions import MATRIX, as_list
from torch_conformance.model.diagnostics import Diagnostic, nearest, one_of, unknown_word
from torch_conformance.model.targets import AXIS

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
    """One key of the matrix: its values, the text of each in a case's id, and whether the text was
    given as ``id``.
    """

    key: str
    values: tuple[Any, ...]
    labels: tuple[str, ...]
    named: tuple[bool, ...]

    def places(self, excluded: Any) -> frozenset[int]:
        """Return the indices of the values that an exclusion or a condition selects, by value or by
        given id.
        """
        entries = enumerate(zip(self.values, self.labels, self.named, strict=True))
        return frozenset(
            # 1, 1.0 and true differ, because their ids differ; NaN equals NaN
            index
            for index, (value, label, named) in entries
            if (
                type(value) is type(excluded)
                and (value == excluded or (value != value and excluded != excluded))
            )
            or (named and label == _text(excluded))
        )

    def is_only_id(self, constant: Any) -> bool:
        """Whether a constant is the id of a value, and neither a value or a part of one nor in the
        text of one.
        """
        text = _text(constant)
        return (text, True) in zip(self.labels, self.named, strict=True) and not any(
            part == constant or (isinstance(part, str) and text in part)
            for value in self.values
            for _, part in walk(value)
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
        """The bracketed part of the case's id.

        Characters with a meaning in an id are percent-encoded.
        """
        labels = {"backend": self.backend.name, **self.labels}
        encoded = {
            key: quote(label, safe="+", errors="surrogatepass").replace("~", "%7E")
            for key, label in labels.items()
        }
        return "[" + ",".join(f"{key}={label}" for key, label in encoded.items()) + "]"


@functools.lru_cache(maxsize=16)
def axes(document: Document) -> tuple[tuple[Axis, ...], tuple[Diagnostic, ...]]:
    """Read the matrix; return its axes and its problems."""
    result: list[Axis] = []
    problems: list[Diagnostic] = []
    reserved: tuple[str, ...] = RESERVED
    if targets := document.data.get(TARGETS):
        reserved = (*RESERVED, AXIS)
        result.append(Axis(AXIS, tuple(targets), tuple(targets), (False,) * len(targets)))
    for key, entries in document.data.get("matrix", {}).items():
        if key in reserved:
            problems.append(
                document.diagnostic(
                    ("matrix", key), "reserved-key", key=True, word=key, allowed=one_of(reserved)
                )
            )
        values: list[Any] = []
        labels: list[str] = []
        texts: list[str] = []
        seen: set[str] = set()
        for index, entry in enumerate(entries):
            named = isinstance(entry, dict)
            # an id shows values as written in the file; values below an alias have no mark
            mark = document.marks.get(
                ("matrix", key, index, "id") if named else ("matrix", key, index)
            )
            label = _text(entry["id"] if named else entry)
            if mark is not None and mark.raw is not None:
                label = mark.raw if mark.raw or mark.style else "null"
            if label in seen:
                problems.append(
                    document.diagnostic(
                        ("matrix", key, index), "repeated-value", value=label, name=key
                    )
                )
            value = entry["value"] if named else entry
            first = labels[texts.index(text)] if (text := repr(value)) in texts else label
            if first != label:
                problems.append(
                    document.diagnostic(
                        ("matrix", key, index), "equal-values", value=label, first=first, name=key
                    )
                )
            texts.append(text)
            values.append(value)
            labels.append(label)
            seen.add(label)
        result.append(
            Axis(
                key,
                tuple(values),
                tuple(labels),
                tuple(isinstance(entry, dict) for entry in entries),
            )
        )
    return tuple(result), tuple(problems)


def _text(value: Any) -> str:
    """Return a value as text of YAML's core schema."""
    return (
        {True: "true", False: "false", None: "null"}[value]
        if value is None or isinstance(value, bool)
        else str(value)
    )


def size_problem(document: Document, axes: Sequence[Axis], backends: int) -> Diagnostic | None:
    """Return a problem if the matrix has too many points or too many exclusions."""
    count = math.prod(len(axis.values) for axis in axes) * backends
    if count > MAX_POINTS:
        # Python does not print numbers with thousands of digits
        shown = {"count": f"{count:,}"} if count < _COUNTABLE else {"beyond": f"{_COUNTABLE:,}"}
        return document.diagnostic(
            ("matrix",), "too-many-cases", key=True, most=f"{MAX_POINTS:,}", **shown
        )
    exclusions = len(document.data.get("exclude", []))
    if exclusions > MAX_EXCLUSIONS:
        return document.diagnostic(
            ("exclude",),
            "too-many-exclusions",
            key=True,
            count=f"{exclusions:,}",
            most=f"{MAX_EXCLUSIONS:,}",
        )
    return None


_COUNTABLE = 10**15


def points(
    document: Document, axes: Sequence[Axis], backends: Sequence[Backend]
) -> Iterator[Point]:
    """Yield the points that are not excluded, in file order, with backends outermost."""
    exclusions = [
        {
            index: frozenset().union(*map(axis.places, as_list(entry[axis.key])))
            for index, axis in enumerate(axes)
            if axis.key in entry
        }
        for entry in document.data.get("exclude", [])
    ]
    names = [
        set(map(str, as_list(entry["backend"]))) if "backend" in entry else None
        for entry in document.data.get("exclude", [])
    ]
    for backend in backends:
        of_backend = [
            places
            for places, own in zip(exclusions, names, strict=True)
            if own is None or backend.names & own
        ]
        for indices in itertools.product(*(range(len(axis.values)) for axis in axes)):
            if not any(
                all(indices[axis] in allowed for axis, allowed in places.items())
                for places in of_backend
            ):
                chosen = list(zip(axes, indices, strict=True))
                values = {axis.key: axis.values[index] for axis, index in chosen}
                yield Point(
                    backend, values, {axis.key: axis.labels[index] for axis, index in chosen}
                )


def exclusion_problems(
    document: Document, axes: Sequence[Axis], backends: Sequence[Backend]
) -> list[Diagnostic]:
    """Return the problems of ``exclude``: unknown keys, and values that exclude nothing."""
    names = {name for backend in backends for name in backend.names}
    return [
        problem
        for index, exclusion in enumerate(document.data.get("exclude", []))
        for problem in _selection_problems(
            document,
            ("exclude", index),
            {key: value for key, value in exclusion.items() if key != "reason"},
            {**{axis.key: axis for axis in axes}, "backend": names},
        )
    ]


def _selection_problems(
    document: Document,
    path: DataPath,
    selection: Mapping[str, Any],
    known: Mapping[str, Axis | set[str]],
) -> Iterator[Diagnostic]:
    """Yield the unknown keys of a map at ``path`` that selects points, and values that select
    none.
    """
    for key, selected in selection.items():
        place = (*path, key)
        if (axis := known.get(key)) is None:
            yield document.diagnostic(place, unknown_word("matrix-key", key, known), key=True)
            continue
        if selected == []:
            yield document.diagnostic(place, "selects-an-empty-list", word=key)
        for index, value in enumerate(as_list(selected)):
            if not (axis.places(value) if isinstance(axis, Axis) else str(value) in axis):
                labels = axis.labels if isinstance(axis, Axis) else sorted(axis)
                near = nearest(_text(value), labels)
                yield document.diagnostic(
                    (*place, index) if isinstance(selected, list) else place,
                    "selects-nothing",
                    word=key,
                    value=json.dumps(value),
                    near=near,
                    allowed="" if near else one_of(labels),
                )


def find_conditions(
    document: Document, path: DataPath = ()
) -> Iterator[tuple[DataPath, Mapping[str, Any]]]:
    """Yield each condition at or below ``path``, with its path."""
    return (
        (place, item)
        for place, item in walk(document.value(path), path)
        if place[-1:] == ("when",) and isinstance(item, dict)
    )


def decided_conditions(document: Document) -> dict[DataPath, Mapping[str, Any]]:
    """Return by its path what each condition of a spec asks of the matrix."""
    return {
        (*path, MATRIX): when[MATRIX]
        for path, when in find_conditions(document)
        if isinstance(when.get(MATRIX), dict)
    }


def fulfils(document: Document, selection: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether a point with these values is one that a condition on the matrix selects."""
    return all(
        repr(values[axis.key])
        in {
            repr(axis.values[place])
            for value in as_list(selection[axis.key])
            for place in axis.places(value)
        }
        for axis in axes(document)[0]
        if axis.key in selection
    )


def selection_problems(
    document: Document, path: DataPath, when: Mapping[str, Any]
) -> Iterator[Diagnostic]:
    """Yield the problems of what the condition at ``path`` asks of the matrix."""
    if not isinstance(when.get(MATRIX), dict):
        return
    place, known = (*path, MATRIX), {axis.key: axis for axis in axes(document)[0]}
    if known:
        yield from _selection_problems(document, place, when[MATRIX], known)
    else:
        yield document.diagnostic(place, "condition-without-matrix", key=True)
