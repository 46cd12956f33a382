"""What steps and expectations mean: named values are there before they are used, and every expectation can be judged."""

from collections.abc import Iterator, Mapping
from typing import Any

from runner.diagnostics import Diagnostic, Position, one_of, unknown
from runner.expectations import EAGER, EXPECTATIONS, OUTPUT, BadExpectation
from runner.language import python, substitution
from runner.language.anatomy import Anatomy, RawExpectation, RawStep
from runner.language.backends import Backends
from runner.language.check_functions import CALLS, prelude_names
from runner.language.check_values import parts_of_case, script_problems, unknown_references
from runner.language.source import DataPath, Document


def step_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Named values are there before they are used, and each name once."""
    bound = {name: anatomy.document.position(("let", name), key=True) for name in anatomy.data.get("let", {})}
    prelude = {*prelude_names(anatomy), *parts_of_case(anatomy)}
    called = False
    for step in anatomy.steps:
        yield from _reference_problems(anatomy, step, bound, prelude)
        if step.kind == "backward" and "of" not in step.arguments and not called:
            yield anatomy.document.problem(step.path, "backward before any call", "put a call step above it", key=True)
        if step.kind == "backward" and "of" in step.arguments and step.arguments["of"] not in bound:
            yield anatomy.document.problem((*step.path, "of"), *unknown("name", step.arguments["of"], bound))
        called = called or step.kind == "call"
        name = step.arguments.get("as") if isinstance(step.arguments, dict) else None
        if name is not None:
            yield from _binding_problems(anatomy, step, name, bound)
            bound[name] = anatomy.document.position((*step.path, "as"))
        if step.kind == "script":
            yield from script_problems(anatomy, step, {*bound, *prelude})
        if step.kind == "spawn" and not any(expectation.kind == "exit" for expectation in step.expectations):
            yield anatomy.document.problem(step.path, "nothing is expected of the child", "add expect: [{exit: {code: 0}}]", key=True)
        for expectation in step.expectations:
            yield from _named_value_problems(anatomy, step, expectation, bound)
            yield from _event_problems(anatomy, step, expectation)


def _event_problems(anatomy: Anatomy, step: RawStep, expectation: RawExpectation) -> Iterator[Diagnostic]:
    """Return expectations of what is not there: a spy, a child, an object."""
    document, path = anatomy.document, expectation.path
    if expectation.kind == "calls" and expectation.body["of"] not in (spies := anatomy.data.get("spies", {})):
        yield document.problem((*path, "of"), *unknown("spy", expectation.body["of"], spies))
    if expectation.kind == "exit" and step.kind != "spawn":
        yield document.problem(path, f"the step '{step.kind}' spawns no child", "exit goes with spawn", key=True)
    if expectation.kind == "dead":
        known = [*anatomy.functions, "inputs", *anatomy.data.get("let", {})]
        for index, name in enumerate(expectation.body):
            if name.split(".")[0] not in known:
                yield document.problem((*path, index), *unknown("name", name.split(".")[0], known))


def _binding_problems(anatomy: Anatomy, step: RawStep, name: str, bound: Mapping[str, Position]) -> Iterator[Diagnostic]:
    path = (*step.path, "as")
    if name in (OUTPUT, EAGER):
        yield anatomy.document.problem(path, f"the name '{name}' is taken", "it is the step's own result or its reference")
    elif name in bound:
        yield anatomy.document.problem(path, f"the name '{name}' is given twice", f"it stands first at line {bound[name].line}")


def _reference_problems(anatomy: Anatomy, step: RawStep, bound: Mapping[str, Position], prelude: set[str]) -> Iterator[Diagnostic]:
    known = {*bound, *prelude}
    yield from unknown_references(anatomy, step.arguments, step.path, known)
    if step.kind in (*CALLS, "bench") and "inputs" not in step.arguments:
        yield from unknown_references(anatomy, anatomy.data.get("inputs", []), ("inputs",), known)


_HAS_RESULT = ("call", "aot", "backward", "optimizer", "api", "script")
_HAS_REFERENCE = ("call", "aot", "backward", "optimizer")


def _named_value_problems(
    anatomy: Anatomy, step: RawStep, expectation: RawExpectation, bound: Mapping[str, Position]
) -> Iterator[Diagnostic]:
    parsed = None if _is_templated(expectation) else _parsed(expectation)
    if parsed is None:
        return
    eager_call = step.kind == "call" and step.arguments.get("eager") is True
    firsts = list(dict.fromkeys(name.split(".")[0] for name in parsed.names))
    parts = parts_of_case(anatomy)
    if OUTPUT in firsts and step.kind not in _HAS_RESULT:
        message = f"the step '{step.kind}' has no result"
        yield anatomy.document.problem(expectation.path, message, f"results have {one_of(_HAS_RESULT)}", key=True)
    elif EAGER in firsts and (step.kind not in _HAS_REFERENCE or eager_call):
        message = "an eager call compared with eager cannot differ" if eager_call else f"the step '{step.kind}' has no eager reference"
        yield anatomy.document.problem(expectation.path, message, "compare with a named value", key=True)
    for first in firsts:
        if first not in (OUTPUT, EAGER, *bound, *parts):
            path, is_key = _place_of(expectation, first)
            yield anatomy.document.problem(path, *unknown("name", first, [*bound, OUTPUT, EAGER, *parts]), key=is_key)


def _place_of(expectation: RawExpectation, name: str) -> tuple[DataPath, bool]:
    """Return where in an expectation a value is named, and whether by a key."""
    for key, value in expectation.body.items():
        if str(value).split(".")[0] == name and key in ("of", "to"):
            return (*expectation.path, key), False
        if isinstance(value, dict) and str(value.get("ref", "")).split(".")[0] == name:
            return (*expectation.path, key, "ref"), False
    return (*expectation.path, name), True


def _parsed(expectation: RawExpectation) -> Any:
    try:
        return EXPECTATIONS[expectation.kind].parse(expectation.body)
    except BadExpectation:
        return None


def _is_templated(expectation: RawExpectation) -> bool:
    """Whether what is expected is known only at a point of the matrix."""
    return next(substitution.templates_below(expectation.body, expectation.path), None) is not None


def all_expectation_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Return what is wrong with the expectations of every step, but for those that templates fill."""
    for step in anatomy.steps:
        for expectation in step.expectations:
            if not _is_templated(expectation):
                yield from expectation_problems(anatomy.document, expectation)


def expectation_problems(document: Document, expectation: RawExpectation) -> Iterator[Diagnostic]:
    """Return what is wrong with the arguments of an expectation."""
    counted = expectation.kind in ("counter", "metric")
    # each count is read alone: one that is wrong does not hide the next
    for body in ({name: count} for name, count in expectation.body.items()) if counted else (expectation.body,):
        try:
            EXPECTATIONS[expectation.kind].parse(body)
        except BadExpectation as error:
            path = (*expectation.path, *error.path)
            position = document.position(path)
            if error.line and path in document.marks:
                position = python.place(document, path, python.block_at(document, path, expectation.kind), error.line, max(error.column, 1))
            yield Diagnostic(position=position, message=str(error), hint=error.hint)
    if expectation.kind in _COUNTED:
        yield from _unreached(document, expectation.body, expectation.path)


_COUNTED = ("counter", "metric", "generated_files", "remote_cache")


def _unreached(document: Document, counts: Any, path: DataPath) -> Iterator[Diagnostic]:
    """Of values under conditions the first that applies is taken: none may stand below one that always does."""
    if isinstance(counts, dict):
        for name, count in counts.items():
            if isinstance(count, dict | list):
                yield from _unreached(document, count, (*path, name))
        return
    entries = counts if isinstance(counts, list) else []
    always = next((index for index, entry in enumerate(entries) if isinstance(entry, dict) and "when" not in entry), len(entries))
    if always < len(entries) - 1:
        message = "this value is never reached: the one above it holds everywhere"
        yield document.problem((*path, always + 1), message, "only the last may be without when")
