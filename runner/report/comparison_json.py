"""A comparison of two runs as JSON (``schemas/diff.schema.json``)."""

from collections.abc import Mapping, Sequence

from runner.core.comparison import CaseChange, CaseTexts, Comparison, FilePair, Side
from runner.core.results import CaseResult

FORMAT = 1


def document_of(comparison: Comparison, texts: Sequence[CaseTexts], *, fail_on: Sequence[str], exit_code: int) -> dict[str, object]:
    """Return the document. It lists every case that changed, and counts the others."""
    found = {one.case_id: one for one in texts}
    return {
        "format": FORMAT,
        "before": _side(comparison.before),
        "after": _side(comparison.after),
        "map_backend": [{"before": one, "after": other} for one, other in comparison.backends],
        "differences": list(comparison.differences),
        "pace": {"cases": comparison.pace.cases, "ratio": round(comparison.pace.ratio, 4), "is_slower": comparison.pace.is_slower},
        "compared": comparison.both,
        "counts": comparison.counts,
        "cases": [_case(change, found.get(change.case_id)) for change in comparison.listed],
        "fail_on": list(fail_on),
        "reached": comparison.reached(fail_on),
        "exit_code": exit_code,
    }


def _side(side: Side) -> dict[str, object]:
    return {
        "name": side.name,
        "run": side.header.run_id,
        "started": side.header.started,
        "merged": list(side.header.merged),
        "environment": dict(side.header.environment),
        "totals": {outcome.label: count for outcome, count in side.totals.items()},
        "interrupted": side.interrupted,
    }


def _case(change: CaseChange, texts: CaseTexts | None) -> dict[str, object]:
    return {
        "id": change.case_id,
        "change": change.change.word,
        "marks": [mark.word for mark in change.marks],
        "before": _result(change.before),
        "after": _result(change.after),
        "remarks": list(change.remarks),
        "texts": {pair.name: _status(pair) for pair in texts.pairs} if texts else {},
        "texts_missing": texts.missing if texts else "",
    }


def _result(result: CaseResult | None) -> Mapping[str, object] | None:
    if result is None:
        return None
    return {
        "id": result.case_id,
        "backend": result.backend,
        "outcome": result.outcome.label,
        "reason": result.reason,
        "failure_type": result.failure_type,
        "seconds": result.seconds,
        "position": {"file": result.position.file, "line": result.position.line, "column": result.position.column},
        "folder": result.folder,
    }


def _status(pair: FilePair) -> str:
    if pair.before is None or pair.after is None:
        return "after" if pair.before is None else "before"
    return "same" if pair.is_same else "differs"
