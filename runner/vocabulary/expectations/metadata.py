"""``metadata``: what the compiler recorded of a kernel that was compiled for a target: the options that reached it, its shared memory."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, choose
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import Judgement, Mutant, Recorded, StepFacts, text_of
from runner.vocabulary.offline.levels import KERNEL


def measure(arguments: Mapping[str, Json], value: Callable[[str], Any]) -> Json:
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
