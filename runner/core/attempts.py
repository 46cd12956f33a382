"""What several attempts of a case come to: how often a case is run, and one result of several. Pure.

``--retries N`` runs what failed again, alone, until it passes or has failed N more times:

| attempts                                     | result                                                     |
|----------------------------------------------|------------------------------------------------------------|
| one                                          | its own                                                    |
| failures, then PASS (or XPASS)               | FLAKY                                                      |
| failures alone                               | the first one's; those that failed otherwise are named     |
| failures, then XFAIL                         | the first one's: what it did at first, no waiver excuses   |

Only a FAIL, FELL_BACK, ERROR, CRASH or TIMEOUT is run again: an XFAIL is no failure, and an XPASS no failure of the case.

``--repeat N`` runs every case N times:

| attempts                                     | result                                                     |
|----------------------------------------------|------------------------------------------------------------|
| all of one outcome                           | that outcome; failures that look otherwise are named       |
| of several outcomes                          | FLAKY, also where a waiver excuses some: XFAIL and XPASS   |

A run that ends with the first failure before a case had all its attempts: a failure or a difference stands, and anything else is NOT_RUN.
In a run that is interrupted such a case is NOT_RUN whatever was seen, which its reason names: a run that goes on makes the attempts that
are missing.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from runner.core.diagnostics import UsageError
from runner.core.model import Attempt, CaseResult
from runner.core.outcomes import RETRIED, Outcome

_PASSED = (Outcome.PASS, Outcome.XPASS)
_NAMED = 2
"""How many attempts that failed otherwise a reason names."""

_REASON = 300
"""Characters of an attempt's reason within the case's."""

_OUTPUT = 16_000
"""How much of what each attempt printed is kept with it: the end. The attempt's folder has all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How often a case is run."""

    retries: int = 0
    """How many more times what failed is run, alone."""
    repeat: int = 1
    """How many times every case is run."""

    @classmethod
    def of(cls, *, retries: int, repeat: int, fail_fast: bool) -> "Policy":
        """Return what the command line asks for; raise ``UsageError`` for what contradicts itself."""
        if retries and repeat > 1:
            raise UsageError(
                f"--retries {retries} beside --repeat {repeat}: one runs what failed until it passes, the other counts how often it fails"
                " (leave one of them out)"
            )
        if retries and fail_fast:
            raise UsageError(
                f"--retries {retries} beside --fail-fast: what failed is run again after everything else, and --fail-fast stops before"
                " (leave one of them out)"
            )
        return cls(retries=retries, repeat=repeat)

    @property
    def bound(self) -> str:
        """How many attempts a case has, in words."""
        return f"at most {self.retries + 1}" if self.retries else str(self.repeat)

    def beside_others(self, made: Sequence[CaseResult]) -> int:
        """Return how often a case is still to be run in the normal order, given the attempts that were made."""
        return max(self.repeat - len(made), 0) if self.repeat > 1 else int(not made)

    def is_done(self, made: Sequence[CaseResult]) -> bool:
        """Whether a case needs no further attempt."""
        last = made[-1].outcome
        if not last.is_executed:
            return True
        return len(made) >= self.repeat if self.repeat > 1 else last not in RETRIED or len(made) > self.retries

    def fold(self, made: Sequence[CaseResult], stopped: str = "") -> CaseResult:
        """Return the one result of the attempts of a case; ``stopped`` says why there are no more where some are missing."""
        folded = made[0] if len(made) == 1 else self._folded(made)
        if not stopped:
            return folded
        remark = f"{stopped} after {len(made)} of {self.bound} attempts"
        if folded.outcome.is_failure:
            return replace(folded, reason=f"{folded.reason}; {remark}")
        return _not_run(folded, made, remark)

    def interrupted(self, made: Sequence[CaseResult]) -> CaseResult:
        """Return the result of a case that lacks attempts because the run was interrupted."""
        folded = self.fold(made)
        seen = f": {_cut(folded.reason)}" if folded.outcome.is_failure else ""
        return _not_run(folded, made, f"interrupted after {len(made)} of {self.bound} attempts{seen}")

    def _folded(self, made: Sequence[CaseResult]) -> CaseResult:
        index, outcome = outcome_of([result.outcome for result in made], self.repeat)
        shown = made[index]
        return replace(
            shown,
            outcome=outcome,
            reason=self._reason(made, shown, outcome),
            failure_type="flaky" if outcome is Outcome.FLAKY else shown.failure_type,
            seconds=round(sum(result.seconds for result in made), 3),
            attempts=tuple(map(attempt_of, made)),
        )

    def _reason(self, made: Sequence[CaseResult], shown: CaseResult, outcome: Outcome) -> str:
        failed = [result for result in made if result.outcome.is_failure]
        otherwise = _otherwise(made, shown)
        if outcome is Outcome.FLAKY and self.repeat > 1:
            return f"{len(made)} attempts came to {_counted(made)}: {_cut(shown.reason)}{otherwise}"
        if outcome is Outcome.FLAKY:
            head = f"failed {len(made) - 1} of {len(made)} attempts: {_cut(shown.reason)}{otherwise}"
            return f"{head}; passed when run again alone"
        if outcome in RETRIED:
            return f"failed {len(failed)} of {len(made)} attempts: {_cut(shown.reason)}{otherwise}"
        return shown.reason + otherwise


def outcome_of(outcomes: Sequence[Outcome], repeat: int) -> tuple[int, Outcome]:
    """Return which of several attempts a result shows, counted from 0, and what they come to together."""
    index = next((number for number, outcome in enumerate(outcomes) if outcome.is_failure), 0)
    differ = len(set(outcomes)) > 1
    is_flaky = differ and (repeat > 1 or outcomes[-1] in _PASSED)
    return index, Outcome.FLAKY if is_flaky else outcomes[index]


def _not_run(folded: CaseResult, made: Sequence[CaseResult], reason: str) -> CaseResult:
    attempts = tuple(map(attempt_of, made))
    return replace(folded, outcome=Outcome.NOT_RUN, reason=reason, failure_type="not-run", verdicts=(), attempts=attempts)


def _counted(made: Sequence[CaseResult]) -> str:
    counts = Counter(result.outcome for result in made)
    return ", ".join(f"{counts[outcome]} {outcome.label}" for outcome in Outcome if counts[outcome])


def _otherwise(made: Sequence[CaseResult], shown: CaseResult) -> str:
    """Name the attempts that did not pass and did not fail as the one that is shown."""
    others = [
        (number, result)
        for number, result in enumerate(made, start=1)
        if result.outcome not in _PASSED and _signature(result) != _signature(shown)
    ]
    words = "".join(f"; otherwise in attempt {number}: {result.outcome.label}: {_cut(result.reason)}" for number, result in others[:_NAMED])
    return words + (f"; and otherwise in {len(others) - _NAMED} more" if len(others) > _NAMED else "")


def _signature(result: CaseResult) -> object:
    """Return what is the same of two attempts that failed alike: numbers that were observed may differ, but not what failed."""
    places = [(verdict.kind, verdict.status, verdict.position) for verdict in result.failed]
    # of what did not come to an expectation, the reason is all that is known
    said = "" if result.outcome in (Outcome.FAIL, Outcome.FELL_BACK, Outcome.XFAIL) else result.reason
    return result.outcome, result.failure_type, places, said


def _cut(reason: str) -> str:
    return reason if len(reason) <= _REASON else f"{reason[: _REASON - 3]}..."


def attempt_of(result: CaseResult) -> Attempt:
    """Return a result as one of several attempts."""
    passed = result.outcome is Outcome.PASS
    return Attempt(
        outcome=result.outcome,
        reason=result.reason,
        failure_type=result.failure_type,
        seconds=result.seconds,
        isolation=result.isolation,
        folder=result.folder,
        evidence=result.evidence,
        verdicts=result.failed,
        stdout="" if passed else result.stdout[-_OUTPUT:],
        stderr="" if passed else result.stderr[-_OUTPUT:],
    )
