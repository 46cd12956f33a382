"""The report on standard output at the end of a run. ``progress`` prints during the run."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from runner.machine.output import paint
from runner.model.outcomes import JUnitTag, Outcome
from runner.model.results import UNAVAILABLE, CaseResult
from runner.model.targets import evidence_of
from runner.report import MESSAGE_LIMIT, note_lines, one_line, plain, timing_lines, verdict_text
from runner.report.excerpts import Source, no_source

BLOCK_LIMIT = 6_000
"""Bytes of one case's block; the JUnit report and the run's folder have the rest."""

_STDERR_LIMIT, _STDERR_LINES = 1_500, 30
_DUMB = ("dumb", "unknown")
"""Values of TERM for terminals without colours and cursor movement."""

_GROUPED = (Outcome.NOT_RUN, Outcome.UNAVAILABLE)
"""Outcomes of cases that were not executed. They are grouped by reason: many cases share few reasons."""


def wants_color(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether to colour: a terminal, and NO_COLOR empty or unset."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") not in _DUMB


def wants_bar(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether to draw a status: on an interactive terminal, not in CI."""
    return stream.isatty() and not environ.get("CI") and environ.get("TERM") not in _DUMB


def print_report(
    stream: TextIO,
    results: Sequence[CaseResult],
    selected: int,
    report_path: Path | str,
    *,
    color: bool,
    lets_flaky_pass: bool = False,
    folder: Path | None = None,
    not_requested: int = 0,
    more: Sequence[str] = (),
    page: str = "",
    source: Source = no_source,
) -> None:
    """Print every case other than PASS, the timings, the totals, the HTML report, and last the number of executed cases."""
    # XFAIL and OFFLINE_PASS are reported one by one although they do not fail the run
    lines = [
        f"{painted(result.outcome, color=color)}  {shown_id(result.case_id)}: {one_line(result.reason)}"
        for result in results
        if result.outcome.junit is JUnitTag.SKIPPED and result.outcome not in _GROUPED
    ]
    for result in results:
        if result.outcome.is_failure and result.outcome not in _GROUPED:
            lines.append(f"\n{painted(result.outcome, color=color)}  {shown_id(result.case_id)}")
            lines.append(verdict_text(result, limit=BLOCK_LIMIT, folder=folder, source=source))
            lines += _last_words(result, folder)
    for outcome in _GROUPED:
        reasons = Counter(one_line(result.reason) for result in results if result.outcome is outcome)
        lines += [f"\n{painted(outcome, color=color)}"] if reasons else []
        lines += [f"  {count:5}  {reason}" for reason, count in reasons.most_common()]
    if timed := [result for result in results if result.timings or result.attachments]:
        lines.append("\ntimings: reported, never judged")
        for result in timed:
            lines.append(f"  {shown_id(result.case_id)}")
            lines += [f"  {line}" for line in timing_lines(result)]
            lines += [f"    {one_line(f'{result.folder}/{name}')}" for name in result.attachments]
    if noted := [result for result in results if note_lines(result)]:
        lines.append("\nnotes: they change no outcome")
        for result in noted:
            lines.append(f"  {shown_id(result.case_id)}")
            lines += [f"    {line}" for line in note_lines(result)]

    counts = Counter(result.outcome for result in results)
    lines.append("")
    for outcome in Outcome:
        if counts[outcome] or outcome is Outcome.PASS:
            levels = Counter(result.level for result in results if result.outcome is outcome and result.level)
            shown = ", ".join(f"{levels[level]} {evidence_of(level)}" for level in sorted(levels))
            evidence = f"  (compiled, not executed: {shown})" if shown else ""
            lines.append(f"{counts[outcome]:7}  {painted(outcome, color=color)}{evidence}")
    if left_out := sum(result.benches_left_out for result in results):
        cases = sum(result.benches_left_out > 0 for result in results)
        steps = f"{left_out} bench step{'' if left_out == 1 else 's'} of {cases} case{'' if cases == 1 else 's'}"
        lines.append(f"{steps} left out: nothing was timed (run --bench times them)")
    if not_requested:
        are = "1 case on request is" if not_requested == 1 else f"{not_requested} cases on request are"
        lines.append(f"{are} not selected (a PATH, --tag or --select that names them runs them)")
    lines += more
    if lets_flaky_pass and counts[Outcome.FLAKY]:
        lines.append("FLAKY cases do not fail this run (--flaky pass)")
    if page:
        lines.append(f"page: {one_line(page, MESSAGE_LIMIT)}")
    executed = sum(result.is_executed for result in results)
    lacking = sum(result.failure_type == UNAVAILABLE or result.outcome is Outcome.UNAVAILABLE for result in results)
    of = f"{selected} selected, {lacking} unavailable"
    lines.append(f"executed {executed} of {of}; report: {one_line(str(report_path))}")
    paint(stream, "\n".join(lines) + "\n")


_OF_A_STACK = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+ .*|  File \".*\", line [0-9?]+ in .*|Extension modules: .*")


def _last_words(result: CaseResult, folder: Path | None) -> Iterable[str]:
    """Yield the end of stderr of a case without a judged expectation: a crash, or an ERROR."""
    if result.outcome.junit is not JUnitTag.ERROR:
        return
    shown = {line for verdict in result.failed for line in plain(verdict.detail).splitlines() if line}  # the stack of a timeout
    has_stack = any("(most recent call first)" in line for line in shown)
    lines = plain(result.stderr).splitlines()
    data = (
        "\n".join(line for line in lines if line not in shown and not (has_stack and _OF_A_STACK.fullmatch(line))).strip().encode("utf-8")
    )
    lines = data[-_STDERR_LIMIT:].decode("utf-8", "ignore").splitlines()
    text = "\n".join(lines[-_STDERR_LINES:]).strip("\n")
    if text:
        whole = one_line(f"{folder / result.folder if folder else result.folder}/stderr.txt")
        cut = f" (the whole is in {whole})" if len(data) > len(text.encode("utf-8")) and result.folder else ""
        yield f"stderr ends{cut}:"
        yield from (f"    {line}" for line in text.splitlines())


_REASONS = 3
"""How many reasons the line of ``why_nothing`` has."""


def why_nothing(results: Sequence[CaseResult], least: int, selected: int) -> str:
    """Return on one line why a run in which nothing failed is no success."""
    executed = sum(result.is_executed for result in results)
    if not selected:
        return "nothing was executed: no case is selected"
    reasons = Counter(one_line(result.reason, 200) for result in results if not result.is_executed)
    shown = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(_REASONS))
    more = f"; and {len(reasons) - _REASONS} more reasons" if len(reasons) > _REASONS else ""
    because = f": {shown}{more}" if shown else ""
    if not executed:
        return f"nothing was executed, of {selected} selected{because}"
    return f"{executed} of {selected} selected were executed, fewer than --min-executed {least}{because}"


def painted(outcome: Outcome, *, color: bool) -> str:
    """Return the label of an outcome, in its colour if that is wanted."""
    return f"\x1b[{color_of(outcome)}m{outcome.label}\x1b[0m" if color else outcome.label


def color_of(outcome: Outcome) -> int:
    """Return the number of an outcome's colour: red, green or yellow."""
    return 31 if outcome.is_failure else 32 if outcome.junit is JUnitTag.NONE else 33


def shown_id(case_id: str) -> str:
    """Return a case's id, quoted for a shell."""
    return shlex.quote(one_line(case_id, limit=10_000))
