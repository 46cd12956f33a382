"""The figures of a case on one machine, folded from its outcomes in the order of the runs. Pure.

A case that was not executed (UNAVAILABLE, NOT_RUN, checked for a target) changes nothing but the number of its runs: it neither passed nor
failed. FLAKY and XFAIL neither begin nor end a time in which the case is bad.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from runner.core.outcomes import Outcome

RECENT = 40
"""How many outcomes ``recent`` has."""

_WEIGHT = 0.5
"""Of the last time, in the estimate of the next."""

GOOD = (Outcome.PASS, Outcome.XPASS)
BAD = (Outcome.FAIL, Outcome.FELL_BACK, Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStats:
    """What is known of a case on one machine. ``first_bad`` and the others that name a run have its number; 0 for none."""

    runs: int = 0
    executed: int = 0
    passed: int = 0
    failed: int = 0
    waived: int = 0
    flaky: int = 0
    changes: int = 0
    """How often it passed after it had failed, or failed after it had passed."""
    seconds: float = 0.0
    """Of all runs in which it passed."""
    timed: int = 0
    """How many these are."""
    estimate: float = 0.0
    """The expected seconds of the next run; 0 where it was never executed."""
    last_outcome: str = ""
    last_run: int = 0
    last_good: int = 0
    first_bad: int = 0
    """The first run in which it failed, since it last passed; 0 where it passes."""
    recent: str = ""
    """The glyphs of its last outcomes, the latest last."""

    @property
    def pass_rate(self) -> float | None:
        """The share of executions that passed; None without an execution."""
        return self.passed / self.executed if self.executed else None

    @property
    def flake_rate(self) -> float:
        """The share of executions that were FLAKY, or in which the outcome changed more often than by one failure and its repair."""
        return min((self.flaky + max(self.changes - 2, 0)) / self.executed, 1.0) if self.executed else 0.0

    @property
    def mean(self) -> float | None:
        """The mean seconds of the runs in which it passed."""
        return self.seconds / self.timed if self.timed else None


def folded(stats: CaseStats, run: int, outcome: Outcome, seconds: float, *, is_executed: bool) -> CaseStats:
    """Return the figures with one more outcome."""
    recent = (stats.recent + outcome.glyph)[-RECENT:]
    found = replace(stats, runs=stats.runs + 1, last_outcome=outcome.label, last_run=run, recent=recent)
    if not is_executed:
        return found
    is_good, is_bad = outcome in GOOD, outcome in BAD
    was_good, was_bad = stats.last_good > 0 and not stats.first_bad, stats.first_bad > 0
    return replace(
        found,
        executed=stats.executed + 1,
        passed=stats.passed + is_good,
        failed=stats.failed + is_bad,
        waived=stats.waived + (outcome is Outcome.XFAIL),
        flaky=stats.flaky + (outcome is Outcome.FLAKY),
        changes=stats.changes + ((is_good and was_bad) or (is_bad and was_good)),
        seconds=stats.seconds + (seconds if is_good else 0.0),
        timed=stats.timed + is_good,
        estimate=_estimate(stats.estimate, seconds),
        last_good=run if is_good else stats.last_good,
        first_bad=0 if is_good else (stats.first_bad or run) if is_bad else stats.first_bad,
    )


def _estimate(known: float, seconds: float) -> float:
    return seconds if known <= 0 else known + _WEIGHT * (seconds - known)


def of(results: Iterable[tuple[int, Outcome, float, bool]]) -> CaseStats:
    """Return the figures of all results of a case, in the order of the runs."""
    stats = CaseStats()
    for run, outcome, seconds, is_executed in results:
        stats = folded(stats, run, outcome, seconds, is_executed=is_executed)
    return stats
