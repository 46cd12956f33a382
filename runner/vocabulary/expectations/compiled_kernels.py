"""What a compiled kernel of an offline target says of itself: ``resources`` and ``metadata``."""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, choose
from runner.core.expectation import Judgement, Mutant, StepFacts
from runner.core.protocol import Json
from runner.core.targets import TARGETS
from runner.vocabulary.expectations.base import COUNT_MUTATIONS, BadExpectation, Conditional, Recorded, count_mutants, judge_count, text_of
from runner.vocabulary.expectations.compilation import check_counts
from runner.vocabulary.offline import KERNEL, RESOURCES, NotReported, of_compiler, with_amount


def measure_resources(arguments: Mapping[str, Json], value: Callable[[str], Any]) -> Json:
    """Return the shared memory that the compiler recorded, the most of any kernel; the rest stands in the texts that it wrote."""
    shared = value(KERNEL).get("shared")
    # several kernels of generated code differ: a map by kernel
    return {"shared": max(shared.values()) if isinstance(shared, dict) and shared else shared}


NOT_REPORTED = "not reported"
TARGET = "target"
"""A bound of ``shared``: what one block of the target may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources(Recorded, Conditional):
    """``resources: {registers: {max: 64}, spills: 0, shared: {max: target}}``."""

    kind: ClassVar[str] = "resources"
    mutations: ClassVar[tuple[str, ...]] = (*COUNT_MUTATIONS, NOT_REPORTED)
    registers: Any = None
    spills: Any = None
    stack: Any = None
    shared: Any = None

    @classmethod
    def parse(cls, body: Any) -> "Resources":
        """Read the counts; raise ``BadExpectation``."""
        if isinstance(shared := body.get("shared"), dict) and shared.get("max") == TARGET and "min" in shared:
            raise BadExpectation("{max: target} beside min", "write {max: target} alone", path=("shared", "min"))
        named = [name for name in RESOURCES if name in body]
        if not named:
            raise BadExpectation("no resource is named", f"name one of {', '.join(RESOURCES)}")
        checked = {name: {"max": 1} if _is_of_target(body[name]) else body[name] for name in named}
        check_counts(checked, *named)
        return cls(**body)

    @property
    def _counts(self) -> Mapping[str, Any]:
        return {name: getattr(self, name) for name in RESOURCES if getattr(self, name) is not None}

    def judged(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge each resource on its own. What the compiler did not report is an ERROR."""
        return [self._judged(name, facts, here) for name in self._counts]

    def _judged(self, name: str, facts: StepFacts, here: Surroundings) -> Judgement:
        try:
            observed, why = _amount(name, facts, here), ""
        except NotReported as error:
            observed, why = None, str(error)
        return judge_count(_bound(self._counts[name], here), observed, here, leaf=name, absent=why)

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Each resource on its own, with another amount; then none reported."""
        nothing = replace(facts, code=()).with_measured(shared=None)
        for name, count in self._counts.items():
            changed = functools.partial(_with, facts, here, name)
            yield from count_mutants(_bound(count, here), _amount(name, facts, here), here, changed, leaf=name)
            yield Mutant(name=NOT_REPORTED, facts=nothing, leaf=name)


def _is_of_target(count: Any) -> bool:
    return isinstance(count, dict) and count == {"max": TARGET}


def _bound(count: Any, here: Surroundings) -> Any:
    """Return a count with the bound of the target as a number."""
    if not _is_of_target(count):
        return count
    return {"max": next(target.shared for target in TARGETS.values() if (target.vendor, target.arch) == (here.vendor, here.arch))}


def _amount(name: str, facts: StepFacts, here: Surroundings) -> int:
    if name != "shared":
        return of_compiler(name, here.vendor or "", facts.code)
    shared = facts.measured["shared"]
    if not isinstance(shared, int) or isinstance(shared, bool) or shared < 0:
        raise NotReported("the compiler reported no amount")
    return shared


def _with(facts: StepFacts, here: Surroundings, name: str, number: float) -> StepFacts:
    """Return the facts with another amount: a mutant."""
    if name == "shared":
        return facts.with_measured(shared=int(number))
    return replace(facts, code=with_amount(name, here.vendor or "", facts.code, int(number)))


def measure_metadata(arguments: Mapping[str, Json], value: Callable[[str], Any]) -> Json:
    """Return what the compiler recorded of the kernel, as plain values by name."""
    return dict(value(KERNEL))


CHANGED, ABSENT = "another value", "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata(Recorded):
    """``metadata: {num_warps: 4, matrix_instr_nonkdim: [{when: {vendor: amd}, value: 16}]}``."""

    kind: ClassVar[str] = "metadata"
    mutations: ClassVar[tuple[str, ...]] = (CHANGED, ABSENT)
    values: Mapping[str, Any]

    @classmethod
    def parse(cls, body: Any) -> "Metadata":
        """Read the values by name."""
        return cls(values=dict(body))

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge each value on its own. A name that the compiler does not record is an ERROR."""
        return [self._judged(name, facts, here) for name in self.values]

    def _judged(self, name: str, facts: StepFacts, here: Surroundings) -> Judgement:
        applies, wanted = choose(self.values[name], here)
        if not applies:
            return Judgement.not_applicable(name)
        expected = f"{name} {text_of(wanted)}"
        if name not in facts.measured:
            known = ", ".join(sorted(facts.measured))
            return Judgement.error(f"the compiler records no '{text_of(name)}'", expected=expected, leaf=name, detail=f"it records {known}")
        found = facts.measured[name]
        return Judgement.of(same(found, wanted), expected=expected, observed=text_of(found), leaf=name)

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Each value on its own: another one, and none."""
        for name in self.values:
            if choose(self.values[name], here)[0] and name in facts.measured:
                yield Mutant(name=CHANGED, facts=facts.with_measured(**{name: another(facts.measured[name])}), leaf=name)
                rest = {key: value for key, value in facts.measured.items() if key != name}
                yield Mutant(name=ABSENT, facts=replace(facts, measured=rest), leaf=name)


def same(found: Json, wanted: Json) -> bool:
    """Whether two values are equal as JSON: true is not 1."""
    return isinstance(found, bool) == isinstance(wanted, bool) and bool(found == wanted)


def another(value: Json) -> Json:
    """Return another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value} otherwise"
        case list():
            return [*value, "otherwise"]
    return "otherwise"
