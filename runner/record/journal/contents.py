"""A journal as read, and what its lines come to together."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from runner.core.header import RunFooter, RunHeader
from runner.core.model import CaseId, CaseResult
from runner.core.outcomes import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A journal as read."""

    header: RunHeader
    results: tuple[CaseResult, ...]
    footer: RunFooter | None
    attempts: Mapping[CaseId, tuple[CaseResult, ...]] = field(default_factory=dict)
    """Of cases that have no result yet, or that are NOT_RUN: the attempts that were made, in the order in which they ended."""

    @property
    def truncated(self) -> bool:
        """True when the run did not reach its end."""
        return self.footer is None

    @property
    def has_come_to_its_end(self) -> bool:
        """True when nothing is left to run: it was neither cut off nor interrupted."""
        return self.footer is not None and not self.footer.interrupted

    @property
    def finished(self) -> tuple[CaseResult, ...]:
        """The results that stand when the run is gone on with."""
        return tuple(result for result in self.results if result.outcome is not Outcome.NOT_RUN)

    @property
    def has_something(self) -> bool:
        """Whether anything of it stands when it is gone on with: a result, or an attempt of a case that has none yet."""
        return bool(self.finished or self.attempts)


def digest_of_selection(digests: Mapping[str, str]) -> str:
    """Return the sha256 of which cases were selected: of their ids and their digests, in whatever order."""
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
