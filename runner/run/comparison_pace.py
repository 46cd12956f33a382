"""Whether cases, their benches, or a run as a whole took longer than noise explains. Pure.

Measured on three pairs of runs of one machine (336 to 388 cases, 12 in parallel): the time of a case divided by that of the other run had
a median from 0.94 to 1.05; divided by this median, 1 % of the cases exceeded 1.6 and none 1.85. So a case is slower if it took more than
``--slower`` times as long (2), and a second more, after the pace of the whole run is taken out. A bench is slower if its least time
exceeds the earlier run's greatest by a fifth.
"""

import statistics
from collections.abc import Iterator, Sequence

from runner.core.comparison import Pace
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult

SECONDS = 1.0
"""How many seconds more a slower case takes."""

WHOLE = 1.5
"""The pace from which a run as a whole is slower."""

_FEWEST = 10
"""With fewer cases than these a median says nothing of the run."""

_BENCH = 1.2
_TIMED = (Outcome.PASS, Outcome.XPASS)
"""A failure ends a case early or late: its time is not compared."""

_PairOfResults = tuple[CaseResult, CaseResult]


def pace_of(pairs: Sequence[_PairOfResults]) -> Pace:
    """Return how the times of these cases compare."""
    ratios = [_seconds(after) / _seconds(before) for before, after in pairs if is_timed(before, after)]
    ratio = statistics.median(ratios) if len(ratios) >= _FEWEST else 1.0
    return Pace(cases=len(ratios), ratio=ratio, is_slower=ratio >= WHOLE)


def is_timed(before: CaseResult, after: CaseResult) -> bool:
    """Whether the times of two results can be compared: both passed, in the same kind of process, with the same use of cached objects."""
    return (
        all(result.outcome in _TIMED and result.is_executed and _seconds(result) > 0 for result in (before, after))
        and before.isolation == after.isolation
        and (before.objects_served > 0) == (after.objects_served > 0)
        and before.benches_left_out == after.benches_left_out
    )


def slowdowns(before: CaseResult, after: CaseResult, pace: Pace, factor: float) -> Iterator[str]:
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
