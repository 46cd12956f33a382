"""What a spec means: the checks that no schema can say. Every problem gets a position, and none stops the others."""

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runner.backends import Backends, read_requirements
from runner.conditions import BadRange, VersionRange
from runner.diagnostics import Diagnostic, Position, one_of, unknown
from runner.expectations import EAGER, EXPECTATIONS, OUTPUT, BadExpectation
from runner.expectations.counter import allows_zero, is_unlisted
from runner.language import matrix, python, schema, substitution, templates
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
    """Return every problem of a spec that fits the schema."""
    problems = list(anatomy.problems)
    for part in (_backends, _shape, _requirements, _conditions, _functions, _paths, _steps, _expectations):
        problems.extend(part(anatomy, backends))
    problems.extend(_names(anatomy, names))
    if not problems:
        problems.extend(_templates(anatomy, backends))
    return problems


def _backends(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
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
    yield from matrix.exclusion_problems(document, axes, chosen)
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
        yield document.problem(
            (), "the spec expects nothing", "add expect: [{close: {to: eager}}], or expect: [{runs: {}}] if that is the claim"
        )


def _requirements(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    problems: list[Diagnostic] = []
    read_requirements(anatomy.document, ("requires",), anatomy.data.get("requires", []), problems)
    yield from problems


# -- conditions -----------------------------------------------------------------------------------------------------


def _conditions(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    for document in (*anatomy.spec.defaults, anatomy.document):
        for path, when in _find_conditions(document.data, ()):
            yield from _condition_problems(document, path, when, backends)


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


def _condition_problems(document: Document, path: DataPath, when: Mapping[str, Any], backends: Backends) -> Iterator[Diagnostic]:
    for word in ("torch", "python"):
        if word in when:
            try:
                VersionRange.parse(when[word])
            except BadRange as error:
                yield document.problem((*path, word), str(error))
    tables = {"backend": set(backends.by_name), "device": {backend.device for backend in backends.by_name.values()}}
    for word, known in tables.items():
        wanted = when.get(word, [])
        for index, name in enumerate(wanted if isinstance(wanted, list) else [wanted]):
            if name not in known:
                place = (*path, word, index) if isinstance(wanted, list) else (*path, word)
                yield document.problem(place, *unknown(word, str(name), known))


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
    if arity is not None and not arity.takes(len(given)):
        path = (*step.path, "inputs") if "inputs" in step.arguments else ("inputs",)
        verb = "input is" if len(given) == 1 else "inputs are"
        yield document.problem(path, f"{arity.name} takes {arity} arguments, {len(given)} {verb} given", "one input for each argument")


def _arity(anatomy: Anatomy, function: RawFunction) -> python.Arity | None:
    if function.tree is not None:
        node = python.top_level_functions(function.tree).get(entry_of(anatomy, function) or "")
        return python.arity(node) if node is not None else None
    if isinstance(function.value, dict) and "module" in function.value:
        for tree in anatomy.prelude_trees.values():
            found = python.module_arity(tree, function.value["module"])
            if found is not None:
                return found
    return None


# -- dotted paths ---------------------------------------------------------------------------------------------------


def _paths(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Names of the prelude and of libraries: modules, api calls, references to functions outside YAML."""
    trees: dict[str, ast.Module] = dict(anatomy.prelude_trees)
    prelude = python.defined(trees)
    for path, dotted in _dotted_paths(anatomy):
        if templates.is_template(dotted):
            continue
        found = python.find_name(dotted, prelude)
        if found is not None:
            yield anatomy.document.problem(path, *found)


def _dotted_paths(anatomy: Anatomy) -> Iterator[tuple[DataPath, str]]:
    for function in anatomy.functions.values():
        if isinstance(function.value, dict):
            key = next(word for word in ("module", "ref", "api") if word in function.value)
            yield (*function.path, key), function.value[key]
    for index, entry in enumerate(anatomy.data.get("inputs", [])):
        if isinstance(entry, dict) and "module" in entry:
            yield ("inputs", index, "module"), entry["module"]
    for step in anatomy.steps:
        if step.kind == "api":
            yield (*step.path, "call"), step.arguments["call"]


# -- steps and named values -----------------------------------------------------------------------------------------


def _steps(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Named values are there before they are used, and each name once."""
    bound: dict[str, Position] = {}
    prelude = python.defined(dict(anatomy.prelude_trees))
    called = False
    for step in anatomy.steps:
        yield from _reference_problems(anatomy, step, {*bound, *prelude})
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


def _reference_problems(anatomy: Anatomy, step: RawStep, known: set[str]) -> Iterator[Diagnostic]:
    for path, text in _references(step.arguments, step.path):
        first = str(text).split(".")[0]
        if first not in known:
            yield anatomy.document.problem(path, *unknown("name", first, known))


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
    parsed = _parsed(expectation)
    if parsed is None:
        return
    eager_call = step.kind == "call" and step.arguments.get("eager") is True
    for name in parsed.names:
        first = name.split(".")[0]
        if first == OUTPUT and step.kind not in _HAS_RESULT:
            message = f"the step '{step.kind}' has no result"
            yield anatomy.document.problem(expectation.path, message, f"results have {one_of(_HAS_RESULT)}", key=True)
        elif first == EAGER and (step.kind not in _HAS_REFERENCE or eager_call):
            message = "an eager call compared with eager cannot differ" if eager_call else f"the step '{step.kind}' has no eager reference"
            yield anatomy.document.problem(expectation.path, message, "compare with a named value", key=True)
        elif first not in (OUTPUT, EAGER) and first not in bound:
            yield anatomy.document.problem(expectation.path, *unknown("name", first, bound), key=True)


# -- expectations ---------------------------------------------------------------------------------------------------


def _parsed(expectation: RawExpectation) -> Any:
    try:
        return EXPECTATIONS[expectation.kind].parse(expectation.body)
    except BadExpectation:
        return None


def _expectations(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    for step in anatomy.steps:
        for expectation in step.expectations:
            try:
                EXPECTATIONS[expectation.kind].parse(expectation.body)
            except BadExpectation as error:
                yield _expectation_problem(anatomy.document, expectation, error)


def _expectation_problem(document: Document, expectation: RawExpectation, error: BadExpectation) -> Diagnostic:
    path = (*expectation.path, *error.path)
    is_key = bool(error.path) and isinstance(error.path[-1], str) and path not in document.marks
    position = document.position(path, key=is_key)
    mark = document.marks.get(path)
    if error.line and mark is not None:
        literal = mark.style == "|"
        position = Position(file=position.file, line=position.line + error.line - (0 if literal else 1), column=max(error.column, 1))
    return Diagnostic(position=position, message=str(error), hint=error.hint)


# -- names of options, counters and metrics ---------------------------------------------------------------------------


Seen = Callable[[Document, DataPath, NameKind, str, bool], None]


def _names(anatomy: Anatomy, tables: NameTables) -> list[Diagnostic]:
    problems: list[Diagnostic] = []
    for document, path, kind, name, unlisted in used_names(anatomy):
        found = tables.lookup(kind, name)
        if not found.known and not unlisted:
            message = f"unknown {_KIND_WORDS[kind]} '{name}'"
            hint = found.hint or "no torch from 2.11 on has it"
            if kind is NameKind.COUNTER:
                hint = f"{hint}; a counter outside the tables needs unlisted: true"
            problems.append(document.problem(path, message, hint, key=True))
        elif found.by_pattern and allows_zero(document.value(path)):
            message = f"the counter '{name}' may not be claimed 0: its name is made at run time, and a misspelt one is always 0"
            problems.append(document.problem(path, message, found.hint or "claim at least 1", key=True))
    return problems


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


# -- templates ------------------------------------------------------------------------------------------------------


def _templates(anatomy: Anatomy, backends: Backends) -> list[Diagnostic]:
    """Every template can be read, names only what is there, and gives a value that fits where it stands."""
    document = anatomy.document
    problems: list[Diagnostic] = []
    parsed: dict[DataPath, templates.Template] = {}
    for path, text in substitution.occurrences(document.data):
        try:
            parsed[path] = templates.parse(text)
        except templates.TemplateError as error:
            problems.append(document.problem(path, str(error), error.hint))
    if problems or not parsed:
        return problems
    axes, _ = matrix.axes(document)
    seen: set[tuple[DataPath, str]] = set()
    for point in matrix.points(document, axes, backends.of(anatomy.data["backends"])):
        problems.extend(_at_point(document, parsed, point, seen))
    return problems


def _at_point(
    document: Document, parsed: Mapping[DataPath, templates.Template], point: matrix.Point, seen: set[tuple[DataPath, str]]
) -> list[Diagnostic]:
    """Check the templates whose value at this point was not seen at another."""
    names = point.names
    data = document.data
    fresh: list[DataPath] = []
    problems: list[Diagnostic] = []
    for path, template in parsed.items():
        if template.is_deferred:
            continue
        key = (path, repr([(name, names.get(name)) for name in sorted(template.names)]))
        if key in seen:
            continue
        seen.add(key)
        try:
            data = substitution.replaced(data, path, template.evaluate(names))
            fresh.append(path)
        except templates.TemplateError as error:
            problems.append(document.problem(path, f"{error} (at {point.bracket})", error.hint))
    for path in fresh:
        for place, message, hint, key_meant in schema.describe_at(data, "spec", path):
            problems.append(document.problem(place, f"{message} (at {point.bracket})", hint, key=key_meant))
    return problems
