"""Values that the eager side of a step does not change: the compiled side must not change one bit of them, whatever the tolerance is.

A tolerance, or the calibrated judge, is for what a call computes. A value that eager only reads is not computed.
"""

from dataclasses import dataclass
from typing import Any

import torch

from runner.worker.case import memory
from runner.worker.case.changeable import Leaves
from runner.worker.case.copies import frozen, plain, tensor_version

_NUMBERS = (float, complex)
"""Plain values that are otherwise compared with a tolerance."""

REFERENCE = "as before the call: eager does not change it"
"""What is expected of such a value."""


@dataclass(frozen=True)
class _Before:
    """A value of both sides before a step."""

    eager: Any
    """The object itself: while it is alive, no other tensor has its memory."""
    place: memory.Place | None
    version: int | None
    eager_value: Any
    """What holds eager's value of that time when the eager side has run."""
    our_value: Any
    """What holds our value of that time when the compiled side has run."""


class Untouched:
    """Finds what the eager side does not change (``before``, ``after_eager``); ``problem`` judges a value of the compiled side.

    The sides mostly begin with equal bits, and eager runs first: then the value of each side is a copy of the other's value before the
    step. Only values that differ before the step are copied.
    """

    def __init__(self) -> None:
        self._begun: dict[str, _Before] = {}
        self._kept: dict[str, Any] = {}
        self.elements: dict[str, torch.Tensor] = {}
        """By path, a mask of the elements with the bits of before, in tensors that eager wrote. They may be computed, too."""
        self.alike: set[str] = set()
        """The paths of tensors that eager wrote, and that had the same bits on both sides before the step."""

    def before(self, ours: Leaves, theirs: Leaves) -> None:
        """Record the values of both sides before the step."""
        self._kept, self.elements, self.alike = {}, {}, set()
        self._begun = {
            path: found for path, leaf in ours.items() if path in theirs and (found := _recorded(leaf, theirs[path])) is not None
        }

    def after_eager(self, theirs: Leaves) -> None:
        """Find what the eager side has not written; the compiled side has not yet run."""
        for path, begun in self._begun.items():
            if path in theirs and _is_same(begun, theirs[path]):
                self._kept[path] = begun.our_value
            elif (found := _unwritten_elements(begun, theirs.get(path))) is not None:
                self.elements[path] = found
                self.alike.update([path] if begun.our_value is begun.eager else [])
        self._begun = {}

    def problem(self, path: str, leaf: Any) -> str | None:
        """Return how the compiled side changed a value that eager did not; None where it did not, and for values of another form."""
        if path not in self._kept:
            return None
        kept = self._kept[path]
        if isinstance(leaf, torch.Tensor) and isinstance(kept, torch.Tensor):
            return memory.changed(plain(leaf), plain(kept))
        if type(leaf) is not type(kept) or _same_number(leaf, kept):
            return None
        return f"changed from {kept!r} to {leaf!r}"


def unwanted_write(ours: torch.Tensor, theirs: torch.Tensor, before: torch.Tensor) -> str | None:
    """Return how the compiled side changed a tensor that eager did not write; None where it did not, and where eager did.

    All three were made in one way: ``before`` has the version counter with which the others began.
    """
    is_unwritten = tensor_version(theirs) == tensor_version(before) and memory.is_same(plain(theirs), plain(before))
    return memory.changed(plain(ours), plain(before)) if is_unwritten else None


def _recorded(ours: Any, theirs: Any) -> _Before | None:
    if isinstance(ours, _NUMBERS) and isinstance(theirs, _NUMBERS):
        return _Before(theirs, None, None, theirs, ours)
    if not (isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)):
        return None
    place = memory.place(plain(theirs))
    if place is None or place == memory.place(plain(ours)):  # memory that both sides share tells nothing
        return None
    version = tensor_version(theirs)
    if memory.is_same(plain(ours), plain(theirs)):
        return _Before(theirs, place, version, ours, theirs)
    return _Before(theirs, place, version, frozen(theirs), frozen(ours))


def _is_same(begun: _Before, now: Any) -> bool:
    """Whether eager's value is the one of before the step: neither replaced nor written, not even with the same bits."""
    if begun.place is None or not isinstance(now, torch.Tensor):
        return now is begun.eager
    here = plain(now)
    return memory.place(here) == begun.place and tensor_version(now) == begun.version and memory.is_same(here, plain(begun.eager_value))


def _unwritten_elements(begun: _Before, now: Any) -> torch.Tensor | None:
    if not (isinstance(now, torch.Tensor) and isinstance(begun.eager_value, torch.Tensor)):
        return None
    return memory.unchanged(plain(now), plain(begun.eager_value))


def _same_number(one: Any, other: Any) -> bool:
    # repr tells zeros of different sign apart, and shows every digit
    return one is other or repr(one) == repr(other)
