"""What an observation holds beside the facts that are judged: times, counts of the object cache, benchmarks. A worker may send anything."""

from dataclasses import dataclass
from pathlib import Path

from runner.core.model import Timing
from runner.core.observation import ObjectCounts, Observation
from runner.run.artifacts import why_no_attachment


@dataclass(frozen=True, slots=True)
class Benches:
    """What bench steps timed and left."""

    timings: tuple[Timing, ...] = ()
    attachments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def objects(observation: Observation | None) -> ObjectCounts:
    """Return what the object cache counted; zeros where it is off, and where there is no observation."""
    return ObjectCounts() if observation is None else observation.objects


def count(found: int) -> int:
    """Return a count; 0 for one that no case reaches."""
    return found if 0 <= found < 1 << 31 else 0


def phases(observation: Observation | None) -> dict[str, float]:
    """Return the seconds of each phase, of those that a case can take."""
    found = {} if observation is None else observation.phases
    return {name: round(float(seconds), 4) for name, seconds in found.items() if 0 <= seconds < 1e9}


def benches(folder: Path, observation: Observation | None) -> Benches:
    """Return what bench steps timed and left."""
    found = [step.bench for step in observation.steps if step.bench is not None] if observation is not None else []
    names = list(dict.fromkeys(name for bench in found for name in bench.attachments))
    refused = {name: why for name in names if (why := why_no_attachment(folder / name))}
    return Benches(
        timings=tuple(timing for bench in found for timing in bench.timings),
        attachments=tuple(name for name in names if name not in refused),
        notes=(*(note for bench in found for note in bench.notes), *refused.values()),
    )
