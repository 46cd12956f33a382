"""The parts of an observation that are not judged: times, benchmarks. They are untrusted."""

from dataclasses import dataclass
from pathlib import Path

from runner.core.observation import Observation, Timing
from runner.run.artifacts import why_no_attachment


@dataclass(frozen=True, slots=True)
class Benches:
    """The timings, attachments and notes of bench steps."""

    timings: tuple[Timing, ...] = ()
    attachments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def count(found: int) -> int:
    """Return a count; 0 for an impossible one."""
    return found if 0 <= found < 1 << 31 else 0


def phases(observation: Observation | None) -> dict[str, float]:
    """Return the seconds of each phase, without impossible values."""
    found = {} if observation is None else observation.phases
    return {name: round(float(seconds), 4) for name, seconds in found.items() if 0 <= seconds < 1e9}


def benches(folder: Path, observation: Observation | None) -> Benches:
    """Return the timings, attachments and notes of the bench steps."""
    found = [step.bench for step in observation.steps if step.bench is not None] if observation is not None else []
    names = list(dict.fromkeys(name for bench in found for name in bench.attachments))
    refused = {name: why for name in names if (why := why_no_attachment(folder / name))}
    return Benches(
        timings=tuple(timing for bench in found for timing in bench.timings),
        attachments=tuple(name for name in names if name not in refused),
        notes=(*(note for bench in found for note in bench.notes), *refused.values()),
    )
