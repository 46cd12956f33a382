"""The statement of a profile in reports: lines for people, properties for JUnit."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from runner.model.conformance import Conformance, LevelStatement, Statement
from runner.model.folded_ids import folded_by_reason
from runner.model.header import RunHeader
from runner.model.results import CaseResult
from runner.report import one_line

_SHOWN = 3
"""How many reasons the one line of ``why`` has."""

_ID_LIMIT = 10_000


def lines_of_statement(statement: Statement) -> Iterator[str]:
    """Yield the lines of one statement."""
    yield f"\nprofile {one_line(statement.profile)} {one_line(statement.version)}, sha256 {statement.digest}"
    yield from (f"  {_level(level)}" for level in statement.levels)
    yield from (f"  {one_line(problem)}" for problem in statement.problems)
    yield from _reasons("failed", statement.failed)
    yield from _reasons("not executed", statement.not_executed)
    if statement.waivers:
        yield "  waivers:"
    for waiver in statement.waivers:
        words = f"{waiver.position} until {waiver.until}, {len(waiver.used_by)} cases: {waiver.reason} ({waiver.issue})"
        yield f"    {one_line(words)}"
    yield in_words(statement)
    if words := optional_failures(statement):
        yield words


def in_words(statement: Statement) -> str:
    """Return a statement with how many required cases passed, are waived, failed and were not executed."""
    return f"{statement.conformance.value}: {_standings(statement.levels)} of {statement.required} required"


def optional_failures(statement: Statement) -> str:
    """Return what the failures of optional cases change; empty where none of them failed."""
    count = statement.optional_failures
    if not count:
        return ""
    cases, they = ("1 optional case", "It changes") if count == 1 else (f"{count} optional cases", "They change")
    return f"{cases} of the profile failed. {they} neither the statement nor the exit code."


def _level(level: LevelStatement) -> str:
    optional = ", ".join(f"{count} {label}" for label, count in level.optional.items())
    more = f"; optional: {optional}" if optional else ""
    return f"{level.level}  {level.conformance.value}: {_standings([level])} of {level.required} required{more}"


def _standings(levels: Sequence[LevelStatement]) -> str:
    """Return how many required cases passed, are waived, failed and were not executed."""
    counts = {
        "passed": sum(level.passed for level in levels),
        "waived": sum(level.waived for level in levels),
        "failed": sum(len(level.failed) for level in levels),
        "not executed": sum(len(level.not_executed) for level in levels),
    }
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count or word == "passed")


def _reasons(what: str, reasons: Mapping[str, str]) -> Iterator[str]:
    if reasons:
        yield f"  {what}:"
    for reason, ids in folded_by_reason(reasons).items():
        yield f"    {one_line(reason)}"
        yield from (f"      {one_line(line, limit=_ID_LIMIT)}" for line in ids)


def why(statement: Statement) -> str:
    """Return on one line why a profile is not CONFORMANT."""
    by_case = statement.failed or statement.not_executed
    what = "failed" if statement.failed else "not executed"
    reasons = Counter(one_line(reason, 200) for reason in by_case.values())
    shown = [f"{count} x {reason}" for reason, count in reasons.most_common(_SHOWN)]
    more = [f"and {len(reasons) - _SHOWN} more reasons"] if len(reasons) > _SHOWN else []
    counted = f"{len(by_case)} of {statement.required} required cases {what}" if by_case else ""
    words = "; ".join(filter(None, [*statement.problems, counted]))
    because = f": {'; '.join([*shown, *more])}" if shown else ""
    return one_line(f"profile {statement.profile} {statement.version} is {statement.conformance.value}: {words}{because}", 2_000)


def remark(statement: Statement) -> str:
    """Return why the statement and the number of failed cases go together; empty where both need no explanation."""
    because = "" if statement.conformance is Conformance.CONFORMANT else f"{why(statement)}."
    return " ".join(filter(None, [because, optional_failures(statement)]))


def statement_properties(header: RunHeader, results: Sequence[CaseResult]) -> dict[str, str]:
    """Return the statement as properties of a suite; none for a run without a profile."""
    statement = header.statement(results)
    if statement is None:
        return {}
    counts = {
        f"profile.{level.level}": f"{level.conformance.value}, {_standings([level])} of {level.required} required"
        for level in statement.levels
    }
    return {
        "profile": f"{statement.profile} {statement.version}",
        "profile.sha256": statement.digest,
        "statement": statement.conformance.value,
        "statement.required": str(statement.required),
        "statement.executed": str(statement.executed),
        "statement.passed": str(sum(level.passed for level in statement.levels)),
        "statement.waived": str(sum(level.waived for level in statement.levels)),
        "statement.waivers": " ".join(waiver.issue for waiver in statement.waivers),
        **counts,
    }
