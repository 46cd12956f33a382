"""What every kind of expectation is: the facts that it is given, and what it says of them.

The kinds are in ``vocabulary``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar, Self

from torch_conformance.model.case_facts import StepFacts, StepWithCode
from torch_conformance.model.codec import COMPUTED, REQUIRED
from torch_conformance.model.conditions import Surroundings, holds
from torch_conformance.model.diagnostics import Position
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen, values_of


class Status(Enum):
    """How one expectation was judged."""

    HELD = "held"
    FAILED = "failed"
    ERROR = "error"
    """The facts are missing or cannot be judged: nothing is claimed."""
    NOT_APPLICABLE = "not-applicable"
    """Its ``when`` does not hold here."""


class About(Enum):
    """What a word of a spec says something of, and so on which compilers behind ``torch.compile``
    it means anything.
    """

    ANYTHING = "anything"
    DYNAMO = "dynamo"
    INDUCTOR = "inductor"


@frozen
class WrongValue:
    """One value that a comparison refuses, as a waiver tells it from other wrong answers."""

    message: str
    """What was expected of it, and what was observed."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """What is known of a tensor of the right form: what a waiver says of its ``error`` and
    ``answer``.
    """
    aspect: str = ""
    """What of it is wrong: ``numbers``, ``strides``, ``dtype``, ``aliasing`` ..."""


NUMBERS, ALIASING, RANDOM_STREAM = "numbers", "aliasing", "random stream"
"""What of a value is wrong: some words of ``WrongValue.aspect``."""

OF_GENERATOR = "RNG state of"
"""How the claim about a generator of random numbers begins."""

NO_EXCEPTION = "no exception"
"""What was expected of a call that raised."""

NOWHERE = Position(file="")


@frozen
class Verdict:
    """What is said of one leaf of an expectation.

    The expectation itself fills in all but ``kind`` and ``position``, which the judge adds.

    ``kind`` is the word of the language (``close``), or ``proof``, ``raised``, ``crash`` ... for
    what no line of the spec asks for.
    """

    kind: str = field(default="", metadata={REQUIRED: True})
    status: Status
    position: Position = field(default=NOWHERE, metadata={REQUIRED: True})
    expected: str = ""
    observed: str = ""
    detail: str = ""
    """It may have many lines: the excerpt of generated code, a traceback."""
    wrong: tuple[WrongValue, ...] = ()
    """Every value that a comparison refused, where ``observed`` shows the first; empty for other
    kinds.
    """
    worst: float | None = None
    """Of a comparison that holds, the greatest error of its values in units of their bounds; None
    where no bound judged them.
    """
    leaf: str = field(default="", metadata={COMPUTED: True})
    """The part of the expectation (a counter's name) that it is about, empty for the whole; its
    position says it afterwards.
    """
    is_absence: bool = field(default=False, metadata={COMPUTED: True})
    """Whether it holds because something did not happen, as a count of 0 does: alone it shows
    nothing.
    """

    @property
    def message(self) -> str:
        """One line for a table or an attribute."""
        return (
            f"{self.kind}: expected {self.expected}, observed {self.observed}"
            if self.expected
            else self.observed
        )

    @classmethod
    def of(
        cls, holds: bool, expected: str, observed: str, *, detail: str = "", leaf: str = ""
    ) -> Self:
        """Return HELD or FAILED."""
        return cls(
            status=Status.HELD if holds else Status.FAILED,
            expected=expected,
            observed=observed,
            detail=detail,
            leaf=leaf,
        )

    @classmethod
    def passed(cls, expected: str, observed: str) -> Self:
        """Return a judgement that the expectation passed."""
        return cls(status=Status.HELD, expected=expected, observed=observed)

    @classmethod
    def failed(cls, expected: str, observed: str, *, detail: str = "") -> Self:
        """Return a judgement that the expectation did not hold."""
        return cls(status=Status.FAILED, expected=expected, observed=observed, detail=detail)

    @classmethod
    def error(cls, expected: str, observed: str, *, leaf: str = "", detail: str = "") -> Self:
        """Return a judgement that claims nothing: the facts are missing or make no sense."""
        return cls(
            status=Status.ERROR, expected=expected, observed=observed, leaf=leaf, detail=detail
        )

    @classmethod
    def not_applicable(cls, leaf: str = "") -> Self:
        """Return a judgement for a condition that does not hold here."""
        return cls(
            status=Status.NOT_APPLICABLE,
            expected="",
            observed="its condition does not hold here",
            leaf=leaf,
        )


@frozen
class Reading(StepWithCode):
    """What one expectation reads of a step."""

    measured: Json = None
    """What its own ``measure`` wrote, decoded; None where there was nothing."""
    surroundings: Surroundings

    @classmethod
    def of(cls, facts: StepWithCode, measured: Json, surroundings: Surroundings) -> Self:
        """Return the facts of a step with what was measured for the expectation."""
        known = values_of(facts, StepWithCode)
        return cls(**known, measured=measured, surroundings=surroundings)

    def with_measured(self, /, **changes: Json) -> Self:
        """Return the facts with other values for some keys of ``measured``: a mutant."""
        return replace(self, measured={**self.measured, **changes})


@dataclass(frozen=True, slots=True)
class Mutant:
    """Facts changed in one respect, under which an expectation that held must not hold.

    It survives when the judgement of ``leaf`` is still HELD. Without facts it is not applicable:
    ``why_not`` says why.
    """

    name: str
    """What was changed."""
    facts: Reading | None
    leaf: str = ""
    """The leaf of the judgement that must change, as ``Verdict.leaf``."""
    where: str = ""
    """Which part was changed, where there are several: a tensor's path, a directive."""
    why_not: str = ""


class Expectation:
    """A kind of expectation; by itself one names no value, and claims nothing about dynamo."""

    __slots__ = ()
    kind: ClassVar[str]
    measure: ClassVar[Any] = None
    """Measures in the worker, of the arguments of ``measurement`` and a function that returns a
    named value; where ``calls_again``, of the arguments and ``Again``. None for facts that every
    step has."""
    calls_again: ClassVar[bool] = False
    """Whether ``measure`` calls the function of the step again, after the last step."""
    records_operators: ClassVar[bool] = False
    """Whether it judges which operators ATen runs."""
    needs_one_thread: ClassVar[bool] = False
    """Whether its measure forks the worker, which then has one thread: OpenMP hangs in a fork of a
    process where it has threads.
    """
    needs_result: ClassVar[bool] = True
    """Whether nothing is measured where the step raised."""
    about: ClassVar[About] = About.INDUCTOR
    """What it says something of. Counters and generated code are inductor's own."""
    expects_exception: ClassVar[bool] = False
    """Whether it expects that the step raises."""
    needs_python_wrapper: ClassVar[bool] = False
    """Whether it counts calls that only a wrapper in Python shows."""
    instead: ClassVar[str] = "write the number, or a bound that is near it"
    """What to write where changed facts fulfil it too."""

    @property
    def names(self) -> tuple[str, ...]:
        """The named values it speaks of."""
        return ()

    @property
    def subject(self) -> About:
        """What this one says something of, where that depends on its body."""
        return self.about

    @property
    def claims_capture(self) -> bool:
        """Whether it says what dynamo captured, which may be nothing: it cannot hold by eager's
        answer.
        """
        return False

    @property
    def claims_refusal(self) -> bool:
        """Whether it says that dynamo itself raises: before the backend gets a graph, or what eager
        raises.
        """
        return False

    @property
    def compares_with_eager(self) -> bool:
        """Whether it compares a value with eager's."""
        return False

    @classmethod
    def parse(cls, body: object) -> Self:
        """Read the body that the schema let through; raise ``BadExpectation``."""
        raise NotImplementedError

    def applies(self, surroundings: Surroundings) -> bool:
        """Whether its ``when`` holds, if it has one."""
        return holds(getattr(self, "when", None), surroundings)

    def measurement(self) -> Mapping[str, Json] | None:
        """What the worker is asked to measure, as plain data; None for facts that every step
        has.
        """
        raise NotImplementedError

    def judge(self, facts: Reading) -> list[Verdict]:
        """Judge the facts. Pure."""
        raise NotImplementedError

    def leaf_of(self, judgement: Verdict) -> str:
        """Return the leaf at whose position a judgement is shown."""
        return judgement.leaf

    def holds_of_every_compile(self, spies: Mapping[str, Any]) -> bool:
        """Whether the compile of any function fulfils it; ``spies`` are those of the case."""
        return False

    def is_reached(
        self, leaf: str, steps: Sequence[StepFacts], expectations: Sequence[Self]
    ) -> bool:
        """Whether a count of 0 at a leaf could have been another one, by the facts of all steps of
        the case and its other expectations of the kind. Pure.
        """
        return True

    def mutants(self, facts: Reading) -> Iterable[Mutant]:
        """Yield, for each leaf, facts under which it must not hold.

        Pure; asked only where the expectation held.

        Change one thing in a copy of the facts (``dataclasses.replace``) and leave the judging to
        ``judge``: a mutant that is still HELD shows that the expectation cannot fail in this way.
        ``count_mutants`` makes those of a count.
        """
        raise NotImplementedError
