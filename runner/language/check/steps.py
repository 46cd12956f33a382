"""Checks steps and expectations: named values are defined before they are used, and every expectation can be judged."""

import ast
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.core.diagnostics import Diagnostic, Position, one_of, unknown
from runner.core.protocol import Json
from runner.language.backends import Backends
from runner.language.check.functions import arity_problems
from runner.language.check.scope import READY, Scope, after, before, references, scope_of
from runner.language.read import python, substitution
from runner.language.read.anatomy import Anatomy, RawExpectation, RawStep
from runner.language.read.document import Document
from runner.vocabulary.expectations import EXPECTATIONS, REPEATED
from runner.vocabulary.expectations.base import EAGER, OUTPUT, BadExpectation, is_reference, is_unlisted
from runner.vocabulary.steps import SAMPLES, STEPS, BackendOfSpec, DataPath, ExpectedOfStep, StepKind


@dataclass(frozen=True, slots=True)
class StepInSpec:
    """One step with the spec that it stands in (``vocabulary.steps.Around``)."""

    anatomy: Anatomy
    known: Backends
    scope: Scope
    parsed: Sequence[StepKind]
    """The arguments of every step."""
    index: int

    @property
    def step(self) -> RawStep:
        """The step itself."""
        return self.anatomy.steps[self.index]

    @property
    def path(self) -> DataPath:
        """The path of the step."""
        return self.step.path

    @property
    def above(self) -> Sequence[StepKind]:
        """The steps before it."""
        return self.parsed[: self.index]

    @property
    def expected(self) -> Sequence[ExpectedOfStep]:
        """The expectations of the step."""
        return [ExpectedOfStep(kind=one.kind, path=one.path) for one in self.step.expectations]

    @property
    def functions(self) -> Collection[str]:
        """The names of the spec's functions."""
        return self.anatomy.functions

    @property
    def backends(self) -> Sequence[BackendOfSpec]:
        """The backends that the spec names, without unknown ones."""
        found = (self.known.by_name.get(name) for name in self.anatomy.data["backends"])
        return [
            BackendOfSpec(name=one.name, compiles=one.compiles, has_graphs=one.proof.graphs is None or one.proof.graphs.most != 0)
            for one in found
            if one is not None
        ]

    @property
    def tree(self) -> ast.Module | None:
        """The step's Python; None if it has none, or does not parse."""
        script = self.anatomy.scripts.get(self.step.path)
        return None if script is None else script.tree

    def problem(self, path: DataPath, message: str, hint: str = "", *, key: bool = False, code: str = "step") -> Diagnostic:
        """Return a diagnostic at a place of the spec."""
        return self.anatomy.document.problem(path, message, hint, key=key, code=code)

    def name_problem(self, name: str) -> tuple[str, str] | None:
        """Return (message, hint) for a name that is not defined when the step begins."""
        return self.scope.problem(name, before(self.index))

    def input_problems(self, function: str, inputs: list[Json] | None, path: DataPath) -> Iterator[Diagnostic]:
        """Yield why a function does not take these inputs; None means the inputs of the spec."""
        given = self.anatomy.data.get("inputs", []) if inputs is None else inputs
        yield from arity_problems(self.anatomy, function, given, path)


@functools.lru_cache(maxsize=4)
def steps_in_spec(anatomy: Anatomy, backends: Backends) -> list[StepInSpec]:
    """Return every step of a spec with the spec around it."""
    scope = scope_of(anatomy)
    parsed = [step.parsed for step in anatomy.steps]
    return [StepInSpec(anatomy, backends, scope, parsed, index) for index in range(len(anatomy.steps))]


# -- steps and expectations -------------------------------------------------------------------------------------------


def step_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of each step as written, and of the order of the steps."""
    last: str | None = None
    for around in steps_in_spec(anatomy, backends):
        step = around.step
        if last is not None and not step.traits.is_last:
            hint = f"move the {last} to the end: what follows would see what it did to caches, counters and parameters"
            yield around.problem(step.path, f"the step '{step.kind}' below a {last}", hint, key=True, code="step-order")
        yield from step.parsed.problems(around)
        last = step.kind if step.traits.is_last else last


def named_value_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield named values that are used before they are defined, or defined twice. Checked again at each point of the matrix."""
    bound = {name: anatomy.document.position(("let", name), key=True) for name in anatomy.data.get("let", {})}
    for around in steps_in_spec(anatomy, backends):
        step, scope, moment = around.step, around.scope, before(around.index)
        yield from scope.reference_problems(step.arguments, step.path, moment)
        if step.traits.enters_context and "context" not in step.arguments:  # then it enters the spec's context, or that of the defaults
            layers = (layer for layer in (anatomy.document, *reversed(anatomy.spec.defaults)) if "context" in layer.data)
            if (layer := next(layers, None)) is not None:
                yield from scope.reference_problems(layer.data["context"], ("context",), moment, document=layer)
        if (name := step.parsed.bound) is not None:
            yield from _binding_problems(anatomy, step, name, bound)
            bound[name] = anatomy.document.position((*step.path, "as"))
        yield from step.parsed.name_problems(around)
        for expectation in step.expectations:
            yield from _result_problems(around, expectation)
            yield from _event_problems(anatomy, step, expectation, scope)


def _event_problems(anatomy: Anatomy, step: RawStep, expectation: RawExpectation, scope: Scope) -> Iterator[Diagnostic]:
    """Yield expectations of a spy, a child or an object that does not exist."""
    document, path = anatomy.document, expectation.path
    if expectation.kind == "calls" and expectation.body["of"] not in (spies := anatomy.data.get("spies", {})):
        yield document.problem((*path, "of"), *unknown("spy", expectation.body["of"], spies), code="unknown-name")
    if expectation.kind == "exit" and not step.traits.has_exit:
        with_exit = one_of(word for word, kind in STEPS.items() if kind.traits.has_exit)
        yield document.problem(
            path, f"the step '{step.kind}' spawns no child", f"exit goes with {with_exit}", key=True, code="misplaced-expectation"
        )
    if expectation.kind in REPEATED and not step.traits.can_be_called_again and step.traits.has_result:
        repeated = one_of(word for word, kind in STEPS.items() if kind.traits.can_be_called_again)
        yield document.problem(
            path,
            f"the step '{step.kind}' cannot be repeated",
            f"{expectation.kind} goes with {repeated}",
            key=True,
            code="misplaced-expectation",
        )
    if expectation.kind == "dead":
        for index, name in enumerate(expectation.body):
            found = scope.problem(name, READY)
            if found is not None:
                yield document.problem((*path, index), *found, code="unknown-name")
    yield from _data_problems(document, expectation)


def _data_problems(document: Document, expectation: RawExpectation) -> Iterator[Diagnostic]:
    """Yield references within plain data, which are not resolved."""
    places: list[tuple[DataPath, Any]] = []
    if expectation.kind in ("equals", "differs"):
        places = [((*expectation.path, name), other) for name, other in expectation.body.items() if not is_reference(other)]
        hint = "compare that part by itself: {NAME.0: {ref: OTHER}}"
    elif expectation.kind == "calls":
        places = [((*expectation.path, "where"), expectation.body.get("where"))]
        hint = "write the value: entries of a spy are compared with plain values"
    for place, value in places:
        for path, text in references(value, place):
            yield document.problem(
                path, f"{{ref: {text}}} within what is only data: it would be compared as a map", hint, code="misplaced-reference"
            )


def _binding_problems(anatomy: Anatomy, step: RawStep, name: str, bound: Mapping[str, Position]) -> Iterator[Diagnostic]:
    path = (*step.path, "as")
    if name in (OUTPUT, EAGER):
        yield anatomy.document.problem(
            path, f"the name '{name}' is taken", "it is the step's own result or its reference", code="reserved-name"
        )
    elif name in bound:
        yield anatomy.document.problem(
            path, f"the name '{name}' is given twice", f"it stands first at line {bound[name].line}", code="repeated-name"
        )


def _result_problems(around: StepInSpec, expectation: RawExpectation) -> Iterator[Diagnostic]:
    """Yield values that an expectation names and that are not defined after its step."""
    parsed = None if _is_templated(expectation) else _parsed(expectation)
    if parsed is None:
        return
    step = around.step
    firsts = list(dict.fromkeys(name.split(".")[0] for name in parsed.names))
    if OUTPUT in firsts and not step.traits.has_result:
        results = one_of(word for word, kind in STEPS.items() if kind.traits.has_result and word != SAMPLES)
        yield around.problem(
            expectation.path, f"the step '{step.kind}' has no result", f"results have {results}", key=True, code="misplaced-expectation"
        )
    elif EAGER in firsts and (why := step.parsed.why_no_reference(around.above)) is not None:
        yield around.problem(expectation.path, *why, key=True, code="misplaced-expectation")
    for name in dict.fromkeys(parsed.names):
        found = None if name.split(".")[0] in (OUTPUT, EAGER) else around.scope.problem(name, after(around.index))
        if found is not None:
            path, is_key = _place_of(expectation, name)
            yield around.problem(path, *found, key=is_key, code="unknown-name")


def _place_of(expectation: RawExpectation, name: str) -> tuple[DataPath, bool]:
    """Return the path of a value's name in an expectation, and whether it is a key."""
    for key, value in expectation.body.items():
        if str(value) == name and key in ("of", "to"):
            return (*expectation.path, key), False
        if isinstance(value, dict) and str(value.get("ref", "")) == name:
            return (*expectation.path, key, "ref"), False
    return (*expectation.path, name), True


def _parsed(expectation: RawExpectation) -> Any:
    try:
        return EXPECTATIONS[expectation.kind].parse(expectation.body)
    except BadExpectation:
        return None


def _is_templated(expectation: RawExpectation) -> bool:
    """Whether an expectation has templates, so that it is known only at a point of the matrix."""
    return next(substitution.templates_below(expectation.body, expectation.path), None) is not None


def all_expectation_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of the expectations of every step, except for those with templates."""
    for step in anatomy.steps:
        for expectation in step.expectations:
            if not _is_templated(expectation):
                yield from expectation_problems(anatomy.document, expectation)


def expectation_problems(document: Document, expectation: RawExpectation) -> Iterator[Diagnostic]:
    """Yield the problems of the arguments of an expectation."""
    counted = expectation.kind in ("counter", "metric")
    # each count is parsed alone, so that every wrong one is reported
    for body in ({name: count} for name, count in expectation.body.items()) if counted else (expectation.body,):
        if expectation.kind == "counter" and "." not in next(iter(body)) and not is_unlisted(*body.values()):
            continue  # ``name_problems`` reports a counter without a namespace, and knows which it may be
        try:
            EXPECTATIONS[expectation.kind].parse(body)
        except BadExpectation as error:
            path = (*expectation.path, *error.path)
            position = document.position(path)
            if error.line and path in document.marks:
                position = python.place(document, path, python.block_at(document, path, expectation.kind), error.line, max(error.column, 1))
            yield Diagnostic(position=position, message=str(error), hint=error.hint, code="expectation")
    if expectation.kind in _COUNTED:
        yield from _unreached(document, expectation.body, expectation.path)


_COUNTED = ("counter", "metric", "generated_files", "remote_cache", "kernels", "graph", "guards", "recompiles", "graph_breaks")


def _unreached(document: Document, counts: object, path: DataPath) -> Iterator[Diagnostic]:
    """Yield values below an unconditional one: the first value whose condition applies is used, so they are never reached."""
    if isinstance(counts, dict):
        for name, count in counts.items():
            if isinstance(count, dict | list):
                yield from _unreached(document, count, (*path, name))
        return
    entries = counts if isinstance(counts, list) else []
    always = next((index for index, entry in enumerate(entries) if isinstance(entry, dict) and "when" not in entry), len(entries))
    if always < len(entries) - 1:
        message = "this value is never reached: the one above it holds everywhere"
        yield document.problem((*path, always + 1), message, "only the last may be without when", code="never-reached")


# -- when and repeat --------------------------------------------------------------------------------------------------


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
            giving = [one for one in above if one.parsed.bound == first or (first == OUTPUT and one.traits.has_result)]
            if first in reported or not giving or any(one.when is None or one.when == step.when for one in giving):
                continue
            reported.add(first)
            line = anatomy.document.position(giving[-1].path, key=True).line
            what = "there is no result to use" if first == OUTPUT else f"'{first}' has no value"
            message = f"{what} where the step at line {line} is left out: it has a condition"
            yield anatomy.document.problem(
                user.path, message, "give both steps the same 'when', or remove it there", key=True, code="conditional-value"
            )


def repeat_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield steps whose kind runs once."""
    for step in anatomy.steps:
        if not step.traits.can_repeat and "repeat" in anatomy.document.value(step.path[:-1]):
            message = f"the step '{step.kind}' cannot be repeated"
            yield anatomy.document.problem((*step.path[:-1], "repeat"), message, step.traits.why_once, key=True, code="misplaced-key")


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
