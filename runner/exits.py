"""The exit codes of every command. Imports nothing heavy: ``--help`` loads it."""

from collections.abc import Iterable
from enum import IntEnum

from runner.outcomes import Outcome


class ExitCode(IntEnum):
    """What a shell or a CI system sees."""

    OK = 0
    """At least one case passed, and besides only XFAIL, UNAVAILABLE, OFFLINE_PASS, and FLAKY where it is let pass; or the command did
    its work."""
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
    is_enough = sum(outcome.is_executed for outcome in found) >= min_executed
    return ExitCode.OK if Outcome.PASS in found and is_enough else ExitCode.NOTHING
