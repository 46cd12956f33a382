"""What the kinds of expectation share: names, problems of one that means nothing, counts, and the
values of ``model.expectation``.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

from torch_conformance.model.conditions import choose
from torch_conformance.model.expectation import Expectation, Mutant, Reading, Status, Verdict
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen, values_of
from torch_conformance.vocabulary.forms import (
    Count,
    CountsByName,
    Keywords,
    When,
    WhenJudged,
    Word,
    common,
)
from torch_conformance.vocabulary.worker_session import Facts

OUTPUT = "output"
"""The name of a step's result."""

EAGER = "eager"
"""The name of the eager reference."""


class BadExpectation(Exception):
    """An expectation that fits the schema but is invalid.

    ``path`` leads from the expectation's body to the invalid value; ``line`` and ``column`` are a
    position in that value, 0 if it has none.
    """

    def __init__(
        self, message: str, hint: str = "", *path: str | int, line: int = 0, column: int = 0
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.path = path
        self.line = line
        self.column = column


@dataclass(frozen=True)
class Kind(Word, Expectation):
    """What the kinds of expectation of the language share.

    By itself one judges facts that every step has.

    The schema is made of the classes (``tools/generate_schemas``): of their docstrings, fields, the
    docstrings below these, and ``form``.
    """

    form: ClassVar[Keywords] = {}
    """What the schema says of the body beside its keys; with ``type`` or ``$ref`` the body is no
    map of keys.
    """
    is_whole: ClassVar[bool] = False
    """Whether the body is the value of the first field."""
    patterns: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """The keys that lead to regular expressions and directives of FileCheck in the body: ``{{`` is
    no template there.
    """
    may_be_blessed: ClassVar[bool] = False
    """Whether ``bless`` may write its counts as they were observed."""
    is_of_compiles: ClassVar[bool] = False
    """Whether it judges records of the compiles of the step: there are none of a backend that
    compiles nothing.
    """
    judges_code: ClassVar[bool] = False
    """Whether it judges the code that the step generated."""
    judges_exit: ClassVar[bool] = False
    """Whether it judges the child process of the step."""
    names_objects: ClassVar[bool] = False
    """Whether its body names objects that the worker keeps weak references to."""
    needs_service: ClassVar[bool] = False
    """Whether it judges what a service of the spec did."""
    needs_target: ClassVar[bool] = False
    """Whether it judges only what is compiled for a target."""
    is_offline: ClassVar[bool] = False
    """Whether it can be judged of what is compiled and never executed."""

    @classmethod
    def counts_of(cls, body: Json) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Yield each count of a body, with the keys that lead to it: those of the fields that are
        counts. A template in the place of the body has none.
        """
        for key in fields(cls) if isinstance(body, Mapping) else ():
            if key.name in body and key.type is Count:
                yield (key.name,), body[key.name]
            elif key.name in body and key.type is CountsByName:
                for name, count in body[key.name].items():
                    yield (key.name, name), count

    @classmethod
    def check(cls, body: Json) -> None:
        """Raise ``BadExpectation`` for a body that the schema lets through, whose counts are right,
        and that is invalid.
        """

    @classmethod
    def parse(cls, body: Json) -> Self:
        """Read the body that the schema let through; raise ``BadExpectation``."""
        for path, count in cls.counts_of(body):
            check_count(count, *path)
        cls.check(body)
        return cls.read(body)

    @classmethod
    def read(cls, body: Json) -> Self:
        """Return the expectation of a body that was checked."""
        return cls(**{fields(cls)[0].name: body} if cls.is_whole else body)

    def measurement(self) -> Facts | None:
        """What the worker is asked to measure; None for facts that every step has."""
        return None if self.measure is None else {}

    def judge(self, facts: Reading) -> list[Verdict]:
        """Judge the facts where ``when`` holds, if there is one, and where what the worker was
        asked for was measured.
        """
        if not self.applies(facts.surroundings):
            return [Verdict.not_applicable()]
        if facts.measured is None and self.measurement() is not None:
            return [Verdict.error(self.kind, "nothing was measured")]
        return list(self.judged(facts))

    def judged(self, facts: Reading) -> Iterable[Verdict]:
        """Judge facts that are there."""
        raise NotImplementedError


@frozen
class Conditional(Kind):
    """A kind with ``when``."""

    when: When = None
    """Where the expectation applies; everywhere when absent."""


@frozen
class ConditionalOnCode(Conditional):
    """A kind whose ``when`` may speak of the generated code."""

    when: WhenJudged = None
    """Where the expectation applies; everywhere when absent."""


def is_reference(value: object) -> bool:
    """Whether a value is ``{ref: NAME}``."""
    return isinstance(value, dict) and set(value) == {"ref"}


def text_of(value: object) -> str:
    """Return a value as text, cut to one line."""
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 200 else shown[:200] + "..."


# -- counts ----------------------------------------------------------------------------------------


def counts_in(body: object) -> list[Any]:
    """Return the counts of a list with conditions, or the only count."""
    return [entry.get("value") for entry in body] if isinstance(body, list) else [body]


def is_unlisted(body: object) -> bool:
    """Whether the spec marks the counter with ``unlisted: true``: its name is in no table."""
    return any(
        isinstance(count, dict) and count.get("unlisted") is True for count in counts_in(body)
    )


def allows_zero(body: object) -> bool:
    """Whether an untouched counter passes."""
    return any(
        (0 in count["any"] if "any" in count else count.get("value", count.get("min")) in (None, 0))
        if isinstance(count, dict)
        else count == 0
        for count in counts_in(body)
    )


@frozen
class Range:
    """A closed range of numbers; ``least == most`` for an exact one. None means no bound."""

    least: float | None
    most: float | None
    among: tuple[float, ...] = ()
    """The only numbers of the range that count; empty for all of them."""

    def __str__(self) -> str:
        if self.among:
            return f"{', '.join(map(str, self.among[:-1]))} or {self.among[-1]}"
        if self.least == self.most:
            return str(self.least)
        if self.most is None:
            return f"at least {self.least}"
        return f"at most {self.most}" if self.least is None else f"{self.least} to {self.most}"

    def holds(self, number: float) -> bool:
        """Whether the number is in the range."""
        if self.among:
            return number in self.among
        return (self.least is None or number >= self.least) and (
            self.most is None or number <= self.most
        )


def parse_count(body: Json) -> Range:
    """Read a number or a range; raise ``BadExpectation`` for a range with no number or all
    numbers.
    """
    words = body if isinstance(body, dict) else {"value": body}
    for number in [*(words.get(word) for word in ("value", "min", "max")), *words.get("any", [])]:
        if number is not None and number < 0:
            raise BadExpectation(
                f"{number} is less than 0, and counts are not negative", "write 0 or more"
            )
    least, most = words.get("min"), words.get("max")
    if "any" in words:
        others = [word for word in ("value", "min", "max") if word in words]
        if others:
            raise BadExpectation(
                f"any together with {' and '.join(others)}", "any lists every number that holds"
            )
        numbers = tuple(sorted(set(words["any"])))
        if len(numbers) < 2:
            raise BadExpectation("any with one number", f"write {numbers[0]}")
        is_whole = numbers[-1] < len(numbers)  # all from 0 on
        if is_whole or (
            len(numbers) >= _RANGE and numbers[_RANGE - 1] <= _RANGE + (numbers[0] > 0)
        ):
            raise BadExpectation(
                "any of so many small numbers could hardly fail",
                "write the numbers that are right, or a range",
            )
        return Range(least=numbers[0], most=numbers[-1], among=numbers)
    if "value" in words:
        if least is not None or most is not None:
            raise BadExpectation("value together with min or max", "use one of them")
        return Range(least=words["value"], most=words["value"])
    if least is None and most is None:
        raise BadExpectation("a range without min and max", "write {min: 1}, {max: 3} or a number")
    if least is not None and most is not None and least > most:
        raise BadExpectation(
            f"the range from {least} to {most} is empty", "min must not be greater than max"
        )
    if most is None and least is not None and least <= 0:
        raise BadExpectation(f"{{min: {least}}} is true for every count", "write {min: 1}")
    return Range(least=least, most=most)


_RANGE = 4
"""So many numbers from 0 or 1, of which one may be left out, are a range."""

AT_LEAST_ONE = {"min": 1}
"""The count of what is expected without a count."""


def or_some(count: Json) -> Json:
    """Return a count; at least 1 for one that is left out."""
    return AT_LEAST_ONE if count is None else count


def check_count(body: Json, *path: str | int) -> None:
    """Check a count with its conditions, which is at a path; raise ``BadExpectation``."""
    for index, value in enumerate(counts_in(body)):
        try:
            parse_count(value)
        except BadExpectation as error:
            within = (index, "value") if isinstance(body, list) else ()
            raise BadExpectation(str(error), error.hint, *path, *within) from error


def judge_count(
    body: object,
    observed: float | None,
    facts: Reading,
    *,
    leaf: str = "",
    absent: str = "",
) -> Verdict:
    """Judge one count. ``absent`` is the error text for a missing observation."""
    applies, value = choose(body, facts.surroundings)
    if not applies:
        return Verdict.not_applicable(leaf)
    required = parse_count(value)
    expected = f"{leaf} {required}".strip()
    if observed is None:
        return Verdict.error(expected, absent, leaf=leaf)
    judged = Verdict.of(required.holds(observed), expected, str(observed), leaf=leaf)
    return replace(judged, is_absence=observed == 0)


def count_mutants(
    body: object,
    observed: float | None,
    facts: Reading,
    changed: Callable[[float], Reading],
    *,
    leaf: str = "",
    where: str = "",
    trivial: int | None = None,
    is_budget: bool = False,
    most: float | None = None,
) -> Iterator[Mutant]:
    """Yield one more and one less for an exact count, or numbers outside of others.

    ``changed`` makes facts with a number.

    A most must be near what was observed; one that ``is_budget`` must only be a number that a GPU
    may have. A least must be more than a ``trivial`` function has, and not all numbers up to the
    ``most`` that can occur may hold.
    """
    applies, value = choose(body, facts.surroundings)
    if not applies or observed is None:
        return
    required = parse_count(value)
    numbers: list[tuple[str, float]] = []
    if most is not None and all(map(required.holds, range(int(most) + 1))):
        numbers = [("every count that can occur", observed)]
    elif required.among:
        for step in (1, -1):
            number = next(
                number
                for number in itertools.count(observed + step, step)
                if not required.holds(number)
            )
            numbers.append(("none of its numbers", number))
    elif required.least is not None and required.least == required.most:
        numbers = [("one more", observed + 1), ("one less", observed - 1)]
    else:
        if required.least is not None:
            # only metrics have a least below 1: 0 is just below it
            numbers.append(
                ("just below its least", 0 if 0 < required.least < 1 else required.least - 1)
            )
        if required.most is not None:
            numbers.append(("just above its most", required.most + 1))
            numbers.append(
                ("far more than observed", 2 * observed + (_MOST_BUDGET if is_budget else 9))
            )
        elif trivial is not None:
            numbers.append(("what x + 1 has", trivial))
    for name, number in numbers:
        if number < 0:
            yield Mutant(name, None, leaf, where, "counts are not negative")
        else:
            yield Mutant(name, changed(number), leaf, where)


_MOST_BUDGET = 1_000_000
"""More than the registers and the bytes of shared memory of any GPU."""


class Counts(Kind):
    """What is expected of some numbers, each of which is a leaf."""

    of_trivial_function: ClassVar[Mapping[str, int]] = {}
    """Numbers, by leaf, that every function has."""
    absent: ClassVar[str] = ""
    """The error text where a number is not known."""

    @property
    def by_leaf(self) -> Mapping[str, Any]:
        """The body of each count, by the keys that lead to it."""
        return {
            " ".join(path): count
            for path, count in self.counts_of(values_of(self))
            if count is not None
        }

    @classmethod
    def expression(cls, leaf: str) -> str:
        """Return the Python that counts it in a script of torch; empty where only the runner
        can.
        """
        return ""

    def number(self, facts: Reading, leaf: str) -> float | None:
        """Return the number that was observed; None where it is not known."""
        raise NotImplementedError

    def with_number(self, facts: Reading, leaf: str, number: float) -> Reading:
        """Return the facts with another number: a mutant."""
        raise NotImplementedError

    def most(self, facts: Reading, leaf: str) -> float | None:
        """Return the greatest number that can occur; None where it is not known."""
        return None

    def of_every_function(self) -> Iterator[tuple[str, Range]]:
        """Yield the ranges without a condition, by leaf, that a trivial function's number is in."""
        for leaf, trivial in self.of_trivial_function.items():
            count: Any = self.by_leaf.get(leaf)
            is_least = isinstance(count, dict) and "min" in count and "max" not in count
            if is_least and count["min"] <= trivial:
                yield leaf, parse_count(count)

    def judged(self, facts: Reading) -> Iterator[Verdict]:
        """Judge each number on its own.

        A wrong count of a cache shows what torch kept out of caches.
        """
        bypasses = [
            f"{namespace}.{name}: {count}"
            for namespace, counters in facts.counters.items()
            for name, count in counters.items()
            if count and name.endswith("_bypass")
        ]
        for leaf, count in self.by_leaf.items():
            judgement = judge_count(
                count, self.number(facts, leaf), facts, leaf=leaf, absent=self.absent
            )
            is_of_cache = "cache" in f"{self.kind} {leaf}" and not leaf.endswith("_bypass")
            if bypasses and is_of_cache and judgement.status is Status.FAILED:
                judgement = replace(
                    judgement, observed=f"{judgement.observed} ({', '.join(bypasses)})"
                )
            yield judgement

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """Each number on its own, with another one."""
        for leaf, count in self.by_leaf.items():
            changed = functools.partial(self.with_number, facts, leaf)
            trivial = self.of_trivial_function.get(leaf)
            yield from count_mutants(
                count,
                self.number(facts, leaf),
                facts,
                changed,
                leaf=leaf,
                trivial=trivial,
                most=self.most(facts, leaf),
            )


class OnlyCounts(Counts):
    """Counts that are the whole body, the one field; by itself a body of counts by name.

    The name of the field is a part of the digests of cases.
    """

    is_whole = True

    @property
    def body(self) -> Any:
        """The counts."""
        return getattr(self, fields(self)[0].name)

    @classmethod
    def counts_of(cls, body: Json) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Yield the count of each name."""
        for name, count in body.items() if isinstance(body, Mapping) else ():
            yield (name,), count

    @property
    def by_leaf(self) -> Mapping[str, Any]:
        """Each count, by the keys that lead to it."""
        return {" ".join(path): count for path, count in self.counts_of(self.body)}


@frozen
class OneCount(OnlyCounts):
    """One number, whose count is the body."""

    form = common("count")
    count: Any

    @classmethod
    def counts_of(cls, body: Json) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Yield the body."""
        yield (), body
