"""Checks of ``targets``: what may stand beside it, that its expectations can be judged without the device, what no simulated GPU shows."""

from collections.abc import Iterator, Mapping
from typing import Any

from runner.core.diagnostics import Diagnostic, one_of
from runner.core.matching.filecheck import ChecksError, Directive, Kind, parse
from runner.core.matching.filecheck.directives import compile_pattern
from runner.core.matching.time_limit import PatternTooSlow, time_limit
from runner.core.simulated import FIXED, PROPERTIES, REFUSED_MODES, config_refusal
from runner.core.targets import ALL_STAGES, EXAMPLE, ISA, OFFLINE_BACKENDS, STAGES, TARGETS, WRAPPER
from runner.core.template_form import is_template
from runner.language.read.anatomy import Anatomy, RawExpectation
from runner.language.read.document import DataPath, Document
from runner.language.read.matrix import TARGETS as KEY
from runner.vocabulary.steps import TRITON

_BESIDE = (
    *("function", "functions", "entry", "inputs", "steps", "source", "let", "spies", "handlers", "services", "compile", "context"),
    *("config", "dynamo_config", "functorch_config", "env", "torch", "isolation"),
)
"""Keys without a meaning beside ``targets``: torch is not imported, and nothing is called."""

_SECONDS = 1.0
"""The time limit for a pattern on a name."""

_NEEDS_TARGETS = ("resources", "metadata")


def target_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of a spec with targets, and of one that needs some."""
    document, data = anatomy.document, anatomy.data
    if KEY not in data:
        yield from _without_targets(anatomy)
        return
    if document.marks.get(("backends",)) != document.marks.get((KEY,)):
        message = "'backends' beside 'targets'"
        yield document.problem(("backends",), message, "its cases are compiled and not executed: remove backends", key=True, code="target")
    if TRITON not in data:
        yield from simulated_problems(anatomy)
        return
    for key in _BESIDE:
        if key in data:
            hint = "the kernel is compiled alone: write triton, prelude and expect"
            yield document.problem((key,), f"'{key}' beside 'targets'", hint, key=True, code="target")
    for step in anatomy.steps:
        for one in step.expectations:
            yield from _expectation_problems(anatomy, one)


def _without_targets(anatomy: Anatomy) -> Iterator[Diagnostic]:
    document, data = anatomy.document, anatomy.data
    for backend in OFFLINE_BACKENDS:
        if backend in data["backends"]:
            path = ("backends", data["backends"].index(backend))
            yield document.problem(
                path, f"the backend '{backend}' without targets", f"write targets: [{EXAMPLE}] in place of backends", code="target"
            )
    if TRITON in data:
        yield document.problem(
            (TRITON,), "'triton' without 'targets'", f"write targets: [{EXAMPLE}] in place of backends", key=True, code="target"
        )
    if TRITON in data.get("control", {}):
        yield document.problem(("control", TRITON), "a control of 'triton' without 'triton'", "remove it", key=True, code="target")
    for step in anatomy.steps:
        for one in step.expectations:
            if one.kind in _NEEDS_TARGETS:
                hint = "it is for kernels that are compiled for targets"
                yield document.problem(one.path, f"'{one.kind}' without 'targets'", hint, key=True, code="target")
            elif stage_of(one) is not None:
                yield document.problem(
                    (*one.path, "stage"),
                    "'stage' without 'targets'",
                    "remove it: generated code has no stages",
                    key=True,
                    code="target",
                )


def _expectation_problems(anatomy: Anatomy, one: RawExpectation) -> Iterator[Diagnostic]:
    from runner.vocabulary.offline import LEVELS

    document, stage = anatomy.document, stage_of(one)
    if stage == WRAPPER:
        hint = "a kernel of Triton has no wrapper: Inductor writes one, for function: in place of triton:"
        yield document.problem((*one.path, "stage"), f"the stage '{WRAPPER}' beside 'triton'", hint, code="target")
    if one.kind not in LEVELS:
        yield document.problem(
            one.path, f"'{one.kind}' of a kernel that is not executed", f"it may have {one_of(LEVELS)}", key=True, code="target"
        )
    if one.kind == "filecheck" and stage is None:
        hint = f"write filecheck: {{stage: {ISA['hip']}, checks: ...}}; stages: {', '.join(ALL_STAGES)}"
        yield document.problem(one.path, "'filecheck' of a kernel without a stage", hint, key=True, code="target")
    if stage in ISA.values():
        yield from _name_problems(anatomy, one)
    yield from stage_problems(anatomy, one)


def _name_problems(anatomy: Anatomy, one: RawExpectation) -> Iterator[Diagnostic]:
    """Yield directives that the name of a kernel alone matches: it stands among the instructions, whatever these are."""
    from runner.vocabulary.steps.triton import kernels

    try:
        found = [directive for directive in parse(one.body["checks"]) if directive.kind is not Kind.NOT]
    except ChecksError:
        return  # reported with the other problems of the directives
    for script in anatomy.scripts.values():
        for name in kernels(script.tree) if script.tree is not None else ():
            if all(_matches(directive, name) for directive in found):
                message = f"the name of the kernel '{name}' matches every directive, and stands in every compiled text"
                hint = "rename the kernel, or write more of the instruction"
                yield anatomy.document.problem((*one.path, "checks"), message, hint, code="target")


def _matches(directive: Directive, name: str) -> bool:
    try:
        with time_limit(_SECONDS):
            return compile_pattern(directive, {}).search(name) is not None
    except (PatternTooSlow, KeyError):  # a variable of an earlier directive has no text here
        return False


def stage_of(one: RawExpectation) -> Any:
    """Return the stage that an expectation reads; None where it reads none."""
    return one.body.get("stage") if one.kind == "filecheck" and isinstance(one.body, dict) else None


def stage_problems(anatomy: Anatomy, one: RawExpectation) -> Iterator[Diagnostic]:
    """Yield a stage that no target of the spec has."""
    stage = stage_of(one)
    made = {made for name in anatomy.data[KEY] for made in STAGES[TARGETS[name].backend]}
    if stage in ALL_STAGES and stage not in made:
        message = f"no target of the spec has the stage '{stage}'"
        yield anatomy.document.problem((*one.path, "stage"), message, f"its targets have {one_of(sorted(made))}", code="target")


# -- simulated targets ----------------------------------------------------------------------------------------------

_STEPS = ("call", "backward")
"""What can be lowered without being executed."""

_REFUSED: Mapping[str, str] = {
    "source": "operators are judged by what they compute",
    "let": "values are made by code that runs",
    "spies": "a spy sees what runs",
    "handlers": "they are for code that runs",
    "services": "they are for caches, which are off",
    "env": "the variables of Inductor are removed: write config",
    "isolation": "each target has processes of its own",
}
"""Keys without a meaning for a simulated GPU, and why."""

_COUNTED = ("compiled", "failed", "rendered", "tuned")
"""What is known of candidates that are not timed."""


def simulated_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of a spec whose code Inductor generates for targets."""
    document, data = anatomy.document, anatomy.data
    if not anatomy.functions:
        hint = "add function: for code that Inductor generates, or triton: {source: ..., signature: ...} for a kernel of your own"
        yield document.problem((KEY,), "'targets' without 'triton' and 'function'", hint, key=True, code="target")
        return
    for index, name in enumerate(data[KEY]):
        if name not in PROPERTIES:
            hint = f"code is generated for {one_of(PROPERTIES)}"
            yield document.problem((KEY, index), f"the properties of '{name}' are not known", hint, code="target")
    for key, why in _REFUSED.items():
        if key in data:
            yield document.problem((key,), f"'{key}' on a simulated GPU", why, key=True, code="target")
    for layer in (*anatomy.spec.defaults, document):
        yield from _option_problems(layer, ())
    if "control" in data:
        yield from _option_problems(document, ("control",))
    yield from _compile_problems(document, data.get("compile", {}))
    for step in anatomy.steps:
        if step.kind not in _STEPS:
            hint = f"nothing runs: write {one_of(_STEPS)}"
            yield document.problem(step.path, f"the step '{step.kind}' on a simulated GPU", hint, key=True, code="target")
        elif isinstance(step.arguments, dict) and step.arguments.get("eager"):
            yield document.problem(
                (*step.path, "eager"), "an eager call on a simulated GPU", "nothing runs: remove the step", code="target"
            )
        for one in step.expectations:
            yield from _expectation_problems_of_simulated(anatomy, one)


def _option_problems(document: Document, path: DataPath) -> Iterator[Diagnostic]:
    """Yield options that a simulated GPU does not show, and those that it needs otherwise."""
    sections = document.value(path)
    for section in ("config", "functorch_config"):
        given = sections.get(section, {})
        entries: list[tuple[DataPath, Any]] = [((section,), given)] if isinstance(given, dict) else []
        for index, entry in enumerate(given if isinstance(given, list) else []):
            entries.append(((section, index, "set"), entry["set"]) if "set" in entry else ((section, index), entry))
        for where, options in entries:
            for name, value in options.items():
                if (why := _refusal(section, name, value)) is not None:
                    yield document.problem((*path, *where, name), f"'{name}' on a simulated GPU", why, key=True, code="target")


def _refusal(section: str, name: str, value: object) -> str | None:
    plain = value["value"] if isinstance(value, dict) and set(value) == {"value", "override"} else value
    if is_template(plain):
        return None  # the worker checks the value
    if section == "config":
        return config_refusal(name, plain)
    fixed = FIXED[section]
    return f"a simulated GPU needs {fixed[name]}" if name in fixed and plain != fixed[name] else None


def _compile_problems(document: Document, given: Mapping[str, object]) -> Iterator[Diagnostic]:
    mode = str(given.get("mode"))
    if mode in REFUSED_MODES:
        yield document.problem(("compile", "mode"), f"the mode '{mode}' on a simulated GPU", REFUSED_MODES[mode], code="target")
    options = given.get("options")
    for name, value in options.items() if isinstance(options, Mapping) else ():
        if (why := _refusal("config", name, value)) is not None:
            yield document.problem(("compile", "options", name), f"'{name}' on a simulated GPU", why, key=True, code="target")
    if given.get("fullgraph") is False:
        hint = "nothing runs, so that only the first graph would be seen: remove it"
        yield document.problem(("compile", "fullgraph"), "graph breaks on a simulated GPU", hint, code="target")
    if given.get("backend", "inductor") != "inductor":
        yield document.problem(("compile", "backend"), "another backend of torch.compile on a simulated GPU", "remove it", code="target")


def _expectation_problems_of_simulated(anatomy: Anatomy, one: RawExpectation) -> Iterator[Diagnostic]:
    from runner.vocabulary.offline import OF_SIMULATED

    document = anatomy.document
    if one.kind not in OF_SIMULATED:
        hint = f"nothing runs: it may have {one_of(OF_SIMULATED)}"
        yield document.problem(one.path, f"'{one.kind}' of code that is not executed", hint, key=True, code="target")
    if one.kind == "filecheck" and stage_of(one) is None:
        hint = f"write filecheck: {{stage: {WRAPPER}, checks: ...}}; stages: {', '.join((WRAPPER, *ALL_STAGES))}"
        yield document.problem(one.path, "'filecheck' of compiled code without a stage", hint, key=True, code="target")
    yield from stage_problems(anatomy, one)
    if one.kind == "choices":
        yield from _choices_problems(document, one)


def _choices_problems(document: Document, one: RawExpectation) -> Iterator[Diagnostic]:
    for name in ("timed", "won"):
        if name in one.body:
            hint = f"which is fastest is not known: write {one_of(_COUNTED)}"
            yield document.problem((*one.path, name), f"'{name}' of candidates that are not timed", hint, key=True, code="target")
    if one.body.get("backend") != "TRITON" and any(name in one.body for name in ("compiled", "failed")):
        hint = "only candidates of Triton are compiled: add backend: TRITON, or write rendered"
        yield document.problem(one.path, "'choices' counts what is not compiled", hint, key=True, code="target")
