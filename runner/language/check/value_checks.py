"""Checks let, spies and handlers: defined names, hooks of the prelude, a ``calls`` expectation for each spy."""

from collections.abc import Iterator, Mapping

from runner.language.check.functions import prelude_names
from runner.language.check.names_in_scope import AFTER_LET, INPUTS, LET, PRELUDE, READY, scope_of
from runner.language.names.scan import CONFIG_FILES
from runner.language.read import python_source
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath
from runner.model import conditions
from runner.model.diagnostics import Diagnostic, one_of, unknown
from runner.vocabulary.expectations.expectation_base import EAGER, OUTPUT
from runner.vocabulary.steps import COMPILED

SPY_KEYS: Mapping[str, tuple[str, ...]] = {
    "function": ("record", "result", "instead", "around"),
    "method": ("record", "result", "instead", "around"),
    "class": ("record", "instead"),
    "lowering": ("record", "result", "instead", "around"),
    "graph": ("record",),
}
"""The keys that each kind of spy allows."""


def value_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield names of let that are taken, and references to values that are not defined when a part of the case is made."""
    scope, data = scope_of(anatomy), anatomy.data
    for index, (name, entry) in enumerate(data.get("let", {}).items()):
        if name in (OUTPUT, EAGER, INPUTS, *anatomy.functions, *([COMPILED] if anatomy.functions else [])):
            hint = "it is a part of the case; choose another"
            yield anatomy.document.problem(("let", name), f"the name '{name}' is taken", hint, key=True, code="reserved-name")
        yield from scope.reference_problems(entry, ("let", name), (LET, index))
    for name, entry in data.get("handlers", {}).items():
        yield from scope.reference_problems(entry, ("handlers", name), AFTER_LET)
    yield from scope.reference_problems(data.get("inputs"), ("inputs",), AFTER_LET)
    for function in anatomy.functions.values():
        if isinstance(function.value, Mapping) and "module" in function.value:
            for key in ("args", "kwargs"):
                yield from scope.reference_problems(function.value.get(key), (*function.path, key), PRELUDE)
    for above, settings in (((), data), (("control",), data.get("control", {}))):
        yield from scope.reference_problems(settings.get("compile"), (*above, "compile"), READY, without=[COMPILED])
        for section in CONFIG_FILES:
            yield from scope.reference_problems(settings.get(section), (*above, section), READY)
    for layer in anatomy.defaults:
        for section in CONFIG_FILES:
            yield from scope.reference_problems(layer.data.get(section), (section,), READY, document=layer)
    for name, spy in data.get("spies", {}).items():
        yield from scope.reference_problems(spy.get("instead"), ("spies", name, "instead"), READY)


def spy_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield hooks that the prelude lacks, targets that cannot be resolved, and spies without a ``calls`` expectation."""
    document, prelude = anatomy.document, prelude_names(anatomy)
    expected = {expectation.body["of"] for step in anatomy.steps for expectation in step.expectations if expectation.kind == "calls"}
    for name, spy in anatomy.data.get("spies", {}).items():
        path: DataPath = ("spies", name)
        kind = next(word for word in SPY_KEYS if word in spy)
        for key in spy.keys() - {kind, *SPY_KEYS[kind]}:
            hint = f"it goes with {one_of([word for word, keys in SPY_KEYS.items() if key in keys])}"
            yield document.problem((*path, key), f"'{key}' does not go with '{kind}'", hint, key=True, code="misplaced-key")
        for key in ("result", "instead"):
            if "around" in spy and key in spy:
                hint = "the hook of around calls the original itself, and returns what the caller gets"
                yield document.problem((*path, key), f"'{key}' does not go with 'around'", hint, key=True, code="misplaced-key")
        for word in ("record", "result", "instead", "around"):
            hook = spy.get(word)
            if isinstance(hook, str) and prelude.isdisjoint((hook, "*")):
                message, hint = unknown("function", hook, prelude - {"torch", "params"})
                yield document.problem((*path, word), f"{message} in the prelude", hint, code="unknown-name")
        target, place = spy[kind], (*path, kind)
        if isinstance(target, list):
            if not isinstance(target[0], dict) or set(target[0]) != {"ref"} or not isinstance(target[1], str):
                yield document.problem(place, "not an object and a method", "write [{ref: NAME}, METHOD]", code="bad-target")
            else:
                yield from scope_of(anatomy).reference_problems(target, place, AFTER_LET)
        elif kind in ("function", "method", "class") and isinstance(target, str) and not conditions.is_template(target):
            if "." not in target:
                hint = "name it where its callers look it up: package.module.name"
                yield document.problem(place, f"'{target}' is no dotted path", hint, code="bad-target")
            elif python_source.is_installed(target.split(".")[0]) and (missing := python_source.find_name(target, prelude)) is not None:
                yield document.problem(place, *missing, code="unknown-name")
        if name not in expected and "instead" not in spy:
            hint = f"add an expectation calls: {{of: {name}}}"
            yield document.problem(path, f"nothing is expected of the spy '{name}'", hint, key=True, code="expects-nothing")


def isolation_of(anatomy: Anatomy) -> str:
    """Return the isolation of a spec, from the spec itself or the nearest defaults."""
    layers = (anatomy.document, *reversed(anatomy.defaults))
    return next((str(document.data["isolation"]) for document in layers if "isolation" in document.data), "case")
