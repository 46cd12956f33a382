"""Torch's counters, metrics and statistics of remote caches."""

import contextlib
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


def counters() -> dict[str, dict[str, int]]:
    """Return every counter, by namespace and name. Empty namespaces are left out."""
    from torch._dynamo.utils import counters as found

    return {str(space): {str(name): int(number) for name, number in names.items()} for space, names in found.items() if names}


@dataclass(frozen=True, slots=True)
class Frames:
    """What dynamo has counted so far of the frames that it met."""

    total: int
    ok: int
    breaks: Mapping[str, int]
    """Graph breaks, by reason."""

    def why_eager(self, before: "Frames") -> str:
        """Return why a call since then, which ran no compiled graph, ran eagerly; empty where it was traced whole and had no operation."""
        total, ok = self.total - before.total, self.ok - before.ok
        broke = next((reason for reason, count in self.breaks.items() if count > before.breaks.get(reason, 0)), None)
        if broke is not None:
            return f"dynamo broke the graph: {next(iter(broke.strip().splitlines()), '')}"
        if total == 0:
            return "dynamo traced no frame"
        return "" if total == ok else f"dynamo converted {ok} of {total} frames"


def frames() -> Frames:
    """Return the counts of frames; ``torch._dynamo.reset`` leaves them."""
    from torch._dynamo.utils import counters as found

    counted = found["frames"]
    return Frames(total=int(counted["total"]), ok=int(counted["ok"]), breaks={str(key): int(n) for key, n in found["graph_break"].items()})


def clear_counters() -> None:
    """Clear all counters and statistics of remote caches."""
    from torch._dynamo.utils import counters as found

    found.clear()
    _remote_cache_stats().clear()


def _remote_cache_stats() -> dict[str, Any]:
    from torch._inductor.remote_cache import cache_stats

    found: dict[str, Any] = cache_stats._stats
    return found


def remote_caches() -> dict[str, dict[str, int]]:
    """Return the counts ``hit``, ``miss``, ``put`` and ``exception`` of each remote cache, by name."""
    return {
        name: {count: int(getattr(seen, count)) for count in ("hit", "miss", "put", "exception")}
        for name, seen in _remote_cache_stats().items()
        if name.startswith("Remote")
    }


def metrics() -> dict[str, float]:
    """Return inductor's metrics that are numbers or lists, by name; the value of a list is its length."""
    from torch._inductor import metrics as found

    values = {name: value for name, value in vars(found).items() if not name.startswith("_")}
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float) and not isinstance(value, bool)}
    return {**numbers, **{name: len(value) for name, value in values.items() if isinstance(value, list)}}


def clear_metrics() -> None:
    """Set inductor's metrics to 0."""
    from torch._inductor import metrics as found

    found.reset()


@contextlib.contextmanager
def counts_kept() -> Iterator[None]:
    """Restore counters, metrics and statistics of remote caches when the context ends."""
    from torch._dynamo.utils import counters as found
    from torch._inductor import metrics as numbers

    counted = {space: dict(names) for space, names in found.items()}
    measured = {name: copy.copy(value) for name, value in vars(numbers).items() if _is_metric(name, value)}
    remote = {name: copy.copy(seen) for name, seen in _remote_cache_stats().items()}
    try:
        yield
    finally:
        for space in [space for space in found if space not in counted]:
            del found[space]
        for space, names in counted.items():
            found[space].clear()
            found[space].update(names)
        for name, value in measured.items():
            setattr(numbers, name, value)
        _remote_cache_stats().clear()
        _remote_cache_stats().update(remote)


def _is_metric(name: str, value: Any) -> bool:
    return not name.startswith("_") and isinstance(value, int | float | list) and not isinstance(value, bool)
