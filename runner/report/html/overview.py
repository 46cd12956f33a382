"""The index, a column for each thing that the page filters by; the page of the run: what ran where, what it covered; and its timeline.

A column holds numbers of small tables, so 150,000 cases take some MB.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from runner.core.escaping import one_line
from runner.core.header import RunFooter, RunHeader
from runner.core.outcomes import Outcome
from runner.core.protocol import Json
from runner.core.results import CaseResult
from runner.report.html import shown
from runner.report.statement import remark

_SLACK = 0.002
"""Seconds that two intervals of one lane may overlap: the journal's moments have milliseconds."""

_REASON = 240
"""Characters of a reason in a list; the page of the case has all of it."""

_FIRST = (
    Outcome.CRASH,
    Outcome.FAIL,
    Outcome.FELL_BACK,
    Outcome.ERROR,
    Outcome.TIMEOUT,
    Outcome.OFFLINE_FAIL,
    Outcome.XPASS,
    Outcome.FLAKY,
    Outcome.NOT_RUN,
    Outcome.XFAIL,
    Outcome.UNAVAILABLE,
    Outcome.OFFLINE_PASS,
    Outcome.PASS,
)
"""The order of the page: what needs a person first."""


def index_of(results: Sequence[CaseResult], chunks: Sequence[int]) -> dict[str, Json]:
    """Return the index; ``chunks`` has the number of the first case of each chunk of details."""
    tables: dict[str, dict[object, int]] = {name: {} for name in ("spec", "backend", "point", "reason", "tags")}
    columns: dict[str, list[int]] = {name: [] for name in ("outcome", *tables, "ms")}
    places = {outcome: place for place, outcome in enumerate(_FIRST)}
    odd: dict[str, str] = {}
    for number, result in enumerate(results):
        if (point := _point(result)) is None:
            odd[str(number)] = shown(result.case_id)
        values: dict[str, object] = {
            "spec": (result.spec, result.area, result.name),
            "backend": result.backend,
            "point": point or "",
            "reason": (result.failure_type, one_line(result.reason, _REASON)),
            "tags": tuple(result.tags),
        }
        for name, value in values.items():
            columns[name].append(tables[name].setdefault(value, len(tables[name])))
        columns["outcome"].append(places[result.outcome])
        columns["ms"].append(round(result.seconds * 1000))
    return {
        "outcomes": [[kind.label, kind.is_failure, kind.is_executed, kind.glyph] for kind in _FIRST],
        "specs": _shown(list(tables["spec"])),
        "backends": _shown(list(tables["backend"])),
        "points": _shown(list(tables["point"])),
        "reasons": _shown(list(tables["reason"])),
        "tags": _shown(list(tables["tags"])),
        "odd": odd,
        "chunks": list(chunks),
        "columns": columns,
    }


def _point(result: CaseResult) -> str | None:
    """Return the part of an id behind its backend; None for an id of another form."""
    head = f"{result.area}/{result.name}" if result.area else result.name
    begin = f"{head}[backend={result.backend}"
    rest = result.case_id.removeprefix(begin)
    if len(rest) == len(result.case_id) or not rest.endswith("]") or (rest != "]" and not rest.startswith(",")):
        return None
    return rest[1:-1]


def totals_of(results: Sequence[CaseResult]) -> Mapping[Outcome, int]:
    """Count the results, in the order of the page."""
    counts = dict.fromkeys(_FIRST, 0)
    for result in results:
        counts[result.outcome] += 1
    return counts


def head_of(header: RunHeader, results: Sequence[CaseResult], footer: RunFooter | None) -> dict[str, Json]:
    """Return what every view shows of the run."""
    statement = footer.statement[0] if footer and footer.statement else None
    selected = header.selected
    return {
        "run": shown(header.run_id),
        "started": shown(header.started),
        "version": shown(header.version),
        "selected": selected,
        "executed": sum(result.is_executed for result in results),
        "required": statement.required if statement else selected,
        "of_profile": f"{shown(statement.profile)} {shown(statement.version)}" if statement else "",
        "conformance": statement.conformance.value if statement else "",
        "remark": shown(remark(statement)) if statement else "",
        "totals": {outcome.label: count for outcome, count in totals_of(results).items()},
        "environment": _shown(dict(header.environment)),
        "truncated": footer is None,
        "interrupted": bool(footer and footer.interrupted),
        "exit_code": footer.exit_code if footer else None,
        "seconds": footer.seconds if footer else None,
        "ended": shown(footer.ended) if footer else "",
    }


def facts_of(header: RunHeader, results: Sequence[CaseResult], footer: RunFooter | None) -> dict[str, Json]:
    """Return what the view of the run shows besides."""
    return {
        "command": _shown(header.command),
        "variables": _shown(dict(header.variables)),
        "options": _shown(dict(header.options)),
        "shard": shown(header.shard),
        "shuffle": shown(header.shuffle),
        "merged": _shown(header.merged),
        "not_requested": header.not_requested,
        "coverage": _by_outcome(results, _covered),
        "operators": _by_outcome(results, _operators),
        "statement": [_statement(footer)] if footer and footer.statement else [],
        "audit": [_shown(asdict(score)) for score in footer.audit] if footer else [],
    }


def _by_outcome(results: Iterable[CaseResult], names_of: Callable[[CaseResult], Iterable[str]]) -> list[Json]:
    """Return each name that cases have, with its cases by outcome."""
    counts: dict[str, Counter[str]] = {}
    for result in results:
        for name in dict.fromkeys(names_of(result)):
            counts.setdefault(name, Counter())[result.outcome.label] += 1
    return [[shown(name), dict(counts[name])] for name in sorted(counts)]


def _covered(result: CaseResult) -> Iterable[str]:
    """Yield the upstream tests that a case restates."""
    return (name.partition("[")[0] for name in result.covers)


def _operators(result: CaseResult) -> Iterable[str]:
    """Yield the operator of torch's database that a case was made of."""
    point = result.case_id.partition("[")[2].rstrip("]").split(",")
    return [part.removeprefix("op=") for part in point if part.startswith("op=")][:1]


def _statement(footer: RunFooter) -> Json:
    statement = footer.statement[0]
    levels = [
        [
            level.level,
            level.conformance.value,
            level.required,
            level.executed,
            level.passed,
            level.waived,
            len(level.failed),
            len(level.not_executed),
        ]
        for level in statement.levels
    ]
    return _shown(
        {
            "profile": statement.profile,
            "version": statement.version,
            "conformance": statement.conformance.value,
            "levels": levels,
            "problems": list(statement.problems),
            "waivers": [[waiver.reason, waiver.issue, waiver.until, len(waiver.used_by)] for waiver in statement.waivers],
        }
    )


def _shown(value: object) -> Json:
    """Return JSON whose strings have visible escapes."""
    match value:
        case str():
            return shown(value)
        case list() | tuple():
            return [_shown(item) for item in value]
        case dict():
            return {shown(str(name)): _shown(item) for name, item in value.items()}
        case _:
            return value


# -- the timeline: which case ran when, on which worker and GPU -----------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One execution of a case."""

    case: int
    """The number of its case in the run."""
    begun: float
    """Seconds since the first interval of the run."""
    seconds: float
    outcome: str
    worker: int
    gpus: tuple[int, ...]
    lane: int = 0
    """Its row: at one moment a row has one case."""


def intervals_of(results: Sequence[CaseResult]) -> list[Interval]:
    """Return the executions whose beginning the journal has, by their beginning, each in a lane."""
    executions = [
        (moment, number, attempt)
        for number, result in enumerate(results)
        for attempt in (result.attempts or (result,))
        if (moment := _moment(attempt.begun)) is not None
    ]
    executions.sort(key=lambda execution: execution[:2])
    start = min((moment for moment, _, _ in executions), default=0.0)
    return list(
        _in_lanes(
            Interval(
                case=number,
                begun=moment - start,
                seconds=max(attempt.seconds, 0.0),
                outcome=attempt.outcome.label,
                worker=attempt.worker,
                gpus=attempt.gpus,
            )
            for moment, number, attempt in executions
        )
    )


def _moment(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


def _in_lanes(intervals: Iterable[Interval]) -> Iterator[Interval]:
    """Yield each interval in the lowest lane that is free when it begins."""
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    for interval in intervals:
        while busy and busy[0][0] <= interval.begun + _SLACK:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (interval.begun + interval.seconds, lane))
        yield replace(interval, lane=lane)


def columns_of(intervals: Sequence[Interval]) -> dict[str, Json]:
    """Return the timeline for the page."""
    return {
        "case": [interval.case for interval in intervals],
        "begun": [round(interval.begun * 1000) for interval in intervals],
        "ms": [round(interval.seconds * 1000) for interval in intervals],
        "lane": [interval.lane for interval in intervals],
        "worker": [interval.worker for interval in intervals],
        "gpus": [list(interval.gpus) for interval in intervals],
        "outcome": [interval.outcome for interval in intervals],
    }
