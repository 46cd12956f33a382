"""The points of a spec: every backend with every combination of matrix values, without the excluded
ones.
"""

import functools
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from torch_conformance.language.read.document import walk
from torch_conformance.model.conditions import MATRIX, as_list
from torch_conformance.model.diagnostics import Diagnostic, nearest, one_of, unknown_word
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.protocol import Json
from torch_conformance.model.targets import AXIS
from torch_conformance.vocabulary.backend import Backend

TARGETS = "targets"
"""The key of a spec that adds the first axis."""
KEY = re.compile(r"[a-z][a-z0-9_]*")
"""The form of a key, as in the schema."""
MAX_POINTS = 10_000
MAX_EXCLUSIONS = 1_000
RESERVED = ("backend", "device", "facts", "params", "torch")
"""Names with another meaning in templates or preludes."""
REPEAT = "repeat"
"""The matrix key that only repeats a case: it need not be used anywhere."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One key of the matrix: its values, the text of each in a case's id, and whether that is an
    ``id``, which names the value.
    """

    key: str
    values: tuple[Any, ...]
    labels: tuple[str, ...]
    named: tuple[bool, ...]
    count: int
    """How many values are combined with those of other keys; the rest is of ``include``."""
    included: tuple[int, ...] = ()
    """The index of the value of each row of ``include``."""

    def places(self, excluded: object) -> frozenset[int]:
        """Return the indices of the values that an exclusion or a condition selects, by value or by
        given id.
        """
        entries = enumerate(zip(self.values, self.labels, self.named, strict=True))
        return frozenset(
            # 1, 1.0 and true differ, because their ids differ; NaN equals NaN
            index
            for index, (value, label, has_id) in entries
            if (
                type(value) is type(excluded)
                and (value == excluded or (value != value and excluded != excluded))
            )
            or (has_id and label == _text(excluded))
        )

    def is_only_id(self, constant: object) -> bool:
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
        of_targets = (tuple(targets), tuple(targets), (False,) * len(targets))
        result.append(Axis(AXIS, *of_targets, len(targets)))
    matrix, rows = document.data.get("matrix", {}), document.data.get("include", ())
    for index, row in enumerate(rows):
        of_row: DataPath = ("include", index)
        if missing := [key for key in matrix if key not in row]:
            problems.append(
                document.diagnostic(of_row, "row-lacks-keys", missing=", ".join(missing))
            )
        problems += [
            document.diagnostic((*of_row, key), unknown_word("matrix-key", key, matrix), key=True)
            for key in row
            if key not in matrix
        ]
    for key, entries in matrix.items():
        if key in reserved:
            problems.append(
                document.diagnostic(
                    ("matrix", key), "reserved-key", key=True, word=key, allowed=one_of(reserved)
                )
            )
        places: list[DataPath] = [("matrix", key, index) for index in range(len(entries))]
        places += [("include", index, key) for index, row in enumerate(rows) if key in row]
        values: dict[str, tuple[int, Any, bool, DataPath]] = {}
        """By id: the index of the value, the value, whether the id names it, and its place."""
        ids: dict[str, str] = {}
        included: list[int] = []
        for number, place in enumerate(places):
            entry = document.value(place)
            label, value = _id_and_value(document, place, entry)
            if (is_included := number >= len(entries)) and repr(value) in ids:
                included.append(values[ids[repr(value)]][0])
                continue
            is_new = label not in values
            first = values.setdefault(label, (len(values), value, not _is_scalar(entry), place))
            included += [first[0]] if is_included else []
            if not is_new:
                where = str(document.position(first[3]))
                problems.append(
                    document.diagnostic(place, "repeated-value", value=label, name=key, place=where)
                )
            if (other := ids.setdefault(repr(value), label)) != label:
                problems.append(
                    document.diagnostic(place, "equal-values", value=label, first=other, name=key)
                )
        result.append(
            Axis(
                key,
                tuple(value for _, value, _, _ in values.values()),
                tuple(values),
                tuple(has_id for _, _, has_id, _ in values.values()),
                sum(place[0] == "matrix" for *_, place in values.values()),
                tuple(included),
            )
        )
    if not problems:
        problems += _repeated_rows(document, [axis for axis in result if axis.key != AXIS])
    return tuple(result), tuple(problems)


def _repeated_rows(document: Document, axes: Sequence[Axis]) -> Iterator[Diagnostic]:
    """Yield the rows of ``include`` that are a combination of the matrix, or another row."""
    seen: dict[tuple[int, ...], str] = {}
    for index, row in enumerate(zip(*(axis.included for axis in axes), strict=True)):
        position = str(document.position(("include", index)))
        is_combined = all(place < axis.count for place, axis in zip(row, axes, strict=True))
        if is_combined or row in seen:
            place = "" if is_combined else seen[row]
            yield document.diagnostic(("include", index), "repeated-row", place=place)
        seen.setdefault(row, position)


_LONGEST_ID = 100


def _id_and_value(document: Document, place: DataPath, entry: Json) -> tuple[str, Any]:
    """Return the id of a matrix value, and the value.

    An id shows a scalar as it is written in the file. A row without one gets one of its values.
    """
    is_named = isinstance(entry, dict) and "id" in entry and _is_scalar(entry["id"])
    value = entry["value"] if is_named and entry.keys() == {"id", "value"} else entry
    if not (is_named or _is_scalar(entry)):
        text = _id_of(entry) or "empty"
        if len(text) > _LONGEST_ID:
            text = f"{text[:_LONGEST_ID]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        return text, value
    source, path = document.origin((*place, "id") if is_named else place)
    mark = source.marks.get(path)  # values below an alias have none
    if mark is not None and mark.raw is not None:
        return mark.raw if mark.raw or mark.style else "null", value
    return _text(entry["id"] if is_named else entry), value


def _is_scalar(value: object) -> bool:
    return not isinstance(value, dict | list)


def _id_of(value: object) -> str:
    """Return the parts of a row as one text: ``m64_n8_dtype-float16``, ``64x8``."""
    if isinstance(value, list):
        return "x".join(map(_id_of, value))
    if not isinstance(value, dict):
        return _text(value)
    parts = {key: _id_of(item) for key, item in value.items()}
    return "_".join(
        f"{key}{'' if text[:1].isdigit() and not key[-1:].isdigit() else '-'}{text}"
        for key, text in parts.items()
    )


def _text(value: object) -> str:
    """Return a value as text of YAML's core schema."""
    return (
        {True: "true", False: "false", None: "null"}[value]
        if value is None or isinstance(value, bool)
        else str(value)
    )


def size_problem(document: Document, axes: Sequence[Axis], backends: int) -> Diagnostic | None:
    """Return a problem if the matrix has too many points or too many exclusions."""
    rows = len(document.data.get("include", ())) * len(document.data.get(TARGETS, "1"))
    count = (math.prod(axis.count for axis in axes) + rows) * backends
    if count > MAX_POINTS:
        # Python does not print numbers with thousands of digits
        count_arguments = (
            {"count": f"{count:,}"} if count < _COUNTABLE else {"beyond": f"{_COUNTABLE:,}"}
        )
        return document.diagnostic(
            ("matrix",), "too-many-cases", key=True, most=f"{MAX_POINTS:,}", **count_arguments
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
            for places, excluded_names in zip(exclusions, names, strict=True)
            if excluded_names is None or backend.names & excluded_names
        ]
        for indices in _combinations(axes):
            if not any(
                all(indices[axis] in allowed for axis, allowed in places.items())
                for places in of_backend
            ):
                chosen = list(zip(axes, indices, strict=True))
                values = {axis.key: axis.values[index] for axis, index in chosen}
                yield Point(
                    backend, values, {axis.key: axis.labels[index] for axis, index in chosen}
                )


def _combinations(axes: Sequence[Axis]) -> Iterator[tuple[int, ...]]:
    """Yield the indices of the values of each point: the combinations, then the rows of
    ``include``, with each target.
    """
    yield from itertools.product(*(range(axis.count) for axis in axes))
    targets = [range(axis.count) for axis in axes if axis.key == AXIS]
    rows = [*zip(*(axis.included for axis in axes if axis.key != AXIS), strict=True)]
    for target in itertools.product(*targets):
        yield from ((*target, *row) for row in rows)


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
    by_key: Mapping[str, Axis | set[str]],
) -> Iterator[Diagnostic]:
    """Yield the unknown keys of a map at ``path`` that selects points, and values that select
    none.
    """
    for key, selected in selection.items():
        place = (*path, key)
        if (axis := by_key.get(key)) is None:
            yield document.diagnostic(place, unknown_word("matrix-key", key, by_key), key=True)
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
        if place[-1:] == ("when",)
        and isinstance(item, dict)
        and (path or place[0] not in ("matrix", "include"))  # rows have any keys
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
    place, by_key = (*path, MATRIX), {axis.key: axis for axis in axes(document)[0]}
    if by_key:
        yield from _selection_problems(document, place, when[MATRIX], by_key)
    else:
        yield document.diagnostic(place, "condition-without-matrix", key=True)
