"""The exit codes of every command. Imports nothing heavy: ``--help`` loads it."""

from collections.abc import Iterable
from enum import IntEnum

from runner.core.outcomes import Outcome


class ExitCode(IntEnum):
    """What a shell or a CI system sees."""

    OK = 0
    """Some case was executed (PASS, XFAIL, FLAKY where it may pass), and nothing failed; or the command did its work."""
    FAILED = 1
    """Some case failed, or what was asked for could not be written: a full disk."""
    USAGE = 2
    """Wrong usage or an invalid spec; nothing was run."""
    INTERNAL = 3
    """A bug of this program."""
    NOTHING = 4
    """Nothing was selected or executed, or fewer than ``--min-executed``."""
    INTERRUPTED = 130
    """Ended by Ctrl-C."""


def exit_code(outcomes: Iterable[Outcome], min_executed: int, *, lets_flaky_pass: bool = False) -> ExitCode:
    """Return what a run with these outcomes says, when nobody interrupted it."""
    found = list(outcomes)
    if any(outcome.is_failure and not (lets_flaky_pass and outcome is Outcome.FLAKY) for outcome in found):
        return ExitCode.FAILED
    executed = sum(outcome.is_executed for outcome in found)
    return ExitCode.OK if executed >= max(min_executed, 1) else ExitCode.NOTHING
