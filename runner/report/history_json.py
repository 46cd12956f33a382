"""The history as JSON (``schemas/history.schema.json``)."""

from collections.abc import Mapping, Sequence

from runner.record.history.queries import HistoryCase, HistoryResult, HistoryRun

FORMAT = 1


def document_of(
    file: str,
    runs: Sequence[HistoryRun],
    cases: Sequence[HistoryCase],
    results: Mapping[int, Sequence[HistoryResult]],
) -> dict[str, object]:
    """Return the document: every run, and the given cases."""
    names = {run.number: run.id for run in runs}
    return {
        "format": FORMAT,
        "file": file,
        "runs": [_run(run) for run in runs],
        "cases": [_case(case, names, results.get(case.number, ())) for case in cases],
    }


def _run(run: HistoryRun) -> dict[str, object]:
    return {
        "id": run.id,
        "machine": run.machine,
        "started": run.started,
        "seconds": run.seconds,
        "torch": run.torch,
        "version": run.version,
        "exit_code": run.exit_code,
        "selected": run.selected,
        "executed": run.executed,
        "passed": run.passed,
        "failed": run.failed,
        "pass_rate": run.pass_rate,
        "totals": dict(run.totals),
        "merged": list(run.merged),
    }


def _case(case: HistoryCase, names: Mapping[int, str], results: Sequence[HistoryResult]) -> dict[str, object]:
    stats = case.stats
    return {
        "id": case.id,
        "machine": case.machine,
        "runs": stats.runs,
        "executed": stats.executed,
        "passed": stats.passed,
        "failed": stats.failed,
        "waived": stats.waived,
        "flaky": stats.flaky,
        "changes": stats.changes,
        "pass_rate": stats.pass_rate,
        "flake_rate": stats.flake_rate,
        "mean_seconds": stats.mean,
        "last_outcome": stats.last_outcome,
        "last_run": names.get(stats.last_run, ""),
        "last_good": names.get(stats.last_good, ""),
        "first_bad": names.get(stats.first_bad, ""),
        "results": [
            {"run": one.run, "started": one.started, "torch": one.torch, "outcome": one.outcome, "seconds": one.seconds}
            for one in results
            if one.machine == case.machine
        ],
    }
