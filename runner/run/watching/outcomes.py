"""What a watch remembers of its runs: the outcome of each case, and which cases fail now."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from runner.core.outcomes import Outcome
from runner.core.results import CaseResult

_SHOWN = 5
"""How many failing cases are named."""


@dataclass(frozen=True, slots=True)
class Known:
    """The last outcome of a case."""

    spec: str
    outcome: Outcome


class Outcomes:
    """The last outcome of every case that was run."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}

    @property
    def failing(self) -> tuple[str, ...]:
        """The ids of the cases whose last outcome was a failure."""
        return tuple(case_id for case_id, known in self._known.items() if known.outcome.is_failure)

    @property
    def executed(self) -> int:
        """How many cases were executed."""
        return sum(known.outcome.is_executed for known in self._known.values())

    def take(self, results: Sequence[CaseResult]) -> tuple[str, ...]:
        """Take the results of a run; return the cases that failed before and were now executed without a failure."""
        failed = set(self.failing)
        taken = [result for result in results if result.outcome is not Outcome.NOT_RUN]
        self._known.update({result.case_id: Known(result.spec, result.outcome) for result in taken})
        return tuple(one.case_id for one in taken if one.case_id in failed and one.outcome.is_executed and not one.outcome.is_failure)

    def keep_only(self, specs: Iterable[str], cases: Iterable[str]) -> None:
        """Forget the cases of these specs that are not among the given ones: they were renamed or removed."""
        named, there = set(specs), set(cases)
        self._known = {case_id: known for case_id, known in self._known.items() if known.spec not in named or case_id in there}

    def specs_of(self, case_ids: Iterable[str]) -> set[str]:
        """Return the specs of cases."""
        return {self._known[case_id].spec for case_id in case_ids}

    def lines(self, fixed: Sequence[str], shown: Sequence[str]) -> Iterator[str]:
        """Yield what became of failures: the cases that were fixed, and those that fail besides the ones of this run."""
        yield from (f"fixed: {case_id}" for case_id in fixed)
        others = [case_id for case_id in self.failing if case_id not in set(shown)]
        yield from (f"still failing: {case_id}" for case_id in others[:_SHOWN])
        if len(others) > _SHOWN:
            yield f"still failing: {len(others) - _SHOWN} more"
