"""Checks let, spies and handlers: defined names, hooks of the prelude, a ``calls`` expectation for each spy."""

from collections.abc import Iterator, Mapping
from typing import Any

from runner.core import template_form
from runner.core.diagnostics import Diagnostic, one_of, unknown
from runner.language.backends import Backends
from runner.language.check.functions import prelude_names
from runner.language.check.names import OPTION_KINDS
from runner.language.check.scope import AFTER_LET, PRELUDE, READY, Scope, making, parts_of_case, references
from runner.language.read import python
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath
from runner.vocabulary.expectations.base import EAGER, OUTPUT
from runner.vocabulary.steps import COMPILED

SPY_KEYS: Mapping[str, tuple[str, ...]] = {
    "function": ("record", "result", "instead", "around"),
    "method": ("record", "result", "instead", "around"),
    "class": ("record", "instead"),
    "lowering": ("record", "result", "instead", "around"),
    "graph": ("record",),
}
"""The keys that each kind of spy allows."""


def let_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield names of let that are taken, and references to values that are not defined yet."""
    scope = Scope(anatomy)
    for index, (name, entry) in enumerate(anatomy.data.get("let", {}).items()):
        path: DataPath = ("let", name)
        if name in (OUTPUT, EAGER, *parts_of_case(anatomy)):
            yield anatomy.document.problem(path, f"the name '{name}' is taken", "it is a part of the case; choose another", key=True)
        yield from scope.reference_problems(entry, path, making(index))


def value_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield references of functions, inputs, options and contexts to values that are not defined when these are made."""
    scope, data = Scope(anatomy), anatomy.data
    yield from scope.reference_problems(data.get("inputs"), ("inputs",), AFTER_LET)
    for section in ("function", "functions"):
        for path, value in _modules(data.get(section), (section,)):
            yield from scope.reference_problems(value, path, PRELUDE)
    for above, given in (((), data), (("control",), data.get("control", {}))):
        yield from scope.reference_problems(given.get("compile"), (*above, "compile"), READY, without=[COMPILED])
        for section in OPTION_KINDS:
            yield from scope.reference_problems(given.get(section), (*above, section), READY)
    for layer in anatomy.spec.defaults:
        for section in OPTION_KINDS:
            for path, text in references(layer.data.get(section), (section,)):
                found = None if template_form.is_template(text) else scope.problem(text, READY)
                if found is not None:
                    yield layer.problem(path, *found)
    for name, spy in data.get("spies", {}).items():
        yield from scope.reference_problems(spy.get("instead"), ("spies", name, "instead"), READY)


def _modules(value: object, path: DataPath) -> Iterator[tuple[DataPath, Any]]:
    """Yield the arguments of every module among functions."""
    if isinstance(value, Mapping) and "module" in value:
        yield from (((*path, key), value[key]) for key in ("args", "kwargs") if key in value)
    elif isinstance(value, Mapping) and path == ("functions",):
        for name, function in value.items():
            yield from _modules(function, (*path, name))


def spy_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield hooks that the prelude lacks, targets that cannot be resolved, and spies without a ``calls`` expectation."""
    prelude = prelude_names(anatomy)
    expected = {expectation.body["of"] for step in anatomy.steps for expectation in step.expectations if expectation.kind == "calls"}
    for name, spy in anatomy.data.get("spies", {}).items():
        path: DataPath = ("spies", name)
        kind = next(word for word in SPY_KEYS if word in spy)
        for key in spy.keys() - {kind, *SPY_KEYS[kind]}:
            owners = [word for word, keys in SPY_KEYS.items() if key in keys]
            message = f"'{key}' does not go with '{kind}'"
            yield anatomy.document.problem((*path, key), message, f"it goes with {one_of(owners)}", key=True)
        for key in ("result", "instead") if "around" in spy else ():
            if key in spy:
                hint = "the hook of around calls the original itself, and returns what the caller gets"
                yield anatomy.document.problem((*path, key), f"'{key}' does not go with 'around'", hint, key=True)
        yield from _hook_problems(anatomy, spy, path, prelude)
        yield from _target_problems(anatomy, kind, spy[kind], (*path, kind), prelude)
        if name not in expected and "instead" not in spy:
            hint = f"add an expectation calls: {{of: {name}}}"
            yield anatomy.document.problem(path, f"nothing is expected of the spy '{name}'", hint, key=True)


def _hook_problems(anatomy: Anatomy, spy: Mapping[str, object], path: DataPath, prelude: set[str]) -> Iterator[Diagnostic]:
    for word in ("record", "result", "instead", "around"):
        hook = spy.get(word)
        if isinstance(hook, str) and prelude.isdisjoint((hook, "*")):
            message, hint = unknown("function", hook, prelude - {"torch", "params"})
            yield anatomy.document.problem((*path, word), f"{message} in the prelude", hint)


def _target_problems(anatomy: Anatomy, kind: str, target: object, path: DataPath, prelude: set[str]) -> Iterator[Diagnostic]:
    if isinstance(target, list):
        if not isinstance(target[0], dict) or set(target[0]) != {"ref"} or not isinstance(target[1], str):
            yield anatomy.document.problem(path, "not an object and a method", "write [{ref: NAME}, METHOD]")
            return
        yield from Scope(anatomy).reference_problems(target, path, AFTER_LET)
    elif kind in ("function", "method", "class") and isinstance(target, str) and not template_form.is_template(target):
        if "." not in target:
            yield anatomy.document.problem(
                path, f"'{target}' is no dotted path", "name it where its callers look it up: package.module.name"
            )
        elif python.is_installed(target.split(".")[0]) and (found := python.find_name(target, prelude)) is not None:
            yield anatomy.document.problem(path, *found)


def handler_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield handlers that are not defined after let."""
    for name, entry in anatomy.data.get("handlers", {}).items():
        yield from Scope(anatomy).reference_problems(entry, ("handlers", name), AFTER_LET)
