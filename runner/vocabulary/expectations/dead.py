"""``dead``: objects that have been freed."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import Judgement, Mutant, StepFacts

WEAK = "<weak>"
"""The name of the worker's weak references; they are keyed by the names of the expectations."""


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
        """None: the step must not hold these values. They are looked up once, at the beginning of the case."""
        return ()

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker collects garbage and checks its weak references."""
        return {"objects": list(self.objects)}

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge each object on its own. An object that never existed is an error."""
        return [self._judge(name, facts) for name in self.objects]

    def _judge(self, name: str, facts: StepFacts) -> Judgement:
        expected = f"{name} is freed"
        if facts.measured is None:
            return Judgement.error("nothing was measured", expected=expected, leaf=name)
        found = facts.measured[name]
        if not found["was"]:
            return Judgement.error(f"it did not exist at the beginning of the case: {found['type']}", expected=expected, leaf=name)
        observed = f"a {found['type']}, {'still alive' if found['alive'] else 'freed'}"
        return Judgement.of(found["alive"] is False, expected=expected, observed=observed, leaf=name)

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Each object on its own, still alive."""
        for name in self.objects:
            alive = {**facts.measured, name: {**facts.measured[name], "alive": True}}
            yield Mutant(name="still alive", facts=replace(facts, measured=alive), leaf=name)


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker, for each name: whether the object existed, its type, and whether it is alive."""
    import gc

    gc.collect()
    weak = value(WEAK)
    return {name: weak[name].state() for name in arguments["objects"]}
