"""The page of the run: what ran where, what it covered, and what its footer says. All from the journal."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from runner.core.header import MissedCases, RunFooter, RunHeader
from runner.core.protocol import Json
from runner.core.results import CaseResult
from runner.report.html.index import totals_of
from runner.report.html.scripts import shown
from runner.report.statement import remark

_LISTED = 1_000
"""Cases that an earlier run executed and this one did not."""


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
        "environment": shown_texts(header.environment),
        "truncated": footer is None,
        "interrupted": bool(footer and footer.interrupted),
        "exit_code": footer.exit_code if footer else None,
        "seconds": footer.seconds if footer else None,
        "ended": shown(footer.ended) if footer else "",
    }


def facts_of(header: RunHeader, results: Sequence[CaseResult], footer: RunFooter | None) -> dict[str, Json]:
    """Return what the view of the run shows besides."""
    return {
        "command": [*map(shown, header.command)],
        "variables": shown_texts(header.variables),
        "options": shown_texts(header.options),
        "shard": shown(header.shard),
        "shuffle": shown(header.shuffle),
        "merged": [*map(shown, header.merged)],
        "not_requested": header.not_requested,
        "coverage": [*_coverage(results)],
        "operators": [*_operators(results)],
        "ledgers": [_shown(asdict(ledger)) for ledger in footer.ledgers] if footer else [],
        "against": [_against(earlier) for earlier in footer.against] if footer else [],
        "statement": [_statement(footer)] if footer and footer.statement else [],
        "audit": [_shown(asdict(score)) for score in footer.audit] if footer else [],
    }


def shown_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return texts by name, with visible escapes."""
    return {shown(name): shown(text) for name, text in texts.items()}


def _coverage(results: Sequence[CaseResult]) -> Iterator[Json]:
    """Yield each upstream test that cases restate, with its cases by outcome."""
    found: dict[str, Counter[str]] = {}
    for result in results:
        for name in dict.fromkeys(covered.partition("[")[0] for covered in result.covers):
            found.setdefault(name, Counter())[result.outcome.label] += 1
    for name in sorted(found):
        yield [shown(name), dict(found[name])]


def _operators(results: Sequence[CaseResult]) -> Iterator[Json]:
    """Yield each operator of torch's database that cases were made of, with its cases by outcome."""
    found: dict[str, Counter[str]] = {}
    for result in results:
        if "[" not in result.case_id:
            continue
        for part in result.case_id.partition("[")[2].rstrip("]").split(","):
            if part.startswith("op="):
                found.setdefault(part.removeprefix("op="), Counter())[result.outcome.label] += 1
    for name in sorted(found):
        yield [shown(name), dict(found[name])]


def _against(earlier: MissedCases) -> Json:
    listed = [[name, reason] for name, reason in list(earlier.missed.items())[:_LISTED]]
    return _shown({"run": earlier.run, "executed": earlier.executed, "missed": listed, "count": len(earlier.missed)})


def _statement(footer: RunFooter) -> Json:
    found = footer.statement[0]
    levels = [
        [one.level, one.conformance.value, one.required, one.executed, one.passed, one.waived, len(one.failed), len(one.not_executed)]
        for one in found.levels
    ]
    return _shown(
        {
            "profile": found.profile,
            "version": found.version,
            "conformance": found.conformance.value,
            "levels": levels,
            "problems": list(found.problems),
            "waivers": [[waiver.reason, waiver.issue, waiver.until, len(waiver.used_by)] for waiver in found.waivers],
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
