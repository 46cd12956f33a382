"""Checks functions, inputs, named values, spies and dotted paths: what is compiled, its arguments, and names that can be resolved."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.core import devices, template_form
from runner.core.diagnostics import Diagnostic, one_of, unknown
from runner.core.template_form import is_template
from runner.language.backends import Backend, Backends
from runner.language.read import python, schema
from runner.language.read.anatomy import Anatomy, RawFunction
from runner.language.read.document import DataPath
from runner.vocabulary.inputs import INPUTS, OF_CALLS, REPEAT, kind_of, times
from runner.vocabulary.steps import COMPILED, ONLY, Callee


def function_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of the functions."""
    for function in anatomy.functions.values():
        if function.block is not None and function.tree is not None:
            yield from _entry_problems(anatomy, function)


def entry_of(anatomy: Anatomy, function: RawFunction) -> str | None:
    """Return the name of the def that is compiled; None if it is ambiguous or missing."""
    if function.tree is None:
        return None
    names = list(python.top_level_functions(function.tree))
    wanted = anatomy.data.get("entry") if function.name == ONLY else None
    if wanted is not None:
        return wanted if wanted in python.top_level_names(function.tree) else None
    return names[0] if len(names) == 1 else None


def _entry_problems(anatomy: Anatomy, function: RawFunction) -> Iterator[Diagnostic]:
    assert function.tree is not None
    names = list(python.top_level_functions(function.tree))
    wanted = anatomy.data.get("entry") if function.name == ONLY else None
    if wanted is not None and wanted not in python.top_level_names(function.tree):
        message, hint = unknown("entry", wanted, names)
        yield anatomy.document.problem(("entry",), message, hint, code="unknown-name")
    elif wanted is None and not names:
        yield anatomy.document.problem(
            function.path, "no function: the Python has no top-level def", "write def fn(...): ...", code="no-function"
        )
    elif wanted is None and len(names) > 1:
        hint = f"add entry: {names[-1]}" if function.name == ONLY else "move the others to prelude"
        yield anatomy.document.problem(function.path, f"several top-level defs: {', '.join(names)}", hint, code="several-functions")


def arity_problems(anatomy: Anatomy, name: str, given: list[Any], path: DataPath) -> Iterator[Diagnostic]:
    """Yield why a function does not take this number of inputs."""
    document = anatomy.document
    arity = _arity(anatomy, anatomy.functions[name])
    if any(isinstance(entry, dict) and template_form.is_template(entry.get(REPEAT)) for entry in given):
        return  # the number is known at each point of the matrix
    count = sum(map(times, given))
    if arity is not None and not arity.takes(count):
        verb = "input is" if count == 1 else "inputs are"
        yield document.problem(path, f"{arity.name} takes {arity}, {count} {verb} given", "one input for each argument", code="arity")
    elif arity is not None and arity.keywords:
        message = f"{arity.name} needs {one_of(arity.keywords)} by keyword"
        yield document.problem(path, message, "inputs are given by position: give it a default, or remove the '*'", code="arity")


def _arity(anatomy: Anatomy, function: RawFunction) -> python.Arity | None:
    if function.tree is not None:
        node = python.top_level_functions(function.tree).get(entry_of(anatomy, function) or "")
        # a decorated function may take any arguments
        return python.arity(node) if node is not None and not node.decorator_list else None
    if isinstance(function.value, dict) and "module" in function.value:
        for tree in anatomy.prelude_trees.values():
            found = python.module_arity(tree, function.value["module"])
            if found is not None:
                return found
    return None


FUNCTION_KEYS: Mapping[str, tuple[str, ...]] = {"module": ("args", "kwargs", "eval", "dtype"), "ref": (), "api": ()}
"""The keys that each kind of function without Python allows."""


def input_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield keys that belong to another kind of input or function, which the worker would ignore."""
    places: list[tuple[DataPath, Any, Mapping[str, Any]]] = [(path, entry, INPUTS) for path, entry in input_values(anatomy)]
    places.extend((function.path, function.value, FUNCTION_KEYS) for function in anatomy.functions.values())
    for path, entry, table in places:
        if isinstance(entry, dict):
            if table is INPUTS and (misfits := schema.describe(entry, "inputs", pointer="$defs/input")):
                # the schema of the document does not cover inputs within arguments, so these are validated here
                yield from schema.diagnostics(anatomy.document, misfits, path)
                continue
            kind = next(word for word in table if word in entry)
            if table is INPUTS and REPEAT in entry and kind != "ref" and isinstance(path[-1], str):
                hint = "it stands in a list: inputs, or args of a call"
                yield anatomy.document.problem(
                    (*path, REPEAT), "'repeat' outside of a list of inputs", hint, key=True, code="misplaced-key"
                )
            for key in entry.keys() - {kind, *_keys_of(table, kind)}:
                owners = [word for word in table if key in _keys_of(table, word)]
                message, hint = f"'{key}' does not go with '{kind}'", f"it goes with {one_of(owners)}"
                yield anatomy.document.problem((*path, key), message, hint, key=True, code="misplaced-key")


def _keys_of(table: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    if table is not INPUTS:
        return FUNCTION_KEYS[kind]
    return INPUTS[kind].keys if kind == "ref" else (*INPUTS[kind].keys, REPEAT)


def input_values(anatomy: Anatomy) -> Iterator[tuple[DataPath, Any]]:
    """Yield every map that describes an input, at any depth of inputs, let and arguments."""
    roots: list[tuple[DataPath, Any]] = [(("inputs",), anatomy.data.get("inputs", []))]
    roots.extend(((*step.path, *place), given) for step in anatomy.steps for place, given in step.parsed.input_lists)
    roots.extend((("let", name), entry) for name, entry in anatomy.data.get("let", {}).items())
    for place, called in _called(anatomy):
        given = {"args": called.args, "kwargs": called.kwargs}
        roots.extend(((*place, key), value) for key, value in given.items() if value is not None)
    for path, value in roots:
        yield from _inputs_below(value, path)


def _inputs_below(value: object, path: DataPath) -> Iterator[tuple[DataPath, Any]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _inputs_below(item, (*path, index))
    elif isinstance(value, dict):
        is_input = kind_of(value) is not None
        if is_input:
            yield path, value
        for key, item in value.items():
            # numbers, shapes and data contain no inputs
            if not is_input or key in OF_CALLS:
                yield from _inputs_below(item, (*path, key))


def _called(anatomy: Anatomy) -> Iterator[tuple[DataPath, Callee]]:
    """Yield what steps call by name, with its path."""
    for step in anatomy.steps:
        yield from (((*step.path, *called.place), called) for called in step.parsed.callees)


def path_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield unknown names of the prelude and of libraries: modules, api calls, exceptions, functions outside of YAML."""
    prelude = prelude_names(anatomy)
    required = required_packages(anatomy)
    results = (step.parsed.bound for step in anatomy.steps)
    named = {*anatomy.data.get("let", {}), *results, *anatomy.functions, COMPILED}
    for path, dotted in _dotted_paths(anatomy):
        # packages under ``requires`` may be missing on this machine, so their names are not resolved
        if template_form.is_template(dotted) or dotted.replace(":", ".").split(".")[0] in required:
            continue
        found = python.find_name(dotted, prelude)
        if found is not None:
            hint = f"write {path[-1]}: {{ref: {dotted}}}" if path[-1] == "call" and dotted.split(".")[0] in named else found[1]
            yield anatomy.document.problem(path, found[0], hint, code="unknown-name")
    for path, name in _exceptions(anatomy):
        if template_form.is_template(name):
            continue
        if "." not in name and not python.is_exception(name):
            message, hint = unknown("exception", name, python.exceptions())
            yield anatomy.document.problem(path, message, hint, code="unknown-name")
        elif "." in name and name.split(".")[0] not in required and (found := python.find_name(name, set())) is not None:
            yield anatomy.document.problem(path, *found, code="unknown-name")


def prelude_names(anatomy: Anatomy) -> set[str]:
    """Return the names that the preludes define; ``*`` stands for those of a prelude that does not parse."""
    unread = len(anatomy.prelude_trees) < len({block.file for block in anatomy.preludes})
    return python.defined(anatomy.prelude_trees) | ({"*"} if unread else set())


def required_packages(anatomy: Anatomy) -> set[str]:
    """Return the packages whose names only the worker resolves: those under ``requires``, and torch if it is not installed."""
    entries = [entry for entry in anatomy.data.get("requires", []) if isinstance(entry, dict)]
    found = {str(entry["module"]).split(".")[0] for entry in entries if "module" in entry}
    if any("torch" in entry for entry in entries) or not python.is_installed("torch"):
        found.add("torch")
    return found


def _dotted_paths(anatomy: Anatomy) -> Iterator[tuple[DataPath, str]]:
    for function in anatomy.functions.values():
        if isinstance(function.value, dict):
            key = next(word for word in FUNCTION_KEYS if word in function.value)
            yield (*function.path, key), function.value[key]
    for path, entry in input_values(anatomy):
        for word in INPUTS:
            if isinstance(entry.get(word), str) and INPUTS[word].names:
                yield (*path, word), entry[word]
    for path, called in _called(anatomy):
        if isinstance(called.call, str):
            yield (*path, "call"), called.call


def _exceptions(anatomy: Anatomy) -> Iterator[tuple[DataPath, str]]:
    for step in anatomy.steps:
        for expectation in step.expectations:
            if expectation.kind == "raises":
                yield (*expectation.path, "type"), expectation.body["type"]
                if "cause" in expectation.body:
                    yield (*expectation.path, "cause", "type"), expectation.body["cause"]["type"]


# -- devices of inputs ------------------------------------------------------------------------------------------------


def device_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the devices that the backends of a spec do not have."""
    names = anatomy.data["backends"]
    if all(name in backends.by_name for name in names):
        yield from problems_of(anatomy, backends.of(names, anatomy.tags))


def problems_of(anatomy: Anatomy, chosen: Sequence[Backend], among: Sequence[DataPath] = ((),)) -> Iterator[Diagnostic]:
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
