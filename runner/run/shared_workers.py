"""Shared workers: a case that did not pass after others in a worker is retried alone, and only the retry counts."""

import dataclasses
from collections.abc import Iterator

from runner.core.model import CaseResult
from runner.core.outcomes import Outcome
from runner.execute.base import SHARED, Execution


def may_be_of_others(result: CaseResult, execution: Execution) -> bool:
    """Whether a result of a shared worker may come from the cases before it, or spoil those after it: that worker gets no further case."""
    return execution.isolation == SHARED and (result.outcome is not Outcome.PASS or bool(execution.contaminated))


def why_retried(result: CaseResult, execution: Execution) -> str:
    """Return the outcome in a shared worker for which a case is retried alone; empty where the result counts."""
    if not may_be_of_others(result, execution) or execution.after == 0:
        return ""
    cases = f"{execution.after} other case{'' if execution.after == 1 else 's'}"
    if execution.contaminated:
        return f"{result.outcome.label} after {cases} in a worker, and changed what measures it: {execution.contaminated}"
    return f"{result.outcome.label} after {cases} in a worker: {result.reason}"


class Retries:
    """The jobs that are retries, and why."""

    def __init__(self) -> None:
        self._reasons: dict[str, tuple[str, str]] = {}
        """By the name of the job of the retry: the case, and its outcome in the shared worker."""

    def add(self, job: str, case_id: str, reason: str) -> None:
        """Note that a job is the retry of a case."""
        self._reasons[job] = (case_id, reason)

    def noted(self, result: CaseResult, job: str) -> CaseResult:
        """Return the result of a job with what the case did in a shared worker before, if it is a retry."""
        _, reason = self._reasons.get(job, ("", ""))
        return dataclasses.replace(result, company=reason)

    @property
    def warnings(self) -> Iterator[str]:
        """What a person should know of the cases that were retried."""
        for case_id, reason in self._reasons.values():
            yield f"{case_id} was {reason}; it was run again alone. If it may share no worker, its spec says 'isolation: case'"
