"""What is known of a case's executions in shared workers, and where the next run executes it. Pure."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

CONFIRMATIONS = 2
"""How often a shared worker must give the print of an own process before a case counts as one that may share."""

SAMPLE = 20
"""Of so many cases that may share, one runs alone in each run."""

Print = Mapping[str, str]
"""Digests of what an execution gave, by the name of the part."""


class Place(Enum):
    """Where a case is executed."""

    LEARNING = "learning"
    """Alone: its print is not known yet."""
    TRIAL = "trial"
    """In a shared worker, with fewer confirmations than are needed."""
    SHARED = "shared"
    RECHECK = "recheck"
    """Alone, as one of the sample."""
    FORBIDDEN = "forbidden"

    @property
    def shares(self) -> bool:
        """Whether the case may share a worker there."""
        return self in (Place.TRIAL, Place.SHARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What earlier executions show of a case."""

    own: Print
    """Of its last execution alone; empty where there was none."""
    confirmed: int = 0
    forbidden: str = ""
    """Why it does not share a worker; empty where it may."""

    @property
    def is_cleared(self) -> bool:
        """Whether it was confirmed often enough."""
        return bool(self.own) and not self.forbidden and self.confirmed >= CONFIRMATIONS

    def after_own(self, found: Print) -> "Known":
        """Return what is known after an execution alone: another print than before begins anew."""
        return self if found == self.own else Known(own=found, forbidden=self.forbidden)

    def after_shared(self, found: Print) -> "Known":
        """Return what is known after an execution in a shared worker."""
        changed = differences(self.own, found)
        if changed:
            return self.forbid(f"in a shared worker it had other {' and '.join(changed)} than alone")
        return replace(self, confirmed=self.confirmed + 1)

    def forbid(self, why: str) -> "Known":
        """Return what is known of a case that must not share. The first reason stays."""
        return self if self.forbidden else replace(self, forbidden=why)


NOTHING = Known(own={})


def place_of(known: Known, *, is_sampled: bool) -> Place:
    """Return where a case is executed next."""
    if known.forbidden:
        return Place.FORBIDDEN
    if not known.own:
        return Place.LEARNING
    if not known.is_cleared:
        return Place.TRIAL
    return Place.RECHECK if is_sampled else Place.SHARED


def differences(one: Print, other: Print) -> list[str]:
    """Return the names of the parts in which two prints differ."""
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def sample(cleared: Iterable[str], word: str) -> frozenset[str]:
    """Return the ids that are checked again in a run: a twentieth, at least one. ``word`` is different for each run."""
    ranked = sorted(cleared, key=lambda case_id: hashlib.sha256(f"{word} {case_id}".encode("utf-8", "surrogatepass")).digest())
    return frozenset(ranked[: -(-len(ranked) // SAMPLE)])
