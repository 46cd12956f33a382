"""Checks of ``targets`` beside ``function``: what a simulated GPU does not show is refused by name."""

from collections.abc import Iterator, Mapping
from typing import Any

from runner.core.diagnostics import Diagnostic, one_of
from runner.core.simulated import FIXED, PROPERTIES, REFUSED_MODES, config_refusal
from runner.core.targets import ALL_STAGES, WRAPPER
from runner.core.template_form import is_template
from runner.language.check.stages import stage_of, stage_problems
from runner.language.read.anatomy import Anatomy, RawExpectation
from runner.language.read.document import DataPath, Document
from runner.language.read.matrix import TARGETS as KEY
from runner.vocabulary.offline.levels import OF_SIMULATED

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
        yield document.problem((KEY,), "'targets' without 'triton' and 'function'", hint, key=True)
        return
    for index, name in enumerate(data[KEY]):
        if name not in PROPERTIES:
            hint = f"code is generated for {one_of(PROPERTIES)}"
            yield document.problem((KEY, index), f"the properties of '{name}' are not known", hint)
    for key, why in _REFUSED.items():
        if key in data:
            yield document.problem((key,), f"'{key}' on a simulated GPU", why, key=True)
    for layer in (*anatomy.spec.defaults, document):
        yield from _option_problems(layer, ())
    if "control" in data:
        yield from _option_problems(document, ("control",))
    yield from _compile_problems(document, data.get("compile", {}))
    for step in anatomy.steps:
        if step.kind not in _STEPS:
            hint = f"nothing runs: write {one_of(_STEPS)}"
            yield document.problem(step.path, f"the step '{step.kind}' on a simulated GPU", hint, key=True)
        elif isinstance(step.arguments, dict) and step.arguments.get("eager"):
            yield document.problem((*step.path, "eager"), "an eager call on a simulated GPU", "nothing runs: remove the step")
        for one in step.expectations:
            yield from _expectation_problems(anatomy, one)


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
                    yield document.problem((*path, *where, name), f"'{name}' on a simulated GPU", why, key=True)


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
        yield document.problem(("compile", "mode"), f"the mode '{mode}' on a simulated GPU", REFUSED_MODES[mode])
    options = given.get("options")
    for name, value in options.items() if isinstance(options, Mapping) else ():
        if (why := _refusal("config", name, value)) is not None:
            yield document.problem(("compile", "options", name), f"'{name}' on a simulated GPU", why, key=True)
    if given.get("fullgraph") is False:
        hint = "nothing runs, so that only the first graph would be seen: remove it"
        yield document.problem(("compile", "fullgraph"), "graph breaks on a simulated GPU", hint)
    if given.get("backend", "inductor") != "inductor":
        yield document.problem(("compile", "backend"), "another backend of torch.compile on a simulated GPU", "remove it")


def _expectation_problems(anatomy: Anatomy, one: RawExpectation) -> Iterator[Diagnostic]:
    document = anatomy.document
    if one.kind not in OF_SIMULATED:
        hint = f"nothing runs: it may have {one_of(OF_SIMULATED)}"
        yield document.problem(one.path, f"'{one.kind}' of code that is not executed", hint, key=True)
    if one.kind == "filecheck" and stage_of(one) is None:
        hint = f"write filecheck: {{stage: {WRAPPER}, checks: ...}}; stages: {', '.join((WRAPPER, *ALL_STAGES))}"
        yield document.problem(one.path, "'filecheck' of compiled code without a stage", hint, key=True)
    yield from stage_problems(anatomy, one)
    if one.kind == "choices":
        yield from _choices_problems(document, one)


def _choices_problems(document: Document, one: RawExpectation) -> Iterator[Diagnostic]:
    for name in ("timed", "won"):
        if name in one.body:
            hint = f"which is fastest is not known: write {one_of(_COUNTED)}"
            yield document.problem((*one.path, name), f"'{name}' of candidates that are not timed", hint, key=True)
    if one.body.get("backend") != "TRITON" and any(name in one.body for name in ("compiled", "failed")):
        hint = "only candidates of Triton are compiled: add backend: TRITON, or write rendered"
        yield document.problem(one.path, "'choices' counts what is not compiled", hint, key=True)
