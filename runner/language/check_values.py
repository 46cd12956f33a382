"""What let, spies, handlers and scripts mean: names that are there, hooks of the prelude, entries that somebody judges."""

from collections.abc import Iterator, Mapping
from typing import Any

from runner.diagnostics import Diagnostic, one_of, unknown
from runner.expectations import EAGER, OUTPUT
from runner.language import python, templates
from runner.language.anatomy import Anatomy, RawStep
from runner.language.backends import Backends
from runner.language.check_functions import prelude_names
from runner.language.source import DataPath

COMPILED, INPUTS = "compiled", "inputs"

SPY_KEYS: Mapping[str, tuple[str, ...]] = {
    "function": ("record", "result", "instead"),
    "method": ("record", "result", "instead"),
    "class": ("record", "instead"),
    "lowering": ("record", "result", "instead"),
    "graph": ("record",),
}
"""The kinds of spy, and what goes with each."""


def parts_of_case(anatomy: Anatomy) -> list[str]:
    """Return the names that stand for parts of the case: its functions, what is compiled, its arguments."""
    return [*anatomy.functions, *([COMPILED] if anatomy.functions else []), INPUTS]


def let_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Return names of let that are taken, and references to what is not there yet."""
    known = {*parts_of_case(anatomy), *prelude_names(anatomy)} - {COMPILED, INPUTS}
    for name, entry in anatomy.data.get("let", {}).items():
        path: DataPath = ("let", name)
        if name in (OUTPUT, EAGER, *parts_of_case(anatomy)):
            yield anatomy.document.problem(path, f"the name '{name}' is taken", "it is a part of the case; choose another", key=True)
        yield from unknown_references(anatomy, entry, path, known)
        known.add(name)


def unknown_references(anatomy: Anatomy, value: Any, path: DataPath, known: set[str]) -> Iterator[Diagnostic]:
    """Return a problem for each reference below ``path`` to a name that is not known."""
    for place, text in references(value, path):
        first = str(text).split(".")[0]
        if not templates.is_template(text) and known.isdisjoint((first, "*")):
            yield anatomy.document.problem(place, *unknown("name", first, known))


def references(value: Any, path: DataPath) -> Iterator[tuple[DataPath, str]]:
    """Yield the path and name of every ``{ref: NAME}``; what stands below ``value`` is data."""
    if isinstance(value, dict):
        if set(value) == {"ref"}:
            yield (*path, "ref"), value["ref"]
            return
        for key, item in value.items():
            if key != "value":
                yield from references(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from references(item, (*path, index))


def spy_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Return hooks that the prelude lacks, targets that cannot be found, and spies that nobody asks."""
    prelude = prelude_names(anatomy)
    asked = {expectation.body["of"] for step in anatomy.steps for expectation in step.expectations if expectation.kind == "calls"}
    for name, spy in anatomy.data.get("spies", {}).items():
        path: DataPath = ("spies", name)
        kind = next(word for word in SPY_KEYS if word in spy)
        for key in spy.keys() - {kind, *SPY_KEYS[kind]}:
            owners = [word for word, keys in SPY_KEYS.items() if key in keys]
            message = f"'{key}' does not go with '{kind}'"
            yield anatomy.document.problem((*path, key), message, f"it goes with {one_of(owners)}", key=True)
        yield from _hook_problems(anatomy, spy, path, prelude)
        yield from _target_problems(anatomy, kind, spy[kind], (*path, kind), prelude)
        if name not in asked and "instead" not in spy:
            hint = f"add an expectation calls: {{of: {name}}}"
            yield anatomy.document.problem(path, f"nothing is expected of the spy '{name}'", hint, key=True)


def _hook_problems(anatomy: Anatomy, spy: Mapping[str, Any], path: DataPath, prelude: set[str]) -> Iterator[Diagnostic]:
    for word in ("record", "result", "instead"):
        hook = spy.get(word)
        if isinstance(hook, str) and prelude.isdisjoint((hook, "*")):
            message, hint = unknown("function", hook, prelude - {"torch", "params"})
            yield anatomy.document.problem((*path, word), f"{message} in the prelude", hint)


def _target_problems(anatomy: Anatomy, kind: str, target: Any, path: DataPath, prelude: set[str]) -> Iterator[Diagnostic]:
    if isinstance(target, list):
        if not isinstance(target[0], dict) or set(target[0]) != {"ref"} or not isinstance(target[1], str):
            yield anatomy.document.problem(path, "not an object and a method", "write [{ref: NAME}, METHOD]")
            return
        yield from unknown_references(anatomy, target, path, {*anatomy.data.get("let", {}), *anatomy.functions})
    elif kind in ("function", "method", "class") and not templates.is_template(target):
        if "." not in target:
            yield anatomy.document.problem(
                path, f"'{target}' is no dotted path", "name it where its callers look it up: package.module.name"
            )
        elif python.is_installed(target.split(".")[0]) and (found := python.find_name(target, prelude)) is not None:
            yield anatomy.document.problem(path, *found)


def handler_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Return handlers that are no value of let."""
    for name, entry in anatomy.data.get("handlers", {}).items():
        yield from unknown_references(anatomy, entry, ("handlers", name), set(anatomy.data.get("let", {})))


def backend_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Return a compile backend that the prelude does not define."""
    yield from unknown_references(anatomy, anatomy.data.get("compile", {}).get("backend"), ("compile", "backend"), prelude_names(anatomy))


def script_problems(anatomy: Anatomy, step: RawStep, known: set[str]) -> Iterator[Diagnostic]:
    """Return what is wrong with a script: several defs, or parameters that name nothing."""
    path: DataPath = (*step.path, "code")
    tree = anatomy.scripts[step.path].tree
    if tree is None:
        return
    defs = list(python.top_level_functions(tree).values())
    if len(defs) != 1:
        found = one_of([node.name for node in defs]) if defs else "none"
        yield anatomy.document.problem(path, f"a script is one def, found {found}", "move the others to prelude")
        return
    arguments = defs[0].args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if known.isdisjoint((argument.arg, "*")):
            message, hint = unknown("name", argument.arg, known)
            yield anatomy.document.problem(path, f"{message}: a parameter of a script is a named value", hint)
    if arguments.posonlyargs or arguments.vararg or arguments.kwarg:
        yield anatomy.document.problem(path, "a script takes its values by name", "write plain parameters")
