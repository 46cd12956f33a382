"""Checks steps and expectations: named values are defined before they are used, and every expectation can be judged."""

import functools
from collections.abc import Iterator
from typing import Any

from runner.language.backends import Backends
from runner.language.check.functions import arity_problems
from runner.language.check.names_in_scope import READY, STEPPING, references, scope_of
from runner.language.read import python_source, templates
from runner.language.read.anatomy import Anatomy, RawExpectation, RawStep
from runner.language.read.document import Document
from runner.model.diagnostics import Diagnostic, one_of, unknown
from runner.vocabulary.expectations import EXPECTATIONS, REPEATED
from runner.vocabulary.expectations.expectation_base import EAGER, OUTPUT, BadExpectation, is_reference, is_unlisted
from runner.vocabulary.steps import SAMPLES, STEPS
from runner.vocabulary.steps.step_base import Around, BackendOfSpec, DataPath


def _around(anatomy: Anatomy, backends: Backends, index: int) -> Around:
    """Return the spec around one of its steps, as the checks of the step's kind see it."""
    step, script = anatomy.steps[index], anatomy.scripts.get(anatomy.steps[index].path)
    chosen = [backends.by_name[name] for name in anatomy.data["backends"] if name in backends.by_name]
    return Around(
        path=step.path,
        above=[above.parsed for above in anatomy.steps[:index]],
        expected=[(expectation.kind, expectation.path) for expectation in step.expectations],
        functions=anatomy.functions,
        backends=[
            BackendOfSpec(
                name=backend.name, compiles=backend.compiles, has_graphs=backend.proof.graphs is None or backend.proof.graphs.most != 0
            )
            for backend in chosen
        ],
        tree=None if script is None else script.tree,
        problem=functools.partial(anatomy.document.problem, code="step"),
        name_problem=functools.partial(scope_of(anatomy).problem, moment=(STEPPING, index)),
        input_problems=functools.partial(arity_problems, anatomy),
    )


def step_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of each step as written, of their order, and of the arguments of expectations without templates."""
    document = anatomy.document
    last: str | None = None
    for index, step in enumerate(anatomy.steps):
        if last is not None and not step.traits.is_last:
            hint = f"move the {last} to the end: what follows would see what it did to caches, counters and parameters"
            yield document.problem(step.path, f"the step '{step.kind}' below a {last}", hint, key=True, code="step-order")
        last = step.kind if step.traits.is_last else last
        yield from step.parsed.problems(_around(anatomy, backends, index))
        if step.traits.why_once and "repeat" in document.value(step.path[:-1]):
            message = f"the step '{step.kind}' cannot be repeated"
            yield document.problem((*step.path[:-1], "repeat"), message, step.traits.why_once, key=True, code="misplaced-key")
        for expectation in step.expectations:
            if not _is_templated(expectation):
                yield from expectation_problems(document, expectation)


def named_value_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield named values that are used before they are defined, or defined twice. Checked again at each point of the matrix."""
    document, scope = anatomy.document, scope_of(anatomy)
    bound = {name: document.position(("let", name), key=True) for name in anatomy.data.get("let", {})}
    for index, step in enumerate(anatomy.steps):
        yield from scope.reference_problems(step.arguments, step.path, (STEPPING, index))
        if step.traits.enters_context and "context" not in step.arguments:  # then it enters the spec's context, or that of the defaults
            layers = (layer for layer in (document, *reversed(anatomy.defaults)) if "context" in layer.data)
            if (layer := next(layers, None)) is not None:
                yield from scope.reference_problems(layer.data["context"], ("context",), (STEPPING, index), document=layer)
        if (name := step.parsed.bound) is not None:
            path = (*step.path, "as")
            if name in (OUTPUT, EAGER):
                hint = "it is the step's own result or its reference"
                yield document.problem(path, f"the name '{name}' is taken", hint, code="reserved-name")
            elif name in bound:
                hint = f"it stands first at line {bound[name].line}"
                yield document.problem(path, f"the name '{name}' is given twice", hint, code="repeated-name")
            bound[name] = document.position(path)
        yield from step.parsed.name_problems(_around(anatomy, backends, index))
        for expectation in step.expectations:
            if not _is_templated(expectation):
                yield from _result_problems(anatomy, index, expectation)
            yield from _event_problems(anatomy, step, expectation)


def _event_problems(anatomy: Anatomy, step: RawStep, expectation: RawExpectation) -> Iterator[Diagnostic]:
    """Yield expectations of a spy, a child or an object that does not exist, and references within plain data, which are not resolved."""
    document, path, body = anatomy.document, expectation.path, expectation.body
    problem = functools.partial(document.problem, path, key=True, code="misplaced-expectation")
    plain: list[tuple[DataPath, Any]] = []
    hint = "compare that part by itself: {NAME.0: {ref: OTHER}}"
    if expectation.kind == "exit" and not step.traits.has_exit:
        yield problem(f"the step '{step.kind}' spawns no child", f"exit goes with {_kinds_with('has_exit')}")
    if expectation.kind in REPEATED and not step.traits.can_be_called_again and step.traits.has_result:
        repeated = _kinds_with("can_be_called_again")
        yield problem(f"the step '{step.kind}' cannot be repeated", f"{expectation.kind} goes with {repeated}")
    if expectation.kind == "dead":
        for index, name in enumerate(body):
            if (missing := scope_of(anatomy).problem(name, READY)) is not None:
                yield document.problem((*path, index), *missing, code="unknown-name")
    if expectation.kind == "calls":
        if body["of"] not in (spies := anatomy.data.get("spies", {})):
            yield document.problem((*path, "of"), *unknown("spy", body["of"], spies), code="unknown-name")
        plain, hint = [((*path, "where"), body.get("where"))], "write the value: entries of a spy are compared with plain values"
    if expectation.kind in ("equals", "differs"):
        plain = [((*path, name), other) for name, other in body.items() if not is_reference(other)]
    for place, value in plain:
        for place_of_reference, text in references(value, place):
            message = f"{{ref: {text}}} within what is only data: it would be compared as a map"
            yield document.problem(place_of_reference, message, hint, code="misplaced-reference")


def _kinds_with(trait: str) -> str:
    return one_of([word for word, kind in STEPS.items() if getattr(kind.traits, trait) and word != SAMPLES])


def _result_problems(anatomy: Anatomy, index: int, expectation: RawExpectation) -> Iterator[Diagnostic]:
    """Yield values that an expectation names and that are not defined after its step."""
    document, step = anatomy.document, anatomy.steps[index]
    try:
        names = list(dict.fromkeys(expectation.parsed.names))
    except BadExpectation:
        return
    firsts = [name.split(".")[0] for name in names]
    misplaced: tuple[str, str] | None = None
    if OUTPUT in firsts and not step.traits.has_result:
        misplaced = f"the step '{step.kind}' has no result", f"results have {_kinds_with('has_result')}"
    elif EAGER in firsts:
        misplaced = step.parsed.why_no_reference([above.parsed for above in anatomy.steps[:index]])
    if misplaced is not None:
        yield document.problem(expectation.path, *misplaced, key=True, code="misplaced-expectation")
    for name, first in zip(names, firsts, strict=True):
        missing = None if first in (OUTPUT, EAGER) else scope_of(anatomy).problem(name, (STEPPING, index + 1))
        if missing is None:
            continue
        # the name is a key of the expectation, or a value of it
        body = expectation.body if isinstance(expectation.body, dict) else {}
        path, is_key = ((*expectation.path, name), True) if body else (expectation.path, False)
        for key, value in reversed(body.items()):
            if str(value) == name and key in ("of", "to"):
                path, is_key = (*expectation.path, key), False
            elif isinstance(value, dict) and str(value.get("ref", "")) == name:
                path, is_key = (*expectation.path, key, "ref"), False
        yield document.problem(path, *missing, key=is_key, code="unknown-name")


def _is_templated(expectation: RawExpectation) -> bool:
    """Whether an expectation has templates, so that it is known only at a point of the matrix."""
    return next(templates.templates_below(expectation.body, expectation.path), None) is not None


def expectation_problems(document: Document, expectation: RawExpectation) -> Iterator[Diagnostic]:
    """Yield the problems of the arguments of an expectation."""
    counted = expectation.kind in ("counter", "metric")
    # each count is parsed alone, so that every wrong one is reported
    for body in ({name: count} for name, count in expectation.body.items()) if counted else (expectation.body,):
        if expectation.kind == "counter" and "." not in next(iter(body)) and not is_unlisted(*body.values()):
            continue  # ``name_problems`` reports a counter without a namespace, and knows which it may be
        try:
            _ = EXPECTATIONS[expectation.kind].parse(body) if counted else expectation.parsed
        except BadExpectation as error:
            path = (*expectation.path, *error.path)
            position = document.position(path)
            if error.line and path in document.marks:
                position = python_source.place(
                    document, path, python_source.block_at(document, path, expectation.kind), error.line, max(error.column, 1)
                )
            yield Diagnostic(position=position, message=str(error), hint=error.hint, code="expectation")
    if expectation.kind in _COUNTED:
        remaining: list[tuple[DataPath, object]] = [(expectation.path, expectation.body)]
        while remaining:
            path, counts = remaining.pop()
            if isinstance(counts, dict):
                remaining.extend(((*path, name), count) for name, count in counts.items() if isinstance(count, dict | list))
            # the first value whose condition applies is used, so those below an unconditional one are never reached
            entries = counts if isinstance(counts, list) else []
            always = next((index for index, entry in enumerate(entries) if isinstance(entry, dict) and "when" not in entry), len(entries))
            if always < len(entries) - 1:
                message = "this value is never reached: the one above it holds everywhere"
                yield document.problem((*path, always + 1), message, "only the last may be without when", code="never-reached")


_COUNTED = ("counter", "metric", "generated_files", "remote_cache", "kernels", "graph", "guards", "recompiles", "graph_breaks")
