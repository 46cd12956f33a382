"""What a check of ``doctor`` found: a frozen value with its level, its cause, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """How much a finding matters."""

    OK = "ok"
    """It is there and it works, as far as was looked."""
    NOTE = "note"
    """It is not there, and nothing on this machine says that it is."""
    WARNING = "warning"
    """Cases run, but slower, fewer, or in another way than the machine suggests."""
    PROBLEM = "problem"
    """The machine claims to have it (a package, a build of torch, a variable, a device), and it does not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding. ``id`` is stable from version to version; several findings of one check may share it."""

    id: str
    level: Level
    found: str
    cause: str = ""
    remedy: str = ""
    """What to type or install next; never empty for a problem."""

    def __post_init__(self) -> None:
        if self.level is Level.PROBLEM and not self.remedy:
            raise ValueError(f"the problem {self.id} says nothing of what to do")


def ok(id: str, found: str) -> Finding:
    """Return a finding of something that is as it should be."""
    return Finding(id=id, level=Level.OK, found=found)


def note(id: str, found: str, cause: str = "", remedy: str = "") -> Finding:
    """Return a finding of something that is absent and that nothing claims."""
    return Finding(id=id, level=Level.NOTE, found=found, cause=cause, remedy=remedy)


def warning(id: str, found: str, cause: str = "", remedy: str = "") -> Finding:
    """Return a finding that makes runs slower, smaller or different."""
    return Finding(id=id, level=Level.WARNING, found=found, cause=cause, remedy=remedy)


def problem(id: str, found: str, cause: str = "", *, remedy: str) -> Finding:
    """Return a finding of something that is claimed and does not work."""
    return Finding(id=id, level=Level.PROBLEM, found=found, cause=cause, remedy=remedy)


def has_problem(findings: Iterable[Finding]) -> bool:
    """Whether one of the findings is a problem."""
    return any(finding.level is Level.PROBLEM for finding in findings)
