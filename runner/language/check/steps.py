"""What steps and expectations mean: named values are there before they are used, and every expectation can be judged."""

from collections.abc import Iterator, Mapping
from typing import Any

from runner.core.diagnostics import Diagnostic, Position, one_of, unknown
from runner.language.backends import Backends
from runner.language.check.functions import CALLS
from runner.language.check.scope import READY, RESULTS, Moment, Scope, after, before, has_reference, no_reference_reason, references
from runner.language.check.values import script_problems
from runner.language.read import python, substitution, templates
from runner.language.read.anatomy import Anatomy, RawExpectation, RawStep
from runner.language.read.document import DataPath, Document
from runner.vocabulary.expectations import EAGER, EXPECTATIONS, OUTPUT, BadExpectation
from runner.vocabulary.expectations.equality import is_reference


def step_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Named values are there before they are used, and each name once."""
    scope = Scope(anatomy)
    bound = {name: anatomy.document.position(("let", name), key=True) for name in anatomy.data.get("let", {})}
    called = False
    for index, step in enumerate(anatomy.steps):
        yield from scope.reference_problems(step.arguments, step.path, before(index))
        yield from _context_problems(anatomy, step, scope, before(index))
        if step.kind == "backward" and not called and step.arguments.get("of", OUTPUT).split(".")[0] == OUTPUT:
            yield anatomy.document.problem(step.path, "backward before any call", "put a call step above it", key=True)
        elif step.kind == "backward":
            yield from _backward_problems(anatomy, step, scope, before(index))
        called = called or step.kind == "call"
        name = step.arguments.get("as") if isinstance(step.arguments, dict) else None
        if name is not None:
            yield from _binding_problems(anatomy, step, name, bound)
            bound[name] = anatomy.document.position((*step.path, "as"))
        if step.kind == "script":
            yield from script_problems(anatomy, step, scope, before(index))
        if step.kind == "spawn" and not any(expectation.kind == "exit" for expectation in step.expectations):
            yield anatomy.document.problem(step.path, "nothing is expected of the child", "add expect: [{exit: {code: 0}}]", key=True)
        for expectation in step.expectations:
            yield from _named_value_problems(anatomy, step, expectation, scope, after(index))
            yield from _event_problems(anatomy, step, expectation, scope)


def _context_problems(anatomy: Anatomy, step: RawStep, scope: Scope, moment: Moment) -> Iterator[Diagnostic]:
    """The spec's context is entered in each call that has none of its own."""
    if step.kind in (*CALLS, "bench") and "context" not in step.arguments:
        for document in (anatomy.document, *reversed(anatomy.spec.defaults)):
            if "context" in document.data:
                for path, text in references(document.data["context"], ("context",)):
                    found = None if templates.is_template(text) else scope.problem(text, moment)
                    if found is not None:
                        yield document.problem(path, *found)
                return


def _backward_problems(anatomy: Anatomy, step: RawStep, scope: Scope, moment: Moment) -> Iterator[Diagnostic]:
    name = step.arguments.get("of", OUTPUT)
    if templates.is_template(name):
        return
    if name.split(".")[0] == EAGER:
        hint = "leave it out, or name a result: the eager side runs backward of its own"
        yield anatomy.document.problem((*step.path, "of"), "backward runs on what is compiled, not on its reference", hint)
    elif (found := scope.problem(name, moment)) is not None:
        yield anatomy.document.problem((*step.path, "of"), *found)


def _event_problems(anatomy: Anatomy, step: RawStep, expectation: RawExpectation, scope: Scope) -> Iterator[Diagnostic]:
    """Return expectations of what is not there: a spy, a child, an object."""
    document, path = anatomy.document, expectation.path
    if expectation.kind == "calls" and expectation.body["of"] not in (spies := anatomy.data.get("spies", {})):
        yield document.problem((*path, "of"), *unknown("spy", expectation.body["of"], spies))
    if expectation.kind == "exit" and step.kind != "spawn":
        yield document.problem(path, f"the step '{step.kind}' spawns no child", "exit goes with spawn", key=True)
    if expectation.kind == "dead":
        for index, name in enumerate(expectation.body):
            found = scope.problem(name, READY)
            if found is not None:
                message, hint = found
                late = "not there yet" in message
                hint = "objects are looked up when the case begins: name an attribute of a function, of inputs, or of a value of let"
                yield document.problem((*path, index), message, hint if late else found[1])
    yield from _data_problems(document, expectation)


def _data_problems(document: Document, expectation: RawExpectation) -> Iterator[Diagnostic]:
    """Return references below what is only data: nothing would look them up."""
    places: list[tuple[DataPath, Any]] = []
    if expectation.kind in ("equals", "differs"):
        places = [((*expectation.path, name), other) for name, other in expectation.body.items() if not is_reference(other)]
        hint = "compare that part by itself: {NAME.0: {ref: OTHER}}"
    elif expectation.kind == "calls":
        places = [((*expectation.path, "where"), expectation.body.get("where"))]
        hint = "write the value: entries of a spy are compared with plain values"
    for place, value in places:
        for path, text in references(value, place):
            yield document.problem(path, f"{{ref: {text}}} within what is only data: it would be compared as a map", hint)


def _binding_problems(anatomy: Anatomy, step: RawStep, name: str, bound: Mapping[str, Position]) -> Iterator[Diagnostic]:
    path = (*step.path, "as")
    if name in (OUTPUT, EAGER):
        yield anatomy.document.problem(path, f"the name '{name}' is taken", "it is the step's own result or its reference")
    elif name in bound:
        yield anatomy.document.problem(path, f"the name '{name}' is given twice", f"it stands first at line {bound[name].line}")


def _named_value_problems(
    anatomy: Anatomy, step: RawStep, expectation: RawExpectation, scope: Scope, moment: Moment
) -> Iterator[Diagnostic]:
    parsed = None if _is_templated(expectation) else _parsed(expectation)
    if parsed is None:
        return
    firsts = list(dict.fromkeys(name.split(".")[0] for name in parsed.names))
    if OUTPUT in firsts and step.kind not in RESULTS:
        message = f"the step '{step.kind}' has no result"
        yield anatomy.document.problem(expectation.path, message, f"results have {one_of(RESULTS)}", key=True)
    elif EAGER in firsts and not has_reference(step, anatomy):
        yield anatomy.document.problem(expectation.path, *_no_reference(anatomy, step), key=True)
    for name in dict.fromkeys(parsed.names):
        found = None if name.split(".")[0] in (OUTPUT, EAGER) else scope.problem(name, moment)
        if found is not None:
            path, is_key = _place_of(expectation, name)
            yield anatomy.document.problem(path, *found, key=is_key)


def _no_reference(anatomy: Anatomy, step: RawStep) -> tuple[str, str]:
    if step.kind == "call":
        return "an eager call compared with eager cannot differ", "compare with a named value"
    if step.kind == "backward":
        hint = "give the call's result a name with 'as', and write backward: {of: NAME}; or compare with a named value"
        return f"this backward has no eager reference: {no_reference_reason(anatomy, step)}", hint
    return f"the step '{step.kind}' has no eager reference", "compare with a named value"


def _place_of(expectation: RawExpectation, name: str) -> tuple[DataPath, bool]:
    """Return where in an expectation a value is named, and whether by a key."""
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
