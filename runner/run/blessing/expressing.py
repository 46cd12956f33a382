"""One line of a spec for several cases and machines: a value, a template over the matrix, or values under conditions. Pure.

A column has the values that all cases of one backend need on one machine. Within a column only the matrix can tell cases apart; between
columns only ``when`` can. The cases that no run recorded keep the value that they had.
"""

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.core.conditions import Surroundings
from runner.core.protocol import Json
from runner.language.read.templates import MAX_EXPRESSION
from runner.run.blessing.leaves import NotBlessed
from runner.run.waiver_proposals import KEYS, Separate, smallest_condition


@dataclass(frozen=True, slots=True)
class Cell:
    """What one case needs: its values of the matrix, and the value to write."""

    params: Mapping[str, Json]
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The cases of one backend on one machine."""

    here: Surroundings
    cells: tuple[Cell, ...]
    is_recorded: bool
    """Whether a run has a case of this backend."""


def expression(columns: Sequence[Column]) -> Any:
    """Return the value that gives each case what it needs; raise ``NotBlessed`` where none does."""
    groups: dict[str, tuple[Any, list[Column]]] = {}
    for column in columns:
        value = _of_column(column.cells)
        groups.setdefault(json.dumps(value, sort_keys=True), (value, []))[1].append(column)
    if len(groups) == 1:
        return next(iter(groups.values()))[0]
    ordered = sorted(groups.values(), key=lambda group: (any(not column.is_recorded for column in group[1]), len(group[1])))
    if any(isinstance(value, list) for value, _ in ordered):
        raise NotBlessed("machines or backends need different strides: give each an expectation with 'when'")
    entries = []
    for index, (value, own) in enumerate(ordered[:-1]):
        others = [column.here for _, group in ordered[index + 1 :] for column in group]
        when = smallest_condition([column.here for column in own], others, SEPARATING)
        if when is None:
            raise NotBlessed("machines differ, and no condition of the language tells them apart")
        entries.append({"when": when, "value": value})
    return [*entries, {"value": ordered[-1][0]}]


def _of_column(cells: Sequence[Cell]) -> Any:
    values = {json.dumps(cell.value, sort_keys=True): cell.value for cell in cells}
    if len(values) == 1:
        return next(iter(values.values()))
    if not all(type(value) is int for value in values.values()):
        raise NotBlessed("cases of one matrix need different ranges or strides, which no matrix value can say")
    keys = [key for key in cells[0].params if len({json.dumps(cell.params[key]) for cell in cells}) > 1]
    for size in (1, 2):
        for chosen in itertools.combinations(keys, size):
            if (found := _template(cells, chosen)) is not None:
                return found
    raise NotBlessed("cases of one matrix need different values, and no one or two of its keys decide which")


def _template(cells: Sequence[Cell], keys: Sequence[str]) -> str | None:
    """Return the template in which some keys decide the value; None where they do not, or where it would be too long."""
    by_point: dict[str, tuple[tuple[Json, ...], int]] = {}
    for cell in cells:
        point = tuple(cell.params[key] for key in keys)
        if by_point.setdefault(json.dumps(point), (point, cell.value))[1] != cell.value:
            return None
    numbers = [value for _, value in by_point.values()]
    usual = [number for number in dict.fromkeys(numbers) if numbers.count(number) == max(map(numbers.count, numbers))]
    texts = [text for number in usual if (text := _chain(list(by_point.values()), keys, number)) is not None]
    best = min(texts, key=len, default=None)
    return best if best is not None and len(best) <= MAX_EXPRESSION else None


def _chain(points: Sequence[tuple[tuple[Json, ...], int]], keys: Sequence[str], usual: int) -> str | None:
    """Return the template that names each point without the usual value; None where one cannot be named."""
    pieces = []
    for point, value in points:
        tests = [_test(key, wanted) for key, wanted in zip(keys, point, strict=True)]
        if None in tests:
            return None
        if value != usual:
            pieces.append(f"{value} if {' and '.join(str(test) for test in tests)} else ")
    return f"{{{{ {''.join(pieces)}{usual} }}}}"


_WORD = re.compile(r"[A-Za-z0-9_.+ -]{1,60}")


def _test(key: str, value: object) -> str | None:
    if isinstance(value, bool):
        return key if value else f"not {key}"
    if isinstance(value, int):
        return f"{key} == {value}"
    return f"{key} == '{value}'" if isinstance(value, str) and _WORD.fullmatch(value) else None


def _device(wanted: Sequence[Surroundings], others: Sequence[Surroundings]) -> Json:
    names = sorted({here.device.partition(":")[0] for here in wanted})
    return names[0] if len(names) == 1 else names


def _backend(wanted: Sequence[Surroundings], others: Sequence[Surroundings]) -> Json:
    foreign = frozenset().union(*(here.backends for here in others)) if others else frozenset()
    common = frozenset.intersection(*(here.backends for here in wanted)) - foreign
    names = sorted(common)[:1] or sorted({name for here in wanted for name in here.backends - foreign})
    return (names[0] if len(names) == 1 else names) if names else None


_OWN: Mapping[str, Callable[[Sequence[Surroundings], Sequence[Surroundings]], Json]] = {"device": _device, "backend": _backend}

SEPARATING: Separate = {**_OWN, **KEYS}
"""The keys of the conditions that are proposed, the preferred one first."""
