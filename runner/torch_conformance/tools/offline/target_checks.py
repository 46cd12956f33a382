"""Checks of ``targets``: what may stand beside it, that its expectations can be judged without the
device, what no simulated GPU shows.
"""

from collections.abc import Iterator

from torch_conformance.language.check.names import option_names
from torch_conformance.language.read.anatomy import Anatomy, RawExpectation, stage_of
from torch_conformance.language.read.matrix import TARGETS as KEY
from torch_conformance.matching.filecheck import ChecksError, Kind, parse
from torch_conformance.matching.time_limit import PatternTooSlow, time_limit
from torch_conformance.model.conditions import is_template
from torch_conformance.model.diagnostics import Diagnostic, one_of
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.targets import (
    ALL_STAGES,
    ISA,
    SIMULATED_TARGETS,
    STAGES,
    TARGETS,
    WRAPPER,
)
from torch_conformance.tools.offline.simulated_options import FIXED, REFUSED_MODES, config_refusal
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.steps import TRITON

_BESIDE = (
    *(
        "function",
        "functions",
        "entry",
        "inputs",
        "steps",
        "source",
        "let",
        "spies",
        "handlers",
        "services",
        "compile",
        "context",
    ),
    *("config", "dynamo_config", "functorch_config", "env", "torch", "isolation"),
)
"""Keys without a meaning beside ``targets``: torch is not imported, and nothing is called."""

_SECONDS = 1.0
"""The time limit for the patterns on a name."""


def target_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of a spec with targets."""
    document, data = anatomy.document, anatomy.data
    expectations = anatomy.expectations
    if document.marks.get(("backends",)) != document.marks.get((KEY,)):
        message = "'backends' together with 'targets'"
        yield document.problem(
            ("backends",),
            message,
            "its cases are compiled and not executed: remove backends",
            key=True,
            code="target",
        )
    stages = {stage for name in data[KEY] for stage in STAGES[TARGETS[name].backend]}
    for raw in expectations:
        if (stage := stage_of(raw)) in ALL_STAGES and stage not in stages:
            message = f"no target of the spec has the stage '{stage}'"
            yield document.problem(
                (*raw.path, "stage"), message, f"its targets have {one_of(stages)}", code="target"
            )
    if TRITON not in data:
        yield from _simulated_problems(anatomy)
        return
    for key in _BESIDE:
        if key in data:
            hint = "the kernel is compiled alone: write triton, prelude and expect"
            yield document.problem(
                (key,), f"'{key}' together with 'targets'", hint, key=True, code="target"
            )
    for raw in expectations:
        yield from _kernel_problems(anatomy, raw)


def _kernel_problems(anatomy: Anatomy, raw: RawExpectation) -> Iterator[Diagnostic]:
    """Yield why an expectation cannot be judged of a kernel that is compiled for targets."""
    from torch_conformance.vocabulary.steps.triton import kernels

    document, stage = anatomy.document, stage_of(raw)
    if stage == WRAPPER:
        hint = (
            "a kernel of Triton has no wrapper: Inductor writes one, for function: in place of "
            "triton:"
        )
        yield document.problem(
            (*raw.path, "stage"),
            f"the stage '{WRAPPER}' together with 'triton'",
            hint,
            code="target",
        )
    if not EXPECTATIONS[raw.kind].is_offline:
        message = f"'{raw.kind}' of a kernel that is not executed"
        yield document.problem(
            raw.path, message, f"it may have {one_of(_offline_kinds())}", key=True, code="target"
        )
    if raw.kind == "filecheck" and stage is None:
        hint = (
            f"write filecheck: {{stage: {ISA['hip']}, checks: ...}}; stages: "
            f"{', '.join(ALL_STAGES)}"
        )
        yield document.problem(
            raw.path, "'filecheck' of a kernel without a stage", hint, key=True, code="target"
        )
    if stage not in ISA.values():
        return
    # the name of the kernel stands among the instructions, whatever these are: directives that it
    # alone matches claim nothing
    try:
        positive = [
            directive for directive in parse(raw.body["checks"]) if directive.kind is not Kind.NOT
        ]
    except ChecksError:
        return  # reported with the other problems of the directives
    for name in [
        name
        for script in anatomy.scripts.values()
        if script.tree is not None
        for name in kernels(script.tree)
    ]:
        try:
            with time_limit(_SECONDS):
                all_match = all(directive.compiled({}).search(name) for directive in positive)
        except (PatternTooSlow, KeyError):  # a variable of an earlier directive has no text here
            continue
        if all_match:
            message = (
                f"the name of the kernel '{name}' matches every directive, and stands in every "
                "compiled text"
            )
            hint = "rename the kernel, or write more of the instruction"
            yield document.problem((*raw.path, "checks"), message, hint, code="target")


# -- simulated targets -----------------------------------------------------------------------------

_STEPS = ("call", "backward")
"""What can be lowered without being executed."""

_REFUSED = ("source", "let", "spies", "handlers", "services", "env", "isolation")
"""Keys without a meaning for a simulated GPU: nothing runs, and each target has processes of its
own.
"""


def _offline_kinds() -> list[str]:
    return [kind for kind in EXPECTATIONS if EXPECTATIONS[kind].is_offline]


_COUNTED = ("compiled", "failed", "rendered", "tuned")
"""What is known of candidates that are not timed."""


def _simulated_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of a spec whose code Inductor generates for targets."""
    document, data = anatomy.document, anatomy.data
    if not anatomy.functions:
        hint = (
            "add function: for code that Inductor generates, or triton: {source: ..., signature: "
            "...} for a kernel of your own"
        )
        yield document.problem(
            (KEY,), "'targets' without 'triton' and 'function'", hint, key=True, code="target"
        )
        return
    for index, name in enumerate(data[KEY]):
        if name not in SIMULATED_TARGETS:
            hint = f"code is generated for {one_of(SIMULATED_TARGETS)}"
            yield document.problem(
                (KEY, index), f"the properties of '{name}' are not known", hint, code="target"
            )
    for key in _REFUSED:
        if key in data:
            yield document.problem(
                (key,),
                f"'{key}' on a simulated GPU",
                "nothing runs there: remove it",
                key=True,
                code="target",
            )
    yield from _option_problems(anatomy)
    compile_ = data.get("compile", {})
    if (mode := str(compile_.get("mode"))) in REFUSED_MODES:
        yield document.problem(
            ("compile", "mode"),
            f"the mode '{mode}' on a simulated GPU",
            REFUSED_MODES[mode],
            code="target",
        )
    if compile_.get("fullgraph") is False:
        hint = "nothing runs, so that only the first graph would be seen: remove it"
        yield document.problem(
            ("compile", "fullgraph"), "graph breaks on a simulated GPU", hint, code="target"
        )
    if compile_.get("backend", "inductor") != "inductor":
        yield document.problem(
            ("compile", "backend"),
            "another backend of torch.compile on a simulated GPU",
            "remove it",
            code="target",
        )
    for step in anatomy.steps:
        if step.kind not in _STEPS:
            hint = f"nothing runs: write {one_of(_STEPS)}"
            yield document.problem(
                step.path,
                f"the step '{step.kind}' on a simulated GPU",
                hint,
                key=True,
                code="target",
            )
        elif isinstance(step.arguments, dict) and step.arguments.get("eager"):
            hint = "nothing runs: remove the step"
            yield document.problem(
                (*step.path, "eager"), "an eager call on a simulated GPU", hint, code="target"
            )
    for raw in anatomy.expectations:
        if not EXPECTATIONS[raw.kind].is_offline and raw.kind != "choices":
            hint = f"nothing runs: it may have {one_of([*_offline_kinds(), 'choices'])}"
            yield document.problem(
                raw.path,
                f"'{raw.kind}' of code that is not executed",
                hint,
                key=True,
                code="target",
            )
        if raw.kind == "filecheck" and stage_of(raw) is None:
            hint = (
                f"write filecheck: {{stage: {WRAPPER}, checks: ...}}; stages: "
                f"{', '.join((WRAPPER, *ALL_STAGES))}"
            )
            yield document.problem(
                raw.path,
                "'filecheck' of compiled code without a stage",
                hint,
                key=True,
                code="target",
            )
        if raw.kind != "choices":
            continue
        for name in ("refused", "timed", "won"):
            if name in raw.body:
                hint = f"which is fastest is not known: write {one_of(_COUNTED)}"
                yield document.problem(
                    (*raw.path, name),
                    f"'{name}' of candidates that are not timed",
                    hint,
                    key=True,
                    code="target",
                )
        if raw.body.get("backend") != "TRITON" and any(
            name in raw.body for name in ("compiled", "failed")
        ):
            hint = "only candidates of Triton are compiled: add backend: TRITON, or write rendered"
            yield document.problem(
                raw.path, "'choices' counts what is not compiled", hint, key=True, code="target"
            )


def _option_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield options that a simulated GPU does not show, and those that it needs otherwise."""
    layers = [(document, (), document.data) for document in (*anatomy.defaults, anatomy.document)]
    compile_options = anatomy.data.get("compile", {}).get("options")
    options: list[tuple[Document, DataPath, str, str]] = []
    options += [
        (anatomy.document, ("compile", "options", name), "config", name)
        for name in compile_options or ()
        if isinstance(compile_options, dict)
    ]
    for document, above, settings in [
        *layers,
        (anatomy.document, ("control",), anatomy.data.get("control", {})),
    ]:
        for section in ("config", "functorch_config"):
            options += [
                (document, path, section, name)
                for path, name in option_names(settings.get(section), (*above, section))
            ]
    for document, path, section, name in options:
        value = document.value(path)
        plain = (
            value["value"]
            if isinstance(value, dict) and set(value) == {"value", "override"}
            else value
        )
        if is_template(plain):
            continue  # the worker checks the value
        if section == "config":
            why = config_refusal(name, plain)
        else:
            fixed = FIXED[section]
            why = (
                f"a simulated GPU needs {fixed[name]}"
                if name in fixed and plain != fixed[name]
                else None
            )
        if why is not None:
            yield document.problem(
                path, f"'{name}' on a simulated GPU", why, key=True, code="target"
            )
