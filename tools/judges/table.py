"""The table of judges: which wrong answers each accepts, and which right ones it refuses."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tools.judges.families import Cell
from tools.judges.judges import JUDGES, Judge, within_right_answers


@dataclass(frozen=True)
class Entry:
    """One answer of one cell, judged."""

    family: str
    dtype: str
    scale: float
    answer: str
    is_right: bool
    """Whether it computes the function; else it has a defect."""
    is_wrong: bool
    """Whether its error is greater than that of every computed right answer.

    A defect within rounding is neither right nor wrong.
    """
    is_shown: bool
    """Whether it is wrong and accepted by our judge, but right answers of the cell show as much in
    the judge's own statistics.
    """
    accepted: Mapping[str, bool]
    """By the name of the judge."""


def entries(
    cells: Iterable[Cell], judges: Mapping[str, Callable[[Cell], Judge]] = JUDGES
) -> Iterator[Entry]:
    """Judge every answer of each cell."""
    for cell in cells:
        acceptances = {name: judge(cell) for name, judge in judges.items()}
        right = {"eager": cell.eager, **cell.right}
        for name, answer in {**right, **cell.wrong}.items():
            accepted = {judge: accepts(answer) for judge, accepts in acceptances.items()}
            is_right = name in right
            is_wrong = not is_right and cell.is_wrong(answer)
            is_shown = (
                is_wrong
                and accepted.get("calibrated", False)
                and within_right_answers(cell)(answer)
            )
            yield Entry(
                cell.family.name,
                cell.dtype,
                cell.scale,
                name,
                is_right,
                is_wrong,
                is_shown,
                accepted,
            )


def mistakes(entries: Iterable[Entry], judge: str) -> list[Entry]:
    """Return the wrong answers that a judge accepts and the right ones that it refuses."""
    return [
        entry
        for entry in entries
        if (entry.is_wrong and entry.accepted[judge])
        or (entry.is_right and not entry.accepted[judge])
    ]


def unexplained(entries: Iterable[Entry]) -> list[Entry]:
    """Return the mistakes of our judge without the wrong answers whose error right answers show
    too.
    """
    return [entry for entry in mistakes(entries, "calibrated") if not entry.is_shown]


def totals(entries: Iterable[Entry], judges: Iterable[str]) -> dict[str, Counter[str]]:
    """Return for each judge how many answers there are of each kind, and its mistakes."""
    counted: dict[str, Counter[str]] = {name: Counter() for name in judges}
    for entry in entries:
        for name, counts in counted.items():
            accepted = entry.accepted[name]
            counts["right"] += entry.is_right
            counts["wrong"] += entry.is_wrong
            counts["within rounding"] += not entry.is_right and not entry.is_wrong
            counts["right refused"] += entry.is_right and not accepted
            counts["wrong accepted"] += entry.is_wrong and accepted
            counts["shown by right ones"] += entry.is_shown and accepted
    return counted
