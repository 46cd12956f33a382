"""The parts of an expectation: facts, judgements, mutants, and the protocol of all kinds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

from runner.core.conditions import Surroundings
from runner.core.model import Json, Status

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The exception that ended a step."""

    type: str
    """Its dotted path."""
    ancestors: tuple[str, ...]
    """The dotted paths of its type and of all base classes."""
    message: str
    traceback: str
    phase: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """The facts that the worker measured in one step. ``code`` contains the generated pieces in order."""

    raised: Raised | None = None
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    remote: Mapping[str, Mapping[str, int]] | None = None
    """torch's statistics of its remote caches: hit, miss, put and exception, by the name of the cache."""
    code: tuple[str, ...] = ()
    calls: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    """The calls of each spy: ``count`` of all entries, and the first of them as ``entries``."""
    exit: Mapping[str, Json] | None = None
    """``code`` and ``stderr`` of the child of a spawn step."""
    measured: Json = None
    """The result of this expectation's own measurement; None if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The judgement of one leaf of an expectation. ``leaf`` names it, for example a counter; empty for the whole expectation."""

    status: Status
    expected: str
    observed: str
    detail: str = ""
    leaf: str = ""

    @classmethod
    def of(cls, passed: bool, *, expected: str, observed: str, detail: str = "", leaf: str = "") -> Self:
        """Return a judgement that is HELD or FAILED."""
        return cls(status=Status.HELD if passed else Status.FAILED, expected=expected, observed=observed, detail=detail, leaf=leaf)

    @classmethod
    def passed(cls, *, expected: str, observed: str, leaf: str = "") -> Self:
        """Return a judgement that the expectation passed."""
        return cls(status=Status.HELD, expected=expected, observed=observed, leaf=leaf)

    @classmethod
    def failed(cls, *, expected: str, observed: str, detail: str = "", leaf: str = "") -> Self:
        """Return a judgement that the expectation failed."""
        return cls(status=Status.FAILED, expected=expected, observed=observed, detail=detail, leaf=leaf)

    @classmethod
    def error(cls, observed: str, *, expected: str = "", leaf: str = "", detail: str = "") -> Self:
        """Return a judgement for missing or invalid facts. It claims nothing."""
        return cls(status=Status.ERROR, expected=expected, observed=observed, leaf=leaf, detail=detail)

    @classmethod
    def not_applicable(cls, leaf: str = "") -> Self:
        """Return a judgement for a leaf whose condition does not hold here."""
        return cls(status=Status.NOT_APPLICABLE, expected="", observed="its condition does not hold here", leaf=leaf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """Facts with one change, under which a passed expectation must fail.

    The mutant survives if the judgement of ``leaf`` is still HELD. A mutant without facts is not applicable, with the reason in
    ``why_not``.
    """

    name: str
    """One of the kind's ``mutations``."""
    facts: StepFacts | None
    leaf: str = ""
    """The leaf of the judgement that must change, as ``Judgement.leaf``."""
    where: str = ""
    """The changed part if there are several: a tensor's path, a directive."""
    why_not: str = ""

    @classmethod
    def not_applicable(cls, name: str, why_not: str, *, leaf: str = "", where: str = "") -> Self:
        """Return a mutant that is not applicable to these facts."""
        return cls(name=name, facts=None, leaf=leaf, where=where, why_not=why_not)


class Expectation(Protocol):
    """A kind of expectation. The function ``measure`` is beside the class in its module, because it runs in the worker."""

    kind: ClassVar[str]
    mutations: ClassVar[tuple[str, ...]]
    """The names of its mutants. A spec may give a reason for each of them under ``audit``."""

    @classmethod
    def parse(cls, body: Any) -> "Expectation":
        """Read a body that fits the schema; raise ``BadExpectation``."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The named values that it uses."""
        ...

    def measurement(self) -> Mapping[str, Json] | None:
        """The request to the worker's ``measure`` as plain data; None if the facts of every step suffice."""
        ...

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the facts. Pure."""
        ...

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterable[Mutant]:
        """Yield for each leaf facts under which it must fail. Pure; called only for a passed expectation.

        Each mutant changes one thing in a copy of the facts (``dataclasses.replace``). ``judge`` decides: if it still returns HELD, the
        expectation cannot detect the change. ``counts.count_mutants`` makes the mutants of a count.
        """
        ...


def text_of(value: Any) -> str:
    """Return a value as text, cut to one line."""
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 200 else shown[:200] + "..."
