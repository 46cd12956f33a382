"""A comparison of two runs for people and programs: as text, as JSON (``schemas/diff.schema.json``), and as one HTML page.

The page is one file, without a script and without a request to any host. Everything is escaped by default.
"""

import difflib
import errno
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from runner.core.comparison import CaseChange, CaseTexts, Change, Comparison, FilePair, Mark, Side
from runner.core.diagnostics import UsageError
from runner.core.results import CaseResult
from runner.core.stable_text import stable_lines
from runner.report import one_line, plain
from runner.report.console import shown_id
from runner.report.files import replace
from runner.system.data_dirs import folder
from runner.system.output import OUT_OF_SPACE

FORMAT = 1
"""The number of the form of the JSON."""

LISTED = 30
"""How many cases of one change the text lists; JSON lists all."""

MOST_CASES = 2_000
"""How many cases of one change the page lists."""

MOST_LINES = 100_000
"""Lines of code on one page; the rest is named."""

_OF_PAGE, _OF_TEXT = 2_000, 60
"""Lines of what differs in one piece of code."""

_READ = 6_000
"""Lines of a piece of code that are compared."""

_FACTS = ("torch", "device", "cpu")
_LONGEST = 300


def lines_of(comparison: Comparison, texts: Sequence[CaseTexts], *, with_code: bool = False) -> Iterator[str]:
    """Yield the report; ``with_code`` adds what differs in the generated code and the graphs."""
    yield _side_line("first", comparison.before)
    yield _side_line("second", comparison.after)
    for first, second in comparison.backends:
        yield f"compared: the backend {first} of the first run with {second} of the second, and no other"
    for difference in comparison.differences:
        yield f"differs: {one_line(difference)}"
    texts_of_case = {entry.case_id: entry for entry in texts}
    for change in Change:
        cases = [entry for entry in comparison.changes if entry.change is change and entry.is_listed]
        if cases:
            title = change.word if change is not Change.SAME else "same outcome"
            yield ""
            yield f"{title} ({len(cases)}): {change.meaning if change is not Change.SAME else 'what else is said of them'}"
            yield from _cases(cases, texts_of_case, with_code=with_code)
    yield from _end(comparison)
    for why, count in Counter(entry.missing for entry in texts if entry.missing).items():
        yield f"generated code and graphs of {count} case{'' if count == 1 else 's'} are not compared: {one_line(why)}"


def _side_line(word: str, side: Side) -> str:
    """Return one line about a run."""
    facts = side.header.environment
    about = [side.header.run_id or "without an id", *(f"{name} {facts[name]}" for name in _FACTS if facts.get(name))]
    totals = ", ".join(f"{count} {outcome.label}" for outcome, count in sorted(side.totals.items(), key=lambda item: -item[1]))
    interrupted = "; it was interrupted" if side.interrupted else ""
    return f"{word}: {one_line(side.name)} ({one_line(', '.join(about))}): {totals or 'no case'}{interrupted}"


def _outcomes(change: CaseChange) -> str:
    """Return the outcomes of a case in both runs: ``PASS, then FAIL``."""
    sides = [result.outcome.label if result is not None else "absent" for result in (change.before, change.after)]
    return sides[0] if sides[0] == sides[1] else ", then ".join(sides)


def _cases(cases: Sequence[CaseChange], texts: Mapping[str, CaseTexts], *, with_code: bool) -> Iterator[str]:
    alone = [change for change in cases if change.words == (Mark.SPEC_CHANGED.word,)]
    for remark, count in Counter(remark for change in alone for remark in change.remarks).items():
        yield f"  {count} case{'' if count == 1 else 's'} [{Mark.SPEC_CHANGED.word}]: {one_line(remark)}"
    cases = [change for change in cases if change not in alone] if len(alone) < len(cases) else []
    for change in cases[:LISTED]:
        marks = "".join(f" [{mark.word}]" for mark in change.marks)
        yield f"  {shown_id(change.case_id)}  {_outcomes(change)}{marks}"
        if change.before is not None and change.before.case_id != change.case_id:
            yield f"      first: {shown_id(change.before.case_id)}"
        yield from (f"      {line}" for line in _details(change))
        if change.case_id in texts:
            yield from (f"      {line}" for line in _texts(texts[change.case_id], with_code=with_code))
    if len(cases) > LISTED:
        yield f"  and {len(cases) - LISTED} more (--json lists all)"


def _details(change: CaseChange) -> Iterator[str]:
    """Yield the reasons and remarks of a change."""
    then, now = (_reason(result) for result in (change.before, change.after))
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
            yield from itertools.islice(_unified(pair), _OF_TEXT)


def _only(pair: FilePair) -> str:
    return "" if None not in (pair.before, pair.after) else f" (in the {'second' if pair.before is None else 'first'} run alone)"


def _unified(pair: FilePair) -> Iterator[str]:
    """Yield what differs in two texts; words that differ from run to run are left out of it."""
    if pair.before is None or pair.after is None:
        return
    then, now = (stable_lines(plain(text))[:_READ] for text in (pair.before, pair.after))
    yield from difflib.unified_diff(then, now, f"first/{pair.name}", f"second/{pair.name}", lineterm="")


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


# -- JSON -----------------------------------------------------------------------------------------------------------


def document_of(comparison: Comparison, texts: Sequence[CaseTexts], *, fail_on: Sequence[str], exit_code: int) -> dict[str, object]:
    """Return the document. It lists every case that changed, and counts the others."""
    texts_of_case = {entry.case_id: entry for entry in texts}
    return {
        "format": FORMAT,
        "before": _side(comparison.before),
        "after": _side(comparison.after),
        "map_backend": [{"before": entry, "after": other} for entry, other in comparison.backends],
        "differences": list(comparison.differences),
        "pace": {"cases": comparison.pace.cases, "ratio": round(comparison.pace.ratio, 4), "is_slower": comparison.pace.is_slower},
        "compared": comparison.both,
        "counts": comparison.counts,
        "cases": [_case(change, texts_of_case.get(change.case_id)) for change in comparison.listed],
        "fail_on": list(fail_on),
        "reached": comparison.reached(fail_on),
        "exit_code": exit_code,
    }


def _side(side: Side) -> dict[str, object]:
    return {
        "name": side.name,
        "run": side.header.run_id,
        "started": side.header.started,
        "merged": list(side.header.merged),
        "environment": dict(side.header.environment),
        "totals": {outcome.label: count for outcome, count in side.totals.items()},
        "interrupted": side.interrupted,
    }


def _case(change: CaseChange, texts: CaseTexts | None) -> dict[str, object]:
    return {
        "id": change.case_id,
        "change": change.change.word,
        "marks": [mark.word for mark in change.marks],
        "before": _result(change.before),
        "after": _result(change.after),
        "remarks": list(change.remarks),
        "texts": {pair.name: _status(pair) for pair in texts.pairs} if texts else {},
        "texts_missing": texts.missing if texts else "",
    }


def _result(result: CaseResult | None) -> Mapping[str, object] | None:
    if result is None:
        return None
    return {
        "id": result.case_id,
        "backend": result.backend,
        "outcome": result.outcome.label,
        "reason": result.reason,
        "failure_type": result.failure_type,
        "seconds": result.seconds,
        "position": {"file": result.position.file, "line": result.position.line, "column": result.position.column},
        "folder": result.folder,
    }


def _status(pair: FilePair) -> str:
    if pair.before is None or pair.after is None:
        return "after" if pair.before is None else "before"
    return "same" if pair.is_same else "differs"


# -- the page -------------------------------------------------------------------------------------------------------


def page_of(comparison: Comparison, texts: Sequence[CaseTexts]) -> str:
    """Return the page. An undefined name in its template is an error."""
    import jinja2

    texts_of_case = {entry.case_id: entry for entry in texts}
    left = MOST_LINES
    groups = []
    for change in Change:
        cases = [entry for entry in comparison.changes if entry.change is change and entry.is_listed]
        shown = []
        for entry in cases[:MOST_CASES]:
            code = texts_of_case.get(entry.case_id)
            pairs = []
            for pair in code.differing if code is not None else ():
                lines = list(itertools.islice(_unified(pair), min(left, _OF_PAGE)))
                left -= len(lines)
                pairs.append({"name": pair.name, "lines": lines, "note": _only(pair)})
            shown.append(
                {
                    "change": entry,
                    "outcomes": _outcomes(entry),
                    "details": list(_details(entry)),
                    "pairs": pairs,
                    "missing": code.missing if code is not None else "",
                    "is_same_code": code is not None and bool(code.pairs) and not code.differing,
                }
            )
        if cases:
            groups.append({"change": change, "cases": shown, "count": len(cases)})
    loader = jinja2.FileSystemLoader(folder("templates"))
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["line"] = lambda text: one_line(str(text), 2_000)
    return environment.get_template("comparison.html.j2").render(
        comparison=comparison,
        sides=[_side_line("first", comparison.before), _side_line("second", comparison.after)],
        counts={word: count for word, count in comparison.counts.items() if count},
        groups=groups,
    )


def write_page(option: str, path: Path, page: str) -> None:
    """Write a page to the file that an option names; raise ``UsageError`` where that is impossible, ``OSError`` on a full disk."""
    try:
        replace(path, page.encode("utf-8"))
    except OSError as error:
        if error.errno in OUT_OF_SPACE:
            raise
        why = "this is a folder; name a file" if error.errno == errno.EISDIR or path.is_dir() else error.strerror
        raise UsageError(f"{option} {path}: {why}") from error
