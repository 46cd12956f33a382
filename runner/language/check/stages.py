"""Which text of a compiler a ``filecheck`` reads, and whether a target of the spec has it."""

from collections.abc import Iterator
from typing import Any

from runner.core.diagnostics import Diagnostic, one_of
from runner.core.targets import ALL_STAGES, STAGES, TARGETS
from runner.language.read.anatomy import Anatomy, RawExpectation
from runner.language.read.matrix import TARGETS as KEY


def stage_of(one: RawExpectation) -> Any:
    """Return the stage that an expectation reads; None where it reads none."""
    return one.body.get("stage") if one.kind == "filecheck" and isinstance(one.body, dict) else None


def stage_problems(anatomy: Anatomy, one: RawExpectation) -> Iterator[Diagnostic]:
    """Yield a stage that no target of the spec has."""
    stage = stage_of(one)
    made = {made for name in anatomy.data[KEY] for made in STAGES[TARGETS[name].backend]}
    if stage in ALL_STAGES and stage not in made:
        message = f"no target of the spec has the stage '{stage}'"
        yield anatomy.document.problem((*one.path, "stage"), message, f"its targets have {one_of(sorted(made))}")
