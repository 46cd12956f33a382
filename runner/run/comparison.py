"""Compares two recorded runs: how each case changed, and how the runs differ as a whole.

| first run, then | passes       | excused      | fails                    | not executed       | absent |
|-----------------|--------------|--------------|--------------------------|--------------------|--------|
| absent          | new          | new          | new-failure              | new                |        |
| not executed    | now-executed | now-executed | new-failure              | same, changed      | gone   |
| passes          | same         | waived       | broken                   | no-longer-executed | gone   |
| excused         | fixed        | same, changed| broken                   | no-longer-executed | gone   |
| fails           | fixed        | waived       | still-failing, changed   | no-longer-executed | gone   |

A case passes with PASS, XPASS or OFFLINE_PASS, and is excused with XFAIL. UNAVAILABLE and NOT_RUN are not executed, so a failure that
became unavailable is not fixed. OFFLINE_PASS is weaker than a pass: after an executed case it is no-longer-executed, before a pass
now-executed.

Times were measured on three pairs of runs of one machine (336 to 388 cases, 12 in parallel): the time of a case divided by that of the
other run had a median from 0.94 to 1.05; divided by this median, 1 % of the cases exceeded 1.6 and none 1.85. So a case is slower if it
took more than ``--slower`` times as long (2), and a second more, after the pace of the whole run is taken out. A bench is slower if its
least time exceeds the earlier run's greatest by a fifth.
"""

import os
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from runner.core.comparison import CaseChange, CaseTexts, Change, Comparison, FilePair, Mark, Pace, Side
from runner.core.diagnostics import UsageError, one_of, shown_path
from runner.core.header import RunHeader
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.core.stable_text import is_same
from runner.judge.evidence import NoObservation, recorded_observation
from runner.judge.waivers import failures_of
from runner.record.compatibility import option_differences, variable_differences
from runner.record.evidence import OBSERVATION, EvidenceAltered, RecordedFiles
from runner.record.journal import JournalError, Run, read_run
from runner.record.run_folder import JOURNAL, find_run, require_still
from runner.run.waiver_proposals import pattern_of

SECONDS = 1.0
"""How many seconds more a slower case takes."""

WHOLE = 1.5
"""The pace from which a run as a whole is slower."""

_FEWEST = 10
"""With fewer cases than these a median says nothing of the run."""

_BENCH = 1.2
_TIMED = (Outcome.PASS, Outcome.XPASS)
"""A failure ends a case early or late: its time is not compared."""

_CODE = re.compile(r"code-([0-9]{1,6})-([0-9]{1,6})\.txt")
_WITH_TEXTS = (Change.BROKEN, Change.CHANGED, Change.STILL_FAILING, Change.FIXED, Change.WAIVED)
"""The changes whose generated code and graphs are compared, as well as cases that are slower or another case."""


_MEASURED = re.compile(r"[0-9]*\.[0-9]+(?:e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+")
"""Numbers with a fraction or an exponent: a claim that names one computes it from what was measured."""


class _State(Enum):
    ABSENT = 0
    IDLE = 1
    PASSES = 2
    EXCUSED = 3
    FAILS = 4


_STATES: Mapping[Outcome, _State] = {
    Outcome.PASS: _State.PASSES,
    Outcome.XPASS: _State.PASSES,
    Outcome.OFFLINE_PASS: _State.PASSES,
    Outcome.XFAIL: _State.EXCUSED,
    Outcome.UNAVAILABLE: _State.IDLE,
    Outcome.NOT_RUN: _State.IDLE,
}
"""The state of each outcome; the others fail."""

_CHANGES: Mapping[tuple[_State, _State], Change] = {
    **{(_State.ABSENT, state): Change.NEW for state in (_State.IDLE, _State.PASSES, _State.EXCUSED)},
    **{(_State.IDLE, state): Change.NOW_EXECUTED for state in (_State.PASSES, _State.EXCUSED)},
    **{(state, _State.FAILS): Change.NEW_FAILURE for state in (_State.ABSENT, _State.IDLE)},
    **{(state, _State.FAILS): Change.BROKEN for state in (_State.PASSES, _State.EXCUSED)},
    **{(state, _State.EXCUSED): Change.WAIVED for state in (_State.PASSES, _State.FAILS)},
    **{(state, _State.PASSES): Change.FIXED for state in (_State.EXCUSED, _State.FAILS)},
    **{(state, _State.IDLE): Change.NO_LONGER_EXECUTED for state in (_State.PASSES, _State.EXCUSED, _State.FAILS)},
    **{(state, _State.ABSENT): Change.GONE for state in _State if state is not _State.ABSENT},
    (_State.FAILS, _State.FAILS): Change.STILL_FAILING,
}
"""The table above; every other pair is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRun:
    """A run and its name on the command line."""

    name: str
    run: Run
    folder: Path | None = None
    """None where the journal alone was given."""


def read_placed(name: str) -> NamedRun:
    """Read a run that has ended; raise ``UsageError`` for one that is truncated, altered, or still written."""
    if os.path.isfile(name):
        journal = Path(name).absolute()
        folder = journal.parent if journal.name == JOURNAL and (journal.parent / "cases").is_dir() else None
    else:
        folder = find_run(name)
        journal = folder / JOURNAL
    if folder is not None:
        require_still(name, folder)
    try:
        run = read_run(journal)
    except JournalError as error:
        raise UsageError(f"{shown_path(journal)}:{error.line}: {error.reason}") from error
    except OSError as error:
        raise UsageError(f"{shown_path(journal)}: {error.strerror}") from error
    if run.footer is None:
        raise UsageError(f"{name}: the run was cut off: its journal has no footer; resume it with 'run ... --resume {name}'")
    return NamedRun(name=name, run=run, folder=folder)


def compare(before: NamedRun, after: NamedRun, *, backends: Sequence[tuple[str, str]] = (), slower: float) -> Comparison:
    """Return what changed from the first run to the second; raise ``UsageError`` where a backend of ``backends`` has no case.

    ``backends`` pairs a backend of the first run with one of the second. ``slower`` is the factor that a case must exceed to be slower.
    """
    first, second = _paired(before, after, backends)
    pairs: dict[str, tuple[CaseResult | None, CaseResult | None]]
    pairs = {case_id: (first.get(case_id), result) for case_id, result in second.items()}
    pairs |= {case_id: (result, None) for case_id, result in first.items() if case_id not in second}
    timed = [(then, now) for then, now in pairs.values() if then is not None and now is not None]
    pace = pace_of(timed)
    headers = before.run.header, after.run.header
    changes = []
    for then, now in pairs.values():
        change = change_of(then, now)
        marks, remarks = [], list(_remarks(change, then, now, headers[1]))
        if then is not None and now is not None:
            if problem := _other_case(then, now, headers, is_mapped=bool(backends)):
                marks.append(Mark.SPEC_CHANGED)
                remarks.append(problem)
            if slowdowns := list(_slowdowns(then, now, pace, slower)):
                marks.append(Mark.SLOWER)
                remarks += slowdowns
        changes.append(CaseChange(change=change, before=then, after=now, marks=tuple(marks), remarks=tuple(remarks)))
    sides = [
        Side(
            name=named.name,
            header=named.run.header,
            totals=Counter(result.outcome for result in results.values()),
            interrupted=named.run.footer is not None and named.run.footer.interrupted,
        )
        for named, results in ((before, first), (after, second))
    ]
    return Comparison(
        before=sides[0],
        after=sides[1],
        changes=tuple(changes),
        differences=tuple(differences(*headers)),
        pace=pace,
        backends=tuple(backends),
        both=sum(_State.IDLE not in (_state(then), _state(now)) for then, now in timed),
    )


# -- pairs ----------------------------------------------------------------------------------------------------------


def _paired(before: NamedRun, after: NamedRun, backends: Sequence[tuple[str, str]]) -> tuple[dict[str, CaseResult], dict[str, CaseResult]]:
    """Return the results to compare, by their id in the second run."""
    first = {str(result.case_id): result for result in before.run.results}
    second = {str(result.case_id): result for result in after.run.results}
    if not backends:
        return first, second
    for index, (named, results) in enumerate(((before, first), (after, second))):
        there = {result.backend for result in results.values()}
        for pair in backends:
            if pair[index] not in there:
                has = f"it has {one_of(there)}" if there else "it has no case"
                raise UsageError(f"--map-backend {'='.join(pair)}: {named.name} has no case of the backend '{pair[index]}' ({has})")
    others = dict(backends)
    mapped = [result for result in first.values() if result.backend in others]
    renamed = {_renamed(result.case_id, result.backend, others[result.backend]): result for result in mapped}
    return renamed, {case_id: result for case_id, result in second.items() if result.backend in others.values()}


def _renamed(case_id: str, backend: str, other: str) -> str:
    """Return the id of the same case with another backend, which an id names first."""
    head, bracket, rest = case_id.partition("[")
    words = re.split("([,\\]])", rest, maxsplit=1)
    return "".join([head, bracket, f"backend={other}", *words[1:]]) if words[0] == f"backend={backend}" else case_id


# -- cases ----------------------------------------------------------------------------------------------------------


def change_of(before: CaseResult | None, after: CaseResult | None) -> Change:
    """Return what became of a case; None stands for a run that has no result of it."""
    then, now = _state(before), _state(after)
    if before is None or after is None:
        return _CHANGES[then, now]
    if after.outcome is Outcome.OFFLINE_PASS and before.is_executed:
        return Change.NO_LONGER_EXECUTED
    if after.outcome is Outcome.OFFLINE_PASS and then is _State.IDLE:
        return Change.CHANGED
    if before.outcome is Outcome.OFFLINE_PASS and now in (_State.PASSES, _State.EXCUSED) and after.is_executed:
        return Change.NOW_EXECUTED
    change = _CHANGES.get((then, now), Change.SAME)
    if then is now and signature(before) != signature(after):
        return Change.CHANGED
    return change


def _state(result: CaseResult | None) -> _State:
    return _State.ABSENT if result is None else _STATES.get(result.outcome, _State.FAILS)


def signature(result: CaseResult) -> tuple[object, ...]:
    """Return what stays the same of an outcome from run to run: without observed values, addresses, paths and measured numbers."""
    failures = tuple(sorted({(failure.type, failure.phase) for failure in failures_of(result)}))
    claims = tuple(sorted({(verdict.kind, pattern_of(_MEASURED.sub("0", verdict.expected))) for verdict in result.failed}))
    # without a claim there is a reason alone: of an exception, a crash, or what is missing
    reason = "" if any(claim for _, claim in claims) or result.outcome is Outcome.PASS else pattern_of(result.reason)
    return result.outcome, result.failure_type, result.level, failures, claims, reason


def _remarks(change: Change, before: CaseResult | None, after: CaseResult | None, header: RunHeader) -> Iterator[str]:
    if change is Change.GONE and before is not None:
        is_read = before.spec in header.specs
        yield f"{before.spec} was {'' if is_read else 'not '}read by the second run" + (
            ": the case was not selected, or the spec lost it" if is_read else ""
        )
    if after is not None and after.outcome is Outcome.XPASS:
        yield "passes although a waiver names it: remove the waiver"
    if after is not None and after.outcome is Outcome.OFFLINE_PASS and change is not Change.SAME:
        yield f"compiled for {after.target}, not executed"
    if before is not None and after is not None and before.level and after.level and before.level != after.level:
        yield f"evidence {after.level}, was {before.level}"


def _other_case(before: CaseResult, after: CaseResult, headers: tuple[RunHeader, RunHeader], *, is_mapped: bool) -> str:
    """Return why two results are not of the same case; empty if they are. The same case of two backends has two digests."""
    then, now = headers[0].specs.get(before.spec), headers[1].specs.get(after.spec)
    is_other = (then != now) if is_mapped else (before.digest != after.digest and bool(before.digest and after.digest))
    if not is_other:
        return ""
    if before.spec == after.spec and then == now and then is not None:
        return f"{after.spec} is the same file, and expands to another case: its defaults, backend, torch or this program differ"
    return f"the spec changed: {after.spec}" + ("" if before.spec == after.spec else f", was {before.spec}")


# -- times ----------------------------------------------------------------------------------------------------------


def pace_of(pairs: Sequence[tuple[CaseResult, CaseResult]]) -> Pace:
    """Return how the times of these cases compare."""
    ratios = [_seconds(after) / _seconds(before) for before, after in pairs if is_timed(before, after)]
    ratio = statistics.median(ratios) if len(ratios) >= _FEWEST else 1.0
    return Pace(cases=len(ratios), ratio=ratio, is_slower=ratio >= WHOLE)


def is_timed(before: CaseResult, after: CaseResult) -> bool:
    """Whether the times of two results can be compared: both passed, in the same kind of process."""
    return (
        all(result.outcome in _TIMED and result.is_executed and _seconds(result) > 0 for result in (before, after))
        and before.isolation == after.isolation
        and before.benches_left_out == after.benches_left_out
    )


def _slowdowns(before: CaseResult, after: CaseResult, pace: Pace, factor: float) -> Iterator[str]:
    """Yield what of a case took longer than noise explains, a line each."""
    if is_timed(before, after):
        then, now = _seconds(before) * max(pace.ratio, 1.0), _seconds(after)
        if now > factor * then and now - then > SECONDS:
            yield f"took {now:.1f} s, was {_seconds(before):.1f} s"
    earlier = {(timing.name, timing.form): timing for timing in before.timings}
    for timing in after.timings:
        was = earlier.get((timing.name, timing.form))
        if was is not None and timing.least_ms > _BENCH * was.most_ms:
            yield f"bench {timing.name} {timing.form}: {timing.median_ms:.3f} ms, was {was.median_ms:.3f} ms"


def _seconds(result: CaseResult) -> float:
    """Return the time of one attempt: a result's own time is that of all its attempts."""
    return result.seconds / max(len(result.attempts), 1)


# -- runs -----------------------------------------------------------------------------------------------------------


def differences(before: RunHeader, after: RunHeader) -> Iterator[str]:
    """Yield how the versions, machines, options and variables of two runs differ, a line each."""
    if before.version != after.version:
        yield f"torch-conformance: {before.version}, then {after.version}"
    for name in dict.fromkeys((*before.environment, *after.environment)):
        then, now = before.environment.get(name, "none"), after.environment.get(name, "none")
        if then != now:
            yield f"{name}: {then}, then {now}"
    for difference in (*option_differences(before.options, after.options), *variable_differences(before.variables, after.variables)):
        yield f"{difference.what}: {difference.here or 'not given'}, then {difference.there or 'not given'}"
    if before.shard != after.shard:
        yield f"--shard: {before.shard or 'not given'}, then {after.shard or 'not given'}"


# -- generated code and graphs ----------------------------------------------------------------------------------------


def texts_of(changes: Iterable[CaseChange], before: NamedRun, after: NamedRun) -> Iterator[CaseTexts]:
    """Yield the generated code and graphs of each changed case that has some; raise ``UsageError`` for files that were altered."""
    for change in changes:
        if change.before is None or change.after is None or not (change.change in _WITH_TEXTS or change.marks):
            continue
        try:
            then, now = _texts(before.folder, change.before), _texts(after.folder, change.after)
        except EvidenceAltered as error:
            raise UsageError(f"{error}; nothing is compared with an altered run") from error
        except _Unreadable as error:
            yield CaseTexts(case_id=change.case_id, missing=str(error))
            continue
        pairs = [(name, then.get(name), now.get(name)) for name in sorted(then.keys() | now.keys(), key=_in_order)]
        if pairs:
            files = [
                FilePair(name=name, before=old, after=new, is_same=None not in (old, new) and is_same(old or "", new or ""))
                for name, old, new in pairs
            ]
            yield CaseTexts(case_id=change.case_id, pairs=tuple(files))


def _in_order(name: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(word), "") if word.isdecimal() else (-1, word) for word in re.split("([0-9]+)", name))


class _Unreadable(Exception):
    """The texts of a case are not there."""


def _texts(folder: Path | None, result: CaseResult) -> dict[str, str]:
    """Return the texts by which a case was judged: generated code by file, captured graphs by step and expectation."""
    if not result.folder or not result.evidence:
        return {}
    if folder is None:
        raise _Unreadable("the journal was given without the folders of its cases")
    files = RecordedFiles(folder / result.folder, result.evidence)
    pieces = [match for name in result.evidence if (match := _CODE.fullmatch(name))]
    try:
        code = {match[0]: files.code(int(match[1]), int(match[2])) for match in pieces}
        steps = recorded_observation(files.observation()).steps if OBSERVATION in result.evidence else ()
    except (OSError, ValueError, NoObservation) as error:
        raise _Unreadable(f"{result.folder} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    texts = dict(code)
    for number, step in enumerate(steps):
        for index, measured in step.facts.items():
            graphs = measured.get("graphs") if isinstance(measured, dict) else None
            for at, graph in enumerate(graphs if isinstance(graphs, list) else ()):
                if isinstance(graph, dict) and isinstance(graph.get("text"), str):
                    texts[f"graph {at} of step {number}, expectation {index}"] = graph["text"]
    return texts
