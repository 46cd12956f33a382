"""What a spec means: the checks that no schema can say. Every problem gets a position, and none stops the others."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from runner.backends import Backends, read_requirements
from runner.conditions import BadRange, VersionRange
from runner.diagnostics import Diagnostic, Position, one_of, unknown
from runner.expectations import EAGER, EXPECTATIONS, OUTPUT, BadExpectation
from runner.expectations.counter import allows_zero, is_unlisted
from runner.language import matrix, python, substitution, templates
from runner.language.anatomy import ONLY, Anatomy, RawExpectation, RawFunction, RawStep
from runner.language.names import NameKind, NameTables
from runner.language.source import DataPath, Document

OPTION_KINDS = {
    "config": NameKind.INDUCTOR_CONFIG,
    "dynamo_config": NameKind.DYNAMO_CONFIG,
    "functorch_config": NameKind.FUNCTORCH_CONFIG,
}
"""The sections of options, and where torch keeps each."""


def check(anatomy: Anatomy, backends: Backends, names: NameTables) -> list[Diagnostic]:
    """Return every problem of a spec that fits the schema, but for what its templates give: see ``check_templates``."""
    problems = list(anatomy.problems)
    for part in (matrix_problems, _shape, _values, _requirements, _conditions, _functions, _inputs, _paths, step_problems, _expectations):
        problems.extend(part(anatomy, backends))
    named = _names(anatomy, names)
    said = {problem.message for problem in named}
    return [*(problem for problem in problems if problem.message not in said), *named]


def matrix_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Return what is wrong with backends, matrix and exclude: without them there are no points."""
    for index, name in enumerate(anatomy.data["backends"]):
        if name not in backends.by_name:
            message, hint = unknown("backend", name, backends.by_name)
            yield anatomy.document.problem(("backends", index), message, hint)
    if any(name not in backends.by_name for name in anatomy.data["backends"]):
        return
    document = anatomy.document
    chosen = backends.of(anatomy.data["backends"])
    axes, problems = matrix.axes(document)
    yield from problems
    too_many = matrix.size_problem(document, axes, len(chosen))
    if too_many is not None:
        yield too_many
        return
    problems.extend(excluded := matrix.exclusion_problems(document, axes, chosen))
    yield from excluded
    if not problems and next(matrix.points(document, axes, chosen), None) is None:
        yield document.problem(("exclude",), "every point of the matrix is excluded: the spec makes no case", "exclude less", key=True)


def _shape(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """What belongs together and what does not: function and functions, steps and expect."""
    document, data = anatomy.document, anatomy.data
    if "steps" in data and "expect" in data:
        yield document.problem(("expect",), "'expect' beside 'steps'", "each step has an expect of its own", key=True)
    if "function" in data and "functions" in data:
        yield document.problem(("functions",), "'functions' beside 'function'", "put all of them into functions", key=True)
    if "entry" in data and not isinstance(data.get("function"), str):
        yield document.problem(("entry",), "'entry' without Python in 'function'", "it names one of several top-level defs", key=True)
    calls = [step for step in anatomy.steps if step.kind == "call"]
    for name in data["backends"]:
        backend = backends.by_name.get(name)
        if calls and backend is not None and not backend.compiles:
            message = f"a call on '{name}', which compiles nothing"
            yield document.problem(calls[0].path, message, "use api steps, or another backend", key=True)
    if calls and not anatomy.functions:
        yield document.problem((), "spec needs the key 'function'", "what is compiled; a spec of api steps alone needs none")
    if not any(step.expectations for step in anatomy.steps):
        hint = "add expect: [{close: {to: eager}}], or expect: [{runs: {}}] if that is the claim"
        yield document.problem(("steps",) if "steps" in data else (), "the spec expects nothing", hint, key=True)


def _values(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Values that have the right type and can mean nothing."""
    document, data = anatomy.document, anatomy.data
    if not math.isfinite(data.get("timeout", 0)):
        yield document.problem(("timeout",), f"the timeout is {data['timeout']}", "write a number of seconds")
    compile_ = data.get("compile", {})
    if compile_.get("mode") is not None and "options" in compile_:
        yield document.problem(("compile", "options"), "'options' beside 'mode': torch.compile takes one of them", "use config", key=True)
    yield from process_problems(document, ())


def process_problems(document: Document, path: DataPath) -> Iterator[Diagnostic]:
    """Return what no process and no generator takes, of a spec's or a backend's ``env`` and ``torch``."""
    data = document.value(path)
    for name, value in data.get("env", {}).items():
        if isinstance(value, str) and "\0" in value:
            yield document.problem((*path, "env", name), f"a NUL character in {name}", "no environment variable can hold one")
    seed = data.get("torch", {}).get("seed", 0)
    if isinstance(seed, int) and seed >= 1 << 63:
        yield document.problem((*path, "torch", "seed"), f"the seed {seed} is out of range", "at most 9223372036854775807")


def _requirements(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    problems: list[Diagnostic] = []
    read_requirements(anatomy.document, ("requires",), anatomy.data.get("requires", []), problems)
    yield from problems


# -- conditions -----------------------------------------------------------------------------------------------------


def _conditions(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    for document in anatomy.spec.defaults:
        yield from condition_problems(document, (), backends)
    yield from condition_problems(anatomy.document, (), backends)
    if any(name not in backends.by_name for name in anatomy.data["backends"]):
        return
    chosen = backends.of(anatomy.data["backends"])
    possible = {"backend": {name for one in chosen for name in one.names}, "device": {_kind(one.device) for one in chosen}}
    for path, when in _find_conditions(anatomy.data, ()):
        for word, names in possible.items():
            wanted = as_list(when.get(word, []))
            if wanted and all(name in _known(word, backends) and name not in names for name in wanted):
                hint = f"the spec's own: {one_of(names)}"
                message = f"this condition never holds: no backend of the spec {'is' if word == 'backend' else 'is on'} {one_of(wanted)}"
                yield anatomy.document.problem((*path, word), message, hint)


def condition_problems(document: Document, path: DataPath, backends: Backends) -> Iterator[Diagnostic]:
    """Return what is wrong with the conditions below ``path``: ranges that cannot be read, and names that nothing has."""
    for place, when in _find_conditions(document.value(path), path):
        for word in ("torch", "python"):
            if word in when:
                try:
                    VersionRange.parse(when[word])
                except BadRange as error:
                    yield document.problem((*place, word), str(error))
        for word in ("backend", "device", "vendor"):
            known = _known(word, backends)
            for index, name in enumerate(as_list(when.get(word, []))):
                if name not in known:
                    end = (word, index) if isinstance(when[word], list) else (word,)
                    yield document.problem((*place, *end), *unknown(word, str(name), known))


VENDORS = ("amd", "intel", "nvidia")


def _known(word: str, backends: Backends) -> set[str]:
    if word == "vendor":
        return set(VENDORS)
    return set(backends.by_name) if word == "backend" else {_kind(backend.device) for backend in backends.by_name.values()}


def _kind(device: str) -> str:
    return device.split(":")[0]


def as_list(value: Any) -> list[Any]:
    """Return a list of one for a value that may be one or a list."""
    return value if isinstance(value, list) else [value]


def _find_conditions(value: Any, path: DataPath) -> Iterator[tuple[DataPath, Mapping[str, Any]]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "when" and isinstance(item, dict):
                yield (*path, key), item
            else:
                yield from _find_conditions(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_conditions(item, (*path, index))


# -- functions ------------------------------------------------------------------------------------------------------


def _functions(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    for function in anatomy.functions.values():
        if function.block is not None and function.tree is not None:
            yield from _entry_problems(anatomy, function)
    for step in anatomy.steps:
        if step.kind == "call":
            yield from _arity_problems(anatomy, step)


def entry_of(anatomy: Anatomy, function: RawFunction) -> str | None:
    """Return the name of the def that is compiled; None when it cannot be told."""
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
        yield anatomy.document.problem(("entry",), message, hint)
    elif wanted is None and not names:
        yield anatomy.document.problem(function.path, "no function: the Python has no top-level def", "write def fn(...): ...")
    elif wanted is None and len(names) > 1:
        hint = f"add entry: {names[-1]}" if function.name == ONLY else "move the others to prelude"
        yield anatomy.document.problem(function.path, f"several top-level defs: {', '.join(names)}", hint)


def _arity_problems(anatomy: Anatomy, step: RawStep) -> Iterator[Diagnostic]:
    document = anatomy.document
    name = step.arguments.get("function", ONLY if ONLY in anatomy.functions else None)
    if name is None:
        if len(anatomy.functions) != 1:
            if anatomy.functions:
                yield document.problem(
                    step.path, "which of the functions?", f"write call: {{function: {next(iter(anatomy.functions))}}}", key=True
                )
            return
        name = next(iter(anatomy.functions))
    if name not in anatomy.functions:
        yield document.problem((*step.path, "function"), *unknown("function", name, anatomy.functions))
        return
    arity = _arity(anatomy, anatomy.functions[name])
    given = step.arguments.get("inputs", anatomy.data.get("inputs", []))
    path = (*step.path, "inputs") if "inputs" in step.arguments else ("inputs",)
    if arity is not None and not arity.takes(len(given)):
        verb = "input is" if len(given) == 1 else "inputs are"
        yield document.problem(path, f"{arity.name} takes {arity}, {len(given)} {verb} given", "one input for each argument")
    elif arity is not None and arity.keywords:
        message = f"{arity.name} needs {one_of(arity.keywords)} by keyword"
        yield document.problem(path, message, "inputs are given by position: give it a default, or remove the '*'")


def _arity(anatomy: Anatomy, function: RawFunction) -> python.Arity | None:
    if function.tree is not None:
        node = python.top_level_functions(function.tree).get(entry_of(anatomy, function) or "")
        # what a decorator returns may take anything
        return python.arity(node) if node is not None and not node.decorator_list else None
    if isinstance(function.value, dict) and "module" in function.value:
        for tree in anatomy.prelude_trees.values():
            found = python.module_arity(tree, function.value["module"])
            if found is not None:
                return found
    return None


# -- inputs ---------------------------------------------------------------------------------------------------------


_TENSOR = ("dtype", "device", "requires_grad", "strides", "memory_format", "on_device")

INPUT_KEYS: Mapping[str, tuple[str, ...]] = {
    "rand": _TENSOR,
    "randn": _TENSOR,
    "zeros": _TENSOR,
    "ones": _TENSOR,
    "full": ("value", *_TENSOR),
    "randint": ("low", "high", *_TENSOR),
    "arange": _TENSOR,
    "values": _TENSOR,
    "module": ("args", "kwargs", "eval", "dtype", "device"),
    "ref": (),
    "value": (),
}
"""The kinds of input, and what goes with each; ``value`` stands last, because beside ``full`` it is the number."""

FUNCTION_KEYS: Mapping[str, tuple[str, ...]] = {"module": ("args", "kwargs", "eval", "dtype"), "ref": (), "api": ()}
"""The kinds of function that are no Python, and what goes with each."""


def _inputs(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """What the worker would not look at, because another kind of input or function takes it."""
    places: list[tuple[DataPath, Any, Mapping[str, tuple[str, ...]]]] = [
        ((*path, index), entry, INPUT_KEYS) for path, entries in _input_lists(anatomy) for index, entry in enumerate(entries)
    ]
    places.extend((function.path, function.value, FUNCTION_KEYS) for function in anatomy.functions.values())
    for path, entry, table in places:
        if isinstance(entry, dict):
            kind = next(word for word in table if word in entry)
            for key in entry.keys() - {kind, *table[kind]}:
                owners = [word for word, keys in table.items() if key in keys]
                yield anatomy.document.problem(
                    (*path, key), f"'{key}' does not go with '{kind}'", f"it goes with {one_of(owners)}", key=True
                )


def _input_lists(anatomy: Anatomy) -> Iterator[tuple[DataPath, list[Any]]]:
    yield ("inputs",), anatomy.data.get("inputs", [])
    for step in anatomy.steps:
        if step.kind == "call" and "inputs" in step.arguments:
            yield (*step.path, "inputs"), step.arguments["inputs"]


# -- dotted paths ---------------------------------------------------------------------------------------------------


def _paths(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Names of the prelude and of libraries: modules, api calls, exceptions, references to functions outside YAML."""
    prelude = _prelude_names(anatomy)
    required = _required_packages(anatomy)
    for path, dotted in _dotted_paths(anatomy):
        # what a machine may lack is not looked for on this one
        if templates.is_template(dotted) or dotted.replace(":", ".").split(".")[0] in required:
            continue
        found = python.find_name(dotted, prelude)
        if found is not None:
            yield anatomy.document.problem(path, *found)
    for path, name in _exceptions(anatomy):
        if "." not in name and not python.is_exception(name):
            message, hint = unknown("exception", name, python.exceptions())
            yield anatomy.document.problem(path, message, hint)
        elif "." in name and name.split(".")[0] not in required and (found := python.find_name(name, set())) is not None:
            yield anatomy.document.problem(path, *found)


def _prelude_names(anatomy: Anatomy) -> set[str]:
    """Return what the preludes define; a prelude that does not parse may define anything."""
    unread = len(anatomy.prelude_trees) < len({block.file for block in anatomy.preludes})
    return python.defined(anatomy.prelude_trees) | ({"*"} if unread else set())


def _required_packages(anatomy: Anatomy) -> set[str]:
    """Return the packages whose names are left to the worker: those under ``requires``, and a torch that may not be here."""
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
    for path, entries in _input_lists(anatomy):
        for index, entry in enumerate(entries):
            if isinstance(entry, dict) and "module" in entry:
                yield (*path, index, "module"), entry["module"]
    for step in anatomy.steps:
        if step.kind == "api":
            yield (*step.path, "call"), step.arguments["call"]


def _exceptions(anatomy: Anatomy) -> Iterator[tuple[DataPath, str]]:
    for step in anatomy.steps:
        for expectation in step.expectations:
            if expectation.kind == "raises":
                yield (*expectation.path, "type"), expectation.body["type"]


# -- steps and named values -----------------------------------------------------------------------------------------


def step_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Named values are there before they are used, and each name once."""
    bound: dict[str, Position] = {}
    prelude = _prelude_names(anatomy)
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
        for expectation in step.expectations:
            yield from _named_value_problems(anatomy, step, expectation, bound)


def _binding_problems(anatomy: Anatomy, step: RawStep, name: str, bound: Mapping[str, Position]) -> Iterator[Diagnostic]:
    path = (*step.path, "as")
    if name in (OUTPUT, EAGER):
        yield anatomy.document.problem(path, f"the name '{name}' is taken", "it is the step's own result or its reference")
    elif name in bound:
        yield anatomy.document.problem(path, f"the name '{name}' is given twice", f"it stands first at line {bound[name].line}")


def _reference_problems(anatomy: Anatomy, step: RawStep, bound: Mapping[str, Position], prelude: set[str]) -> Iterator[Diagnostic]:
    found = list(_references(step.arguments, step.path))
    if step.kind == "call" and "inputs" not in step.arguments:
        found.extend(_references(anatomy.data.get("inputs", []), ("inputs",)))
    for path, text in found:
        first = str(text).split(".")[0]
        if not templates.is_template(text) and first not in bound and prelude.isdisjoint((first, "*")):
            yield anatomy.document.problem(path, *unknown("name", first, [*bound, *prelude]))


def _references(value: Any, path: DataPath) -> Iterator[tuple[DataPath, str]]:
    if isinstance(value, dict):
        if set(value) == {"ref"}:
            yield (*path, "ref"), value["ref"]
            return
        for key, item in value.items():
            yield from _references(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _references(item, (*path, index))


_HAS_RESULT = ("call", "backward", "api")
_HAS_REFERENCE = ("call", "backward")


def _named_value_problems(
    anatomy: Anatomy, step: RawStep, expectation: RawExpectation, bound: Mapping[str, Position]
) -> Iterator[Diagnostic]:
    parsed = None if _is_templated(expectation) else _parsed(expectation)
    if parsed is None:
        return
    eager_call = step.kind == "call" and step.arguments.get("eager") is True
    firsts = list(dict.fromkeys(name.split(".")[0] for name in parsed.names))
    if OUTPUT in firsts and step.kind not in _HAS_RESULT:
        message = f"the step '{step.kind}' has no result"
        yield anatomy.document.problem(expectation.path, message, f"results have {one_of(_HAS_RESULT)}", key=True)
    elif EAGER in firsts and (step.kind not in _HAS_REFERENCE or eager_call):
        message = "an eager call compared with eager cannot differ" if eager_call else f"the step '{step.kind}' has no eager reference"
        yield anatomy.document.problem(expectation.path, message, "compare with a named value", key=True)
    for first in firsts:
        if first not in (OUTPUT, EAGER) and first not in bound:
            path, is_key = _place_of(expectation, first)
            yield anatomy.document.problem(path, *unknown("name", first, [*bound, OUTPUT, EAGER]), key=is_key)


def _place_of(expectation: RawExpectation, name: str) -> tuple[DataPath, bool]:
    """Return where in an expectation a value is named, and whether by a key."""
    for key, value in expectation.body.items():
        if str(value).split(".")[0] == name and key in ("of", "to"):
            return (*expectation.path, key), False
        if isinstance(value, dict) and str(value.get("ref", "")).split(".")[0] == name:
            return (*expectation.path, key, "ref"), False
    return (*expectation.path, name), True


# -- expectations ---------------------------------------------------------------------------------------------------


def _parsed(expectation: RawExpectation) -> Any:
    try:
        return EXPECTATIONS[expectation.kind].parse(expectation.body)
    except BadExpectation:
        return None


def _is_templated(expectation: RawExpectation) -> bool:
    """Whether what is expected is known only at a point of the matrix."""
    return next(substitution.templates_below(expectation.body, expectation.path), None) is not None


def _expectations(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    for step in anatomy.steps:
        for expectation in step.expectations:
            if not _is_templated(expectation):
                yield from expectation_problems(anatomy.document, expectation)


def expectation_problems(document: Document, expectation: RawExpectation) -> Iterator[Diagnostic]:
    """Return what is wrong with the arguments of an expectation."""
    try:
        EXPECTATIONS[expectation.kind].parse(expectation.body)
    except BadExpectation as error:
        path = (*expectation.path, *error.path)
        position = document.position(path)
        if error.line and path in document.marks:
            position = python.place(document, path, python.block_at(document, path, expectation.kind), error.line, max(error.column, 1))
        yield Diagnostic(position=position, message=str(error), hint=error.hint)
    if expectation.kind in _COUNTED:
        yield from _unreached(document, expectation.body, expectation.path)


_COUNTED = ("counter", "metric", "generated_files")


def _unreached(document: Document, counts: Any, path: DataPath) -> Iterator[Diagnostic]:
    """Of values under conditions the first that applies is taken: none may stand below one that always does."""
    if isinstance(counts, dict):
        for name, count in counts.items():
            if isinstance(count, list):
                yield from _unreached(document, count, (*path, name))
        return
    entries = counts if isinstance(counts, list) else []
    always = next((index for index, entry in enumerate(entries) if isinstance(entry, dict) and "when" not in entry), len(entries))
    if always < len(entries) - 1:
        message = "this value is never reached: the one above it holds everywhere"
        yield document.problem((*path, always + 1), message, "only the last may be without when")


# -- names of options, counters and metrics ---------------------------------------------------------------------------


def _names(anatomy: Anatomy, tables: NameTables) -> list[Diagnostic]:
    problems: list[Diagnostic] = []
    for document, path, kind, name, unlisted in used_names(anatomy):
        problem = name_problem(tables, kind, name)
        if problem is not None and not unlisted:
            problems.append(document.problem(path, *problem, key=True))
        elif kind is NameKind.COUNTER and not unlisted and allows_zero(document.value(path)):
            found = tables.lookup(kind, name)
            if found.by_pattern:
                message = f"the counter '{name}' may not be claimed 0: its name is made at run time, and a misspelt one is always 0"
                problems.append(document.problem(path, message, found.hint or "claim at least 1", key=True))
    return problems


def name_problem(tables: NameTables, kind: NameKind, name: str) -> tuple[str, str] | None:
    """Return message and hint for a name that no torch has."""
    found = tables.lookup(kind, name)
    if found.known:
        return None
    if kind is NameKind.COUNTER:
        message = f"unknown counter '{name}'" if "." in name else f"the counter '{name}' has no namespace"
        return message, f"{found.hint}; a counter outside the tables needs unlisted: true"
    if name == "when" and kind is not NameKind.METRIC:
        return "a condition without 'set'", "write {when: {...}, set: {...}}"
    return f"unknown {_KIND_WORDS[kind]} '{name}'", found.hint or "no torch from 2.11 on has it"


_KIND_WORDS = {
    NameKind.INDUCTOR_CONFIG: "config",
    NameKind.DYNAMO_CONFIG: "dynamo_config",
    NameKind.FUNCTORCH_CONFIG: "functorch_config",
    NameKind.COUNTER: "counter",
    NameKind.METRIC: "metric",
}


def used_names(anatomy: Anatomy) -> Iterator[tuple[Document, DataPath, NameKind, str, bool]]:
    """Yield every option, counter and metric that a spec names: document, path, kind, name, whether it is unlisted on purpose."""
    for document in (*anatomy.spec.defaults, anatomy.document):
        for section, kind in OPTION_KINDS.items():
            for path, name in option_names(document.data.get(section), (section,)):
                yield document, path, kind, name, False
    document = anatomy.document
    for name in anatomy.data.get("compile", {}).get("options", {}):
        yield document, ("compile", "options", name), NameKind.INDUCTOR_CONFIG, name, False
    for step in anatomy.steps:
        for expectation in step.expectations:
            kind = {"counter": NameKind.COUNTER, "metric": NameKind.METRIC}.get(expectation.kind, NameKind.INDUCTOR_CONFIG)
            if kind is not NameKind.INDUCTOR_CONFIG:
                for name, count in expectation.body.items():
                    yield document, (*expectation.path, name), kind, name, is_unlisted(count)


def option_names(options: Any, path: DataPath) -> Iterator[tuple[DataPath, str]]:
    """Yield path and name of each option of a config section, conditional or not."""
    if isinstance(options, dict):
        for name in options:
            yield (*path, name), name
    for index, entry in enumerate(options if isinstance(options, list) else []):
        inner = entry.get("set") if "set" in entry else entry
        place = (*path, index, "set") if "set" in entry else (*path, index)
        for name in inner:
            yield (*place, name), name
