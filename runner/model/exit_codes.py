"""The exit codes of all commands. Imports nothing heavy, because ``--help`` loads it."""

from collections.abc import Iterable
from enum import IntEnum

from runner.model.outcomes import Outcome


class ExitCode(IntEnum):
    """The exit code of a command."""

    OK = 0
    """At least one case was executed (PASS, XFAIL, FLAKY if allowed) and none failed; or the command succeeded."""
    FAILED = 1
    """A case failed, or output could not be written, for example to a full disk."""
    USAGE = 2
    """Wrong usage or an invalid spec; nothing was run."""
    INTERNAL = 3
    """A bug of this program."""
    NOTHING = 4
    """Nothing was selected or executed, or fewer cases than ``--min-executed``."""
    INTERRUPTED = 130
    """Ended by Ctrl-C."""


def exit_code(outcomes: Iterable[Outcome], min_executed: int, *, lets_flaky_pass: bool = False, executed: int | None = None) -> ExitCode:
    """Return the exit code of an uninterrupted run with these outcomes.

    ``executed`` is how many cases were executed, where outcomes alone do not tell: an offline case is not, whatever its outcome.
    """
    outcomes = list(outcomes)
    if any(outcome.is_failure and not (lets_flaky_pass and outcome is Outcome.FLAKY) for outcome in outcomes):
        return ExitCode.FAILED
    executed = sum(outcome.is_executed for outcome in outcomes) if executed is None else executed
    return ExitCode.OK if executed >= max(min_executed, 1) else ExitCode.NOTHING
