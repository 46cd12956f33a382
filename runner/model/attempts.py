"""Attempts of a case: how often a case runs, and the one result of several attempts. Pure.

``--retries N`` repeats a failed case alone, until it passes or has failed N more times:

| attempts                                     | result                                                     |
|----------------------------------------------|------------------------------------------------------------|
| one                                          | its own                                                    |
| failures, then PASS (or XPASS)               | FLAKY                                                      |
| only failures                                | the first one; attempts with another failure are named     |
| failures, then XFAIL                         | the first one, because no waiver covers its first failure  |

Only FAIL, FELL_BACK, ERROR, CRASH and TIMEOUT are retried: XFAIL is not a failure, and XPASS is not a failure of the case.

``--repeat N`` runs every case N times:

| attempts                                     | result                                                     |
|----------------------------------------------|------------------------------------------------------------|
| all with one outcome                         | that outcome; attempts with another failure are named      |
| with several outcomes                        | FLAKY, also if a waiver covers some (XFAIL, XPASS)         |

If ``--fail-fast`` ends a run before all attempts of a case, a failure or a difference stands, and anything else becomes NOT_RUN. If a run
is interrupted, such a case is NOT_RUN in any case. Its reason names the failure seen so far. A resumed run makes the missing attempts.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from runner.model.diagnostics import UsageError
from runner.model.outcomes import PASSED, RETRIED, Outcome
from runner.model.results import Attempt, CaseResult

_PASSED = (*PASSED, Outcome.XPASS)
_NAMED = 2
"""The maximum number of attempts with another failure that a reason names."""

_REASON = 300
"""The maximum length of an attempt's reason within the case's reason, in characters."""

_OUTPUT = 16_000
"""How many characters of each attempt's output the result contains, counted from the end. The attempt's folder has the whole output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How often a case runs."""

    retries: int = 0
    """How many times a failed case is repeated, alone."""
    repeat: int = 1
    """How many times every case runs."""

    @classmethod
    def of(cls, *, retries: int, repeat: int, fail_fast: bool) -> "Policy":
        """Return the policy of the command line; raise ``UsageError`` for contradictory options."""
        if retries and repeat > 1:
            raise UsageError(
                f"--retries {retries} with --repeat {repeat}: the first repeats a failed case until it passes, the second counts failures"
                " (use one of them)"
            )
        if retries and fail_fast:
            raise UsageError(
                f"--retries {retries} with --fail-fast: retries run after all other cases, and --fail-fast stops earlier (use one of them)"
            )
        return cls(retries=retries, repeat=repeat)

    @property
    def bound(self) -> str:
        """The number of attempts of a case, as text."""
        return f"at most {self.retries + 1}" if self.retries else str(self.repeat)

    def remaining(self, results: Sequence[CaseResult]) -> int:
        """Return how many attempts are left in the normal order, without retries, after the attempts with these ``results``."""
        return max(self.repeat - len(results), 0) if self.repeat > 1 else int(not results)

    def is_done(self, results: Sequence[CaseResult]) -> bool:
        """Whether a case needs no further attempt."""
        last = results[-1].outcome
        if not last.is_executed:
            return True
        return len(results) >= self.repeat if self.repeat > 1 else last not in RETRIED or len(results) > self.retries

    def fold(self, results: Sequence[CaseResult], stopped: str = "") -> CaseResult:
        """Return the one result of a case's attempts. ``stopped`` is the reason why attempts are missing; empty if none are."""
        folded = results[0] if len(results) == 1 else self._folded(results)
        if not stopped:
            return folded
        remark = f"{stopped} after {len(results)} of {self.bound} attempts"
        if folded.outcome.is_failure:
            return replace(folded, reason=f"{folded.reason}; {remark}")
        return _not_run(folded, results, remark)

    def interrupted(self, results: Sequence[CaseResult]) -> CaseResult:
        """Return the result of a case with attempts missing because of an interruption."""
        folded = self.fold(results)
        seen = f": {_cut(folded.reason)}" if folded.outcome.is_failure else ""
        return _not_run(folded, results, f"interrupted after {len(results)} of {self.bound} attempts{seen}")

    def _folded(self, results: Sequence[CaseResult]) -> CaseResult:
        index, outcome = outcome_of([result.outcome for result in results], self.repeat)
        shown = results[index]
        others = [
            f"; another failure in attempt {number}: {result.outcome.label}: {_cut(result.reason)}"
            for number, result in enumerate(results, start=1)
            if result.outcome not in _PASSED and _signature(result) != _signature(shown)
        ]
        more = f"; and other failures in {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        otherwise = "".join(others[:_NAMED]) + more
        if outcome is Outcome.FLAKY and self.repeat > 1:
            counts = Counter(result.outcome for result in results)
            words = ", ".join(f"{counts[known]} {known.label}" for known in Outcome if counts[known])
            reason = f"{len(results)} attempts had the outcomes {words}: {_cut(shown.reason)}{otherwise}"
        elif outcome is Outcome.FLAKY:
            reason = f"failed {len(results) - 1} of {len(results)} attempts: {_cut(shown.reason)}{otherwise}; passed when retried alone"
        elif outcome in RETRIED:
            failed = sum(result.outcome.is_failure for result in results)
            reason = f"failed {failed} of {len(results)} attempts: {_cut(shown.reason)}{otherwise}"
        else:
            reason = shown.reason + otherwise
        return replace(
            shown,
            outcome=outcome,
            reason=reason,
            failure_type="flaky" if outcome is Outcome.FLAKY else shown.failure_type,
            seconds=round(sum(result.seconds for result in results), 3),
            attempts=tuple(map(attempt_of, results)),
        )


def outcome_of(outcomes: Sequence[Outcome], repeat: int) -> tuple[int, Outcome]:
    """Return the index of the attempt that a result shows, counted from 0, and the outcome of all attempts together."""
    index = next((number for number, outcome in enumerate(outcomes) if outcome.is_failure), 0)
    differ = len(set(outcomes)) > 1
    is_flaky = differ and (repeat > 1 or outcomes[-1] in _PASSED)
    return index, Outcome.FLAKY if is_flaky else outcomes[index]


def _not_run(folded: CaseResult, results: Sequence[CaseResult], reason: str) -> CaseResult:
    attempts = tuple(map(attempt_of, results))
    return replace(folded, outcome=Outcome.NOT_RUN, reason=reason, failure_type="not-run", verdicts=(), attempts=attempts)


def _signature(result: CaseResult) -> object:
    """Return the failure signature: the failed expectations without their observed values."""
    places = [(verdict.kind, verdict.status, verdict.position) for verdict in result.failed]
    # a case that ended before its expectations has only a reason
    reason = "" if result.outcome in (Outcome.FAIL, Outcome.FELL_BACK, Outcome.XFAIL) else result.reason
    return result.outcome, result.failure_type, places, reason


def _cut(reason: str) -> str:
    return reason if len(reason) <= _REASON else f"{reason[: _REASON - 3]}..."


def attempt_of(result: CaseResult) -> Attempt:
    """Return a result as one attempt of several."""
    passed = result.outcome is Outcome.PASS
    values = {field.name: getattr(result, field.name) for field in fields(Attempt)}
    stdout, stderr = ("", "") if passed else (result.stdout[-_OUTPUT:], result.stderr[-_OUTPUT:])
    return Attempt(**{**values, "verdicts": result.failed, "stdout": stdout, "stderr": stderr})
