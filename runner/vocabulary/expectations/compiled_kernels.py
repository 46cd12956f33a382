"""What a compiled kernel of an offline target says of itself: ``resources`` and ``metadata``."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.model.conditions import Surroundings, choose
from runner.model.expectation import Judgement, Mutant, StepFacts
from runner.model.protocol import Json
from runner.model.targets import TARGETS
from runner.vocabulary.compiler_output import KERNEL, RESOURCES, NotReported, of_compiler, with_amount
from runner.vocabulary.expectations.compilation import check_counts
from runner.vocabulary.expectations.expectation_base import (
    COUNT_MUTATIONS,
    BadExpectation,
    Conditional,
    Kind,
    count_mutants,
    judge_count,
    text_of,
)
from runner.vocabulary.expectations.values import changed, same


def measure_resources(arguments: Mapping[str, Json], value: Callable[[str], Any]) -> Json:
    """Return the shared memory that the compiler recorded, the most of any kernel; the rest stands in the texts that it wrote."""
    shared = value(KERNEL).get("shared")
    # several kernels of generated code differ: a map by kernel
    return {"shared": max(shared.values()) if isinstance(shared, dict) and shared else shared}


NOT_REPORTED = "not reported"
TARGET = "target"
"""A bound of ``shared``: what one block of the target may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources(Conditional):
    """``resources: {registers: {max: 64}, spills: 0, shared: {max: target}}``."""

    kind: ClassVar[str] = "resources"
    is_recorded: ClassVar[bool] = True
    mutations: ClassVar[tuple[str, ...]] = (*COUNT_MUTATIONS, NOT_REPORTED)
    registers: Any = None
    spills: Any = None
    stack: Any = None
    shared: Any = None

    @classmethod
    def check(cls, body: Any) -> None:
        """Check the counts."""
        if isinstance(shared := body.get("shared"), dict) and shared.get("max") == TARGET and "min" in shared:
            raise BadExpectation("{max: target} beside min", "write {max: target} alone", path=("shared", "min"))
        named = [name for name in RESOURCES if name in body]
        if not named:
            raise BadExpectation("no resource is named", f"name one of {', '.join(RESOURCES)}")
        checked = {name: {"max": 1} if body[name] == {"max": TARGET} else body[name] for name in named}
        check_counts(checked, *named)

    def _bounds(self, surroundings: Surroundings) -> Iterator[tuple[str, Any]]:
        """Yield each count with its name, and with the bound of the target as a number."""
        for name in RESOURCES:
            count = getattr(self, name)
            if count == {"max": TARGET}:
                most = next(
                    target.shared for target in TARGETS.values() if (target.vendor, target.arch) == (surroundings.vendor, surroundings.arch)
                )
                yield name, {"max": most}
            elif count is not None:
                yield name, count

    def judged(self, facts: StepFacts, surroundings: Surroundings) -> list[Judgement]:
        """Judge each resource on its own. What the compiler did not report is an ERROR."""
        judgements = []
        for name, count in self._bounds(surroundings):
            try:
                observed, why = _amount(name, facts, surroundings), ""
            except NotReported as error:
                observed, why = None, str(error)
            judgements.append(judge_count(count, observed, surroundings, leaf=name, absent=why))
        return judgements

    def mutants(self, facts: StepFacts, surroundings: Surroundings) -> Iterator[Mutant]:
        """Each resource on its own, with another amount; then none reported."""
        nothing = replace(facts, code=()).with_measured(shared=None)
        for name, count in self._bounds(surroundings):

            def with_number(number: float, name: str = name) -> StepFacts:
                if name == "shared":
                    return facts.with_measured(shared=int(number))
                return replace(facts, code=with_amount(name, surroundings.vendor or "", facts.code, int(number)))

            yield from count_mutants(count, _amount(name, facts, surroundings), surroundings, with_number, leaf=name, is_budget=True)
            yield Mutant(name=NOT_REPORTED, facts=nothing, leaf=name)


def _amount(name: str, facts: StepFacts, surroundings: Surroundings) -> int:
    if name != "shared":
        return of_compiler(name, surroundings.vendor or "", facts.code)
    shared = facts.measured["shared"]
    if not isinstance(shared, int) or isinstance(shared, bool) or shared < 0:
        raise NotReported("the compiler reported no amount")
    return shared


def measure_metadata(arguments: Mapping[str, Json], value: Callable[[str], Any]) -> Json:
    """Return what the compiler recorded of the kernel, as plain values by name."""
    return dict(value(KERNEL))


CHANGED, ABSENT = "another value", "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata(Kind):
    """``metadata: {num_warps: 4, matrix_instr_nonkdim: [{when: {vendor: amd}, value: 16}]}``."""

    kind: ClassVar[str] = "metadata"
    is_recorded: ClassVar[bool] = True
    mutations: ClassVar[tuple[str, ...]] = (CHANGED, ABSENT)
    values: Mapping[str, Any]

    @classmethod
    def parse(cls, body: Any) -> "Metadata":
        """Read the values by name."""
        return cls(values=dict(body))

    def judged(self, facts: StepFacts, surroundings: Surroundings) -> list[Judgement]:
        """Judge each value on its own. A name that the compiler does not record is an ERROR."""
        judgements = []
        for name, conditional in self.values.items():
            applies, required = choose(conditional, surroundings)
            expected = f"{name} {text_of(required)}"
            if not applies:
                judgements.append(Judgement.not_applicable(name))
            elif name not in facts.measured:
                why, known = f"the compiler records no '{text_of(name)}'", f"it records {', '.join(sorted(facts.measured))}"
                judgements.append(Judgement.error(why, expected=expected, leaf=name, detail=known))
            else:
                value = facts.measured[name]
                judgements.append(Judgement.of(same(value, required), expected=expected, observed=text_of(value), leaf=name))
        return judgements

    def mutants(self, facts: StepFacts, surroundings: Surroundings) -> Iterator[Mutant]:
        """Each value on its own: another one, and none."""
        for name in self.values:
            if choose(self.values[name], surroundings)[0] and name in facts.measured:
                yield Mutant(name=CHANGED, facts=facts.with_measured(**{name: changed(facts.measured[name])}), leaf=name)
                rest = {key: value for key, value in facts.measured.items() if key != name}
                yield Mutant(name=ABSENT, facts=replace(facts, measured=rest), leaf=name)
