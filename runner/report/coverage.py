"""The part of the final report about cases that were not executed: of the ledgers, and of the run of ``--against``."""

from collections.abc import Iterator

from runner.core.folded_ids import folded_by_reason
from runner.core.header import LedgerCount, MissedCases, RunFooter
from runner.report import one_line


def lines_of(footer: RunFooter) -> list[str]:
    """Return the lines; none where there is no ledger and no ``--against``."""
    return [line for part in (*map(_of_ledger, footer.ledgers), *map(_of_earlier, footer.against)) for line in part]


def _of_ledger(count: LedgerCount) -> Iterator[str]:
    missing = count.cases - count.executed
    yield f"\n{missing} of {_cases(count.cases)} in {one_line(count.file)} were not executed{':' if missing else ''}"
    yield from (f"  {number:5}  {one_line(reason)}" for reason, number in count.not_executed.items())


def _of_earlier(found: MissedCases) -> Iterator[str]:
    end = ":" if found.missed else ""
    yield f"\n{len(found.missed)} of {_cases(found.executed)} that run {one_line(found.run)} executed did not run now{end}"
    for reason, ids in folded_by_reason(found.missed).items():
        yield f"  {one_line(reason)}"
        yield from (f"    {one_line(line, limit=10_000)}" for line in ids)


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"
