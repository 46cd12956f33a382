"""Whether torch caused the traffic of a service: compares the service's counts with those of torch's remote caches. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.core.case import Step
from runner.core.observation import ObservedStep, ServiceReport
from runner.vocabulary.steps import parsed, traits_of


@dataclass(frozen=True, slots=True)
class Counted:
    """Look-ups and writes that torch's remote caches counted, and how many of them raised."""

    gets: int = 0
    sets: int = 0
    raised: int = 0

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(self.gets + other.gets, self.sets + other.sets, self.raised + other.raised)


def counted_by_torch(steps: Sequence[Step], facts: Sequence[ObservedStep]) -> Counted:
    """Return torch's counts for a whole case: they accumulate from step to step, and ``clear_counters`` sets them to zero."""
    total = current = Counted()
    for step, known in zip(steps, facts, strict=False):
        if parsed(step).clears_counters:
            total += current
        current = _of_step(known.remote or {})
    return total + current


def _of_step(remote: Mapping[str, Mapping[str, int]]) -> Counted:
    caches = remote.values()
    gets = sum(cache.get("hit", 0) + cache.get("miss", 0) for cache in caches)
    return Counted(gets, sum(cache.get("put", 0) for cache in caches), sum(cache.get("exception", 0) for cache in caches))


def _while_compiling(steps: Sequence[Step], facts: Sequence[ObservedStep]) -> bool:
    """Whether a count changed in a step that compiled, or looked up a graph. True if no step did so: the spec compiles nothing then."""
    before = Counted()
    for step, known in zip(steps, facts, strict=False):
        now = _of_step(known.remote or {})
        if now != before and not parsed(step).clears_counters and (known.entered or known.graphs):
            return True
        before = now
    return not any(known.entered or known.graphs for known in facts)


def problem(service: ServiceReport, steps: Sequence[Step], facts: Sequence[ObservedStep]) -> str:
    """Return why torch is not proven to have caused the traffic of a case with a service; empty if it is."""
    gets, sets = service.answered.get("GET", 0), service.answered.get("SET", 0)
    torch = counted_by_torch(steps, facts)
    if not gets + sets:
        others = f" (another client of the case sent {service.foreign})" if service.foreign else ""
        return f"the case uses {service.name}, but torch sent it no request{others}"
    # a child process has its own counts, which are unknown here
    most = float("inf") if any(traits_of(step).children for step in steps) else torch.raised
    agrees = 0 <= gets - torch.gets <= most and 0 <= sets - torch.sets <= most
    if agrees and torch.gets + torch.sets > 0:
        return "" if _while_compiling(steps, facts) else f"torch's remote caches used {service.name} in no step that compiled anything"
    return (
        f"{service.name} answered {gets} look-ups and {sets} writes, and torch's remote caches counted {torch.gets} and {torch.sets}: "
        "another client used it, or torch's did not reach it"
    )
