"""Ids of cases folded to fewer lines: ``a/b[backend=cpu|cuda,dtype=float32|bfloat16]`` is four."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

LONGEST_LIST = 12
"""A key with more values gets a line for each value, so that a new value is a new line in a review.
"""

_Point = tuple[tuple[str, str], ...]
"""The keys and values of an id, in their order."""


def fold(ids: Iterable[str]) -> list[str]:
    """Return the folded lines of ids, sorted. They mean these ids and no others."""
    specs: dict[str, dict[_Point, None]] = {}
    for case_id in ids:
        spec, bracket, rest = case_id.rpartition("[")
        if bracket:
            pairs = [part.partition("=") for part in rest.removesuffix("]").split(",")]
            specs.setdefault(spec, {})[tuple((key, value) for key, _, value in pairs)] = None
        else:
            specs.setdefault(case_id, {})[()] = None
    rows = [(spec, row) for spec in sorted(specs) for row in _rows(list(specs[spec]))]
    return [
        spec + (f"[{','.join(f'{key}={values}' for key, values in row)}]" if row else "")
        for spec, row in rows
    ]


def unfold(line: str) -> Iterator[str]:
    """Yield the ids that a folded line means; raise ``ValueError`` for a line that is no
    folded id.
    """
    spec, bracket, rest = line.rpartition("[")
    if not bracket:
        if "]" in line:
            raise ValueError(f"'{line}' has no '['")
        yield line
        return
    if not spec or not rest.endswith("]"):
        raise ValueError(f"'{line}' does not end with ']'")
    pairs = [part.partition("=") for part in rest[:-1].split(",")]
    if not all(key and sign and all(values.split("|")) for key, sign, values in pairs):
        raise ValueError(f"'{line}' has a part that is not key=value")
    for values in product(*(listed.split("|") for _, _, listed in pairs)):
        parts = (f"{key}={value}" for (key, _, _), value in zip(pairs, values, strict=True))
        yield f"{spec}[{','.join(parts)}]"


def _rows(points: Sequence[_Point]) -> list[_Point]:
    """Fold points: values of the first key share the rows that they have in common."""
    if points == [()]:
        return [()]
    by_first: dict[tuple[str, str], list[_Point]] = {}
    for point in points:
        if point:
            by_first.setdefault(point[0], []).append(point[1:])
    of_key = Counter(key for key, _ in by_first)
    shared: dict[tuple[str, str, _Point], list[str]] = {}
    for (key, value), rests in by_first.items():
        unshared = value if of_key[key] > LONGEST_LIST else ""
        for row in _rows(rests):
            shared.setdefault((key, unshared, row), []).append(value)
    rows = [((key, "|".join(values)), *row) for (key, _, row), values in shared.items()]
    return [*([()] if () in points else []), *rows]
