"""The results of a run so far, and the attempts of cases that have none yet. Every change is emitted as an event."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from runner.core.attempts import Policy
from runner.core.case import Case, CaseId
from runner.core.events import AttemptFinished, CaseFinished, CaseUnfinished, RunEvent
from runner.core.results import CaseResult


class Ledger:
    """The ledger of a resumed run starts with the records of the interrupted run."""

    def __init__(
        self,
        policy: Policy,
        finished: Iterable[CaseResult],
        attempts: Mapping[CaseId, Sequence[CaseResult]],
        emit: Callable[[RunEvent], None],
    ) -> None:
        self._policy = policy
        self._emit = emit
        self.results: dict[str, CaseResult] = {result.case_id: result for result in finished}
        self.attempts: dict[str, list[CaseResult]] = {case_id: list(made) for case_id, made in attempts.items()}

    @property
    def executions(self) -> Iterator[CaseResult]:
        """The results, and the attempts of cases that have no result."""
        yield from self.results.values()
        for made in self.attempts.values():
            yield from made

    def of(self, cases: Iterable[Case]) -> list[CaseResult]:
        """Return the known results of cases, in the order of the cases."""
        return [self.results[case.id] for case in cases if case.id in self.results]

    def had_all_attempts(self, case_id: str) -> bool:
        """Return whether a case without a result needs no further attempt."""
        made = self.attempts.get(case_id, ())
        return bool(made) and self._policy.is_done(made)

    def missing_attempts(self, case_id: str) -> int:
        """Return how many attempts of a case are still to run in the normal order."""
        return self._policy.remaining(self.attempts.get(case_id, ()))

    def take(self, result: CaseResult) -> None:
        """Record the result of a case."""
        self._emit_and_keep(CaseFinished(result=result))

    def take_killed(self) -> None:
        """Record the results of cases whose attempts were complete when the interrupted run was killed."""
        for case_id in filter(self.had_all_attempts, list(self.attempts)):
            self.take(self._policy.fold(self.attempts.pop(case_id)))

    def take_attempt(self, result: CaseResult) -> CaseResult | None:
        """Record an attempt; return the case's result if it was the last attempt."""
        made = [*self.attempts.get(result.case_id, ()), result]
        is_done = self._policy.is_done(made)
        if is_done and len(made) == 1:
            self.take(result)
            return result
        self._emit(AttemptFinished(result=result, number=len(made), bound=self._policy.bound))
        self.attempts[result.case_id] = made
        if not is_done:
            return None
        folded = self._policy.fold(self.attempts.pop(result.case_id))
        self.take(folded)
        return folded

    def close(self, case: Case, reason: str, unrun: Callable[[Case, str], CaseResult], *, interrupted: bool) -> None:
        """Record a case with missing attempts when the run ends; ``unrun`` makes the result of a case without any attempt."""
        if case.id in self.results:
            return
        had_all = self.had_all_attempts(case.id)
        made = self.attempts.pop(case.id, None)
        if made is None:
            result = unrun(case, reason)
        elif had_all:
            result = self._policy.fold(made)
        else:
            result = self._policy.interrupted(made) if interrupted else self._policy.fold(made, reason)
        self._emit_and_keep(CaseUnfinished(result=result))

    def _emit_and_keep(self, event: CaseFinished | CaseUnfinished) -> None:
        self._emit(event)
        self.results[event.result.case_id] = event.result
