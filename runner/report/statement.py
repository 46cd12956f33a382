"""The statement of a profile in reports: lines for people, properties for JUnit."""

from collections import Counter
from collections.abc import Iterator, Sequence

from runner.model.conformance import Conformance, LevelStatement, Statement
from runner.model.escaping import one_line
from runner.model.folded_ids import folded_by_reason
from runner.model.header import RunHeader
from runner.model.results import CaseResult

_SHOWN = 3
"""How many reasons the one line of ``why`` has."""


def lines_of_statement(statement: Statement) -> Iterator[str]:
    """Yield the lines of one statement."""
    yield f"\nprofile {one_line(statement.profile)} {one_line(statement.version)}, sha256 {statement.digest}"
    for level in statement.levels:
        optional = ", ".join(f"{count} {label}" for label, count in level.optional.items())
        yield f"  {level.level}  {_standings([level])}{f'; optional: {optional}' if optional else ''}"
    yield from (f"  {one_line(problem)}" for problem in statement.problems)
    for what, by_case in (("failed", statement.failed), ("not executed", statement.not_executed)):
        if by_case:
            yield f"  {what}:"
        for reason, ids in folded_by_reason(by_case).items():
            yield f"    {one_line(reason)}"
            yield from (f"      {one_line(line, limit=10_000)}" for line in ids)
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
    return _standings(statement.levels, statement)


def _standings(levels: Sequence[LevelStatement], whole: Statement | None = None) -> str:
    conformance, required = (whole.conformance, whole.required) if whole else (levels[0].conformance, levels[0].required)
    counts = {
        "passed": sum(level.passed for level in levels),
        "waived": sum(level.waived for level in levels),
        "failed": sum(len(level.failed) for level in levels),
        "not executed": sum(len(level.not_executed) for level in levels),
    }
    standings = ", ".join(f"{count} {word}" for word, count in counts.items() if count or word == "passed")
    return f"{conformance.value}: {standings} of {required} required"


def optional_failures(statement: Statement) -> str:
    """Return what the failures of optional cases change; empty where none of them failed."""
    count = statement.optional_failures
    if not count:
        return ""
    cases, they = ("1 optional case", "It changes") if count == 1 else (f"{count} optional cases", "They change")
    return f"{cases} of the profile failed. {they} neither the statement nor the exit code."


def why(statement: Statement) -> str:
    """Return on one line why a profile is not CONFORMANT."""
    by_case = statement.failed or statement.not_executed
    what = "failed" if statement.failed else "not executed"
    reasons = Counter(one_line(reason, 200) for reason in by_case.values())
    shown = [f"{count} x {reason}" for reason, count in reasons.most_common(_SHOWN)]
    shown += [f"and {len(reasons) - _SHOWN} more reasons"] if len(reasons) > _SHOWN else []
    counted = [f"{len(by_case)} of {statement.required} required cases {what}"] if by_case else []
    because = f": {'; '.join(shown)}" if shown else ""
    words = f"{'; '.join([*statement.problems, *counted])}{because}"
    return one_line(f"profile {statement.profile} {statement.version} is {statement.conformance.value}: {words}", 2_000)


def remark(statement: Statement) -> str:
    """Return why the statement and the number of failed cases go together; empty where both need no explanation."""
    because = "" if statement.conformance is Conformance.CONFORMANT else f"{why(statement)}."
    return " ".join(filter(None, [because, optional_failures(statement)]))


def statement_properties(header: RunHeader, results: Sequence[CaseResult]) -> dict[str, str]:
    """Return the statement as properties of a suite; none for a run without a profile."""
    statement = header.statement(results)
    if statement is None:
        return {}
    return {
        "profile": f"{statement.profile} {statement.version}",
        "profile.sha256": statement.digest,
        "statement": statement.conformance.value,
        "statement.required": str(statement.required),
        "statement.executed": str(statement.executed),
        "statement.passed": str(sum(level.passed for level in statement.levels)),
        "statement.waived": str(sum(level.waived for level in statement.levels)),
        "statement.waivers": " ".join(waiver.issue for waiver in statement.waivers),
        **{f"profile.{level.level}": _standings([level]).replace(": ", ", ", 1) for level in statement.levels},
    }
