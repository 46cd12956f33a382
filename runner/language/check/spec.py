"""Semantic checks of a spec. Every problem has a position, and no problem stops the other checks."""

import math
from collections.abc import Iterator

from runner.core.diagnostics import Diagnostic, unknown
from runner.core.template_form import is_template
from runner.language.backends import Backends, read_requirements
from runner.language.check.audit import audit_problems
from runner.language.check.conditional_steps import conditional_step_problems, repeat_problems
from runner.language.check.conditions import all_condition_problems
from runner.language.check.functions import function_problems, input_problems, path_problems, required_packages
from runner.language.check.input_devices import device_problems
from runner.language.check.names import name_problems
from runner.language.check.names import value_problems as option_value_problems
from runner.language.check.python import python_problems
from runner.language.check.sources import source_problems
from runner.language.check.steps import all_expectation_problems, named_value_problems, step_problems
from runner.language.check.targets import target_problems
from runner.language.check.values import handler_problems, let_problems, spy_problems, value_problems
from runner.language.names.torch_names import NameTables
from runner.language.read import matrix, python
from runner.language.read.anatomy import SOURCE, Anatomy
from runner.language.read.document import DataPath, Document
from runner.language.read.matrix import TARGETS
from runner.system.capabilities import CAPABILITIES
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
    named = [*name_problems(anatomy, names), *option_value_problems(anatomy, names)]
    reported = {problem.message for problem in named}
    return [*(problem for problem in problems if problem.message not in reported), *named]


def matrix_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of backends, matrix and exclude; without valid ones there are no points."""
    for index, name in enumerate(anatomy.data["backends"]):
        if name not in backends.names:
            message, hint = unknown("backend", name, backends.names)
            yield anatomy.document.problem(("backends", index), message, hint)
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
        yield document.problem(("exclude",), "every point of the matrix is excluded: the spec has no cases", "exclude less", key=True)


def clashing_keys(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of keys of which a spec has one; what the others mean is not known."""
    document, data = anatomy.document, anatomy.data
    if "steps" in data and "expect" in data and not data.keys() & {SOURCE, TRITON}:
        yield document.problem(("expect",), "'expect' beside 'steps'", "write expect in each step", key=True)
    if "function" in data and "functions" in data:
        yield document.problem(("functions",), "'functions' beside 'function'", "put all of them into functions", key=True)


def _shape(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of an entry without functions, and of a spec that expects nothing."""
    document, data = anatomy.document, anatomy.data
    if "entry" in data and not isinstance(data.get("function"), str):
        yield document.problem(("entry",), "'entry' without Python in 'function'", "entry selects one of several top-level defs", key=True)
    if not any(step.expectations for step in anatomy.steps):
        hint = "add expect: [{close: {to: eager}}], or expect: [{runs: {}}] if that is the claim"
        yield document.problem(("steps",) if "steps" in data else (), "the spec expects nothing", hint, key=True)


def _values(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of values with the right type and no meaning."""
    document, data = anatomy.document, anatomy.data
    if not math.isfinite(data.get("timeout", 0)):
        yield document.problem(("timeout",), f"the timeout is {data['timeout']}", "write a number of seconds")
    compile_ = data.get("compile", {})
    if compile_.get("mode") is not None and "options" in compile_:
        yield document.problem(
            ("compile", "options"), "'options' beside 'mode': torch.compile accepts only one of them", "use config", key=True
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
            yield document.problem((*path, "env", name), f"a NUL character in {name}", "no environment variable can hold one")
    seed = data.get("torch", {}).get("seed", 0)
    if isinstance(seed, int) and seed >= 1 << 63:
        yield document.problem((*path, "torch", "seed"), f"the seed {seed} is out of range", "at most 9223372036854775807")


def _services(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of services: ``remote_cache`` needs a service, and the runner sets the addresses of services."""
    if "services" not in anatomy.data:
        for step in anatomy.steps:
            for expectation in step.expectations:
                if expectation.kind == "remote_cache":
                    hint = "add services: [redis]; otherwise the case would use any server that listens on this machine"
                    yield anatomy.document.problem(expectation.path, "'remote_cache' without a service", hint, key=True)
        return
    for document in (*anatomy.spec.defaults, anatomy.document):
        for name in document.data.get("env", {}):
            if name.startswith("TORCHINDUCTOR_REDIS_"):
                hint = "remove it: the runner sets the address of the case's server"
                yield document.problem(("env", name), f"'{name}' beside 'services'", hint, key=True)


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
            yield anatomy.document.problem(("requires", index, "call"), *found)
