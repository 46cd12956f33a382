"""Checks of ``targets``: what may stand beside it, and that its expectations can be judged without the device."""

from collections.abc import Iterator

from runner.core.diagnostics import Diagnostic, one_of
from runner.core.matching.filecheck import ChecksError, Directive, directives, parse
from runner.core.matching.filecheck.expressions import compile_pattern
from runner.core.matching.time_limit import PatternTooSlow, time_limit
from runner.core.targets import ALL_STAGES, EXAMPLE, ISA, OFFLINE_BACKENDS, WRAPPER
from runner.language.backends import Backends
from runner.language.check.simulated import simulated_problems
from runner.language.check.stages import stage_of, stage_problems
from runner.language.read.anatomy import Anatomy, RawExpectation
from runner.language.read.matrix import TARGETS as KEY
from runner.vocabulary.offline.levels import LEVELS
from runner.vocabulary.steps import TRITON
from runner.vocabulary.steps.triton import kernels

_BESIDE = (
    *("function", "functions", "entry", "inputs", "steps", "source", "let", "spies", "handlers", "services", "compile", "context"),
    *("config", "dynamo_config", "functorch_config", "env", "torch", "isolation"),
)
"""Keys without a meaning beside ``targets``: torch is not imported, and nothing is called."""

_SECONDS = 1.0
"""The time limit for a pattern on a name."""

_NEEDS_TARGETS = ("resources", "metadata")


def target_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of a spec with targets, and of one that needs some."""
    document, data = anatomy.document, anatomy.data
    if KEY not in data:
        yield from _without_targets(anatomy)
        return
    if document.marks.get(("backends",)) != document.marks.get((KEY,)):
        message = "'backends' beside 'targets'"
        yield document.problem(("backends",), message, "its cases are compiled and not executed: remove backends", key=True)
    if TRITON not in data:
        yield from simulated_problems(anatomy)
        return
    for key in _BESIDE:
        if key in data:
            hint = "the kernel is compiled alone: write triton, prelude and expect"
            yield document.problem((key,), f"'{key}' beside 'targets'", hint, key=True)
    for step in anatomy.steps:
        for one in step.expectations:
            yield from _expectation_problems(anatomy, one)


def _without_targets(anatomy: Anatomy) -> Iterator[Diagnostic]:
    document, data = anatomy.document, anatomy.data
    for backend in OFFLINE_BACKENDS:
        if backend in data["backends"]:
            path = ("backends", data["backends"].index(backend))
            yield document.problem(path, f"the backend '{backend}' without targets", f"write targets: [{EXAMPLE}] in place of backends")
    if TRITON in data:
        yield document.problem((TRITON,), "'triton' without 'targets'", f"write targets: [{EXAMPLE}] in place of backends", key=True)
    if TRITON in data.get("control", {}):
        yield document.problem(("control", TRITON), "a control of 'triton' without 'triton'", "remove it", key=True)
    for step in anatomy.steps:
        for one in step.expectations:
            if one.kind in _NEEDS_TARGETS:
                hint = "it is for kernels that are compiled for targets"
                yield document.problem(one.path, f"'{one.kind}' without 'targets'", hint, key=True)
            elif stage_of(one) is not None:
                yield document.problem(
                    (*one.path, "stage"), "'stage' without 'targets'", "remove it: generated code has no stages", key=True
                )


def _expectation_problems(anatomy: Anatomy, one: RawExpectation) -> Iterator[Diagnostic]:
    document, stage = anatomy.document, stage_of(one)
    if stage == WRAPPER:
        hint = "a kernel of Triton has no wrapper: Inductor writes one, for function: in place of triton:"
        yield document.problem((*one.path, "stage"), f"the stage '{WRAPPER}' beside 'triton'", hint)
    if one.kind not in LEVELS:
        yield document.problem(one.path, f"'{one.kind}' of a kernel that is not executed", f"it may have {one_of(LEVELS)}", key=True)
    if one.kind == "filecheck" and stage is None:
        hint = f"write filecheck: {{stage: {ISA['hip']}, checks: ...}}; stages: {', '.join(ALL_STAGES)}"
        yield document.problem(one.path, "'filecheck' of a kernel without a stage", hint, key=True)
    if stage in ISA.values():
        yield from _name_problems(anatomy, one)
    yield from stage_problems(anatomy, one)


def _name_problems(anatomy: Anatomy, one: RawExpectation) -> Iterator[Diagnostic]:
    """Yield directives that the name of a kernel alone matches: it stands among the instructions, whatever these are."""
    try:
        found = [directive for directive in directives(parse(one.body["checks"])) if directive.positive]
    except ChecksError:
        return  # reported with the other problems of the directives
    for script in anatomy.scripts.values():
        for name in kernels(script.tree) if script.tree is not None else ():
            if all(_matches(directive, name) for directive in found):
                message = f"the name of the kernel '{name}' matches every directive, and stands in every compiled text"
                hint = "rename the kernel, or write more of the instruction"
                yield anatomy.document.problem((*one.path, "checks"), message, hint)


def _matches(directive: Directive, name: str) -> bool:
    try:
        with time_limit(_SECONDS):
            return compile_pattern(directive, {}).search(name) is not None
    except (PatternTooSlow, KeyError):  # a variable of an earlier directive has no text here
        return False
