"""The steps of a case with their expectations. Parts without templates are made once for all cases of a spec."""

import json
from collections.abc import Container
from typing import Any

from runner.core.case import Expected, Step
from runner.language.check.functions import entry_of
from runner.language.expand.filled import FilledSpec
from runner.language.read import substitution
from runner.language.read.anatomy import RawExpectation, RawStep
from runner.vocabulary.expectations import EXPECTATIONS
from runner.vocabulary.steps import TRITON
from runner.vocabulary.steps.triton import kernels


class StepMaker:
    """Makes the steps of one spec at each point of its matrix; ``templated`` has the names of sections with templates."""

    def __init__(self, templated: Container[str | int]) -> None:
        self._is_templated = any(name in templated for name in ("steps", "expect", TRITON))
        self._steps: tuple[Step, ...] | None = None
        self._expected: dict[str, Expected] = {}

    def steps_of(self, filled: FilledSpec) -> tuple[Step, ...]:
        """Return the steps at a point."""
        if self._steps is None or self._is_templated:
            self._steps = tuple(self._step(step, filled) for step in filled.anatomy.steps)
        return self._steps

    def _step(self, step: RawStep, filled: FilledSpec) -> Step:
        anatomy = filled.anatomy
        arguments = filled.at(step.path) if step.path != ("expect",) else {}
        if step.path in anatomy.scripts:
            script = anatomy.scripts[step.path]
            assert script.block is not None, "a script is Python"
            entry = entry_of(anatomy, script) if step.kind != TRITON else next(iter(kernels(script.tree) if script.tree else {}), None)
            arguments = {**arguments, step.traits.python: script.block.as_json(), "entry": entry}
        beside: Any = filled.at(step.path[:-1]) if step.path != ("expect",) else {}
        return Step(
            kind=step.kind,
            arguments=arguments if isinstance(arguments, dict) else {"items": arguments},
            expectations=tuple(self._expectation(raw, filled) for raw in step.expectations),
            position=anatomy.document.position(step.path, key=True),
            repeat=beside.get("repeat", 1),
            when=beside.get("when"),
        )

    def _expectation(self, raw: RawExpectation, filled: FilledSpec) -> Expected:
        body = filled.at(raw.path)
        key = f"{raw.path}{json.dumps(substitution.as_text(body), sort_keys=True)}"
        if key not in self._expected:
            document = filled.anatomy.document
            leaves = {name: document.position((*raw.path, name), key=True) for name in body} if isinstance(body, dict) else {}
            check = EXPECTATIONS[raw.kind].parse(body)
            position = document.position(raw.path, key=True)
            self._expected[key] = Expected(kind=raw.kind, check=check, position=position, leaves=leaves, body=body)
        return self._expected[key]
