"""``dead``: objects to which nothing refers any more."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings
from runner.core.model import Json
from runner.vocabulary.expectations.base import Judgement, Mutant, StepFacts

WEAK = "<weak>"
"""What a worker gives its weak references under, by the names that the case's expectations use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """``dead: [function.weight]``."""

    kind: ClassVar[str] = "dead"
    mutations: ClassVar[tuple[str, ...]] = ("still alive",)
    objects: tuple[str, ...]

    @classmethod
    def parse(cls, body: Any) -> "Dead":
        """Read the names."""
        return cls(objects=tuple(body))

    @property
    def names(self) -> tuple[str, ...]:
        """No value that a step may hold on to: they are looked up once, when the case begins."""
        return ()

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker collects garbage and looks at its weak references."""
        return {"objects": list(self.objects)}

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge each object by itself; one that never was is an error."""
        return [self._judge(name, facts) for name in self.objects]

    def _judge(self, name: str, facts: StepFacts) -> Judgement:
        expected = f"nothing refers to {name} any more"
        if facts.measured is None:
            return Judgement.error("nothing was measured", expected=expected, leaf=name)
        found = facts.measured[name]
        if not found["was"]:
            return Judgement.error(f"it was not there when the case began: {found['type']}", expected=expected, leaf=name)
        observed = f"a {found['type']}, {'still alive' if found['alive'] else 'gone'}"
        return Judgement.of(found["alive"] is False, expected=expected, observed=observed, leaf=name)

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Each object by itself, alive."""
        for name in self.objects:
            alive = {**facts.measured, name: {**facts.measured[name], "alive": True}}
            yield Mutant(name="still alive", facts=replace(facts, measured=alive), leaf=name)


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: for each name whether there was such an object, of what type, and whether it is alive."""
    import gc

    gc.collect()
    weak = value(WEAK)
    return {name: weak[name].state() for name in arguments["objects"]}
