"""A comparison of two runs as one HTML page, with the generated code and graphs of changed cases side by side."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from runner.core.comparison import CaseChange, CaseTexts, Change, Comparison, FilePair
from runner.core.stable_text import stable_lines
from runner.report import plain
from runner.report.comparison_text import details, outcomes, side_line
from runner.report.pages import rendered

MOST_CASES = 2_000
"""How many cases of one change the page lists."""

MOST_BYTES = 12 << 20
"""Bytes of code on one page; the rest is named."""

_MOST_LINES = 6_000
_MOST_PRODUCT = 4_000_000
"""Lines of one text times lines of the other, without their common ends, above which they are shown as replaced: matching is quadratic."""

_CONTEXT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of two texts side by side."""

    kind: str
    """``same``, ``changed``, or ``skip`` for lines that are left out."""
    left: str = ""
    left_number: int | None = None
    right: str = ""
    right_number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPair:
    """Two texts as the page shows them."""

    name: str
    rows: tuple[Row, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCase:
    """A case as the page shows it."""

    change: CaseChange
    outcomes: str
    details: tuple[str, ...]
    pairs: tuple[ShownPair, ...]
    missing: str
    is_same_code: bool


def page_of(comparison: Comparison, texts: Sequence[CaseTexts]) -> str:
    """Return the page."""
    found = {one.case_id: one for one in texts}
    left = MOST_BYTES
    groups = []
    for change in Change:
        cases = [one for one in comparison.changes if one.change is change and one.is_listed]
        shown = []
        for one in cases[:MOST_CASES]:
            case = _shown(one, found.get(one.case_id), left)
            left -= sum(_size(pair) for pair in case.pairs)
            shown.append(case)
        if cases:
            groups.append({"change": change, "cases": shown, "count": len(cases)})
    return rendered(
        "comparison.html.j2",
        comparison=comparison,
        sides=[side_line("first", comparison.before), side_line("second", comparison.after)],
        counts={word: count for word, count in comparison.counts.items() if count},
        groups=groups,
    )


def _shown(change: CaseChange, texts: CaseTexts | None, room: int) -> ShownCase:
    pairs = []
    for pair in texts.differing if texts else ():
        size = len(pair.before or "") + len(pair.after or "")
        room -= size
        if room < 0:
            pairs.append(ShownPair(name=pair.name, rows=(), note="left out: the page is full; the folders of the runs have it"))
        else:
            pairs.append(side_by_side(pair))
    return ShownCase(
        change=change,
        outcomes=outcomes(change),
        details=tuple(details(change)),
        pairs=tuple(pairs),
        missing=texts.missing if texts else "",
        is_same_code=bool(texts and texts.pairs and not texts.differing),
    )


def _size(pair: ShownPair) -> int:
    return sum(len(row.left) + len(row.right) for row in pair.rows)


# -- side by side -----------------------------------------------------------------------------------------------------


def side_by_side(pair: FilePair) -> ShownPair:
    """Return two texts as rows: what is equal but for addresses and paths stands beside each other, and long equal parts are left out."""
    left, right = (plain(text or "").splitlines() for text in (pair.before, pair.after))
    note = ""
    if max(len(left), len(right)) > _MOST_LINES:
        note = f"the first {_MOST_LINES} lines; the folders of the runs have the rest"
        left, right = left[:_MOST_LINES], right[:_MOST_LINES]
    if pair.before is None or pair.after is None:
        note = f"in the {'second' if pair.before is None else 'first'} run alone" + (f"; {note}" if note else "")
    return ShownPair(name=pair.name, rows=tuple(_folded(list(_rows(left, right)))), note=note)


def _rows(left: Sequence[str], right: Sequence[str]) -> Iterator[Row]:
    then, now = stable_lines("\n".join(left)), stable_lines("\n".join(right))
    for kind, first, first_end, second, second_end in _opcodes(then, now):
        for one, other in zip_longest(range(first, first_end), range(second, second_end)):
            yield Row(
                kind="same" if kind == "equal" else "changed",
                left="" if one is None else left[one],
                left_number=None if one is None else one + 1,
                right="" if other is None else right[other],
                right_number=None if other is None else other + 1,
            )


def _opcodes(then: Sequence[str], now: Sequence[str]) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield what ``SequenceMatcher`` finds between the common ends of two texts."""
    most = min(len(then), len(now))
    start = next((at for at in range(most) if then[at] != now[at]), most)
    end = next((at for at in range(most - start) if then[-1 - at] != now[-1 - at]), most - start)
    first, second = len(then) - end, len(now) - end
    yield "equal", 0, start, 0, start
    if (first - start) * (second - start) > _MOST_PRODUCT:
        yield "replace", start, first, start, second
    else:
        matcher = difflib.SequenceMatcher(None, then[start:first], now[start:second], autojunk=False)
        for kind, a, b, c, d in matcher.get_opcodes():
            yield kind, a + start, b + start, c + start, d + start
    yield "equal", first, len(then), second, len(now)


def _folded(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows near a change; one row stands for those between."""
    near = {at + by for at, row in enumerate(rows) if row.kind == "changed" for by in range(-_CONTEXT, _CONTEXT + 1)}
    skipped = 0
    for at, row in enumerate(rows):
        if at not in near:
            skipped += 1
            continue
        if skipped:
            yield _skip(skipped)
            skipped = 0
        yield row
    if skipped:
        yield _skip(skipped)


def _skip(count: int) -> Row:
    return Row(kind="skip", left=f"{count} equal line{'' if count == 1 else 's'}")
