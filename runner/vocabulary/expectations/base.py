"""What the kinds of expectation share: names, what is wrong with one that means nothing, and the values of ``core.expectation``."""

from typing import Any

from runner.core.expectation import Expectation, Judgement, Mutant, StepFacts
from runner.core.observation import Raised

OUTPUT = "output"
"""The name of a step's own result."""

EAGER = "eager"
"""The name of the reference."""


class BadExpectation(Exception):
    """An expectation that has the right shape and no meaning.

    ``path`` leads from the expectation's body to the value that is wrong; ``line`` is a line within that value, from 0.
    """

    def __init__(self, message: str, hint: str = "", *, path: tuple[str | int, ...] = (), line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.hint = hint
        self.path = path
        self.line = line
        self.column = column


def text_of(value: Any) -> str:
    """Return a value as a person would write it, cut to a line."""
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 200 else shown[:200] + "..."


__all__ = ["EAGER", "OUTPUT", "BadExpectation", "Expectation", "Judgement", "Mutant", "Raised", "StepFacts", "text_of"]
