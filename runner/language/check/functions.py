"""Checks functions, inputs, named values, spies and dotted paths: what is compiled, its arguments, and names that can be resolved."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.language.backends import Backend
from runner.language.read import python_source, spec_schema
from runner.language.read.anatomy import Anatomy, RawFunction
from runner.language.read.document import DataPath
from runner.model import devices
from runner.model.conditions import is_template
from runner.model.diagnostics import Diagnostic, one_of, unknown
from runner.vocabulary.expectations.raises import is_general
from runner.vocabulary.inputs import INPUTS, OF_CALLS, REPEAT, kind_of, times
from runner.vocabulary.steps.step_base import COMPILED, ONLY


def function_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield functions whose Python does not show what is compiled: an unknown entry, no def, several defs."""
    for function in anatomy.functions.values():
        if function.tree is None:
            continue
        names = list(python_source.top_level_functions(function.tree))
        entry = anatomy.data.get("entry") if function.name == ONLY else None
        if entry is not None and entry not in python_source.top_level_names(function.tree):
            yield anatomy.document.problem(("entry",), *unknown("entry", entry, names), code="unknown-name")
        elif entry is None and not names:
            message = "no function: the Python has no top-level def"
            yield anatomy.document.problem(function.path, message, "write def fn(...): ...", code="no-function")
        elif entry is None and len(names) > 1:
            hint = f"add entry: {names[-1]}" if function.name == ONLY else "move the others to prelude"
            yield anatomy.document.problem(function.path, f"several top-level defs: {', '.join(names)}", hint, code="several-functions")


def entry_of(anatomy: Anatomy, function: RawFunction) -> str | None:
    """Return the name of the def that is compiled; None if it is ambiguous or missing."""
    if function.tree is None:
        return None
    names = list(python_source.top_level_functions(function.tree))
    entry = anatomy.data.get("entry") if function.name == ONLY else None
    if entry is not None:
        return entry if entry in python_source.top_level_names(function.tree) else None
    return names[0] if len(names) == 1 else None


def arity_problems(anatomy: Anatomy, name: str, inputs: list[Any] | None, path: DataPath) -> Iterator[Diagnostic]:
    """Yield why a function does not take this number of inputs; None means the inputs of the spec."""
    function = anatomy.functions[name]
    inputs = anatomy.data.get("inputs", []) if inputs is None else inputs
    arity: python_source.Arity | None = None
    if function.tree is not None:
        node = python_source.top_level_functions(function.tree).get(entry_of(anatomy, function) or "")
        # a decorated function may take any arguments
        arity = python_source.arity(node) if node is not None and not node.decorator_list else None
    elif isinstance(function.value, dict) and "module" in function.value:
        arities = (python_source.module_arity(tree, function.value["module"]) for tree in anatomy.prelude_trees.values())
        arity = next((arity for arity in arities if arity is not None), None)
    if arity is None or any(isinstance(entry, dict) and is_template(entry.get(REPEAT)) for entry in inputs):
        return  # the number is known at each point of the matrix
    count = sum(map(times, inputs))
    if not arity.takes(count):
        message = f"{arity.name} takes {arity}, {count} {'input is' if count == 1 else 'inputs are'} given"
        yield anatomy.document.problem(path, message, "one input for each argument", code="arity")
    elif arity.keywords:
        message = f"{arity.name} needs {one_of(arity.keywords)} by keyword"
        hint = "inputs are given by position: give it a default, or remove the '*'"
        yield anatomy.document.problem(path, message, hint, code="arity")


FUNCTION_KEYS: Mapping[str, tuple[str, ...]] = {"module": ("args", "kwargs", "eval", "dtype"), "ref": (), "api": ()}
"""The keys that each kind of function without Python allows."""


def input_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield keys that belong to another kind of input or function, which the worker would ignore."""
    keys_of_inputs = {word: kind.keys if word == "ref" else (*kind.keys, REPEAT) for word, kind in INPUTS.items()}
    places: list[tuple[DataPath, Any, Mapping[str, tuple[str, ...]]]] = []
    for path, entry in input_values(anatomy):
        marks = entry.get("mark_dynamic", [])
        for index, mark in enumerate(marks if isinstance(marks, list) else []):
            least, most = (mark.get("min"), mark.get("max")) if isinstance(mark, dict) else (None, None)
            if isinstance(least, int) and isinstance(most, int) and least >= most:
                hint = "min must be less than max; a dimension of one size is not dynamic"
                place = (*path, "mark_dynamic", index)
                yield anatomy.document.problem(place, f"no range of sizes: from {least} to {most}", hint, code="bad-range")
        if misfits := spec_schema.describe(entry, "inputs", pointer="$defs/input"):
            # the schema of the document does not cover inputs within arguments, so these are validated here
            yield from spec_schema.diagnostics(anatomy.document, misfits, path)
            continue
        places.append((path, entry, keys_of_inputs))
        if REPEAT in entry and kind_of(entry) != "ref" and isinstance(path[-1], str):
            message, hint = "'repeat' outside of a list of inputs", "it stands in a list: inputs, or args of a call"
            yield anatomy.document.problem((*path, REPEAT), message, hint, key=True, code="misplaced-key")
    places.extend((raw.path, raw.value, FUNCTION_KEYS) for raw in anatomy.functions.values() if isinstance(raw.value, dict))
    for path, entry, keys_by_kind in places:
        kind = next(word for word in keys_by_kind if word in entry)
        for key in entry.keys() - {kind, *keys_by_kind[kind]}:
            hint = f"it goes with {one_of([word for word, keys in keys_by_kind.items() if key in keys])}"
            yield anatomy.document.problem((*path, key), f"'{key}' does not go with '{kind}'", hint, key=True, code="misplaced-key")


@functools.lru_cache(maxsize=4)
def input_values(anatomy: Anatomy) -> Sequence[tuple[DataPath, Any]]:
    """Return every map that describes an input, at any depth of inputs, let and arguments."""
    values: list[tuple[DataPath, Any]] = []
    remaining: list[tuple[DataPath, Any]] = [(("inputs",), anatomy.data.get("inputs", []))]
    remaining.extend(((*step.path, *place), inputs) for step in anatomy.steps for place, inputs in step.parsed.input_lists)
    remaining.extend((("let", name), entry) for name, entry in anatomy.data.get("let", {}).items())
    for step in anatomy.steps:
        for called in step.parsed.callees:
            arguments = (("args", called.args), ("kwargs", called.kwargs))
            remaining.extend(((*step.path, *called.place, key), value) for key, value in arguments if value is not None)
    remaining.reverse()
    while remaining:
        path, value = remaining.pop()
        if isinstance(value, list):
            remaining.extend(((*path, index), item) for index, item in reversed(list(enumerate(value))))
        elif isinstance(value, dict):
            is_input = kind_of(value) is not None
            if is_input:
                values.append((path, value))
            # numbers, shapes and data contain no inputs
            remaining.extend(((*path, key), item) for key, item in reversed(value.items()) if not is_input or key in OF_CALLS)
    return values


def path_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield unknown names of the prelude and of libraries: modules, api calls, exceptions, functions outside of YAML."""
    prelude = prelude_names(anatomy)
    required = required_packages(anatomy)
    results = (step.parsed.bound for step in anatomy.steps)
    named = {*anatomy.data.get("let", {}), *results, *anatomy.functions, COMPILED}
    paths: list[tuple[DataPath, str]] = []
    for function in anatomy.functions.values():
        if isinstance(function.value, dict):
            key = next(word for word in FUNCTION_KEYS if word in function.value)
            paths.append(((*function.path, key), function.value[key]))
    for path, entry in input_values(anatomy):
        paths.extend(((*path, word), entry[word]) for word in INPUTS if isinstance(entry.get(word), str) and INPUTS[word].names)
    exceptions: list[tuple[DataPath, str]] = []
    for step in anatomy.steps:
        paths.extend(((*step.path, *callee.place, "call"), callee.call) for callee in step.parsed.callees if isinstance(callee.call, str))
        for raised in (expectation for expectation in step.expectations if expectation.kind == "raises"):
            if is_general(raised.body):
                hint = "name the class that is raised, with match: words of its message; a misspelt name raises too"
                message = f"almost any failure raises {raised.body['type']}: this cannot fail"
                yield anatomy.document.problem((*raised.path, "type"), message, hint, code="cannot-fail")
            if "type" in raised.body:
                exceptions.append(((*raised.path, "type"), raised.body["type"]))
            if "cause" in raised.body:
                exceptions.append(((*raised.path, "cause", "type"), raised.body["cause"]["type"]))
    for path, dotted in paths:
        # packages under ``requires`` may be missing on this machine, so their names are not resolved
        if is_template(dotted) or dotted.replace(":", ".").split(".")[0] in required:
            continue
        problem = python_source.find_name(dotted, prelude)
        if problem is not None:
            hint = f"write {path[-1]}: {{ref: {dotted}}}" if path[-1] == "call" and dotted.split(".")[0] in named else problem[1]
            yield anatomy.document.problem(path, problem[0], hint, code="unknown-name")
    for path, name in exceptions:
        if is_template(name):
            continue
        if "." not in name:
            problem = None if name in python_source.exceptions() else unknown("exception", name, python_source.exceptions())
        else:
            problem = None if name.split(".")[0] in required else python_source.find_name(name, set())
        if problem is not None:
            yield anatomy.document.problem(path, *problem, code="unknown-name")


def prelude_names(anatomy: Anatomy) -> set[str]:
    """Return the names that the preludes define; ``*`` stands for those of a prelude that does not parse."""
    unread = len(anatomy.prelude_trees) < len({block.file for block in anatomy.preludes})
    return python_source.defined(anatomy.prelude_trees) | ({"*"} if unread else set())


def required_packages(anatomy: Anatomy) -> set[str]:
    """Return the packages whose names only the worker resolves: those under ``requires``, and torch if it is not installed."""
    entries = [entry for entry in anatomy.data.get("requires", []) if isinstance(entry, dict)]
    packages = {str(entry["module"]).split(".")[0] for entry in entries if "module" in entry}
    if any("torch" in entry for entry in entries) or not python_source.is_installed("torch"):
        packages.add("torch")
    return packages


# -- devices of inputs ------------------------------------------------------------------------------------------------


def device_problems(anatomy: Anatomy, chosen: Sequence[Backend], among: Sequence[DataPath] = ((),)) -> Iterator[Diagnostic]:
    """Yield the devices, at or below the paths of ``among``, that one of these backends does not have.

    Only a worker can know whether the machine has a device of torch's own.
    """
    kinds = {backend.name: devices.kind_of(backend.device) for backend in chosen}
    for path, entry in input_values(anatomy):
        if not any((*path, "device")[: len(start)] == start for start in among):
            continue
        device = entry.get("device")
        if not isinstance(device, str) or is_template(device) or (kind := devices.kind_of(device)) in devices.WITHOUT_MODULE:
            continue
        if kind not in kinds.values():
            known = sorted({*devices.WITHOUT_MODULE, *kinds.values()})
            yield anatomy.document.problem((*path, "device"), *unknown("device", device, known), code="unknown-name")
        elif other := next((name for name, own in kinds.items() if own != kind), ""):
            hint = f"without 'device' each backend uses its own; or write a spec for the backends whose device is {kind}"
            yield anatomy.document.problem((*path, "device"), f"the backend '{other}' has no device '{kind}'", hint, code="wrong-device")
