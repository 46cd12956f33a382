"""The outcomes of a case: one table for summary, exit code, JUnit and console; and the exit codes
of all commands.

Imports nothing heavy, because ``--help`` loads it.
"""

from collections.abc import Iterable
from enum import Enum, IntEnum


class JUnitTag(Enum):
    """The JUnit element of an outcome."""

    NONE = ""
    FAILURE = "failure"
    ERROR = "error"
    SKIPPED = "skipped"


class Outcome(Enum):
    """The result of a case.

    Each member has its label, a one-character glyph, whether it fails the run, whether the case
    counts as executed, and its JUnit element. The order is that of every summary.
    """

    PASS = ("PASS", ".", False, True, JUnitTag.NONE)
    FAIL = ("FAIL", "F", True, True, JUnitTag.FAILURE)
    FELL_BACK = ("FELL_BACK", "B", True, True, JUnitTag.FAILURE)
    ERROR = ("ERROR", "E", True, True, JUnitTag.ERROR)
    CRASH = ("CRASH", "C", True, True, JUnitTag.ERROR)
    TIMEOUT = ("TIMEOUT", "T", True, True, JUnitTag.ERROR)
    NOT_RUN = ("NOT_RUN", "-", True, False, JUnitTag.ERROR)
    FLAKY = ("FLAKY", "~", True, True, JUnitTag.FAILURE)
    UNAVAILABLE = ("UNAVAILABLE", "u", False, False, JUnitTag.SKIPPED)
    XFAIL = ("XFAIL", "x", False, True, JUnitTag.SKIPPED)
    XPASS = ("XPASS", "X", True, True, JUnitTag.FAILURE)
    OFFLINE_PASS = ("OFFLINE_PASS", "o", False, False, JUnitTag.SKIPPED)
    OFFLINE_FAIL = ("OFFLINE_FAIL", "O", True, False, JUnitTag.FAILURE)

    def __init__(
        self, label: str, glyph: str, is_failure: bool, is_executed: bool, junit: JUnitTag
    ) -> None:
        self.label = label
        self.glyph = glyph
        self.is_failure = is_failure
        self.is_executed = is_executed
        self.junit = junit


WAIVABLE = (Outcome.FAIL, Outcome.FELL_BACK, Outcome.CRASH, Outcome.TIMEOUT, Outcome.OFFLINE_FAIL)
"""Failures of torch or of a compiler, which a waiver may cover; an ERROR claims nothing about
either.
"""

PASSED = (Outcome.PASS, Outcome.OFFLINE_PASS)
"""Outcomes in which every expectation held."""

JUDGED_BY_FACTS = (*PASSED, Outcome.FAIL, Outcome.FELL_BACK, Outcome.OFFLINE_FAIL)
"""Outcomes that only what a worker sent can give; after a crash there may be no facts."""

RETRIED = (Outcome.FAIL, Outcome.FELL_BACK, Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT)
"""Failures that are retried, because another attempt may pass."""


class ExitCode(IntEnum):
    """The exit code of a command."""

    OK = 0
    """At least one case was executed (PASS, XFAIL, FLAKY if allowed) and none failed; or the
    command succeeded.
    """
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


def exit_code(
    outcomes: Iterable[Outcome],
    min_executed: int,
    *,
    lets_flaky_pass: bool = False,
    executed: int | None = None,
) -> ExitCode:
    """Return the exit code of an uninterrupted run with these outcomes.

    ``executed`` is how many cases were executed, where outcomes do not say it: an offline case
    is not, whatever its outcome.
    """
    outcomes = list(outcomes)
    if any(
        outcome.is_failure and not (lets_flaky_pass and outcome is Outcome.FLAKY)
        for outcome in outcomes
    ):
        return ExitCode.FAILED
    executed = sum(outcome.is_executed for outcome in outcomes) if executed is None else executed
    return ExitCode.OK if executed >= max(min_executed, 1) else ExitCode.NOTHING
