"""The phases of a case: which one it is in, and how long each took."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Phases:
    """A stack of phases. Time counts for the innermost phase, in seconds. Each change is announced, for the case that the worker dies."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self.seconds: dict[str, float] = {}
        self._announce = announce
        self._stack: list[str] = []
        self._since = time.perf_counter()

    @property
    def current(self) -> str:
        """The innermost phase."""
        return self._stack[-1] if self._stack else ""

    def enter(self, phase: str) -> None:
        """Begin a phase inside the current one."""
        self._settle()
        self._stack.append(phase)
        self._announce(phase)

    def leave(self) -> None:
        """End the innermost phase."""
        self._settle()
        self._stack.pop()
        if self._stack:
            self._announce(self._stack[-1])

    def _settle(self) -> None:
        now = time.perf_counter()
        if self._stack:
            self.seconds[self._stack[-1]] = self.seconds.get(self._stack[-1], 0.0) + now - self._since
        self._since = now

    def __call__(self, phase: str) -> "_Phase":
        """Return a context manager for a phase."""
        return _Phase(self, phase)


@dataclass(frozen=True, slots=True)
class _Phase:
    phases: Phases
    name: str

    def __enter__(self) -> None:
        self.phases.enter(self.name)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and not hasattr(error, "_conformance_phase"):
            with contextlib.suppress(AttributeError):  # an exception with slots has no such attribute: the step's kind is used
                error._conformance_phase = self.name  # type: ignore[attr-defined]  # BaseException declares no such attribute: getattr reads it
        self.phases.leave()
