"""What a run did not execute, of the ledgers beside its specs and of an earlier run (``--against``), with the reasons.

Neither changes an outcome or the exit code: the terminal prints both, and the journal's footer has them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.core.case import Case
from runner.core.diagnostics import UsageError, one_line, shown_path
from runner.core.header import OTHER_SHARD, LedgerCount, MissedCases
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.plan.case_ledger import CaseLedger, compare, ledgers_of, read_ledger
from runner.record.journal import JournalError, read_run
from runner.record.run_folder import JOURNAL, find_run

_LOST = "lost: no spec has this case"
_OUTSIDE = "not selected: outside the given paths"
_UNSELECTED = "not selected: --select, --backend, or only on request"
_EARLIER_ONLY = "not among the cases of the given paths"


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The run of ``--against``, as it is known before this run begins."""

    run: str
    executed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a run is compared with."""

    ledgers: tuple[CaseLedger, ...] = ()
    earlier: Earlier | None = None


def expected(paths: Sequence[Path], against: str | None) -> Expected:
    """Read the ledgers beside the paths and the earlier run; raise ``UsageError`` or ``InvalidSpecs``.

    Call it before the new run becomes ``latest``.
    """
    return Expected(ledgers=tuple(map(read_ledger, ledgers_of(paths))), earlier=_earlier(against) if against else None)


def _earlier(name: str) -> Earlier:
    folder = find_run(name)
    try:
        run = read_run(folder / JOURNAL)
    except (OSError, JournalError) as error:
        raise UsageError(f"cannot read the run of --against: {one_line(str(error))}") from error
    return Earlier(run=run.header.run_id or folder.name, executed=tuple(result.case_id for result in run.results if result.is_executed))


class Coverage:
    """Reasons why cases were not executed."""

    def __init__(self, read: Iterable[Case], whole: Iterable[Case], results: Mapping[str, CaseResult]) -> None:
        self._read = tuple(read)
        self._ids = {case.id for case in self._read}
        self._whole = {case.id for case in whole}
        self._results = results

    def of_ledger(self, ledger: CaseLedger) -> LedgerCount:
        """Return how much of a ledger was executed, and why not the rest."""
        found = compare(ledger, self._read)
        known = {**dict.fromkeys(found.outside, _OUTSIDE), **dict.fromkeys(found.gone, _LOST)}
        reasons = (known.get(case_id) or self._reason(case_id) for case_id in ledger.ids)
        counts = Counter(reason for reason in reasons if reason)
        return LedgerCount(
            file=shown_path(ledger.path),
            cases=len(ledger.ids),
            executed=len(ledger.ids) - counts.total(),
            not_executed=dict(counts.most_common()),
        )

    def of_earlier(self, earlier: Earlier) -> MissedCases:
        """Return which cases of an earlier run were not executed."""
        reasons = {case_id: self._reason(case_id) for case_id in earlier.executed}
        missed = {case_id: reason for case_id, reason in reasons.items() if reason}
        return MissedCases(run=earlier.run, executed=len(earlier.executed), missed=missed)

    def _reason(self, case_id: str) -> str:
        """Return why a case was not executed; empty if it was."""
        if case_id not in self._ids:
            return _EARLIER_ONLY
        if case_id not in self._whole:
            return _UNSELECTED
        result = self._results.get(case_id)
        if result is None:
            return OTHER_SHARD
        if result.is_executed:
            return ""
        word = {Outcome.UNAVAILABLE: "unavailable", Outcome.NOT_RUN: "not run"}.get(result.outcome, result.outcome.label)
        return f"{word}: {one_line(result.reason)}"
