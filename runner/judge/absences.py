"""What holds because something did not happen is no claim where nothing could have happened. Pure.

A count of 0 is proved by something else that was observed: a graph that was compiled, called or served from a cache, another number that is
not 0, or another expectation of the same step.
"""

from collections.abc import Sequence
from dataclasses import replace

from runner.core.expectation import Judgement, Status
from runner.judge.evidence import CarriedOut

NOTHING = (
    "the case compiled nothing and torch counted nothing, so no other number was possible:"
    " expect something else of this step too, such as a result or a count of at least 1"
)


def is_active(known: CarriedOut) -> bool:
    """Whether torch compiled, called or counted anything in a step."""
    observed = known.observed
    counted = any(number for names in observed.counters.values() for number in names.values()) or any(observed.metrics.values())
    return bool(observed.entered or observed.graphs or observed.executed or observed.executed_others or observed.code_pieces or counted)


def without_hollow(judged: Sequence[Judgement]) -> list[Judgement]:
    """Return the judgements of a step of a case without any activity: a 0 that nothing else stands beside is an ERROR."""
    if any(one.status is Status.HELD and not one.is_absence for one in judged):
        return list(judged)
    return [replace(one, status=Status.ERROR, observed=NOTHING) if _is_hollow(one) else one for one in judged]


def _is_hollow(one: Judgement) -> bool:
    return one.status is Status.HELD and one.is_absence
