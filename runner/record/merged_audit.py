"""The score of the audit of a merged run, from those of its parts."""

from collections.abc import Iterable, Sequence

from runner.core.header import AuditScore


def merged_audit(parts: Iterable[Sequence[AuditScore]]) -> tuple[AuditScore, ...]:
    """Return one score; empty where no part has one. A weak expectation that several parts list counts once."""
    scores = [score for part in parts for score in part]
    if not scores:
        return ()
    listed: dict[str, str] = {}
    for score in scores:
        for name, mutant in score.listed.items():
            listed.setdefault(name, mutant)
    return (
        AuditScore(
            cases=sum(score.cases for score in scores),
            expectations=sum(score.expectations for score in scores),
            applicable=sum(score.applicable for score in scores),
            killed=sum(score.killed for score in scores),
            excused=sum(score.excused for score in scores),
            weak=len(listed) + sum(score.weak - len(score.listed) for score in scores),
            listed=listed,
        ),
    )
