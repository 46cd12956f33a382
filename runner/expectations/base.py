"""What every kind of expectation is made of: its facts, its judgement, and the protocol it follows."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

from runner.conditions import Surroundings
from runner.model import Json, Status

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An exception that a step ended with."""

    type: str
    """Its dotted path."""
    ancestors: tuple[str, ...]
    """The dotted paths of its type and of every type that it inherits from."""
    message: str
    traceback: str
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """What the worker measured in one step. ``code`` holds the generated pieces, in order."""

    raised: Raised | None = None
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    code: tuple[str, ...] = ()
    measured: Json = None
    """What this expectation's own measurement gave; None when there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One statement about one leaf of an expectation; ``leaf`` names it (a counter's name), empty for the whole."""

    status: Status
    expected: str
    observed: str
    detail: str = ""
    leaf: str = ""

    @classmethod
    def of(cls, holds: bool, *, expected: str, observed: str, detail: str = "", leaf: str = "") -> Self:
        """Return HELD or FAILED."""
        return cls(status=Status.HELD if holds else Status.FAILED, expected=expected, observed=observed, detail=detail, leaf=leaf)

    @classmethod
    def held(cls, *, expected: str, observed: str, leaf: str = "") -> Self:
        """Return a judgement that the expectation held."""
        return cls(status=Status.HELD, expected=expected, observed=observed, leaf=leaf)

    @classmethod
    def failed(cls, *, expected: str, observed: str, detail: str = "", leaf: str = "") -> Self:
        """Return a judgement that the expectation did not hold."""
        return cls(status=Status.FAILED, expected=expected, observed=observed, detail=detail, leaf=leaf)

    @classmethod
    def error(cls, observed: str, *, expected: str = "", leaf: str = "", detail: str = "") -> Self:
        """Return a judgement that claims nothing: the facts are missing or make no sense."""
        return cls(status=Status.ERROR, expected=expected, observed=observed, leaf=leaf, detail=detail)

    @classmethod
    def not_applicable(cls, leaf: str = "") -> Self:
        """Return a judgement for a condition that does not hold here."""
        return cls(status=Status.NOT_APPLICABLE, expected="", observed="its condition does not hold here", leaf=leaf)


class Expectation(Protocol):
    """A kind of expectation. ``measure`` stands beside the class in each module, because it runs in the worker."""

    kind: ClassVar[str]

    @classmethod
    def parse(cls, body: Any) -> "Expectation":
        """Read the body that the schema let through; raise ``BadExpectation``."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The named values it speaks of."""
        ...

    def measurement(self) -> Mapping[str, Json] | None:
        """What the worker is asked to measure, as plain data; None for facts that every step has."""
        ...

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the facts. Pure."""
        ...


def text_of(value: Any) -> str:
    """Return a value as a person would write it, cut to a line."""
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 200 else shown[:200] + "..."
