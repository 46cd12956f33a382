"""What an observation holds beside the facts that are judged: times, counts of the object cache, benchmarks. A worker may send anything."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.core.model import Timing
from runner.language.read.schema import fits
from runner.run.artifacts import why_no_attachment


@dataclass(frozen=True, slots=True)
class Benches:
    """What bench steps timed and left."""

    timings: tuple[Timing, ...] = ()
    attachments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def objects(observation: object) -> dict[str, Any]:
    """Return what the object cache counted; nothing where it is off."""
    found = observation.get("objects") if isinstance(observation, dict) else None
    return found if isinstance(found, dict) else {}


def count(found: object) -> int:
    """Return a count; 0 for what is none."""
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 31 else 0


def phases(observation: object) -> dict[str, float]:
    """Return the seconds of each phase, of those that a case can take."""
    found = observation.get("phases") if isinstance(observation, dict) else None
    if not isinstance(found, dict):
        return {}
    numbers = {str(name): seconds for name, seconds in found.items() if isinstance(seconds, int | float)}
    return {name: round(float(seconds), 4) for name, seconds in numbers.items() if 0 <= seconds < 1e9}


def benches(folder: Path, observation: object) -> Benches:
    """Return what bench steps timed and left: nothing of an observation that no schema lets through."""
    if not isinstance(observation, dict) or not _has_bench(observation.get("steps")) or not fits("observation")(observation):
        return Benches()
    found = [step["bench"] for step in observation["steps"] if "bench" in step]
    names = list(dict.fromkeys(name for bench in found for name in bench["attachments"]))
    refused = {name: why for name in names if (why := why_no_attachment(folder / name))}
    return Benches(
        timings=tuple(Timing(**timing) for bench in found for timing in bench["timings"]),
        attachments=tuple(name for name in names if name not in refused),
        notes=(*(note for bench in found for note in bench["notes"]), *refused.values()),
    )


def _has_bench(steps: object) -> bool:
    return isinstance(steps, list) and any(isinstance(step, dict) and "bench" in step for step in steps)
