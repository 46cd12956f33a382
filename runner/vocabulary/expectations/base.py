"""What the kinds of expectation share: names, what is wrong with one that means nothing, and the values of ``core.expectation``."""

from collections.abc import Mapping
from typing import Any

from runner.core.expectation import Expectation, Judgement, Mutant, StepFacts
from runner.core.observation import Raised
from runner.core.protocol import Json

OUTPUT = "output"
"""The name of a step's result."""

EAGER = "eager"
"""The name of the eager reference."""


class BadExpectation(Exception):
    """An expectation that fits the schema but is invalid.

    ``path`` leads from the expectation's body to the invalid value; ``line`` and ``column`` are a position in that value, 0 if it has none.
    """

    def __init__(self, message: str, hint: str = "", *, path: tuple[str | int, ...] = (), line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.hint = hint
        self.path = path
        self.line = line
        self.column = column


class OfStep:
    """What is expected of facts that every step has: it names no value, and the worker measures nothing for it."""

    __slots__ = ()

    @property
    def names(self) -> tuple[str, ...]:
        """No named values."""
        return ()

    def measurement(self) -> Mapping[str, Json] | None:
        """None: every step has the facts."""
        return None


class Recorded(OfStep):
    """What is expected of something that the worker sends of a step only when it is asked for; no value is named."""

    __slots__ = ()

    def measurement(self) -> Mapping[str, Json] | None:
        """Ask for it; there is nothing to choose."""
        return {}


def text_of(value: Any) -> str:
    """Return a value as text, cut to one line."""
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 200 else shown[:200] + "..."


__all__ = [
    "EAGER",
    "OUTPUT",
    "BadExpectation",
    "Expectation",
    "Judgement",
    "Mutant",
    "OfStep",
    "Raised",
    "Recorded",
    "StepFacts",
    "text_of",
]
