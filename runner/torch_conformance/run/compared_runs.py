"""Compares two recorded runs: how each case changed, and how the runs differ as a whole.

| first run, then | passes       | excused      | fails                    | not executed       | absent |
|-----------------|--------------|--------------|--------------------------|--------------------|--------|
| absent          | new          | new          | new-failure              | new                |        |
| not executed    | now-executed | now-executed | new-failure              | same, changed      | gone   |
| passes          | same         | waived       | broken                   | no-longer-executed | gone   |
| excused         | fixed        | same, changed| broken                   | no-longer-executed | gone   |
| fails           | fixed        | waived       | still-failing, changed   | no-longer-executed | gone   |

A case passes with PASS, XPASS or OFFLINE_PASS, and is excused with XFAIL or a flaky waiver.
UNAVAILABLE and NOT_RUN are not executed, so a failure that became unavailable is not fixed.
OFFLINE_PASS is weaker than a pass: after an executed case it is no-longer-executed, before a pass
now-executed.
"""  # noqa: E501 - a table

import difflib
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from pathlib import Path

from torch_conformance.judge.evidence import NoObservation, observation_of
from torch_conformance.judge.waiving import failures_of
from torch_conformance.matching.patterns import pattern_of, stable_lines
from torch_conformance.model.case_facts import StepFacts
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.header import RunHeader
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.model.values import frozen
from torch_conformance.record.case_files import OBSERVATION, EvidenceAltered, RecordedFiles
from torch_conformance.record.comparison import Difference, command_differences
from torch_conformance.record.journal import NamedRun, readable, recorded_run
from torch_conformance.record.run_folder import JOURNAL


class Change(Enum):
    """What became of a case between two runs.

    The order is that of every report: what needs attention first.
    """

    BROKEN = ("broken", "executed in both runs, and only the second fails")
    NEW_FAILURE = ("new-failure", "fails in the second run, and the first has no result of it")
    GONE = ("gone", "only in the first run")
    NO_LONGER_EXECUTED = (
        "no-longer-executed",
        "executed or checked in the first run, and not in the second",
    )
    WAIVED = (
        "waived",
        "fails in the second run as a waiver says, and no waiver excused it in the first",
    )
    CHANGED = (
        "changed",
        "neither better nor worse, but with another failure, reason, outcome or level of evidence",
    )
    STILL_FAILING = ("still-failing", "fails in both runs in the same way")
    FIXED = ("fixed", "fails in the first run, and passes in the second")
    NEW = ("new", "only in the second run, and does not fail")
    NOW_EXECUTED = (
        "now-executed",
        "not executed in the first run, and does not fail in the second",
    )
    SAME = ("same", "no change of the outcome")

    def __init__(self, word: str, meaning: str) -> None:
        self.word = word
        self.meaning = meaning


SPEC_CHANGED = "spec-changed"
"""The word of a case whose spec or expansion differs between the two runs.

A case may have it and a change.
"""

FAIL_ON: tuple[str, ...] = (
    *(change.word for change in Change if change is not Change.SAME),
    SPEC_CHANGED,
)
"""The words of ``--fail-on``."""


@frozen
class CaseChange:
    """One case of two runs."""

    change: Change
    before: CaseResult | None
    """The result of the first run; None where it has none."""
    after: CaseResult | None
    spec_changed: bool = False
    remarks: tuple[str, ...] = ()
    """What a person should know of the change, a line each."""
    code: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What differs in generated code and captured graphs: the lines of a unified diff, by the name
    of the text.
    """

    @property
    def case_id(self) -> str:
        """The id of the case."""
        result = self.after or self.before
        assert result is not None, "a change is of a case of some run"
        return result.case_id

    @property
    def words(self) -> tuple[str, ...]:
        """The words of ``--fail-on`` that are true of the case; reports list the cases that have
        one.
        """
        return (
            *([] if self.change is Change.SAME else [self.change.word]),
            *([SPEC_CHANGED] if self.spec_changed else []),
        )

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The outcomes of both runs; once where they are the same."""
        sides = [
            result.outcome.label if result is not None else "absent"
            for result in (self.before, self.after)
        ]
        return tuple(dict.fromkeys(sides))


@frozen
class Comparison:
    """Two runs compared."""

    before: NamedRun
    after: NamedRun
    changes: tuple[CaseChange, ...]
    """Every case of either run, in the order of the second run; then those that are gone."""
    differences: tuple[str, ...]
    """How the machines, versions and options of the runs differ, a line each."""
    both: int = 0
    """How many cases have a result in both runs: executed, or checked for a target."""

    @property
    def counts(self) -> dict[str, int]:
        """How many cases have each word, and how many none."""
        counts = Counter(word for change in self.changes for word in change.words)
        same = sum(change.change is Change.SAME for change in self.changes)
        return {**{word: counts[word] for word in FAIL_ON}, Change.SAME.word: same}

    def listed(self, change: Change) -> list[CaseChange]:
        """Return the cases of a change that reports list."""
        return [case for case in self.changes if case.change is change and case.words]

    def reached(self, words: Sequence[str]) -> dict[str, int]:
        """Return how many cases have each of these words, for those that some case has."""
        return {word: count for word, count in self.counts.items() if count and word in words}


# -- how they are found ----------------------------------------------------------------------------

_CODE = re.compile(r"code-([0-9]{1,6})-([0-9]{1,6})\.txt")
_WITH_CODE = (Change.BROKEN, Change.CHANGED, Change.STILL_FAILING, Change.FIXED, Change.WAIVED)
"""The changes whose generated code and graphs are compared, as well as those of another case."""

_COMPARED, _SHOWN = 6_000, 2_000
"""Lines of a text that are compared, and lines of what differs in it."""

_MEASURED = re.compile(r"[0-9]*\.[0-9]+(?:e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+")
"""Numbers with a fraction or an exponent: a claim that names one computes it from what was
measured.
"""


class _State(Enum):
    """What a case is in one run, by the letter of the table of changes."""

    ABSENT = "A"
    NOT_EXECUTED = "N"
    PASSES = "P"
    EXCUSED = "X"
    FAILS = "F"


_STATES: Mapping[Outcome, _State] = {
    Outcome.PASS: _State.PASSES,
    Outcome.XPASS: _State.PASSES,
    Outcome.OFFLINE_PASS: _State.PASSES,
    Outcome.XFAIL: _State.EXCUSED,
    Outcome.UNAVAILABLE: _State.NOT_EXECUTED,
    Outcome.NOT_RUN: _State.NOT_EXECUTED,
}
"""The state of each outcome; the others fail."""

_CHANGES = {
    (_State(first), _State(then)): change
    for change, before, after in (
        (Change.NEW, "A", "NPX"),
        (Change.NOW_EXECUTED, "N", "PX"),
        (Change.NEW_FAILURE, "AN", "F"),
        (Change.BROKEN, "PX", "F"),
        (Change.WAIVED, "PF", "X"),
        (Change.FIXED, "XF", "P"),
        (Change.NO_LONGER_EXECUTED, "PXF", "N"),
        (Change.GONE, "NPXF", "A"),
        (Change.STILL_FAILING, "F", "F"),
    )
    for first in before
    for then in after
}
"""The table above: the change from one of the first states to one of the second; every other pair
is the same.
"""


def read_placed(name: str) -> NamedRun:
    """Read a run that has ended; raise ``UsageError`` for one that is truncated, altered, or still
    written.
    """
    if os.path.isfile(name):
        path = Path(name).absolute()
        side = NamedRun(
            name, readable(path), path.parent if path.name == JOURNAL else path
        )  # a copy has no files of cases
    else:
        side = recorded_run(name)
    if side.run.footer is None:
        raise UsageError(
            f"{name}: the run was cut off: its journal has no footer; resume it with 'run ... "
            f"--resume {name}'"
        )
    return side


def compare(before: NamedRun, after: NamedRun) -> Comparison:
    """Return what changed from the first run to the second; raise ``UsageError`` for recorded files
    that were altered.
    """
    headers = before.run.header, after.run.header
    first, second = (
        {str(result.case_id): result for result in side.run.results} for side in (before, after)
    )
    pairs: list[tuple[CaseResult | None, CaseResult | None]] = [
        (first.get(case_id), result) for case_id, result in second.items()
    ]
    pairs += [(result, None) for case_id, result in first.items() if case_id not in second]
    # of a run there may be only the journal
    has_files = all((side.folder / "cases").is_dir() for side in (before, after))
    changes = []
    for then, now in pairs:
        change, problem, code = change_of(then, now), "", {}
        if then is not None and now is not None:
            problem = _other_case(then, now, *headers)
            if has_files and (problem or change in _WITH_CODE) and then.evidence and now.evidence:
                code = dict(differing(recorded_of(before, then)[0], recorded_of(after, now)[0]))
        remarks = (*_remarks(change, then, now, headers[1]), *([problem] if problem else []))
        changes.append(
            CaseChange(
                change=change,
                before=then,
                after=now,
                spec_changed=bool(problem),
                remarks=remarks,
                code=code,
            )
        )
    return Comparison(
        before=before,
        after=after,
        changes=tuple(changes),
        differences=tuple(differences(*headers)),
        both=sum(
            then is not None
            and now is not None
            and _State.NOT_EXECUTED not in (_state(then), _state(now))
            for then, now in pairs
        ),
    )


# -- cases -----------------------------------------------------------------------------------------


def change_of(before: CaseResult | None, after: CaseResult | None) -> Change:
    """Return what became of a case; None is a run that has no result of it."""
    then, now = _state(before), _state(after)
    if before is None or after is None:
        return _CHANGES[then, now]
    if after.outcome is Outcome.OFFLINE_PASS and before.is_executed:
        return Change.NO_LONGER_EXECUTED
    if after.outcome is Outcome.OFFLINE_PASS and then is _State.NOT_EXECUTED:
        return Change.CHANGED
    if (
        before.outcome is Outcome.OFFLINE_PASS
        and now in (_State.PASSES, _State.EXCUSED)
        and after.is_executed
    ):
        return Change.NOW_EXECUTED
    change = _CHANGES.get((then, now), Change.SAME)
    if then is now and signature(before) != signature(after):
        return Change.CHANGED
    return change


def _state(result: CaseResult | None) -> _State:
    outcome = (
        None if result is None else result.outcome if result.flaky_waiver is None else Outcome.XFAIL
    )
    return _State.ABSENT if outcome is None else _STATES.get(outcome, _State.FAILS)


def signature(result: CaseResult) -> tuple[object, ...]:
    """Return what stays the same of an outcome from run to run: without observed values, addresses,
    paths and measured numbers.
    """
    failures = tuple(sorted({(failure.type, failure.phase) for failure in failures_of(result)}))
    claims = tuple(
        sorted(
            {
                (verdict.kind, pattern_of(_MEASURED.sub("0", verdict.expected)))
                for verdict in result.failed
            }
        )
    )
    # without a claim there is only a reason: of an exception, a crash, or what is missing
    reason = (
        ""
        if any(claim for _, claim in claims) or result.outcome is Outcome.PASS
        else pattern_of(result.reason)
    )
    return result.outcome, result.failure_type, result.level, failures, claims, reason


def _remarks(
    change: Change, before: CaseResult | None, after: CaseResult | None, header: RunHeader
) -> Iterator[str]:
    if change is Change.GONE and before is not None:
        is_read = before.spec in header.specs
        yield f"{before.spec} was {'' if is_read else 'not '}read by the second run" + (
            ": the case was not selected, or the spec lost it" if is_read else ""
        )
    if after is not None and after.outcome is Outcome.XPASS:
        yield "passes although a waiver names it: remove the waiver"
    if after is not None and after.outcome is Outcome.OFFLINE_PASS and change is not Change.SAME:
        yield f"compiled for {after.target}, not executed"
    if (
        before is not None
        and after is not None
        and before.level
        and after.level
        and before.level != after.level
    ):
        yield f"evidence {after.level}, was {before.level}"


def _other_case(before: CaseResult, after: CaseResult, first: RunHeader, second: RunHeader) -> str:
    """Return why two results are not of the same case; empty if they are."""
    if before.digest == after.digest or not (before.digest and after.digest):
        return ""
    if before.spec == after.spec and first.specs.get(before.spec, "-") == second.specs.get(
        after.spec
    ):
        return (
            f"{after.spec} is the same file, and expands to another case: its defaults, backend, "
            "torch or this program differ"
        )
    return f"the spec changed: {after.spec}" + (
        "" if before.spec == after.spec else f", was {before.spec}"
    )


# -- runs ------------------------------------------------------------------------------------------


def differences(before: RunHeader, after: RunHeader) -> Iterator[str]:
    """Yield how the versions, machines, options and variables of two runs differ, a line each."""
    if before.version != after.version:
        yield f"torch-conformance: {before.version}, then {after.version}"
    for name in dict.fromkeys((*before.environment, *after.environment)):
        then, now = before.environment.get(name, "none"), after.environment.get(name, "none")
        if then != now:
            yield f"{name}: {then}, then {now}"
    shards = (
        [Difference("--shard", before.shard, after.shard)] if before.shard != after.shard else []
    )
    for difference in (*command_differences(before, after), *shards):
        yield (
            f"{difference.what}: {difference.first or 'not given'}, then "
            f"{difference.second or 'not given'}"
        )


# -- generated code and graphs ---------------------------------------------------------------------


def differing(
    old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name of each text that differs but for addresses, paths and names of cached files,
    and the lines of a unified diff.
    """
    for name in sorted(old.keys() | new.keys()):
        lines = [
            stable_lines(texts[name])[:_COMPARED] if name in texts else [] for texts in (old, new)
        ]
        if lines[0] != lines[1]:
            unified = difflib.unified_diff(
                lines[0], lines[1], f"first/{name}", f"second/{name}", lineterm=""
            )
            yield name, tuple(itertools.islice(unified, _SHOWN))


def recorded_of(side: NamedRun, result: CaseResult) -> tuple[dict[str, str], tuple[StepFacts, ...]]:
    """Return the texts by which a case was judged (generated code by file, captured graphs by step
    and expectation) and the facts of its steps.
    """
    folder = side.folder / result.folder
    files = RecordedFiles(folder, result.evidence)
    texts: dict[str, str] = {}
    steps: tuple[StepFacts, ...] = ()
    try:
        for name in result.evidence:
            if match := _CODE.fullmatch(name):
                texts[name] = files.code(int(match[1]), int(match[2]))
        if OBSERVATION in result.evidence:
            steps = observation_of(files.observation()).steps
    except EvidenceAltered as error:
        raise UsageError(f"{error}; nothing is compared with an altered run") from error
    except NoObservation:  # nonsense of a worker, which made its case an ERROR
        return texts, ()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{folder}: it cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    for number, step in enumerate(steps):
        for index, measured in step.measurements.items():
            graphs = measured.get("graphs") if isinstance(measured, dict) else None
            for at, graph in enumerate(graphs if isinstance(graphs, list) else ()):
                if isinstance(graph, dict) and isinstance(graph.get("text"), str):
                    texts[f"graph {at} of step {number}, expectation {index}"] = graph["text"]
    return texts, steps
