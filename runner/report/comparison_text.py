"""A comparison of two runs as text: the runs, what differs between them, the cases by change, and the counts."""

import difflib
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from runner.core.comparison import CaseChange, CaseTexts, Change, Comparison, FilePair, Mark, Side
from runner.core.results import CaseResult
from runner.report import one_line, plain
from runner.report.console import shown_id

LISTED = 30
"""How many cases of one change the text lists; JSON and HTML list all."""

_DIFF_LINES = 60
_FACTS = ("torch", "device", "cpu")
_LONGEST = 300


def lines_of(comparison: Comparison, texts: Sequence[CaseTexts], *, with_code: bool = False) -> Iterator[str]:
    """Yield the report; ``with_code`` adds what differs in the generated code and the graphs."""
    yield side_line("first", comparison.before)
    yield side_line("second", comparison.after)
    for first, second in comparison.backends:
        yield f"compared: the backend {first} of the first run with {second} of the second, and no other"
    for difference in comparison.differences:
        yield f"differs: {one_line(difference)}"
    found = {one.case_id: one for one in texts}
    for change in Change:
        cases = [one for one in comparison.changes if one.change is change and one.is_listed]
        if cases:
            title = change.word if change is not Change.SAME else "same outcome"
            yield ""
            yield f"{title} ({len(cases)}): {change.meaning if change is not Change.SAME else 'what else is said of them'}"
            yield from _cases(cases, found, with_code=with_code)
    yield from _end(comparison)
    for why, count in Counter(one.missing for one in texts if one.missing).items():
        yield f"generated code and graphs of {count} case{'' if count == 1 else 's'} are not compared: {one_line(why)}"


def side_line(word: str, side: Side) -> str:
    """Return one line about a run."""
    facts = side.header.environment
    about = [side.header.run_id or "without an id", *(f"{name} {facts[name]}" for name in _FACTS if facts.get(name))]
    totals = ", ".join(f"{count} {outcome.label}" for outcome, count in sorted(side.totals.items(), key=lambda item: -item[1]))
    interrupted = "; it was interrupted" if side.interrupted else ""
    return f"{word}: {one_line(side.name)} ({one_line(', '.join(about))}): {totals or 'no case'}{interrupted}"


def outcomes(change: CaseChange) -> str:
    """Return the outcomes of a case in both runs: ``PASS, then FAIL``."""
    sides = [one.outcome.label if one is not None else "absent" for one in (change.before, change.after)]
    return sides[0] if sides[0] == sides[1] else ", then ".join(sides)


def _cases(cases: Sequence[CaseChange], texts: Mapping[str, CaseTexts], *, with_code: bool) -> Iterator[str]:
    alone = [change for change in cases if change.words == (Mark.SPEC_CHANGED.word,)]
    for remark, count in Counter(remark for change in alone for remark in change.remarks).items():
        yield f"  {count} case{'' if count == 1 else 's'} [{Mark.SPEC_CHANGED.word}]: {one_line(remark)}"
    cases = [change for change in cases if change not in alone] if len(alone) < len(cases) else []
    for change in cases[:LISTED]:
        marks = "".join(f" [{mark.word}]" for mark in change.marks)
        yield f"  {shown_id(change.case_id)}  {outcomes(change)}{marks}"
        if change.before is not None and change.before.case_id != change.case_id:
            yield f"      first: {shown_id(change.before.case_id)}"
        yield from (f"      {line}" for line in details(change))
        if change.case_id in texts:
            yield from (f"      {line}" for line in _texts(texts[change.case_id], with_code=with_code))
    if len(cases) > LISTED:
        yield f"  and {len(cases) - LISTED} more (--json and --html list all)"


def details(change: CaseChange) -> Iterator[str]:
    """Yield the reasons and remarks of a change."""
    then, now = (_reason(one) for one in (change.before, change.after))
    if change.change in (Change.CHANGED, Change.FIXED) and then and then != now:
        yield f"was: {then}"
    if now and change.change is not Change.SAME:
        yield now
        if change.after is not None and change.after.failed:
            yield f"at {one_line(str(change.after.position))}"
    yield from map(one_line, change.remarks)


def _reason(result: CaseResult | None) -> str:
    return "" if result is None else one_line(result.reason, _LONGEST)


def _texts(texts: CaseTexts, *, with_code: bool) -> Iterator[str]:
    if texts.missing:
        return
    same = len(texts.pairs) - len(texts.differing)
    if texts.differing:
        names = ", ".join(one_line(pair.name) + _only(pair) for pair in texts.differing)
        yield f"generated code and graphs: {names} differ{'s' if len(texts.differing) == 1 else ''}, {same} the same"
    else:
        yield "generated code and graphs: the same"
    if with_code:
        for pair in texts.differing:
            yield from itertools.islice(_unified(pair), _DIFF_LINES)


def _only(pair: FilePair) -> str:
    return "" if None not in (pair.before, pair.after) else f" (in the {'second' if pair.before is None else 'first'} run alone)"


def _unified(pair: FilePair) -> Iterator[str]:
    if pair.before is None or pair.after is None:
        return
    then, now = (plain(text).splitlines()[:_MOST_LINES] for text in (pair.before, pair.after))
    yield from difflib.unified_diff(then, now, f"first/{pair.name}", f"second/{pair.name}", lineterm="")


_MOST_LINES = 2_000


def _end(comparison: Comparison) -> Iterator[str]:
    pace, counts = comparison.pace, comparison.counts
    yield ""
    if pace.is_slower:
        yield f"slower as a whole: a case took {pace.ratio:.1f} times as long as in the first run (the median of {pace.cases} cases)"
    said = [f"{count} {word}" for word, count in counts.items() if count]
    yield f"{', '.join(said) or 'no case'}; {comparison.both} cases have a result in both runs"
    slower = counts[Mark.SLOWER.word]
    if not slower and pace.cases:
        yield f"times of {pace.cases} cases compared: none is slower than noise explains (median {pace.ratio:.2f} times the first run's)"
