"""The content of a journal."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from runner.core.case import CaseId
from runner.core.header import RunFooter, RunHeader
from runner.core.outcomes import Outcome
from runner.core.results import NODE_LOST, CaseResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The content of a journal."""

    header: RunHeader
    results: tuple[CaseResult, ...]
    footer: RunFooter | None
    attempts: Mapping[CaseId, tuple[CaseResult, ...]] = field(default_factory=dict)
    """The attempts of cases without a result, or with NOT_RUN, in the order in which they ended."""

    @property
    def truncated(self) -> bool:
        """True when the run did not reach its end."""
        return self.footer is None

    @property
    def has_come_to_its_end(self) -> bool:
        """True when nothing is left to run: it was neither cut off nor interrupted, and no case lost its nodes."""
        return self.footer is not None and not self.footer.interrupted and not any(map(_lost_its_node, self.results))

    @property
    def finished(self) -> tuple[CaseResult, ...]:
        """The results that a resumed run keeps."""
        return tuple(result for result in self.results if result.outcome is not Outcome.NOT_RUN)

    @property
    def has_something(self) -> bool:
        """Whether a resumed run keeps anything: a result, or an attempt of a case without a result."""
        return bool(self.finished or self.attempts)


def _lost_its_node(result: CaseResult) -> bool:
    return result.outcome is Outcome.NOT_RUN and result.failure_type == NODE_LOST


def digest_of_selection(digests: Mapping[str, str]) -> str:
    """Return the sha256 of a selection: of the ids and digests of its cases, independent of their order."""
    whole = hashlib.sha256()
    for case_id in sorted(digests):
        whole.update(f"{case_id}\0{digests[case_id]}\n".encode("utf-8", "surrogatepass"))
    return whole.hexdigest()


def totals(results: Iterable[CaseResult]) -> dict[str, int]:
    """Count the results of each outcome, zeros included, in the order of the table."""
    counts = {outcome.label: 0 for outcome in Outcome}
    for result in results:
        counts[result.outcome.label] += 1
    return counts
