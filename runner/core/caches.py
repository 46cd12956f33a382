"""Marks caches of values that cannot change while the program runs: schemas of the program, and functions of their arguments alone.

``watch`` clears every other cache before each try, so that it reads files as a new process would (``run/watching/machine_state``).
"""

from typing import TypeVar

_MARK = "lasts_as_long_as_the_program"

Cached = TypeVar("Cached")


def lasting(cached: Cached) -> Cached:
    """Mark a function with a ``functools`` cache; written above ``@functools.cache``."""
    setattr(cached, _MARK, True)
    return cached


def is_lasting(cached: object) -> bool:
    """Whether a cache is marked."""
    return getattr(cached, _MARK, False) is True
