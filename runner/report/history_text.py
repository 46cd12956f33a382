"""The history as text: the runs, the cases that fail, the figures of chosen cases."""

from collections.abc import Iterator, Mapping, Sequence

from runner.core.outcomes import Outcome
from runner.record.history.queries import HistoryCase, HistoryResult, HistoryRun
from runner.report import one_line
from runner.report.console import shown_id

_RUNS = 10
_FAILING = 20
RESULTS = 15
"""How many results of a case the text shows."""


def run_lines(runs: Sequence[HistoryRun]) -> Iterator[str]:
    """Yield a line for each of the last runs."""
    cut = f", the last {_RUNS}" if len(runs) > _RUNS else ""
    yield f"{len(runs)} run{'' if len(runs) == 1 else 's'}{cut}:"
    for run in runs[-_RUNS:]:
        about = f"{percent(run.pass_rate)} of {run.executed} executed passed, {run.failed} failed, {run.seconds:.0f} s"
        merged = f", merged from {len(run.merged)} runs" if run.merged else ""
        where = f"torch {one_line(run.torch) or 'none'}, {one_line(run.machine)}"
        yield f"  {one_line(run.started[:16])}  {one_line(run.id)}  {where}: {about}{merged}"


def failing_lines(cases: Sequence[HistoryCase], runs: Sequence[HistoryRun]) -> Iterator[str]:
    """Yield the cases that fail, each with the first bad run."""
    names = {run.number: run for run in runs}
    yield ""
    yield f"failing ({len(cases)}): failed, and have not passed since" if cases else "no case fails"
    for case in cases[:_FAILING]:
        yield f"  {shown_id(case.id)} on {one_line(case.machine)}: {first_bad(case, names)}"
    if len(cases) > _FAILING:
        yield f"  and {len(cases) - _FAILING} more (--json lists all)"


def first_bad(case: HistoryCase, runs: Mapping[int, HistoryRun]) -> str:
    """Return since when a case fails, and with which version of torch it last passed."""
    bad, good = runs.get(case.stats.first_bad), runs.get(case.stats.last_good)
    if bad is None:
        return "passes" if good is not None else "never passed nor failed"
    last = f"last good {_named(good)}" if good is not None else "never passed"
    waived = "; waived in its last run" if case.stats.last_outcome == Outcome.XFAIL.label else ""
    return f"first bad {_named(bad)}; {last}{waived}"


def _named(run: HistoryRun) -> str:
    return f"{one_line(run.id)} ({one_line(run.started[:10])}, torch {one_line(run.torch) or 'none'})"


def case_lines(
    cases: Sequence[HistoryCase], runs: Sequence[HistoryRun], results: Mapping[int, Sequence[HistoryResult]], limit: int
) -> Iterator[str]:
    """Yield the figures of cases, with every result where few cases are shown."""
    names = {run.number: run for run in runs}
    for case in cases[:limit]:
        stats = case.stats
        mean = "-" if stats.mean is None else f"{stats.mean:.1f} s"
        yield f"{shown_id(case.id)} on {one_line(case.machine)}"
        executed = f"{stats.executed} of {stats.runs} runs executed it"
        yield f"  {executed}: {percent(stats.pass_rate)} passed, {stats.flaky} FLAKY (flake rate {percent(stats.flake_rate)}), mean {mean}"
        yield f"  {stats.recent}  {first_bad(case, names)}"
        found = [result for result in results.get(case.number, ()) if result.machine == case.machine]
        for result in found[-RESULTS:]:
            yield (
                f"    {one_line(result.started[:16])}  {result.outcome:12} {result.seconds:8.1f} s  torch {one_line(result.torch)}  "
                f"{one_line(result.run)}"
            )
        if stats.runs > RESULTS:
            yield f"    and {stats.runs - RESULTS} earlier (--json lists all)"
    if len(cases) > limit:
        yield f"and {len(cases) - limit} more (--limit N shows more, --json all)"


def ranked_lines(cases: Sequence[HistoryCase], by: str, limit: int) -> Iterator[str]:
    """Yield a line for each of the first cases of a ranking."""
    if not cases:
        yield "no case is flaky" if by == "flaky" else "no case has passed"
    for case in cases[:limit]:
        stats = case.stats
        rate = percent(stats.flake_rate)
        figure = f"{rate} flaky" if by == "flaky" else f"{stats.mean or 0.0:.1f} s"
        more = f"{stats.flaky} FLAKY, {stats.changes} changes in {stats.executed} executions" if by == "flaky" else f"{stats.timed} passes"
        yield f"{figure:>12}  {shown_id(case.id)} on {one_line(case.machine)} ({more})  {stats.recent}"
    if len(cases) > limit:
        more = f"{len(cases) - limit} more" if by == "flaky" else "more"
        yield f"and {more} (--limit N shows more, --json all)"


def percent(share: float | None) -> str:
    """Return a share in percent; 100 % is said of the whole alone."""
    if share is None:
        return "-"
    text = f"{100 * share:.1f} %"
    return "99.9 %" if text == "100.0 %" and share < 1 else text.replace(".0 %", " %")
