"""What a run cost, and what bounds it on its machine. Pure."""

from bisect import bisect_left
from collections.abc import Iterable
from datetime import datetime
from itertools import chain

from torch_conformance.execute.executor_protocol import StartUp
from torch_conformance.model.results import Redacted

_LEAST = 20
"""Of fewer cases only the last one decides how long a run takes."""

_SECONDS = 10.0
"""The rate of contexts is that of so many seconds, those in which most were made (of all, in less):
a driver makes some at once.
"""

_PHASES = {
    "compiler": "trace lower autotune codegen".split(),
    "kernel builds": ["kernel build"],
    "eager and float64": ["eager", "compare"],
}
_OF_PHASES = {phase: name for name, phases in _PHASES.items() for phase in phases}
"""The names of the costs of phases; the others are ``inputs and steps``: a spec's own code."""


def costs_of(
    attempts: Iterable[Redacted], *, seconds: float, begun: float, cores: float
) -> dict[str, float]:
    """Return the costs of a run in seconds, by name; none for a run of few cases.

    ``seconds`` is how long it took, ``begun`` when it began, in seconds since the epoch. Summed
    over all workers are the phases of cases (``kernel builds``, ``eager and float64``,
    ``compiler``, ``inputs and steps``), ``warm-ups``, the time of ``processors`` of all of it, and
    ``waiting``: the time in which workers had work and used no processor. ``start`` is the time
    until the first worker began. The limits are ``cores``, after the start the time of processors
    on all cores, and ``contexts``, after the start the contexts on GPUs at the highest rate of ten
    seconds. ``ratio`` is the time of the run in that of the larger limit.
    """
    ran = [result for result in attempts if result.begun]
    if len(ran) < _LEAST:
        return {}
    begins = [_begin(result.warmup_begun or result.begun) for result in ran]
    start = max(0.0, min(begins) - begun)
    contexts = sorted(
        begin + result.context for begin, result in zip(begins, ran, strict=True) if result.context
    )
    processors = sum(result.cpu for result in ran)
    summed: dict[str, float] = {"warm-ups": sum(result.warmup for result in ran)}
    for phase, duration in chain.from_iterable(result.phases.items() for result in ran):
        kind = _OF_PHASES.get(phase, "inputs and steps")
        summed[kind] = summed.get(kind, 0.0) + duration
    waiting = max(0.0, sum(result.seconds + result.warmup for result in ran) - processors)
    window = min(_SECONDS, contexts[-1] - contexts[0]) if contexts else 0.0
    most = max(
        (bisect_left(contexts, moment + window) - index for index, moment in enumerate(contexts)),
        default=0,
    )
    limits = {
        "cores": start + processors / cores,
        "contexts": start + len(contexts) / most * window if most else 0.0,
    }
    larger = max(limits.values())
    costs = {
        "start": start,
        **summed,
        "waiting": waiting,
        "processors": processors,
        **limits,
        "ratio": seconds / larger if larger else 0.0,
    }
    return {name: round(cost, 2) for name, cost in costs.items() if cost}


def phases_of_start(
    attempts: Iterable[Redacted], start_up: StartUp | None, begun: float
) -> dict[str, float]:
    """Return the phases of the start of a run, in seconds, with ``the rest`` until its first case
    began; none where no case ran.

    ``begun`` is in seconds since the epoch. ``specs`` are the seconds before the start of torch:
    most specs are read while torch is imported.
    """
    begins = [_begin(result.begun) for result in attempts if result.begun]
    if not begins:
        return {}
    phases = {"specs": max(start_up.begun - begun, 0.0), **start_up.phases} if start_up else {}
    phases["the rest"] = max(min(begins) - begun - sum(phases.values()), 0.0)
    return {name: round(seconds, 2) for name, seconds in phases.items()}


def _begin(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
