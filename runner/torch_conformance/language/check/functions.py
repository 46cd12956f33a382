"""Checks functions and their Python, inputs, and dotted paths: what is compiled, its arguments, and
names that can be resolved.
"""

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from torch_conformance.language.read import python_source, spec_schema
from torch_conformance.language.read.anatomy import Anatomy, RawExpectation, RawFunction
from torch_conformance.language.read.matrix import TARGETS
from torch_conformance.language.read.python_source import ALWAYS
from torch_conformance.model import devices
from torch_conformance.model.conditions import is_template
from torch_conformance.model.diagnostics import Diagnostic, nearest, one_of, unknown_word
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.problem_texts import span
from torch_conformance.model.protocol import Json
from torch_conformance.model.targets import AXIS
from torch_conformance.vocabulary.backend import Backend
from torch_conformance.vocabulary.expectations.texts import is_general
from torch_conformance.vocabulary.inputs import INPUTS, OF_CALLS, REPEAT, kind_of, times
from torch_conformance.vocabulary.steps.step_base import COMPILED, ONLY


def function_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield functions whose Python does not show what is compiled: an unknown entry, no def,
    several defs.
    """
    document = anatomy.document
    for function in anatomy.functions.values():
        if function.tree is None:
            continue
        names = list(python_source.top_level_functions(function.tree))
        entry = anatomy.data.get("entry") if function.name == ONLY else None
        if entry_of(anatomy, function) is not None:
            continue
        if entry is not None:
            yield document.diagnostic(("entry",), unknown_word("entry", entry, names))
        elif not names:
            yield document.diagnostic(function.path, "no-function")
        else:
            last = names[-1] if function.name == ONLY else ""
            yield document.diagnostic(
                function.path, "several-functions", names=", ".join(names), last=last
            )


def entry_of(anatomy: Anatomy, function: RawFunction) -> str | None:
    """Return the name of the def that is compiled; None if it is ambiguous or missing."""
    if function.tree is None:
        return None
    names = list(python_source.top_level_functions(function.tree))
    entry = anatomy.data.get("entry") if function.name == ONLY else None
    if entry is not None:
        return entry if entry in python_source.top_level_names(function.tree) else None
    return names[0] if len(names) == 1 else None


def arity_problems(
    anatomy: Anatomy,
    name: str,
    inputs: list[Any] | None,
    path: DataPath,
    keywords: Collection[str] = (),
    path_of_keywords: DataPath = (),
) -> Iterator[Diagnostic]:
    """Yield why a function does not take this number of inputs (None means the inputs of the spec)
    or arguments of these names.
    """
    function = anatomy.functions[name]
    inputs = anatomy.data.get("inputs", []) if inputs is None else inputs
    arity: python_source.Arity | None = None
    if function.tree is not None:
        node = python_source.top_level_functions(function.tree).get(
            entry_of(anatomy, function) or ""
        )
        # a decorated function may take any arguments
        arity = python_source.arity(node) if node is not None and not node.decorator_list else None
    elif isinstance(function.value, dict) and "module" in function.value:
        arities = (
            python_source.module_arity(tree, function.value["module"])
            for tree in anatomy.prelude_trees.values()
        )
        arity = next((arity for arity in arities if arity is not None), None)
    if arity is None or any(
        isinstance(entry, dict) and is_template(entry.get(REPEAT)) for entry in inputs
    ):
        return  # the number is known at each point of the matrix
    count = sum(map(times, inputs))
    for keyword in keywords:
        place = (*path_of_keywords, keyword)
        if keyword in arity.by_name(count):
            continue
        problem = (
            Diagnostic.of("argument-twice", name=arity.name, keyword=keyword)
            if keyword in arity.names[:count]
            else unknown_word("argument", keyword, arity.by_name(count), place=arity.name)
        )
        if not arity.takes_any_name or keyword in arity.names[:count]:
            yield anatomy.document.diagnostic(place, problem, key=True)
    arity = arity.without(keywords)
    if not arity.takes(count):
        yield anatomy.document.diagnostic(
            path,
            "arity",
            name=arity.name,
            takes=span(arity.least, arity.most),
            inputs="1 input is" if count == 1 else f"{count} inputs are",
            missing="" if "inputs" in anatomy.data or count else ", ".join(arity.names),
        )
    elif arity.keywords:
        yield anatomy.document.diagnostic(
            path, "needs-keywords", name=arity.name, keywords=one_of(arity.keywords)
        )


FUNCTION_KEYS: Mapping[str, tuple[str, ...]] = {
    "module": ("args", "kwargs", "eval", "dtype"),
    "ref": (),
    "api": (),
}
"""The keys that each kind of function without Python allows."""


def misplaced_keys(
    document: Document,
    path: DataPath,
    entry: Mapping[str, Any],
    keys_by_kind: Mapping[str, Sequence[str]],
) -> Iterator[Diagnostic]:
    """Yield keys of a map that go with another kind than its own, which is its first key of
    ``keys_by_kind``.
    """
    kind = next(word for word in keys_by_kind if word in entry)
    for key in entry.keys() - {kind, *keys_by_kind[kind]}:
        kinds = one_of([word for word, keys in keys_by_kind.items() if key in keys])
        yield document.diagnostic(
            (*path, key), "misplaced-key", key=True, word=key, kind=kind, kinds=kinds
        )


def input_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield keys that belong to another kind of input or function, which the worker would
    ignore.
    """
    document = anatomy.document
    keys_of_inputs = {
        word: kind.keys if word == "ref" else (*kind.keys, REPEAT) for word, kind in INPUTS.items()
    }
    for path, entry in input_values(anatomy):
        marks = entry.get("mark_dynamic", [])
        for index, mark in enumerate(marks if isinstance(marks, list) else []):
            least, most = (
                (mark.get("min"), mark.get("max")) if isinstance(mark, dict) else (None, None)
            )
            if isinstance(least, int) and isinstance(most, int) and least >= most:
                yield document.diagnostic(
                    (*path, "mark_dynamic", index), "no-range", least=str(least), most=str(most)
                )
        is_covered = len(path) == 2 and path[0] in (
            "inputs",
            "let",
        )  # by the schema of the document; inputs within arguments are not
        if not is_covered and (
            misfits := spec_schema.describe(entry, "inputs", pointer="/$defs/input")
        ):
            yield from spec_schema.diagnostics(document, misfits, path)
            continue
        if REPEAT in entry and kind_of(entry) != "ref" and isinstance(path[-1], str):
            yield document.diagnostic((*path, REPEAT), "repeat-outside-of-a-list", key=True)
        yield from misplaced_keys(document, path, entry, keys_of_inputs)
    for raw in anatomy.functions.values():
        if isinstance(raw.value, dict):
            yield from misplaced_keys(document, raw.path, raw.value, FUNCTION_KEYS)


@functools.lru_cache(maxsize=4)
def input_values(anatomy: Anatomy) -> Sequence[tuple[DataPath, Any]]:
    """Return every map that describes an input, at any depth of inputs, let and arguments."""
    values: list[tuple[DataPath, Any]] = []
    places: list[tuple[DataPath, Any]] = [(("inputs",), anatomy.data.get("inputs", []))]
    places.extend(
        ((*step.path, *place), inputs)
        for step in anatomy.steps
        for place, inputs in step.parsed.input_lists
    )
    places.extend((("let", name), entry) for name, entry in anatomy.data.get("let", {}).items())
    places.extend(
        ((*step.path, *callee.place, key), value)
        for step in anatomy.steps
        for callee in step.parsed.callees
        for key, value in (("args", callee.args), ("kwargs", callee.kwargs))
    )

    def collect(path: DataPath, value: Json) -> None:
        is_input = isinstance(value, dict) and kind_of(value) is not None
        if is_input:
            values.append((path, value))
        for key, item in (
            value.items()
            if isinstance(value, dict)
            else enumerate(value)
            if isinstance(value, list)
            else ()
        ):
            if not is_input or key in OF_CALLS:  # numbers, shapes and data contain no inputs
                collect((*path, key), item)

    for path, value in places:
        collect(path, value)
    return values


# -- names -----------------------------------------------------------------------------------------


def path_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield unknown names of the prelude and of libraries: modules, functions outside of YAML,
    calls, exceptions.
    """
    required = required_packages(anatomy)
    bound_names = {
        *anatomy.data.get("let", {}),
        *(step.parsed.bound for step in anatomy.steps),
        *anatomy.functions,
        COMPILED,
    }
    for path, dotted in _dotted_paths(anatomy):
        # packages under ``requires`` may be missing on this machine, so their names are not
        # resolved
        if is_template(dotted) or dotted.replace(":", ".").split(".")[0] in required:
            continue
        if (problem := python_source.find_name(dotted, prelude_names(anatomy))) is not None:
            if path[-1] == "call" and dotted.split(".")[0] in bound_names:
                problem = Diagnostic.of("reference-as-a-path", name=dotted)
            yield anatomy.document.diagnostic(path, problem)
    for expectation in anatomy.expectations:
        if expectation.kind == "raises":
            yield from _exception_problems(anatomy.document, expectation, required)


def _dotted_paths(anatomy: Anatomy) -> Iterator[tuple[DataPath, str]]:
    """Yield the place and the text of each dotted path of functions, inputs and calls."""
    for function in anatomy.functions.values():
        if isinstance(function.value, dict):
            key = next(word for word in FUNCTION_KEYS if word in function.value)
            yield (*function.path, key), function.value[key]
    for path, entry in input_values(anatomy):
        for word, kind in INPUTS.items():
            if isinstance(entry.get(word), str) and kind.names:
                yield (*path, word), entry[word]
    for step in anatomy.steps:
        for callee in step.parsed.callees:
            if isinstance(callee.call, str):
                yield (*step.path, *callee.place, "call"), callee.call


def _exception_problems(
    document: Document, raised: RawExpectation, required: Collection[str]
) -> Iterator[Diagnostic]:
    """Yield the unknown exceptions of ``raises``, and one that almost any failure raises."""
    if is_general(raised.body):
        yield document.diagnostic(
            (*raised.path, "type"), "too-general-exception", type=raised.body["type"]
        )
    for path, body in (
        (raised.path, raised.body),
        ((*raised.path, "cause"), raised.body.get("cause", {})),
    ):
        name = body.get("type", "")
        first, dot, _ = name.partition(".")
        if not name or is_template(name) or (dot and first in required):
            continue
        problem = None
        if dot:
            problem = python_source.find_name(name, set())
        elif name not in python_source.EXCEPTIONS:
            problem = unknown_word("exception", name, python_source.EXCEPTIONS)
        if problem is not None:
            yield document.diagnostic((*path, "type"), problem)


@functools.lru_cache(maxsize=4)
def prelude_names(anatomy: Anatomy) -> frozenset[str]:
    """Return the names that the preludes define; ``*`` if one of them does not parse."""
    unread = len(anatomy.prelude_trees) < len({block.file for block in anatomy.preludes})
    return python_source.GIVEN.union(
        *map(python_source.top_level_names, anatomy.prelude_trees.values()), "*" if unread else ""
    )


def required_packages(anatomy: Anatomy) -> set[str]:
    """Return the packages whose names only the worker resolves: those under ``requires``, and torch
    if it is not installed.
    """
    entries = [entry for entry in anatomy.data.get("requires", []) if isinstance(entry, dict)]
    packages = {str(entry["module"]).split(".")[0] for entry in entries if "module" in entry}
    if any("torch" in entry for entry in entries) or not python_source.is_installed("torch"):
        packages.add("torch")
    return packages


def python_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of undefined names, and of attributes of ``params`` that the matrix does
    not define.
    """
    keys = [
        *anatomy.data.get("matrix", {}),
        "backend",
        "device",
        *([AXIS] if TARGETS in anatomy.data else []),
    ]
    prelude_defines = prelude_names(anatomy)
    is_open = "*" in prelude_defines or any(
        map(python_source.binds_dynamically, anatomy.prelude_trees.values())
    )
    as_references = {*anatomy.data.get("let", {}), *(step.parsed.bound for step in anatomy.steps)}
    for document, path, block, tree in anatomy.python:
        problems: list[tuple[int, int, Diagnostic]] = []
        defined = {
            *prelude_defines,
            *python_source.top_level_names(tree),
            *python_source.guarded_names(tree),
        }
        is_shown = not (is_open or "*" in defined or python_source.binds_dynamically(tree))
        for use in python_source.unknown_names(tree, ALWAYS.union(defined)) if is_shown else ():
            if (name := use.name) in defined:
                continue
            defined.add(name)  # reported once
            code, near = "undefined-name", ""
            if name in keys:
                code = "undefined-key"
            elif name in as_references:
                code = "undefined-value"
            elif python_source.is_installed(name):
                code = "undefined-module"
            else:
                near = nearest(
                    name,
                    [*sorted(use.enclosing - {name}), *sorted(defined - {name}), *sorted(ALWAYS)],
                )
            problems.append((use.line, use.column, Diagnostic.of(code, name=name, near=near)))
        for line, column, form, word in python_source.uses_of_params(tree):
            if form == "attribute" and word not in keys and document is anatomy.document:
                # a shared prelude may use keys that only some of its specs have
                problems.append(
                    (
                        line,
                        column,
                        unknown_word("matrix-key", word, keys, place=python_source.PARAMS),
                    )
                )
        for line, column, problem in problems:
            yield problem.at(python_source.place(document, path, block, line, column + 1))


def keys_read(anatomy: Anatomy) -> set[str] | None:
    """Return the keys of ``params`` that the Python of a spec uses; None if it may use all of
    them.
    """
    if anatomy.problems:
        return None
    words = {word for *_, tree in anatomy.python for *_, word in python_source.uses_of_params(tree)}
    return None if "" in words else words


# -- devices of inputs -----------------------------------------------------------------------------


def device_problems(
    anatomy: Anatomy, chosen: Sequence[Backend], among: Sequence[DataPath] = ((),)
) -> Iterator[Diagnostic]:
    """Yield the devices, at or below the paths of ``among``, that one of these backends does not
    have.

    Only a worker can know whether the machine has a device of torch's own.
    """
    kinds = {backend.name: devices.kind_of(backend.device) for backend in chosen}
    for path, entry in input_values(anatomy):
        place, device = (*path, "device"), entry.get("device")
        if not any(place[: len(start)] == start for start in among):
            continue
        if not isinstance(device, str) or is_template(device):
            continue
        if (kind := devices.kind_of(device)) in devices.WITHOUT_MODULE:
            continue
        if kind not in kinds.values():
            yield anatomy.document.diagnostic(
                place, unknown_word("device", device, {*devices.WITHOUT_MODULE, *kinds.values()})
            )
        elif other := next(
            (name for name, kind_of_backend in kinds.items() if kind_of_backend != kind), ""
        ):
            yield anatomy.document.diagnostic(place, "wrong-device", backend=other, device=kind)
