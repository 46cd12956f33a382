"""The index, a column for each thing that the page filters by; the page of the run: what ran where, what it covered; and its timeline.

A column holds numbers of small tables, so 150,000 cases take some MB.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from runner.model.escaping import one_line
from runner.model.header import RunFooter, RunHeader
from runner.model.outcomes import Outcome
from runner.model.protocol import Json
from runner.model.results import Attempt, CaseResult
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
        # the part of an id behind its backend; an id of another form is kept whole
        begin = f"{f'{result.area}/' if result.area else ''}{result.name}[backend={result.backend}"
        rest = result.case_id.removeprefix(begin)
        point = rest[1:-1]
        if rest == result.case_id or not (rest == "]" or (rest.startswith(",") and rest.endswith("]"))):
            point = ""
            odd[str(number)] = shown(result.case_id)
        values: dict[str, object] = {
            "spec": (result.spec, result.area, result.name),
            "backend": result.backend,
            "point": point,
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
    # the upstream tests that cases restate, and the operators of torch's database that they were made of; each with its cases by outcome
    covered: dict[str, Counter[str]] = {}
    operators: dict[str, Counter[str]] = {}
    for result in results:
        for name in dict.fromkeys(name.partition("[")[0] for name in result.covers):
            covered.setdefault(name, Counter())[result.outcome.label] += 1
        point = result.case_id.partition("[")[2].rstrip("]").split(",")
        for name in [part.removeprefix("op=") for part in point if part.startswith("op=")][:1]:
            operators.setdefault(name, Counter())[result.outcome.label] += 1
    return {
        "command": _shown(header.command),
        "variables": _shown(dict(header.variables)),
        "options": _shown(dict(header.options)),
        "shard": shown(header.shard),
        "shuffle": shown(header.shuffle),
        "merged": _shown(header.merged),
        "not_requested": header.not_requested,
        "coverage": [[shown(name), dict(counts)] for name, counts in sorted(covered.items())],
        "operators": [[shown(name), dict(counts)] for name, counts in sorted(operators.items())],
        "statement": [
            _shown(
                {
                    "profile": statement.profile,
                    "version": statement.version,
                    "conformance": statement.conformance.value,
                    "levels": [
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
                    ],
                    "problems": list(statement.problems),
                    "waivers": [[waiver.reason, waiver.issue, waiver.until, len(waiver.used_by)] for waiver in statement.waivers],
                }
            )
            for statement in (footer.statement if footer else ())
        ],
    }


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


def timeline_of(results: Sequence[CaseResult]) -> dict[str, list[Json]]:
    """Return the executions whose beginning the journal has, by their beginning, as columns.

    Times are in milliseconds, since the first execution. Each is in the lowest lane that is free when it begins.
    """
    executions: list[tuple[float, int, Attempt]] = []
    for number, result in enumerate(results):
        for attempt in result.attempts or (result,):
            with suppress(ValueError, OverflowError):
                if attempt.begun:
                    executions.append((datetime.fromisoformat(attempt.begun).timestamp(), number, attempt))
    executions.sort(key=lambda execution: execution[:2])
    columns: dict[str, list[Json]] = {name: [] for name in ("case", "begun", "ms", "lane", "worker", "gpus", "outcome")}
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    for moment, number, attempt in executions:
        begun, seconds = moment - executions[0][0], max(attempt.seconds, 0.0)
        while busy and busy[0][0] <= begun + _SLACK:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (begun + seconds, lane))
        row = (number, round(begun * 1000), round(seconds * 1000), lane, attempt.worker, list(attempt.gpus), attempt.outcome.label)
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return columns
