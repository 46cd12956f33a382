"""The timeline of a run: which case ran when, on which worker and GPU; also as a Chrome trace, which Perfetto opens."""

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from runner.core.protocol import Json
from runner.core.results import Attempt, CaseResult
from runner.report.html.scripts import shown

_WORKERS, _GPUS, _WARM_UPS = 1, 2, 3
"""The processes of the trace."""

_SLACK = 0.002
"""Seconds that two intervals of one lane may overlap: the journal's moments have milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One execution of a case."""

    case: int
    """The number of its case in the run."""
    begun: float
    """Seconds since the first interval of the run, or since the first warm-up of a worker."""
    seconds: float
    outcome: str
    worker: int
    gpus: tuple[int, ...]
    warmup_begun: float = 0.0
    """When its worker began to warm up; meaningless without ``warmup``."""
    warmup: float = 0.0
    """Seconds of that; 0 where the worker did not warm up for it."""
    lane: int = 0
    """Its row: at one moment a row has one case."""


def intervals_of(results: Sequence[CaseResult]) -> list[Interval]:
    """Return the executions whose beginning the journal has, by their beginning, each in a lane."""
    found = [
        (moment, number, attempt)
        for number, result in enumerate(results)
        for attempt in (result.attempts or (result,))
        if (moment := _moment(attempt.begun)) is not None
    ]
    found.sort(key=lambda one: one[:2])
    warm = [moment for _, _, attempt in found if (moment := _moment(attempt.warmup_begun)) is not None]
    start = min([moment for moment, _, _ in found] + warm, default=0.0)
    return list(_in_lanes([_interval(number, moment - start, attempt, start) for moment, number, attempt in found]))


def _interval(number: int, begun: float, attempt: Attempt, start: float) -> Interval:
    warm = _moment(attempt.warmup_begun)
    return Interval(
        warmup_begun=0.0 if warm is None else warm - start,
        warmup=0.0 if warm is None else max(attempt.warmup, 0.0),
        case=number,
        begun=begun,
        seconds=max(attempt.seconds, 0.0),
        outcome=attempt.outcome.label,
        worker=attempt.worker,
        gpus=attempt.gpus,
    )


def _moment(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


def _in_lanes(intervals: Sequence[Interval]) -> Iterator[Interval]:
    """Yield each interval in the lowest lane that is free when it begins."""
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    for one in intervals:
        while busy and busy[0][0] <= one.begun + _SLACK:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (one.begun + one.seconds, lane))
        yield Interval(**{name: getattr(one, name) for name in Interval.__slots__ if name != "lane"}, lane=lane)


def columns_of(intervals: Sequence[Interval]) -> dict[str, Json]:
    """Return the timeline for the page."""
    return {
        "case": [one.case for one in intervals],
        "begun": [round(one.begun * 1000) for one in intervals],
        "ms": [round(one.seconds * 1000) for one in intervals],
        "lane": [one.lane for one in intervals],
        "worker": [one.worker for one in intervals],
        "gpus": [list(one.gpus) for one in intervals],
        "outcome": [one.outcome for one in intervals],
    }


def trace_of(intervals: Sequence[Interval], results: Sequence[CaseResult]) -> Iterator[bytes]:
    """Yield the Chrome trace as JSON, a line for each event."""
    yield b'{"displayTimeUnit":"ms","traceEvents":[\n'
    names = [_name(_WORKERS, "workers"), _name(_GPUS, "GPUs"), _name(_WARM_UPS, "warm-ups of workers")]
    yield b",\n".join(map(_line, names))
    for one in intervals:
        for process, row in ((_WORKERS, one.lane), *((_GPUS, gpu) for gpu in one.gpus)):
            yield b",\n" + _line(_event(process, row, one, results[one.case]))
        if one.warmup:
            yield b",\n" + _line(_warm_up(one))
    yield b"\n]}\n"


def _event(process: int, row: int, one: Interval, result: CaseResult) -> dict[str, Json]:
    return {
        "ph": "X",
        "pid": process,
        "tid": row,
        "ts": round(one.begun * 1e6),
        "dur": round(one.seconds * 1e6),
        "name": shown(result.case_id),
        "cat": one.outcome,
        "args": {"outcome": one.outcome, "worker": one.worker, "gpus": list(one.gpus), "spec": shown(result.spec)},
    }


def _warm_up(one: Interval) -> dict[str, Json]:
    return {
        "ph": "X",
        "pid": _WARM_UPS,
        "tid": one.worker,
        "ts": round(one.warmup_begun * 1e6),
        "dur": round(one.warmup * 1e6),
        "name": f"warm-up of worker {one.worker}",
        "args": {"worker": one.worker},
    }


def _name(process: int, name: str) -> dict[str, Json]:
    return {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}


def _line(event: Mapping[str, object]) -> bytes:
    return json.dumps(event, ensure_ascii=True, allow_nan=False).encode("ascii")
