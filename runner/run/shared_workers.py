"""Shared workers: a case that does not pass in a worker that ran other cases before is retried alone; only the retry counts."""

import dataclasses
from collections.abc import Iterator

from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.execute.base import SHARED, Execution


def may_be_of_others(result: CaseResult, execution: Execution) -> bool:
    """Whether earlier cases of a shared worker may have caused a result, or the case may affect later ones; the worker is retired then."""
    return execution.isolation == SHARED and (result.outcome is not Outcome.PASS or bool(execution.contaminated))


def why_retried(result: CaseResult, execution: Execution) -> str:
    """Return the outcome in a shared worker for which a case is retried alone; empty where the result counts."""
    if not may_be_of_others(result, execution) or execution.after == 0:
        return ""
    cases = f"{execution.after} other case{'' if execution.after == 1 else 's'}"
    if execution.contaminated:
        return f"{result.outcome.label} after {cases} in a shared worker, with contamination: {execution.contaminated}"
    return f"{result.outcome.label} after {cases} in a shared worker: {result.reason}"


class Retries:
    """The jobs that are retries, with their reasons."""

    def __init__(self) -> None:
        self._reasons: dict[str, tuple[str, str]] = {}
        """By the name of the retry's job: the case, and its outcome in the shared worker."""

    def add(self, job: str, case_id: str, reason: str) -> None:
        """Record that a job is the retry of a case."""
        self._reasons[job] = (case_id, reason)

    def noted(self, result: CaseResult, job: str) -> CaseResult:
        """Return the result of a job; for a retry, with the case's outcome in the shared worker."""
        _, reason = self._reasons.get(job, ("", ""))
        return dataclasses.replace(result, company=reason)

    @property
    def warnings(self) -> Iterator[str]:
        """Warnings for the user about the cases that were retried."""
        for case_id, reason in self._reasons.values():
            yield f"{case_id} was {reason}; it was retried alone. If it cannot share a worker, write 'isolation: case' in its spec"
