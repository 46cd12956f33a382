"""Checks of a spec. Every problem has a position, and no problem stops the other checks."""

import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from runner.core.case import Case
from runner.core.conditions import BadRange, VersionRange, as_list
from runner.core.diagnostics import Diagnostic, one_of, unknown
from runner.core.template_form import is_template
from runner.language.backends import Backends, read_requirements
from runner.language.check.functions import device_problems, function_problems, input_problems, path_problems, required_packages
from runner.language.check.names import name_problems
from runner.language.check.names import value_problems as option_value_problems
from runner.language.check.python import PARAMS, keys_read, python_problems
from runner.language.check.scope import references
from runner.language.check.steps import (
    all_expectation_problems,
    conditional_step_problems,
    named_value_problems,
    repeat_problems,
    step_problems,
)
from runner.language.check.targets import target_problems
from runner.language.check.values import handler_problems, let_problems, spy_problems, value_problems
from runner.language.names.tables import NameTables
from runner.language.read import matrix, python, substitution, templates
from runner.language.read.anatomy import KEYS_OF_SOURCE, SOURCE, Anatomy
from runner.language.read.document import DataPath, Document
from runner.language.read.matrix import REPEAT, TARGETS
from runner.system.capabilities import CAPABILITIES
from runner.vocabulary.expectations import EXPECTATIONS
from runner.vocabulary.expectations.base import EAGER, OUTPUT
from runner.vocabulary.expectations.close import Close
from runner.vocabulary.steps import TRITON


def check(anatomy: Anatomy, backends: Backends, names: NameTables) -> list[Diagnostic]:
    """Return all problems of a spec that fits the schema, except those of its templates' values (``check_templates``)."""
    problems: list[Diagnostic] = []
    for part in (matrix_problems, _shape, requirement_problems, python_problems, device_problems):
        problems.extend(part(anatomy, backends))
    return [*problems, *check_values(anatomy, backends, names), *audit_problems(anatomy, backends)]


def check_values(anatomy: Anatomy, backends: Backends, names: NameTables) -> list[Diagnostic]:
    """Return the problems that may differ from case to case, where templates stand for lists and maps."""
    if TARGETS in anatomy.data and not anatomy.functions and TRITON not in anatomy.data:
        return list(target_problems(anatomy, backends))  # without a kernel or a function, the rest is read as a call
    problems: list[Diagnostic] = []
    for part in (
        _values,
        _services,
        source_problems,
        target_problems,
        all_condition_problems,
        function_problems,
        input_problems,
        path_problems,
        let_problems,
        spy_problems,
        handler_problems,
        value_problems,
        step_problems,
        named_value_problems,
        conditional_step_problems,
        repeat_problems,
        all_expectation_problems,
    ):
        problems.extend(part(anatomy, backends))
    return [*problems, *name_problems(anatomy, names), *option_value_problems(anatomy, names)]


def matrix_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of backends, matrix and exclude; without valid ones there are no points."""
    for index, name in enumerate(anatomy.data["backends"]):
        if name not in backends.names:
            message, hint = unknown("backend", name, backends.names)
            yield anatomy.document.problem(("backends", index), message, hint, code="unknown-backend")
    if any(name not in backends.by_name for name in anatomy.data["backends"]):
        return
    document = anatomy.document
    chosen = backends.of(anatomy.data["backends"], anatomy.tags)
    axes, problems = matrix.axes(document)
    yield from problems
    too_many = matrix.size_problem(document, axes, len(chosen))
    if too_many is not None:
        yield too_many
        return
    problems.extend(excluded := matrix.exclusion_problems(document, axes, chosen))
    yield from excluded
    if not problems and next(matrix.points(document, axes, chosen), None) is None:
        yield document.problem(
            ("exclude",), "every point of the matrix is excluded: the spec has no cases", "exclude less", key=True, code="no-cases"
        )


def clashing_keys(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of keys of which a spec has one; what the others mean is not known."""
    document, data = anatomy.document, anatomy.data
    if "steps" in data and "expect" in data and not data.keys() & {SOURCE, TRITON}:
        yield document.problem(("expect",), "'expect' beside 'steps'", "write expect in each step", key=True, code="clashing-keys")
    if "function" in data and "functions" in data:
        yield document.problem(
            ("functions",), "'functions' beside 'function'", "put all of them into functions", key=True, code="clashing-keys"
        )


def _shape(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of an entry without functions, and of a spec that expects nothing."""
    document, data = anatomy.document, anatomy.data
    if "entry" in data and not isinstance(data.get("function"), str):
        yield document.problem(
            ("entry",),
            "'entry' without Python in 'function'",
            "entry selects one of several top-level defs",
            key=True,
            code="misplaced-key",
        )
    if not any(step.expectations for step in anatomy.steps):
        hint = "add expect: [{close: {to: eager}}], or expect: [{runs: {}}] if that is the claim"
        yield document.problem(("steps",) if "steps" in data else (), "the spec expects nothing", hint, key=True, code="expects-nothing")


def _values(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of values with the right type and no meaning."""
    document, data = anatomy.document, anatomy.data
    if not math.isfinite(data.get("timeout", 0)):
        yield document.problem(("timeout",), f"the timeout is {data['timeout']}", "write a number of seconds", code="out-of-range")
    compile_ = data.get("compile", {})
    if compile_.get("mode") is not None and "options" in compile_:
        yield document.problem(
            ("compile", "options"),
            "'options' beside 'mode': torch.compile accepts only one of them",
            "use config",
            key=True,
            code="clashing-keys",
        )
    for layer in (*anatomy.spec.defaults, document):
        yield from process_problems(layer, ())
    if "control" in data:
        yield from process_problems(document, ("control",))


def process_problems(document: Document, path: DataPath) -> Iterator[Diagnostic]:
    """Yield the problems of ``env`` and ``torch`` of a spec or a backend: values that no process or random generator accepts."""
    data = document.value(path)
    for name, value in data.get("env", {}).items():
        if isinstance(value, str) and "\0" in value:
            yield document.problem(
                (*path, "env", name), f"a NUL character in {name}", "no environment variable can hold one", code="nul-character"
            )
    seed = data.get("torch", {}).get("seed", 0)
    if isinstance(seed, int) and seed >= 1 << 63:
        yield document.problem(
            (*path, "torch", "seed"), f"the seed {seed} is out of range", "at most 9223372036854775807", code="out-of-range"
        )


def _services(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of services: ``remote_cache`` needs a service, and the runner sets the addresses of services."""
    if "services" not in anatomy.data:
        for step in anatomy.steps:
            for expectation in step.expectations:
                if expectation.kind == "remote_cache":
                    hint = "add services: [redis]; otherwise the case would use any server that listens on this machine"
                    yield anatomy.document.problem(expectation.path, "'remote_cache' without a service", hint, key=True, code="no-service")
        return
    for document in (*anatomy.spec.defaults, anatomy.document):
        for name in document.data.get("env", {}):
            if name.startswith("TORCHINDUCTOR_REDIS_"):
                hint = "remove it: the runner sets the address of the case's server"
                yield document.problem(("env", name), f"'{name}' beside 'services'", hint, key=True, code="clashing-keys")


def requirement_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield unknown capabilities and invalid arguments; templates are checked with their values, at each point of the matrix."""
    problems: list[Diagnostic] = []
    given = anatomy.data.get("requires", [])
    read_requirements(anatomy.document, ("requires",), given, problems, templated=True)
    yield from problems
    required = required_packages(anatomy)
    for index, entry in enumerate(given):
        predicate = entry.get("call") if isinstance(entry, dict) else None
        if not isinstance(predicate, str) or is_template(predicate) or CAPABILITIES["call"].check(predicate):
            continue
        package = predicate.replace(":", ".").split(".")[0]
        if not python.is_installed(package):
            continue  # it makes the case unavailable
        if package not in required and (found := python.find_name(predicate, set())) is not None:
            yield anatomy.document.problem(("requires", index, "call"), *found, code="unknown-name")


# -- when -------------------------------------------------------------------------------------------------------------


def all_condition_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of conditions in a spec and its defaults."""
    for document in anatomy.spec.defaults:
        yield from condition_problems(document, (), backends)
    yield from condition_problems(anatomy.document, (), backends)
    if any(name not in backends.by_name for name in anatomy.data["backends"]):
        return
    chosen = backends.of(anatomy.data["backends"], anatomy.tags)
    possible = {"backend": {name for one in chosen for name in one.names}, "device": {_kind(one.device) for one in chosen}}
    for path, when in _find_conditions(anatomy.data, ()):
        for word, names in possible.items():
            given = as_list(when.get(word, []))
            if given and all(name in _known(word, backends) and name not in names for name in given):
                hint = f"the spec has {one_of(names)}"
                message = f"this condition never holds: no backend of the spec {'is' if word == 'backend' else 'is on'} {one_of(given)}"
                yield anatomy.document.problem((*path, word), message, hint, code="never-holds")


def named_backends(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the backends that a spec names: its own, and those of conditions and exclusions."""
    yield from data["backends"]
    for below in (*(when for _, when in _find_conditions(data, ())), *data.get("exclude", [])):
        yield from map(str, as_list(below.get("backend", [])))


def condition_problems(document: Document, path: DataPath, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of conditions below ``path``: invalid ranges and unknown names."""
    for place, when in _find_conditions(document.value(path), path):
        for word in ("torch", "python"):
            if word in when:
                try:
                    VersionRange.parse(when[word])
                except BadRange as error:
                    yield document.problem((*place, word), str(error), code="bad-range")
        for word in ("backend", "device", "vendor"):
            known = _known(word, backends)
            for index, name in enumerate(as_list(when.get(word, []))):
                if name not in known:
                    end = (word, index) if isinstance(when[word], list) else (word,)
                    yield document.problem((*place, *end), *unknown(word, str(name), known), code="unknown-name")


VENDORS = ("amd", "intel", "nvidia")


def _known(word: str, backends: Backends) -> set[str]:
    if word == "vendor":
        return set(VENDORS)
    return set(backends.names) if word == "backend" else {_kind(backend.device) for backend in backends.by_name.values()}


def _kind(device: str) -> str:
    return device.split(":")[0]


def _find_conditions(value: object, path: DataPath) -> Iterator[tuple[DataPath, Mapping[str, Any]]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "when" and isinstance(item, dict):
                yield (*path, key), item
            else:
                yield from _find_conditions(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_conditions(item, (*path, index))


# -- source -----------------------------------------------------------------------------------------------------------


_BESIDE = ("function", "functions", "entry", "inputs", "steps", "let", "spies", "handlers", "services", "covers", "control", "audit")
"""Keys without a meaning beside a source: its cases have functions, inputs and one step of their own."""


def source_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of a source."""
    document, data = anatomy.document, anatomy.data
    if SOURCE not in data:
        return
    for key in _BESIDE:
        if key in data:
            yield document.problem(
                (key,),
                f"'{key}' beside 'source'",
                "the cases of a source have functions and inputs of their own",
                key=True,
                code="clashing-keys",
            )
    for key in KEYS_OF_SOURCE:
        if key in data.get("matrix", {}):
            yield document.problem(
                ("matrix", key), f"the matrix key '{key}' is the source's", "remove it, or rename it", key=True, code="reserved-name"
            )
    for step in anatomy.steps:
        for one in step.expectations:
            body = one.body if one.kind == Close.kind and isinstance(one.body, dict) else None
            if body is None or body.get("to", EAGER) != EAGER or body.get("of", OUTPUT) != OUTPUT:
                yield document.problem(
                    one.path,
                    f"'{one.kind}' of each sample of an operator",
                    "write close: {to: eager}",
                    key=True,
                    code="misplaced-expectation",
                )
    from runner.language.expand.operators import table_for

    table, _ = table_for(None)
    known = {dtype for operator in table.operators for dtypes in operator.dtypes.values() for dtype in dtypes}
    for index, dtype in enumerate(anatomy.data[SOURCE]["opinfo"]["dtypes"]):
        if is_template(dtype):
            hint = "write all dtypes in the list: each is a case of its own, and a part of its id"
            yield anatomy.document.problem(
                (SOURCE, "opinfo", "dtypes", index), "a template in the dtypes of a source", hint, code="misplaced-template"
            )
        elif dtype not in known:
            message = f"no operator has samples of {dtype}"
            yield anatomy.document.problem(
                (SOURCE, "opinfo", "dtypes", index), message, f"dtypes: {', '.join(sorted(known))}", code="unknown-name"
            )


# -- control and audit ------------------------------------------------------------------------------------------------


def audit_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of kinds that the spec does not expect, and of unknown mutants and leaves."""
    leaves: dict[str, set[str]] = {}
    for step in anatomy.steps:
        for one in step.expectations:
            leaves.setdefault(one.kind, set()).update(_leaves(one.body))
    for index, kind in enumerate(anatomy.data.get("control", {}).get("fails", [])):
        yield from _kind_problems(anatomy, ("control", "fails", index), kind, leaves)
    for index, entry in enumerate(anatomy.data.get("audit", [])):
        yield from _entry_problems(anatomy, ("audit", index), entry, leaves)


def _leaves(body: object) -> Iterator[str]:
    """Yield what may be the name of a leaf: a counter's name, an object of a list, a cache with one of its counts."""
    if isinstance(body, list):
        yield from (name for name in body if isinstance(name, str))
    elif isinstance(body, dict):
        for name, value in body.items():
            yield name
            yield from (f"{name} {word}" for word in value) if isinstance(value, dict) else ()


def _kind_problems(anatomy: Anatomy, path: DataPath, kind: str, leaves: Mapping[str, set[str]]) -> Iterator[Diagnostic]:
    if kind not in EXPECTATIONS:
        yield anatomy.document.problem(path, *unknown("expectation", kind, EXPECTATIONS), code="unknown-name")
    elif kind not in leaves:
        yield anatomy.document.problem(
            path, f"the spec expects no '{kind}'", f"it expects {', '.join(sorted(leaves)) or 'nothing'}", code="not-expected"
        )


def _entry_problems(anatomy: Anatomy, path: DataPath, entry: Mapping[str, str], leaves: Mapping[str, set[str]]) -> Iterator[Diagnostic]:
    kind = entry["expectation"]
    wrong = list(_kind_problems(anatomy, (*path, "expectation"), kind, leaves))
    yield from wrong
    if wrong:
        return
    mutations = EXPECTATIONS[kind].mutations
    if entry["mutant"] not in mutations:
        yield anatomy.document.problem((*path, "mutant"), *unknown("mutant", entry["mutant"], mutations), code="unknown-name")
    if "leaf" in entry and entry["leaf"] not in leaves[kind]:
        yield anatomy.document.problem((*path, "leaf"), *unknown("leaf", entry["leaf"], leaves[kind]), code="unknown-name")


# -- unused matrix keys -----------------------------------------------------------------------------------------------


_ONLY_TEXT = ("summary", "covers")
"""Sections with no influence on the run and its judgement."""


def unused_key_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of keys that no template, Python or reference uses."""
    # source_problems refuses a key of the source, and a template in the source
    others = {REPEAT, *(KEYS_OF_SOURCE if SOURCE in anatomy.data else ())}
    keys = [key for key in anatomy.data.get("matrix", {}) if key not in others]
    if not keys:
        return
    read = keys_read(anatomy)
    try:
        in_texts, in_templates = (set(_named_in_templates(anatomy.data, skip=skip)) for skip in ((), _ONLY_TEXT))
    except templates.TemplateError:
        return  # an invalid template may use every key
    if read is None:
        return
    of_source = {name for _, text in substitution.templates_below(anatomy.data.get(SOURCE), (SOURCE,)) for name in _names(text)}
    used = read | in_templates | of_source | {name.split(".")[1] for name in _references(anatomy) if name.startswith(f"{PARAMS}.")}
    if PARAMS in _references(anatomy):
        return
    for key in keys:
        if key not in used:
            where = "only summary and covers use it" if key in in_texts else "nothing uses it"
            written = (found for text in substitution.patterns(anatomy.data) for found in _TEMPLATE.findall(text))
            if any(key in _names(f"{{{{{found}}}}}") for found in written):
                where += ", because a regular expression or a FileCheck directive takes no template"
            message = f"the matrix key '{key}' changes nothing but the seed of its cases: {where}"
            place = f'write "{{{{ {key} }}}}" in place of its value, or params.{key} in Python'
            hint = f"{place}; to only repeat cases, name the key {REPEAT}"
            yield anatomy.document.problem(("matrix", key), message, hint, key=True, code="unused-key")


def _named_in_templates(data: object, *, skip: tuple[str, ...]) -> Iterator[str]:
    for path, text in substitution.occurrences(data):
        if path[0] not in skip:
            yield from templates.parse(text).names


_TEMPLATE = re.compile(r"\{\{(.+?)\}\}")


def _names(text: str) -> Iterator[str]:
    with contextlib.suppress(templates.TemplateError):
        yield from templates.parse(text).names


def _references(anatomy: Anatomy) -> set[str]:
    return {str(name) for _, name in references(anatomy.data, ())}


# -- covers -----------------------------------------------------------------------------------------------------------


def covers_problems(document: Document, cases: Iterable[Case]) -> Iterator[Diagnostic]:
    """Yield, for each entry of a spec, the problem of the first case in which it names no upstream test or instance."""
    reported: set[int] = set()
    for case in cases:
        for index, entry in enumerate(case.covers):
            from runner.language import upstream

            problem = None if index in reported else upstream.load().problem(entry, case.device)
            if problem is not None:
                reported.add(index)
                yield document.problem(("covers", index), *problem, code="unknown-test")
