"""The result of a case: verdicts, attempts and its outcome.

Frozen values; ``record.journal`` has their JSON form.

| value        | adds                                                                                    |
|--------------|-----------------------------------------------------------------------------------------|
| ``Attempt``    | the outcome that verdicts fold into, the reason, and what of one worker belongs to it   |
| ``CaseResult`` | to an ``Attempt``: which case it was, what waivers said, and what only reports need       |
"""  # noqa: E501 - a table

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar, NewType
from urllib.parse import unquote

from torch_conformance.model.case import Case, CaseId
from torch_conformance.model.case_facts import Timing
from torch_conformance.model.codec import COMPUTED
from torch_conformance.model.diagnostics import Position, UsageError
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.outcomes import PASSED, RETRIED, WAIVABLE, Outcome
from torch_conformance.model.values import frozen, values_of

NOT_MEASURED = -1
"""In the place of a number of operators."""


class WaiverEffect(Enum):
    """What became of a waiver that is for a case."""

    MATCHED = "matched"
    """The failure is the one that it names."""
    PASSED = "passed"
    """Nothing failed."""
    PART_PASSED = "part-passed"
    """Nothing failed, but the case ran only some samples of its operator: the failure may be in the
    others.
    """
    OTHER_FAILURE = "other-failure"
    """What failed looks otherwise."""
    TOO_SLOW = "too-slow"
    """Its pattern gave no answer in time."""
    EXPIRED = "expired"
    """Its last day is past: it is void."""


@frozen
class AppliedWaiver:
    """A waiver that is for a case, where that ran, and what became of it."""

    effect: WaiverEffect
    cases: str
    """Its glob."""
    position: Position
    reason: str
    issue: str
    until: str
    """Its last day: ``2027-03-01``."""
    flaky: bool = False
    """Whether the case may pass too."""


MANY = 20
"""So many attempts that all pass, or all fail, show that a case does not flake."""


def waived(
    outcome: Outcome, waivers: Sequence[AppliedWaiver], attempts: Sequence[Outcome] = ()
) -> Outcome:
    """Return what waivers make of an outcome; a flaky one is void where many attempts of the case
    had one outcome.
    """
    is_void = len(attempts) >= MANY and len(set(attempts)) == 1
    if outcome in WAIVABLE:
        matched = next(
            (waiver for waiver in waivers if waiver.effect is WaiverEffect.MATCHED), None
        )
        return outcome if matched is None or (matched.flaky and is_void) else Outcome.XFAIL
    unexpected = (
        waiver
        for waiver in waivers
        if waiver.effect is WaiverEffect.PASSED and (is_void or not waiver.flaky)
    )
    return Outcome.XPASS if outcome in PASSED and any(unexpected) else outcome


@frozen
class Judgement:
    """An outcome with its reason and its verdicts."""

    outcome: Outcome
    reason: str
    """One line: why it is not a PASS. Blank only for a PASS."""
    failure_type: str
    """JUnit's ``type``: counter, close, filecheck, raised, fell-back, crash, unavailable ..."""
    verdicts: tuple[Verdict, ...] = ()
    """One for each leaf of each expectation; of one of several attempts only those that
    failed.
    """

    @property
    def failed(self) -> tuple[Verdict, ...]:
        """The verdicts that speak against the case."""
        return tuple(v for v in self.verdicts if v.status in (Status.FAILED, Status.ERROR))


@frozen
class Attempt(Judgement):
    """The result of one attempt of a case, without what all attempts of the case share."""

    seconds: float
    isolation: str
    """How the worker was made: ``fork`` or ``process``; empty when there was none."""
    folder: str
    """The case's folder below the run's folder; empty when nothing was run."""
    evidence: Mapping[str, str] = field(default_factory=dict)
    """sha256 of each file in it that the case was judged by: the observation, generated code,
    reports of services.
    """
    stdout: str = ""
    stderr: str = ""
    """Ends of what the worker printed; empty for a PASS."""
    begun: str = ""
    """When its worker began it: UTC, ISO 8601, with milliseconds.

    Empty when there was no worker.
    """
    worker: int = 0
    """The number of its worker in the run; 0 when there was none."""
    gpus: tuple[int, ...] = ()
    """The GPUs that were leased to it, by number."""
    warmup_begun: str = ""
    """When its worker for a GPU began to warm up, if this is the first case of that; the form is
    that of ``begun``.
    """
    warmup: float = 0.0
    """Seconds of that warm-up."""
    context: float = 0.0
    """Seconds from the begin of that warm-up until the worker had a context on its GPU."""
    cpu: float = 0.0
    """Seconds of processors that its worker used, with its warm-up and its children; 0 where
    unknown.
    """
    node: Mapping[str, str] = field(default_factory=dict)
    """The node of a fleet that ran it: its name, image, host, and the facts of its machine.

    Empty for the machine of the run's header.
    """


@frozen
class OperatorCalls:
    """The calls of one operator at one place of a case, in eager, and who computed them."""

    operator: str
    """Its overload: ``aten.add.Tensor``."""
    place: str
    """The line of a spec, with the name of its file: ``sum.yaml:5``; or the sample, ``sample 3``,
    with its arguments where ATen ran an operator of it.
    """
    calls: int
    by_aten: int
    """How many of them the compiler cannot be shown to have computed."""


@dataclass(frozen=True, kw_only=True)  # without slots, as CaseResult has two bases
class Judged(Judgement):
    """A case as its facts and the waivers judge it, without data about its execution."""

    position: Position
    """The line that a report points to: the failing expectation's, or the spec's."""
    phase: str = ""
    """The phase in which its process crashed or outlived its deadline, as the worker announced it;
    empty otherwise.
    """
    level: str = ""
    """The level of evidence of an OFFLINE_PASS: the highest that one of its expectations gives."""
    waivers: tuple[AppliedWaiver, ...] = ()
    notes: tuple[str, ...] = ()
    """What a person should know: who computed the answer, why a timing or an attachment is missing.
    """
    eager_operators: int = NOT_MEASURED
    """How many operators eager runs in its calls, where the proof of its backend measures who
    computes them.
    """
    by_aten: Mapping[str, int] = field(default_factory=dict)
    """What ATen ran in the compiled calls, and in place of how many of them each may have run;
    where that is not measured, what the generated code calls if all of it is ATen's.
    """
    operators: tuple[OperatorCalls, ...] = ()
    """The operators that eager runs, by their places."""

    @property
    def flaky_waiver(self) -> AppliedWaiver | None:
        """The flaky waiver by which a PASS may fail in another run, or an XFAIL may pass; None for
        any other result.
        """
        effects = (WaiverEffect.MATCHED, WaiverEffect.PASSED, WaiverEffect.PART_PASSED)
        first = next((waiver for waiver in self.waivers if waiver.effect in effects), None)
        return (
            first
            if first is not None and first.flaky and self.outcome in (*PASSED, Outcome.XFAIL)
            else None
        )


@frozen
class CaseResult(Attempt, Judged):
    """A case's outcome with everything a report says about it."""

    DERIVED: ClassVar[tuple[str, ...]] = ("area", "name", "backend")
    case_id: CaseId
    spec: str
    verdicts: tuple[Verdict, ...]
    isolation: str = ""
    folder: str = ""
    phases: Mapping[str, float] = field(default_factory=dict)
    repro: str = ""
    summary: str = ""
    """What the spec claims; empty for a PASS, as are the next two."""
    options: tuple[str, ...] = ()
    """The options in force, a line each: ``config.freezing: true``."""
    code: tuple[str, ...] = ()
    """The files of generated code in the case's folder."""
    digest: str = ""
    covers: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """The tags of its spec."""
    target: str = ""
    """The GPU that it was checked for without being executed (``model.targets``); empty for a case
    that is executed.
    """
    retries: int | None = None
    """How many more times its spec lets it run after a failure; None where ``--retries`` says."""
    requires: tuple[str, ...] = ()
    """The names of the capabilities that the case requires: ``--require`` of a merged run reads
    them.
    """
    timings: tuple[Timing, ...] = ()
    attachments: tuple[str, ...] = ()
    """Files in the case's folder that belong to its report: chrome traces."""
    benches_left_out: int = 0
    """How many bench steps of the case were not run, because the run was started without
    ``--bench``.
    """
    warnings: tuple[str, ...] = field(default=(), metadata={COMPUTED: True})
    """What ``doctor`` says of the tools that a red case uses: the footer of the run has it."""
    attempts: tuple[Attempt, ...] = ()
    """Every attempt, in the order in which they ended, of a case that was run several times;
    ``seconds`` is what they took together.
    """

    @property
    def area(self) -> str:
        """The folder of its spec; may be empty."""
        return self.case_id.partition("[")[0].rpartition("/")[0]

    @property
    def name(self) -> str:
        """The name of its spec."""
        return self.case_id.partition("[")[0].rpartition("/")[2]

    @property
    def backend(self) -> str:
        """Its backend, which is first in the id."""
        first = self.case_id.partition("[backend=")[2]
        return unquote(first.partition("]")[0].partition(",")[0])

    @property
    def shown_notes(self) -> tuple[str, ...]:
        """The notes, and whether all that the generated code calls is ATen's."""
        if not self.by_aten or self.eager_operators != NOT_MEASURED:
            return self.notes
        sentence = "ATen computed the whole answer: inductor generated no kernel, and called"
        return (*self.notes, f"{sentence} {', '.join(self.by_aten)}")

    @property
    def is_executed(self) -> bool:
        """Whether the case was executed: what is only compiled for a target never is, nor what
        lacks what ``--require`` names.
        """
        return self.outcome.is_executed and not self.target and self.failure_type != UNAVAILABLE


Redacted = NewType("Redacted", CaseResult)
"""A result without secrets: made by ``redacted_result``, or read from a journal, which has no
others. Journals and reports get these.
"""

Published = NewType("Published", Redacted)
"""The same with what the footer of its run says of it: reports of a run that has ended get these.
"""

PHASES_BEFORE_CLAIM = ("", "start", "import", "inputs", "eager")
"""Phases in which nothing was compiled yet.

A process that ends there shows nothing of the backend.
"""

NOT_CLAIMED = "not claimed by"
"""How the reason begins why a case is UNAVAILABLE whose compiler does not say that it can do it."""

UNAVAILABLE = "unavailable"
"""The type of an ERROR of a case that cannot run here although ``--require`` names what it lacks.
"""

NODE_LOST = "node-lost"
"""The type of a NOT_RUN whose nodes were lost: a run with one of these can be resumed."""


def executed(results: Iterable[CaseResult]) -> int:
    """Return how many results are of executed cases."""
    return sum(result.is_executed for result in results)


def result_of(case: Case, judged: Judged, **execution: Any) -> CaseResult:
    """Return the result of a case as it was judged; ``execution`` is what who ran it knows."""
    judged_fields: dict[str, Any] = {
        "case_id": case.id,
        "spec": case.spec,
        "seconds": 0.0,
        "covers": case.covers,
        "tags": case.tags,
        "target": case.target,
        "retries": case.retries,
        "requires": tuple(dict.fromkeys(requirement.name for requirement in case.requires)),
        **values_of(judged, Judged),
    }
    return CaseResult(**{**judged_fields, **execution})


PROOF = "proof"
FELL_BACK = "fell-back"
COULD_NOT_HAVE_FAILED = "could-not-have-failed"
"""The kind of the verdict of an expectation that also holds for changed facts."""
WEAK = "weak"
"""The kind of the verdict of such an expectation where the spec says why."""
ENDINGS = {"crash": Outcome.CRASH, "timeout": Outcome.TIMEOUT}
"""Kinds of the single verdict of a process that crashed or timed out.

No expectation has these names.
"""


OFFLINE = {
    Outcome.PASS: Outcome.OFFLINE_PASS,
    Outcome.FAIL: Outcome.OFFLINE_FAIL,
    Outcome.FELL_BACK: Outcome.OFFLINE_FAIL,
}
"""The outcomes of a case that is compiled for a target and not executed. It never passes."""


def fold(verdicts: Sequence[Verdict], target: str = "") -> tuple[Outcome, str, Verdict | None]:
    """Return the outcome of a case with these verdicts, its failure type, and the verdict that
    decided it (None for a PASS).

    An ERROR comes before a FAIL, and a FAIL before a missing proof.
    """
    errors = [verdict for verdict in verdicts if verdict.status is Status.ERROR]
    failed = [verdict for verdict in verdicts if verdict.status is Status.FAILED]
    claims = [verdict for verdict in failed if verdict.kind != PROOF]
    first = next(iter([*errors, *claims, *failed]), None)
    if first is None:
        outcome, failure_type = Outcome.PASS, ""
    elif errors:
        outcome, failure_type = ENDINGS.get(first.kind, Outcome.ERROR), first.kind
    elif claims:
        outcome, failure_type = Outcome.FAIL, first.kind
    else:
        outcome, failure_type = Outcome.FELL_BACK, FELL_BACK
    return OFFLINE.get(outcome, outcome) if target else outcome, failure_type, first


_PASSED = (*PASSED, Outcome.XPASS)
_NAMED = 2
"""The maximum number of attempts with another failure that a reason names."""

_REASON = 300
"""The maximum length of an attempt's reason within the case's reason, in characters."""

_OUTPUT = 16_000
"""How many characters of each attempt's output the result contains, counted from the end.

The attempt's folder has the whole output.
"""


@frozen
class Policy:
    """How often a case runs, and the one result of its attempts.

    ``--retries N`` repeats a failed case alone, until it passes or has failed N more times;
    ``--repeat N`` runs every case N times.

    |             | attempts                          | result                                                                |
    |-------------|-----------------------------------|-----------------------------------------------------------------------|
    | either      | one                               | its own                                                               |
    | ``--retries`` | failures, then PASS (or XPASS)    | FLAKY                                                                 |
    | ``--retries`` | failures, then none or an XFAIL   | the first one, which no waiver covers; other failures are named       |
    | ``--repeat``  | all with one outcome              | that outcome; attempts with another failure are named                 |
    | ``--repeat``  | with several outcomes             | FLAKY, also if a waiver covers some (XFAIL, XPASS)                    |
    | flaky waiver | PASS and XFAIL                   | XFAIL                                                                 |
    | flaky waiver | with a failure that it does not name | that failure                                                      |
    | flaky waiver | 20 or more, all PASS or all XFAIL | XPASS, or the failure: the waiver is void                             |

    Only FAIL, FELL_BACK, ERROR, CRASH and TIMEOUT are retried: XFAIL is not a failure, and XPASS is
    not a failure of the case. ``retries`` of a spec is its own number for ``--retries``, and says
    nothing under ``--repeat``. If ``--max-failures`` ends a run before all attempts of a case, a
    failure or a difference stays, and anything else becomes NOT_RUN; if a run is interrupted, such
    a case is NOT_RUN in any case, and its reason names the failure. A resumed run makes the missing
    attempts.
    """  # noqa: E501 - a table

    retries: int = 0
    """How many times a failed case is repeated, alone."""
    repeat: int = 1
    """How many times every case runs."""
    reads_specs: bool = True
    """Whether ``retries`` of a spec counts: a case of a profile runs once."""

    @classmethod
    def of(
        cls, *, retries: int, repeat: int, max_failures: int, has_profile: bool = False
    ) -> "Policy":
        """Return the policy of the command line; raise ``UsageError`` for contradictory options."""
        other, why = "", ""
        if retries and repeat > 1:
            other = f"--repeat {repeat}"
            why = "the first repeats a failed case until it passes, the second counts failures"
        elif retries and max_failures:
            other = f"--max-failures {max_failures}"
            why = "retries run after all other cases, and --max-failures stops earlier"
        if other:
            raise UsageError(f"--retries {retries} with {other}: {why} (use one of them)")
        return cls(retries=retries, repeat=repeat, reads_specs=not has_profile)

    def retries_of(self, result: Redacted) -> int:
        """Return how many times the case is repeated if it fails."""
        if self.repeat > 1 or not self.reads_specs or result.retries is None:
            return self.retries
        return result.retries

    def bound(self, result: Redacted) -> str:
        """Return the number of attempts of the case, as text."""
        retries = self.retries_of(result)
        return f"at most {retries + 1}" if retries else str(self.repeat)

    def remaining(self, results: Sequence[Redacted]) -> int:
        """Return how many attempts are left in the normal order, without retries, after the
        attempts with these ``results``.
        """
        return max(self.repeat - len(results), 0) if self.repeat > 1 else int(not results)

    def is_done(self, results: Sequence[Redacted]) -> bool:
        """Whether a case needs no further attempt."""
        last = results[-1]
        if self.repeat > 1:
            return not last.outcome.is_executed or len(results) >= self.repeat
        return last.outcome not in RETRIED or len(results) > self.retries_of(last)

    def fold(self, results: Sequence[Redacted], stopped: str = "") -> Redacted:
        """Return the one result of a case's attempts.

        ``stopped`` is the reason why attempts are missing; empty if none are.
        """
        folded = results[0] if len(results) == 1 else self._folded(results)
        if not stopped:
            return folded
        remark = f"{stopped} after {len(results)} of {self.bound(folded)} attempts"
        if folded.outcome.is_failure:
            return replace(folded, reason=f"{folded.reason}; {remark}")
        return _not_run(folded, results, remark)

    def interrupted(self, results: Sequence[Redacted]) -> Redacted:
        """Return the result of a case with attempts missing because of an interruption."""
        folded = self.fold(results)
        seen = f": {_cut(folded.reason)}" if folded.outcome.is_failure else ""
        limit = self.bound(folded)
        return _not_run(
            folded, results, f"interrupted after {len(results)} of {limit} attempts{seen}"
        )

    def _folded(self, results: Sequence[Redacted]) -> Redacted:
        outcomes = [result.outcome for result in results]
        representative = min(
            results,
            key=lambda result: (not result.outcome.is_failure, result.outcome is not Outcome.XFAIL),
        )
        outcome = outcome_of(outcomes, self.repeat, representative)
        waiver = representative.flaky_waiver
        others = [
            f"; another failure in attempt {number}: {result.outcome.label}: {_cut(result.reason)}"
            for number, result in enumerate(results, start=1)
            if result.outcome not in _PASSED and _signature(result) != _signature(representative)
        ]
        failed = sum(result.outcome.is_failure for result in results)
        reason = _cut(representative.reason)
        end = ""
        if waiver is not None and outcome is Outcome.XPASS:
            begin = f"passed in each of {len(results)} attempts: "
            reason = (
                f"remove the flaky waiver at {waiver.position} ({waiver.issue}), or narrow the glob"
            )
            representative = replace(
                representative, position=waiver.position, level="", failure_type="xpass"
            )
        elif waiver is not None and outcome in WAIVABLE:
            begin = (
                f"failed in each of {len(results)} attempts, no flake (write the waiver at "
                f"{waiver.position} without 'flaky'): "
            )
            reason = _cut(representative.failed[0].message.split("\n")[0])
        elif waiver is not None and outcome is Outcome.XFAIL:
            begin = f"failed {outcomes.count(Outcome.XFAIL)} of {len(results)} attempts: "
        elif outcome is Outcome.FLAKY and self.repeat > 1:
            counts = Counter(result.outcome for result in results)
            words = ", ".join(
                f"{counts[member]} {member.label}" for member in Outcome if counts[member]
            )
            begin = f"{len(results)} attempts had the outcomes {words}: "
        elif outcome is Outcome.FLAKY:
            begin = f"failed {len(results) - 1} of {len(results)} attempts: "
            end = "; passed when retried alone"
        elif outcome in RETRIED:
            begin = f"failed {failed} of {len(results)} attempts: "
        else:
            begin, reason = "", representative.reason
        more = (
            f"; and other failures in {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        )
        return replace(
            representative,
            outcome=outcome,
            reason=f"{begin}{reason}{''.join(others[:_NAMED])}{more}{end}",
            failure_type="flaky" if outcome is Outcome.FLAKY else representative.failure_type,
            seconds=round(sum(result.seconds for result in results), 3),
            attempts=tuple(map(attempt_of, results)),
        )


def outcome_of(outcomes: Sequence[Outcome], repeat: int, representative: Redacted) -> Outcome:
    """Return the outcome of all attempts together, whose result has the verdicts and waivers of
    ``representative``.
    """
    failure = next((outcome for outcome in outcomes if outcome.is_failure), None)
    if any(
        waiver.flaky and waiver.effect is not WaiverEffect.EXPIRED
        for waiver in representative.waivers
    ):
        of_all = waived(
            fold(representative.verdicts, representative.target)[0],
            representative.waivers,
            outcomes,
        )
        return failure or (Outcome.XFAIL if len(set(outcomes)) > 1 else of_all)
    is_flaky = len(set(outcomes)) > 1 and (repeat > 1 or outcomes[-1] in _PASSED)
    return Outcome.FLAKY if is_flaky else failure or outcomes[0]


def _not_run(folded: Redacted, results: Sequence[Redacted], reason: str) -> Redacted:
    attempts = tuple(map(attempt_of, results))
    return replace(
        folded,
        outcome=Outcome.NOT_RUN,
        reason=reason,
        failure_type="not-run",
        verdicts=(),
        attempts=attempts,
    )


def _signature(result: Redacted) -> object:
    """Return the failure signature: the failed expectations without their observed values."""
    places = [(verdict.kind, verdict.status, verdict.position) for verdict in result.failed]
    # a case that ended before its expectations has only a reason
    reason = (
        "" if result.outcome in (Outcome.FAIL, Outcome.FELL_BACK, Outcome.XFAIL) else result.reason
    )
    return result.outcome, result.failure_type, places, reason


def _cut(reason: str) -> str:
    return reason if len(reason) <= _REASON else f"{reason[: _REASON - 3]}..."


def attempt_of(result: Attempt) -> Attempt:
    """Return a result as one attempt of several."""
    stdout, stderr = (
        ("", "")
        if result.outcome is Outcome.PASS
        else (result.stdout[-_OUTPUT:], result.stderr[-_OUTPUT:])
    )
    return Attempt(
        **{
            **values_of(result, Attempt),
            "verdicts": result.failed,
            "stdout": stdout,
            "stderr": stderr,
        }
    )
