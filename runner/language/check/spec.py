"""Checks of a spec. Every problem has a position, and no problem stops the other checks."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from runner.language.backends import Backends, read_requirements
from runner.language.check.functions import device_problems, function_problems, input_problems, path_problems, required_packages
from runner.language.check.names import name_problems
from runner.language.check.names import value_problems as option_value_problems
from runner.language.check.names_in_scope import references, spy_problems, value_problems
from runner.language.check.python_checks import PARAMS, keys_read, python_problems
from runner.language.check.steps import named_value_problems, step_problems
from runner.language.names.tables import NameTables
from runner.language.read import matrix, python_source, templates
from runner.language.read.anatomy import KEYS_OF_SOURCE, SOURCE, Anatomy, stage_of
from runner.language.read.document import DataPath, Document
from runner.language.read.matrix import REPEAT, TARGETS
from runner.machine.capabilities import CAPABILITIES
from runner.model.case import Case
from runner.model.conditions import BadRange, VersionRange, as_list, is_template
from runner.model.diagnostics import Diagnostic, one_of, unknown
from runner.model.optional import hooks
from runner.model.targets import EXAMPLE, OFFLINE_BACKENDS
from runner.vocabulary.expectations import EXPECTATIONS
from runner.vocabulary.expectations.close import Close
from runner.vocabulary.expectations.expectation_base import EAGER, OUTPUT
from runner.vocabulary.steps import TRITON


def check(anatomy: Anatomy, backends: Backends, names: NameTables) -> list[Diagnostic]:
    """Return all problems of a spec that fits the schema, except those of its templates' values (``check_templates``)."""
    document, data = anatomy.document, anatomy.data
    problems = [*matrix_problems(anatomy, backends)]
    if "entry" in data and not isinstance(data.get("function"), str):
        hint = "entry selects one of several top-level defs"
        problems.append(document.problem(("entry",), "'entry' without Python in 'function'", hint, key=True, code="misplaced-key"))
    if not any(step.expectations for step in anatomy.steps):
        place, hint = (
            ("steps",) if "steps" in data else (),
            "add expect: [{close: {to: eager}}], or expect: [{runs: {}}] if that is the claim",
        )
        problems.append(document.problem(place, "the spec expects nothing", hint, key=True, code="expects-nothing"))
    problems += [*requirement_problems(anatomy), *python_problems(anatomy)]
    if all(name in backends.by_name for name in data["backends"]):
        problems += device_problems(anatomy, backends.of(anatomy.data["backends"], anatomy.tags))
    return [*problems, *check_values(anatomy, backends, names), *control_problems(anatomy)]


def check_values(anatomy: Anatomy, backends: Backends, names: NameTables) -> list[Diagnostic]:
    """Return the problems that may differ from case to case, where templates stand for lists and maps."""
    if TARGETS in anatomy.data and not anatomy.functions and TRITON not in anatomy.data:
        return list(_problems_of_targets(anatomy))  # without a kernel or a function, the rest is read as a call
    return [
        *_value_problems(anatomy),
        *source_problems(anatomy),
        *_problems_of_targets(anatomy),
        *all_condition_problems(anatomy, backends),
        *function_problems(anatomy),
        *input_problems(anatomy),
        *path_problems(anatomy),
        *value_problems(anatomy),
        *spy_problems(anatomy),
        *step_problems(anatomy, backends),
        *named_value_problems(anatomy, backends),
        *name_problems(anatomy, names),
        *option_value_problems(anatomy, names),
    ]


_NEEDS_TARGETS = ("resources", "metadata")
"""Expectations of kernels that are compiled for targets."""


def _problems_of_targets(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of a spec with targets, and of one that needs some."""
    document, data = anatomy.document, anatomy.data
    if TARGETS in data:
        yield from hooks("offline").target_problems(anatomy)
        return
    expectations = [expectation for step in anatomy.steps for expectation in step.expectations]
    hint = f"write targets: [{EXAMPLE}] in place of backends"
    for backend in OFFLINE_BACKENDS:
        if backend in data["backends"]:
            path = ("backends", data["backends"].index(backend))
            yield document.problem(path, f"the backend '{backend}' without targets", hint, code="target")
    if TRITON in data:
        yield document.problem((TRITON,), "'triton' without 'targets'", hint, key=True, code="target")
    if TRITON in data.get("control", {}):
        yield document.problem(("control", TRITON), "a control of 'triton' without 'triton'", "remove it", key=True, code="target")
    for raw in expectations:
        if raw.kind in _NEEDS_TARGETS:
            hint = "it is for kernels that are compiled for targets"
            yield document.problem(raw.path, f"'{raw.kind}' without 'targets'", hint, key=True, code="target")
        elif stage_of(raw) is not None:
            hint = "remove it: generated code has no stages"
            yield document.problem((*raw.path, "stage"), "'stage' without 'targets'", hint, key=True, code="target")


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
        hint = "put all of them into functions"
        yield document.problem(("functions",), "'functions' beside 'function'", hint, key=True, code="clashing-keys")


def _value_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of values with the right type and no meaning, and of services: the runner sets their addresses."""
    document, data = anatomy.document, anatomy.data
    if not math.isfinite(data.get("timeout", 0)):
        yield document.problem(("timeout",), f"the timeout is {data['timeout']}", "write a number of seconds", code="out-of-range")
    if data.get("compile", {}).get("mode") is not None and "options" in data["compile"]:
        message = "'options' beside 'mode': torch.compile accepts only one of them"
        yield document.problem(("compile", "options"), message, "use config", key=True, code="clashing-keys")
    for layer in (*anatomy.defaults, document):
        yield from process_problems(layer, ())
        for name in layer.data.get("env", {}) if "services" in data else ():
            if name.startswith("TORCHINDUCTOR_REDIS_"):
                hint = "remove it: the runner sets the address of the case's server"
                yield layer.problem(("env", name), f"'{name}' beside 'services'", hint, key=True, code="clashing-keys")
    if "control" in data:
        yield from process_problems(document, ("control",))
    for expectation in (expectation for step in anatomy.steps for expectation in step.expectations if "services" not in data):
        if expectation.kind == "remote_cache":
            hint = "add services: [redis]; otherwise the case would use any server that listens on this machine"
            yield document.problem(expectation.path, "'remote_cache' without a service", hint, key=True, code="no-service")


def process_problems(document: Document, path: DataPath) -> Iterator[Diagnostic]:
    """Yield the problems of ``env`` and ``torch`` of a spec or a backend: values that no process or random generator accepts."""
    data = document.value(path)
    for name, value in data.get("env", {}).items():
        if isinstance(value, str) and "\0" in value:
            hint = "no environment variable can hold one"
            yield document.problem((*path, "env", name), f"a NUL character in {name}", hint, code="nul-character")
    seed = data.get("torch", {}).get("seed", 0)
    if isinstance(seed, int) and seed >= 1 << 63:
        hint = "at most 9223372036854775807"
        yield document.problem((*path, "torch", "seed"), f"the seed {seed} is out of range", hint, code="out-of-range")


def requirement_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield unknown capabilities and invalid arguments; templates are checked with their values, at each point of the matrix."""
    problems: list[Diagnostic] = []
    entries = anatomy.data.get("requires", [])
    read_requirements(anatomy.document, ("requires",), entries, problems, templated=True)
    yield from problems
    for index, entry in enumerate(entries):
        predicate = entry.get("call") if isinstance(entry, dict) else None
        if not isinstance(predicate, str) or is_template(predicate) or CAPABILITIES["call"].check(predicate):
            continue
        package = predicate.replace(":", ".").split(".")[0]
        # without the package the case is unavailable
        is_read = python_source.is_installed(package) and package not in required_packages(anatomy)
        if is_read and (problem := python_source.find_name(predicate, set())) is not None:
            yield anatomy.document.problem(("requires", index, "call"), *problem, code="unknown-name")


# -- when -------------------------------------------------------------------------------------------------------------


def all_condition_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of conditions in a spec and its defaults."""
    for document in (*anatomy.defaults, anatomy.document):
        yield from condition_problems(document, (), backends)
    if any(name not in backends.by_name for name in anatomy.data["backends"]):
        return
    chosen = backends.of(anatomy.data["backends"], anatomy.tags)
    known = _known_words(backends)
    possible = {"backend": {name for backend in chosen for name in backend.names}, "device": {_kind(backend.device) for backend in chosen}}
    for path, when in _find_conditions(anatomy.data, ()):
        for word, names in possible.items():
            accepted = as_list(when.get(word, []))
            if accepted and all(name in known[word] and name not in names for name in accepted):
                message = f"this condition never holds: no backend of the spec {'is' if word == 'backend' else 'is on'} {one_of(accepted)}"
                yield anatomy.document.problem((*path, word), message, f"the spec has {one_of(names)}", code="never-holds")


def named_backends(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the backends that a spec names: its own, and those of conditions and exclusions."""
    yield from data["backends"]
    for below in (*(when for _, when in _find_conditions(data, ())), *data.get("exclude", [])):
        yield from map(str, as_list(below.get("backend", [])))


def condition_problems(document: Document, path: DataPath, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of conditions below ``path``: invalid ranges and unknown names."""
    known = _known_words(backends)
    for place, when in _find_conditions(document.value(path), path):
        for word in ("torch", "python"):
            if word in when:
                try:
                    VersionRange.parse(when[word])
                except BadRange as error:
                    yield document.problem((*place, word), str(error), code="bad-range")
        for word, names in known.items():
            for index, name in enumerate(as_list(when.get(word, []))):
                if name not in names:
                    end = (word, index) if isinstance(when[word], list) else (word,)
                    yield document.problem((*place, *end), *unknown(word, str(name), names), code="unknown-name")


VENDORS = ("amd", "intel", "nvidia")


def _known_words(backends: Backends) -> Mapping[str, set[str]]:
    """Return the names that a condition may have, by its word."""
    devices = {_kind(backend.device) for backend in backends.by_name.values()}
    return {"backend": set(backends.names), "device": devices, "vendor": set(VENDORS)}


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


def source_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of a source."""
    document, data = anatomy.document, anatomy.data
    if SOURCE not in data:
        return
    for key in _BESIDE:
        if key in data:
            hint = "the cases of a source have functions and inputs of their own"
            yield document.problem((key,), f"'{key}' beside 'source'", hint, key=True, code="clashing-keys")
    for key in KEYS_OF_SOURCE:
        if key in data.get("matrix", {}):
            message = f"the matrix key '{key}' is the source's"
            yield document.problem(("matrix", key), message, "remove it, or rename it", key=True, code="reserved-name")
    for step in anatomy.steps:
        for expectation in step.expectations:
            body = expectation.body if expectation.kind == Close.kind and isinstance(expectation.body, dict) else None
            if body is None or body.get("to", EAGER) != EAGER or body.get("of", OUTPUT) != OUTPUT:
                message = f"'{expectation.kind}' of each sample of an operator"
                hint = "write close: {to: eager}"
                yield document.problem(expectation.path, message, hint, key=True, code="misplaced-expectation")
    from runner.language.expand.operators import table_for

    table, _ = table_for(None)
    known = {dtype for operator in table.operators for dtypes in operator.dtypes.values() for dtype in dtypes}
    for index, dtype in enumerate(data[SOURCE]["opinfo"]["dtypes"]):
        path = (SOURCE, "opinfo", "dtypes", index)
        if is_template(dtype):
            hint = "write all dtypes in the list: each is a case of its own, and a part of its id"
            yield document.problem(path, "a template in the dtypes of a source", hint, code="misplaced-template")
        elif dtype not in known:
            yield document.problem(path, f"no operator has samples of {dtype}", f"dtypes: {', '.join(sorted(known))}", code="unknown-name")


# -- control and audit ------------------------------------------------------------------------------------------------


def control_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of kinds of a control that the spec does not expect."""
    expected = {expectation.kind for step in anatomy.steps for expectation in step.expectations}
    for index, kind in enumerate(anatomy.data.get("control", {}).get("fails", [])):
        path = ("control", "fails", index)
        if kind not in EXPECTATIONS:
            yield anatomy.document.problem(path, *unknown("expectation", kind, EXPECTATIONS), code="unknown-name")
        elif kind not in expected:
            hint = f"it expects {', '.join(sorted(expected)) or 'nothing'}"
            yield anatomy.document.problem(path, f"the spec expects no '{kind}'", hint, code="not-expected")


# -- unused matrix keys -----------------------------------------------------------------------------------------------


_ONLY_TEXT = ("summary", "covers")
"""Sections with no influence on the run and its judgement."""


def unused_key_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of keys that no template, Python or reference uses."""
    # source_problems refuses a key of the source, and a template in the source
    others = {REPEAT, *(KEYS_OF_SOURCE if SOURCE in anatomy.data else ())}
    keys = [key for key in anatomy.data.get("matrix", {}) if key not in others]
    if not keys or (used := keys_read(anatomy)) is None:
        return
    in_texts: set[str] = set()
    try:
        for path, text in templates.occurrences(anatomy.data):
            (in_texts if path[0] in _ONLY_TEXT else used).update(templates.parse(text).names)
    except templates.TemplateError:
        return  # an invalid template may use every key
    used |= {name for _, text in templates.templates_below(anatomy.data.get(SOURCE), (SOURCE,)) for name in _names(text)}
    named = {str(name) for _, name in references(anatomy.data, ())}
    if PARAMS in named:
        return
    used |= {name.split(".")[1] for name in named if name.startswith(f"{PARAMS}.")}
    for key in keys:
        if key not in used:
            where = "only summary and covers use it" if key in in_texts else "nothing uses it"
            written = (template for text in templates.patterns(anatomy.data) for template in re.findall(r"\{\{.+?\}\}", text))
            if any(key in _names(template) for template in written):
                where += ", because a regular expression or a FileCheck directive takes no template"
            message = f"the matrix key '{key}' changes nothing but the seed of its cases: {where}"
            place = f'write "{{{{ {key} }}}}" in place of its value, or params.{key} in Python'
            hint = f"{place}; to only repeat cases, name the key {REPEAT}"
            yield anatomy.document.problem(("matrix", key), message, hint, key=True, code="unused-key")


def _names(text: str) -> frozenset[str]:
    try:
        return frozenset(templates.parse(text).names)
    except templates.TemplateError:
        return frozenset()


# -- covers -----------------------------------------------------------------------------------------------------------


def covers_problems(document: Document, cases: Iterable[Case]) -> Iterator[Diagnostic]:
    """Yield, for each entry of a spec, the problem of the first case in which it names no upstream test or instance."""
    reported: set[int] = set()
    for case in cases:
        for index, entry in enumerate(case.covers):
            from runner.language import upstream

            if index not in reported and (problem := upstream.load().problem(entry, case.device)) is not None:
                reported.add(index)
                yield document.problem(("covers", index), *problem, code="unknown-test")
