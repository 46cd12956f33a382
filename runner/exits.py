"""The exit codes of every command. Imports nothing heavy: ``--help`` loads it."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a shell or a CI system sees."""

    OK = 0
    """At least one case passed, and besides only XFAIL, UNAVAILABLE, OFFLINE_PASS, and FLAKY where it is let pass; or the command did
    its work."""
    FAILED = 1
    """Some case failed."""
    USAGE = 2
    """Wrong usage or an invalid spec; nothing was run."""
    INTERNAL = 3
    """A bug of this program."""
    NOTHING = 4
    """Nothing was selected or executed, or fewer than ``--min-executed``."""
    INTERRUPTED = 130
    """Ended by Ctrl-C."""
