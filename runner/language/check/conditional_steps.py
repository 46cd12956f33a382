"""Checks ``when`` and ``repeat`` of steps: results of steps that may be left out, and steps that cannot be repeated."""

from collections.abc import Iterator, Sequence

from runner.core.diagnostics import Diagnostic
from runner.language.backends import Backends
from runner.language.read.anatomy import Anatomy, RawExpectation, RawStep
from runner.vocabulary.expectations import EXPECTATIONS
from runner.vocabulary.expectations.base import OUTPUT, BadExpectation


def conditional_step_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield uses of a result that only a step under another condition gives."""
    for index, step in enumerate(anatomy.steps):
        above = anatomy.steps[:index]
        reported: set[str] = set()
        script = anatomy.scripts.get(step.path)
        if script is not None and script.tree is None:
            continue  # it does not parse, which is reported elsewhere
        for name, user in _uses(step):
            first = name.split(".")[0]
            giving = _giving(first, above)
            if first in reported or not giving or any(one.when is None or one.when == step.when for one in giving):
                continue
            reported.add(first)
            line = anatomy.document.position(giving[-1].path, key=True).line
            what = "there is no result to use" if first == OUTPUT else f"'{first}' has no value"
            message = f"{what} where the step at line {line} is left out: it has a condition"
            yield anatomy.document.problem(user.path, message, "give both steps the same 'when', or remove it there", key=True)


def repeat_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield steps whose kind runs once."""
    for step in anatomy.steps:
        if not step.traits.can_repeat and "repeat" in anatomy.document.value(step.path[:-1]):
            message = f"the step '{step.kind}' cannot be repeated"
            yield anatomy.document.problem((*step.path[:-1], "repeat"), message, step.traits.why_once, key=True)


def _uses(step: RawStep) -> Iterator[tuple[str, RawStep | RawExpectation]]:
    """Yield the names that a step and its expectations use, with what uses each."""
    parsed = step.parsed
    yield from ((name, step) for name in parsed.names)
    if parsed.differentiates:
        yield parsed.differentiated or OUTPUT, step
    given = {parsed.bound, *([OUTPUT] if step.traits.has_result else [])}
    for expectation in step.expectations:
        try:
            names = EXPECTATIONS[expectation.kind].parse(expectation.body).names
        except (BadExpectation, TypeError, ValueError):  # reported elsewhere; templates are no numbers
            continue
        yield from ((name, expectation) for name in names if name.split(".")[0] not in given)


def _giving(name: str, above: Sequence[RawStep]) -> list[RawStep]:
    return [step for step in above if step.parsed.bound == name or (name == OUTPUT and step.traits.has_result)]
