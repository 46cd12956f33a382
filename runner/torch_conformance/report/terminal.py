"""The terminal as a listener: live progress and messages on standard error, the final report on
standard output.
"""

import contextlib
import itertools
import os
import re
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from torch_conformance.machine import output
from torch_conformance.model.diagnostics import shown_path
from torch_conformance.model.escaping import MESSAGE_LIMIT, one_line, plain
from torch_conformance.model.events import (
    Activity,
    AttemptFinished,
    CaseFinished,
    ExecutionEnded,
    Note,
    RunAbandoned,
    RunEnded,
    RunEvent,
    RunStarted,
)
from torch_conformance.model.header import DECLARES, ReportedRun, RunFooter
from torch_conformance.model.outcomes import ExitCode, JUnitTag, Outcome
from torch_conformance.model.results import NOT_MEASURED, UNAVAILABLE, Redacted, executed
from torch_conformance.model.targets import evidence_of
from torch_conformance.optional.options import MergeOptions, ReportOptions, RunOptions
from torch_conformance.record.conclusion import profile_statement
from torch_conformance.record.run_folder import JUNIT, LATEST, REPORTS, RunFolder
from torch_conformance.report import (
    Excerpts,
    ReportSetup,
    Source,
    columns,
    cut_to,
    flaky_words,
    note_lines,
    timing_lines,
    tolerance_words,
    verdict_text,
)

BLOCK_LIMIT = 6_000
"""Bytes of one case's block; the JUnit report and the run's folder have the rest."""

_LONGEST_WARNING = 2_000
"""Characters."""

_STDERR_LIMIT, _STDERR_LINES = 1_500, 30
_OF_A_STACK = re.compile(
    r"(?:Current thread|Thread) 0x[0-9a-f]+ .*|  File \".*\", line [0-9?]+ in .*|Extension "
    r"modules: .*"
)

_DUMB = ("dumb", "unknown")
"""Values of TERM for terminals without colours and cursor movement."""

_GROUPED = (Outcome.NOT_RUN, Outcome.UNAVAILABLE)
"""Outcomes of cases that were not executed.

They are grouped by reason: many cases share few reasons.
"""

_MOST_SHARED = 20
"""How many specs have a line about what their failures share."""

_REASONS = 3
"""How many reasons the line of ``why_nothing`` has."""

FIRST_HEARTBEAT = 30.0
"""Seconds without a line after which a stream that is not a terminal gets a heartbeat: a line with
what the run waits for.
"""

LAST_HEARTBEAT = 300.0
"""The longest time between two heartbeats; the interval doubles until then."""

MOST_RUNNING = 8
"""The maximum number of running cases in a line, the longest first."""

_REDRAW = 0.1
_BAR, _WIDE = 24, 100
_LEAST_ENDED = 5
"""Cases that must have ended before the time that is left is said."""
_CLEAR = "\r\x1b[K"


class TerminalReporter:
    """Shows a run to the person who started it."""

    def __init__(self, setup: ReportSetup) -> None:
        self._setup = setup
        self._is_executing = True
        stream = output.stderr()
        self._progress = Progress(
            stream, color=wants_color(stream, os.environ), live=wants_bar(stream, os.environ)
        )
        self.close = self._progress.close

    def on_event(self, event: RunEvent) -> None:
        """Show an event."""
        match event:
            case RunStarted():
                self._progress.start(event.total, lets_flaky_pass=event.header.lets_flaky_pass)
            case Activity():
                self._progress.show(event)
            case AttemptFinished():
                self._progress.attempt_finished(
                    event.result, f"attempt {event.number} of {event.bound}"
                )
            case CaseFinished(had_all_attempts=True):
                self._progress.case_finished(event.result)
            case ExecutionEnded() | RunAbandoned():
                self._is_executing = False
                self._progress.close()
            case Note(is_warning=True):
                output.note(f"warning: {one_line(event.text, _LONGEST_WARNING)}")
            case Note() if self._is_executing:
                self._progress.note(event.text)
            case Note():
                output.note(event.text)
            case RunEnded():
                folder = self._setup.folder
                show_end(folder, self._setup.options, event)
                for line in why_no_success(event) if event.results else ():
                    output.note(line)
                if event.footer.interrupted:
                    output.note(
                        "to resume: the same command with --resume "
                        f"{shlex.quote(shown_path(folder.path))}"
                    )


# -- the report of a run ---------------------------------------------------------------------------


def show_end(
    folder: RunFolder,
    options: RunOptions | MergeOptions | ReportOptions,
    run: ReportedRun,
) -> None:
    """Print the report of a run, or of a merged one, on standard output."""
    junit = options.junit or (REPORTS / LATEST if folder.is_latest else folder.path) / JUNIT
    text = report_of(
        run,
        junit=shown_path(junit),
        color=wants_color(output.stdout(), os.environ),
        folder=Path(shown_path(folder.path)),
        page=folder.page,
        source=Excerpts(run.header.specs),
    )
    output.paint(output.stdout(), text)


def report_of(
    run: ReportedRun,
    *,
    junit: str,
    color: bool = False,
    folder: Path | None = None,
    page: str = "",
    source: Source = lambda position: (),
) -> str:
    """Return every case other than PASS, the timings, the totals, the HTML report, and last the
    number of executed cases.
    """
    header, results, footer = run.header, run.results, run.footer
    # XFAIL and OFFLINE_PASS are reported one by one although they do not fail the run
    lines = [
        f"{painted(result.outcome, color=color)}  {shown_id(result.case_id)}: "
        f"{one_line(result.reason)}"
        for result in results
        if result.outcome.junit is JUnitTag.SKIPPED and result.outcome not in _GROUPED
    ]
    lines += _failures(results, folder, source, color=color)
    for outcome in _GROUPED:
        reasons = Counter(
            one_line(result.reason) for result in results if result.outcome is outcome
        )
        lines += [f"\n{painted(outcome, color=color)}"] if reasons else []
        lines += [f"  {count:5}  {reason}" for reason, count in reasons.most_common()]
    if timed := [result for result in results if result.timings or result.attachments]:
        lines.append("\ntimings: reported, never judged")
        for result in timed:
            lines += [
                f"  {shown_id(result.case_id)}",
                *(f"  {line}" for line in timing_lines(result)),
            ]
            lines += [f"    {one_line(f'{result.folder}/{name}')}" for name in result.attachments]
    lines += _notes(results)
    counts = Counter(result.outcome for result in results)
    lines.append("")
    for outcome in Outcome:
        if counts[outcome] or outcome is Outcome.PASS:
            levels = Counter(
                result.level for result in results if result.outcome is outcome and result.level
            )
            shown = ", ".join(f"{levels[level]} {evidence_of(level)}" for level in sorted(levels))
            evidence = f"  (compiled, not executed: {shown})" if shown else ""
            lines.append(f"{counts[outcome]:7}  {painted(outcome, color=color)}{evidence}")
    lines += filter(None, [tolerance_words(results), flaky_words(results)])
    for warning in footer.warnings if footer else ():
        lines.append(
            f"doctor: {one_line(warning.text, 4 * MESSAGE_LIMIT)} (red cases that use this "
            f"tool: {len(warning.cases)})"
        )
    if left_out := sum(result.benches_left_out for result in results):
        cases = sum(result.benches_left_out > 0 for result in results)
        steps = (
            f"{left_out} bench step{'' if left_out == 1 else 's'} of {cases} "
            f"case{'' if cases == 1 else 's'}"
        )
        lines.append(f"{steps} left out: nothing was timed (run --bench times them)")
    if header.not_requested:
        are = (
            "1 case on request is"
            if header.not_requested == 1
            else f"{header.not_requested} cases on request are"
        )
        lines.append(f"{are} not selected (a PATH, --tag or --select that names them runs them)")
    lines += (
        statement.lines() if footer and (statement := profile_statement(header, results)) else []
    )
    if header.lets_flaky_pass and counts[Outcome.FLAKY]:
        lines.append("FLAKY cases do not fail this run (--flaky pass)")
    if any(result.eager_operators != NOT_MEASURED for result in results):
        from torch_conformance.report.support_table import lines_of  # few runs have a support table

        lines += lines_of(results)
    lines += [
        one_line(f"{name.removesuffix(DECLARES)} declares: {words}")
        for name, words in header.environment.items()
        if name.endswith(DECLARES)
    ]
    lines += _costs(footer) if footer else []
    if page:
        lines.append(f"page: {one_line(page, MESSAGE_LIMIT)}")
    lacking = sum(
        result.failure_type == UNAVAILABLE or result.outcome is Outcome.UNAVAILABLE
        for result in results
    )
    of = f"{header.selected} selected, {lacking} unavailable"
    if offline := counts[Outcome.OFFLINE_PASS]:
        of += f", {offline} passed offline"
    wall = f"; {_duration(footer.seconds)}" if footer else ""
    lines.append(f"executed {executed(results)} of {of}; report: {one_line(junit)}{wall}")
    return "\n".join(lines) + "\n"


def _failures(
    results: Sequence[Redacted], folder: Path | None, source: Source, *, color: bool
) -> Iterator[str]:
    """Yield a block for each cause of failures, and what the failures of a spec share."""
    failed = [
        result for result in results if result.outcome.is_failure and result.outcome not in _GROUPED
    ]
    if not failed:
        return
    from torch_conformance.report.causes import causes, folded_ids, shared_by_failures

    for result, *others in causes(failed):
        yield f"\n{painted(result.outcome, color=color)}  {shown_id(result.case_id)}"
        yield verdict_text(result, limit=BLOCK_LIMIT, folder=folder, source=source)
        yield from _last_words(result, folder)
        if others:
            yield f"{len(others) + 1} cases have this cause; the others:"
            yield from (f"  {line}" for line in folded_ids(others))
    yield ""
    for _, sentence, _ in itertools.islice(shared_by_failures(results), _MOST_SHARED):
        yield sentence


def _notes(results: Sequence[Redacted]) -> Iterator[str]:
    """Yield the notes of cases, those that are alike once."""
    if not (noted := [result for result in results if note_lines(result)]):
        return
    from torch_conformance.report.causes import causes, folded_ids, notes_of

    yield "\nnotes: they change no outcome"
    for result, *others in causes(noted, notes_of):
        yield f"  {shown_id(result.case_id)}"
        yield from (f"    {line}" for line in note_lines(result))
        if others:
            yield f"    {len(others) + 1} cases have this note; the others:"
            yield from (f"      {line}" for line in folded_ids(others))


def _costs(footer: RunFooter) -> Iterator[str]:
    """Yield the phases of its start, what the run cost, and what bounds it on its machine."""
    phases = {name: seconds for name, seconds in footer.start_up.items() if seconds >= 0.1}
    if phases:
        yield f"seconds until the first case: {sum(phases.values()):.1f}: " + ", ".join(
            f"{name} {seconds:.1f}" for name, seconds in phases.items()
        )
    if not (costs := footer.costs):
        return
    best = max(costs.get("cores", 0), costs.get("contexts", 0))
    yield (
        f"took {_duration(footer.seconds)}: at best about {_duration(best)} here, "
        f"{costs.get('start', 0):.0f} s of it start-up"
    )
    totals = ("cores", "contexts", "start", "ratio", "processors")
    shown = ", ".join(f"{kind} {costs[kind]:.0f}" for kind in costs if kind not in totals)
    yield f"seconds of workers: {shown}; {costs.get('processors', 0):.0f} of processors"


def _duration(seconds: float) -> str:
    """Return a time for people."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _last_words(result: Redacted, folder: Path | None) -> Iterable[str]:
    """Yield the end of stderr of a case without a judged expectation: a crash, or an ERROR; of
    stdout after a crash, and where a child failed, which shares it.
    """
    is_of_child = any(verdict.kind == "exit" for verdict in result.failed)
    if result.outcome.junit is not JUnitTag.ERROR and not is_of_child:
        return
    streams = {"stderr": not is_of_child, "stdout": is_of_child or result.outcome is Outcome.CRASH}
    lines_shown = {
        line for verdict in result.failed for line in plain(verdict.detail).splitlines() if line
    }  # the stack of a timeout
    has_stack = any("(most recent call first)" in line for line in lines_shown)
    for stream in filter(streams.get, streams):
        lines = [
            line
            for line in plain(getattr(result, stream)).splitlines()
            if line not in lines_shown and not (has_stack and _OF_A_STACK.fullmatch(line))
        ]
        data = "\n".join(lines).strip().encode("utf-8")
        text = "\n".join(
            data[-_STDERR_LIMIT:].decode("utf-8", "ignore").splitlines()[-_STDERR_LINES:]
        ).strip("\n")
        if text:
            whole = one_line(f"{folder / result.folder if folder else result.folder}/{stream}.txt")
            cut = (
                f" (the whole is in {whole})"
                if len(data) > len(text.encode("utf-8")) and result.folder
                else ""
            )
            yield f"{stream} ends{cut}:"
            yield from (f"    {line}" for line in text.splitlines())


def why_no_success(run: ReportedRun) -> Iterator[str]:
    """Yield why a run in which nothing failed is not a success.

    Names of ``--require`` that no case used are not among it.
    """
    header, results = run.header, run.results
    if (statement := profile_statement(header, results)) is not None:
        yield from filter(None, [statement.why])
        return
    code = run.footer.exit_code if run.footer else ExitCode.OK
    least = header.number("min-executed")
    is_short = header.counted(results) < (max(least, 1) if code == ExitCode.NOTHING else 1)
    if not is_short or code not in (ExitCode.NOTHING, ExitCode.FAILED):
        return
    reasons = Counter(one_line(result.reason, 200) for result in results if not result.is_executed)
    shown = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(_REASONS))
    more = f"; and {len(reasons) - _REASONS} more reasons" if len(reasons) > _REASONS else ""
    because = f": {shown}{more}" if shown else ""
    if offline := sum(result.outcome is Outcome.OFFLINE_PASS for result in results):
        because = f"; {offline} passed offline, which --count-offline counts"
    if not header.selected:
        yield "nothing was executed: no case is selected"
    elif not (count := header.counted(results)):
        yield f"nothing was executed, of {header.selected} selected{because}"
    else:
        yield (
            f"{count} of {header.selected} selected were executed, fewer than --min-executed "
            f"{least}{because}"
        )


# -- colours ---------------------------------------------------------------------------------------


def wants_color(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether to colour: a terminal, and NO_COLOR empty or unset."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") not in _DUMB


def wants_bar(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether to draw a status: on an interactive terminal, not in CI."""
    return stream.isatty() and not environ.get("CI") and environ.get("TERM") not in _DUMB


def painted(outcome: Outcome, *, color: bool) -> str:
    """Return the label of an outcome, in its colour if that is wanted."""
    return f"\x1b[{color_of(outcome)}m{outcome.label}\x1b[0m" if color else outcome.label


def color_of(outcome: Outcome) -> int:
    """Return the number of an outcome's colour: red, green or yellow."""
    return 31 if outcome.is_failure else 32 if outcome.junit is JUnitTag.NONE else 33


def shown_id(case_id: str) -> str:
    """Return a case's id, quoted for a shell."""
    return shlex.quote(one_line(case_id, limit=10_000))


# -- progress --------------------------------------------------------------------------------------


class Progress:
    """The progress of a run.

    With ``live`` a status is drawn on a terminal; ``close`` removes it.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        color: bool,
        live: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._color = color
        self._is_live = live
        self._lets_flaky_pass = False
        self._clock = clock
        self._total = 0
        self._ended: Counter[Outcome] = Counter()
        self._activity = Activity()
        self._quiet_since = self._started_at = clock()
        self._patience = FIRST_HEARTBEAT
        self._drawn_at = float("-inf")

    def start(self, total: int, *, lets_flaky_pass: bool = False) -> None:
        """Begin a run of ``total`` cases."""
        self._total, self._lets_flaky_pass = total, lets_flaky_pass
        self._quiet_since = self._started_at = self._clock()

    def show(self, activity: Activity) -> None:
        """Show the current activity of the run; called often."""
        self._activity = activity
        now = self._clock()
        if self._is_live and now - self._drawn_at >= _REDRAW:
            self._drawn_at = now
            output.paint(self._stream, self._status(now))
        elif (
            not self._is_live
            and now - self._quiet_since >= self._patience
            and (words := self._waits_for(now))
        ):
            patience = min(2 * self._patience, LAST_HEARTBEAT)
            self.note(f"{self._ended.total()}/{self._total} ended; {words}")
            self._patience = patience

    def case_finished(self, result: Redacted) -> None:
        """Count a case; print a line if no status is drawn, or if the case failed."""
        self._ended[result.outcome] += 1
        self.attempt_finished(
            result, f"{self._ended.total():{len(str(self._total))}}/{self._total}"
        )

    def attempt_finished(self, result: Redacted, which: str) -> None:
        """Print a line for an attempt of a case if no status is drawn, or if the attempt failed."""
        if result.outcome.is_failure or not self._is_live:
            because = f": {one_line(result.reason)}" if result.outcome.is_failure else ""
            words = f"  {which}  {result.seconds:.1f}s  {shown_id(result.case_id)}{because}"
            self.note(f"{painted(result.outcome, color=self._color)}{words}")

    def note(self, text: str) -> None:
        """Print a line, in the place of the status if there is one."""
        self._quiet_since = self._clock()
        self._patience = FIRST_HEARTBEAT
        output.paint(self._stream, f"{_CLEAR if self._is_live else ''}{text}\n")
        self._drawn_at = float("-inf")

    def close(self) -> None:
        """Remove the status; nothing is drawn after it."""
        if self._is_live:
            output.paint(self._stream, _CLEAR)

    def _waits_for(self, now: float, most: int = MOST_RUNNING) -> str:
        """Return what the run waits for, with at most so many running cases; empty if it waits for
        nothing.
        """
        waits = (
            ("starting torch", self._activity.starting),
            ("warming up a worker", self._activity.warming),
            ("waiting for nodes, which another run may hold", self._activity.held),
        )
        parts = [
            f"{words} ({max(now - since, 0):.0f} s)" for words, since in waits if since is not None
        ]
        if running := sorted(self._activity.running, key=lambda case: case.since):
            # the phase is a worker's text
            cases = [
                f"{shown_id(case.name)} ({max(now - case.since, 0):.0f} s, "
                f"{one_line(case.phase, 30) or 'starting'})"
                for case in running[:most]
            ]
            more = f" and {len(running) - most} more" if len(running) > most else ""
            parts.append(f"running {', '.join(cases)}{more}")
        return "; ".join(parts)

    def _status(self, now: float) -> str:
        """Return the status: a bar, the counts, and what the run waits for, as wide as the
        terminal.
        """
        colors = {outcome: color_of(outcome) for outcome in Outcome}
        if self._lets_flaky_pass:
            colors[Outcome.FLAKY] = 33
        ended = self._ended.total()
        bar = _BAR if shutil.get_terminal_size().columns >= _WIDE else _BAR // 3
        filled = bar * ended // max(self._total, 1)
        parts = [
            ("=" * filled, 31 if any(colors[outcome] == 31 for outcome in self._ended) else 32)
        ]
        parts += [("-" * (bar - filled), 0), (f" {ended}/{self._total}", 0)]
        for outcome in Outcome:
            if count := self._ended[outcome]:
                parts += [(f"  {count} ", 0), (outcome.label, colors[outcome])]
        seconds_left = (now - self._started_at) * (self._total / max(ended, 1) - 1)
        if _LEAST_ENDED <= ended < self._total:
            parts.append((f"  {_duration(seconds_left)} left", 0))
        width = 0  # some terminals do not know theirs
        with contextlib.suppress(OSError, ValueError):
            width = os.get_terminal_size(self._stream.fileno()).columns
        room = (width or shutil.get_terminal_size().columns) - 1
        text, taken = _CLEAR, sum(columns(words) for words, _ in parts)
        for most in (MOST_RUNNING, 1):
            if columns(waits := f"  {self._waits_for(now, most)}") <= room - taken:
                break
        else:  # the end of an id tells it from others
            end = cut_to(waits[::-1], max(room - taken - 5, 0))[::-1]
            waits = f"  ...{end}" if end else ""
        for words, number in [*parts, (waits, 0)]:
            shown = cut_to(words, room)
            room -= columns(shown)
            text += f"\x1b[{number}m{shown}\x1b[0m" if number and shown and self._color else shown
        return text
