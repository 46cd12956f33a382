"""``list --against`` and ``list --update``: the cases of the specs beside a committed ledger."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from runner.core.case import Case
from runner.core.diagnostics import UsageError, one_line, shown_path
from runner.core.exit_codes import ExitCode
from runner.core.options import ListOptions
from runner.plan.case_ledger import CaseLedger, Comparison, compare, problems, read_ledger, updated
from runner.system import output


def wants_ledger(options: ListOptions) -> bool:
    """Return whether a ledger is to be compared or updated; raise ``UsageError`` for options that contradict each other."""
    if options.because and options.update is None:
        raise UsageError("--because has no effect without --update LEDGER")
    if options.against is None and options.update is None:
        return False
    if options.against is not None and options.update is not None:
        raise UsageError("--against compares a ledger and --update changes it: give one of them")
    if options.select or options.backend or options.shard or options.coverage or options.json:
        raise UsageError("a ledger has all cases of the paths: leave out --select, --backend, --shard, --coverage and --json")
    return True


def main(options: ListOptions, cases: Sequence[Case]) -> ExitCode:
    """Compare the ledger of ``--against``, or update that of ``--update``; FAILED when cases are lost without a reason."""
    if options.update is not None:
        return _update(options.update, cases, options.because)
    assert options.against is not None
    ledger = read_ledger(options.against)
    if not ledger.ids:
        # a comparison with it could not fail
        shown = one_line(shown_path(ledger.path))
        raise UsageError(f"the ledger {shown} lists no case: restore it, or write it anew with list --update {shown}")
    found = compare(ledger, cases)
    if wrong := list(problems(ledger, found)):
        output.lines(map(str, wrong))
    output.lines([_summary(ledger, found)])
    if found.new:
        output.note(f"{_counted(len(found.new))} not in the ledger yet: list --update {one_line(shown_path(ledger.path))} adds them")
    return ExitCode.FAILED if wrong else ExitCode.OK


def _update(path: Path, cases: Sequence[Case], because: str) -> ExitCode:
    ledger = read_ledger(path) if path.exists() else CaseLedger(path=path)
    found = compare(ledger, cases)
    if found.lost and not because:
        output.lines(map(str, problems(ledger, found)))
        output.note(f"{one_line(shown_path(path))} is unchanged: --because REASON moves cases that are gone below 'removed:'")
        return ExitCode.FAILED
    after = updated(ledger, found, because=one_line(because.strip()), today=datetime.now(UTC).date())
    try:
        path.write_text(after.text(), "utf-8")
    except OSError as error:
        raise UsageError(f"cannot write the ledger {shown_path(path)}: {error.strerror}") from error
    output.lines([f"{one_line(shown_path(path))}: {len(after.ids)} cases, {len(found.new)} of them new; {len(found.lost)} removed"])
    return ExitCode.OK


def _summary(ledger: CaseLedger, found: Comparison) -> str:
    parts = [
        f"{len(found.lost)} lost",
        f"{len(found.gone) - len(found.lost)} removed with a reason",
        f"{len(found.outside)} outside the paths",
    ]
    return f"{_counted(len(ledger.ids))} in {one_line(shown_path(ledger.path))}: {', '.join(parts)}"


def _counted(number: int) -> str:
    return f"{number} case{'' if number == 1 else 's'}"
