"""Checks of ``targets``: with which keys it may be written, that its expectations can be judged
without the device, what no simulated GPU shows.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence

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

_NOT_OF_A_KERNEL = (
    "function functions entry inputs steps source let spies handlers services compile context "
    "config dynamo_config functorch_config env torch isolation"
).split()
"""Keys without a meaning together with ``targets`` and ``triton``: torch is not imported, and
nothing is called.
"""

_SECONDS = 1.0
"""The time limit for the patterns on a name."""

_at_value = functools.partial(Document.problem, code="target")
_at_key = functools.partial(Document.problem, key=True, code="target")


def target_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of a spec with targets."""
    document, data = anatomy.document, anatomy.data
    if document.marks.get(("backends",)) != document.marks.get((KEY,)):
        hint = "its cases are compiled and not executed: remove backends"
        yield _at_key(document, ("backends",), "'backends' together with 'targets'", hint)
    stages = {stage for name in data[KEY] for stage in STAGES[TARGETS[name].backend]}
    for raw in anatomy.expectations:
        if (stage := stage_of(raw)) in ALL_STAGES and stage not in stages:
            message = f"no target of the spec has the stage '{stage}'"
            hint = f"its targets have {one_of(stages)}"
            yield _at_value(document, (*raw.path, "stage"), message, hint)
    if TRITON not in data:
        yield from _simulated_problems(anatomy)
        return
    for key in _NOT_OF_A_KERNEL:
        if key in data:
            hint = "only the kernel is compiled: write triton, prelude and expect"
            yield _at_key(document, (key,), f"'{key}' together with 'targets'", hint)
    for raw in anatomy.expectations:
        yield from _kernel_problems(anatomy, raw)


def _judged_otherwise(
    document: Document, raw: RawExpectation, what: str, stages: Sequence[str], more: Sequence[str]
) -> Iterator[Diagnostic]:
    """Yield why an expectation cannot be judged of what is not executed; it may be of the kinds
    ``more``, too.
    """
    kinds = [*(kind for kind in EXPECTATIONS if EXPECTATIONS[kind].is_offline), *more]
    if raw.kind not in kinds:
        hint = f"nothing runs: it may have {one_of(kinds)}"
        yield _at_key(document, raw.path, f"'{raw.kind}' of {what} that is not executed", hint)
    if raw.kind == "filecheck" and stage_of(raw) is None:
        hint = f"write filecheck: {{stage: {stages[0]}, checks: ...}}; stages: {', '.join(stages)}"
        yield _at_key(document, raw.path, f"'filecheck' of {what} without a stage", hint)


def _kernel_problems(anatomy: Anatomy, raw: RawExpectation) -> Iterator[Diagnostic]:
    """Yield why an expectation cannot be judged of a kernel that is compiled for targets."""
    from torch_conformance.vocabulary.steps.triton import kernels

    document, stage = anatomy.document, stage_of(raw)
    if stage == WRAPPER:
        message = f"the stage '{WRAPPER}' together with 'triton'"
        hint = (
            "a kernel of Triton has no wrapper: Inductor writes one, for function: in place of "
            "triton:"
        )
        yield _at_value(document, (*raw.path, "stage"), message, hint)
    yield from _judged_otherwise(document, raw, "a kernel", ALL_STAGES, ())
    if stage not in ISA.values():
        return
    # every text of a kernel has its name, whatever its instructions are: directives that match the
    # name claim nothing
    try:
        positive = [
            directive for directive in parse(raw.body["checks"]) if directive.kind is not Kind.NOT
        ]
    except ChecksError:
        return  # reported with the other problems of the directives
    trees = [script.tree for script in anatomy.scripts.values() if script.tree is not None]
    for name in itertools.chain.from_iterable(map(kernels, trees)):
        try:
            with time_limit(_SECONDS):
                all_match = all(directive.compiled({}).search(name) for directive in positive)
        except (PatternTooSlow, KeyError):  # a variable of an earlier directive has no text here
            continue
        if all_match:
            message = (
                f"the name of the kernel '{name}' matches every directive, and is in every "
                "compiled text"
            )
            hint = "rename the kernel, or write more of the instruction"
            yield _at_value(document, (*raw.path, "checks"), message, hint)


# -- simulated targets -----------------------------------------------------------------------------

_STEPS = ("call", "backward")
"""What can be lowered without being executed."""

_REFUSED = ("source", "let", "spies", "handlers", "services", "env", "isolation")
"""Keys without a meaning for a simulated GPU: nothing runs, and each target has processes of its
own.
"""

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
        yield _at_key(document, (KEY,), "'targets' without 'triton' and 'function'", hint)
        return
    for index, name in enumerate(data[KEY]):
        if name not in SIMULATED_TARGETS:
            message = f"the properties of '{name}' are not known"
            hint = f"code is generated for {one_of(SIMULATED_TARGETS)}"
            yield _at_value(document, (KEY, index), message, hint)
    for key in _REFUSED:
        if key in data:
            hint = "nothing runs there: remove it"
            yield _at_key(document, (key,), f"'{key}' on a simulated GPU", hint)
    yield from _option_problems(anatomy)
    compile_ = data.get("compile", {})
    mode = str(compile_.get("mode"))
    for key, is_refused, what, hint in (
        ("mode", mode in REFUSED_MODES, f"the mode '{mode}'", REFUSED_MODES.get(mode, "")),
        (
            "fullgraph",
            compile_.get("fullgraph") is False,
            "graph breaks",
            "nothing runs, so that only the first graph would be seen: remove it",
        ),
        (
            "backend",
            compile_.get("backend", "inductor") != "inductor",
            "another backend of torch.compile",
            "remove it",
        ),
    ):
        if is_refused:
            yield _at_value(document, ("compile", key), f"{what} on a simulated GPU", hint)
    for step in anatomy.steps:
        if step.kind not in _STEPS:
            hint = f"nothing runs: write {one_of(_STEPS)}"
            yield _at_key(document, step.path, f"the step '{step.kind}' on a simulated GPU", hint)
        elif isinstance(step.arguments, dict) and step.arguments.get("eager"):
            path, message = (*step.path, "eager"), "an eager call on a simulated GPU"
            yield _at_value(document, path, message, "nothing runs: remove the step")
    for raw in anatomy.expectations:
        stages = (WRAPPER, *ALL_STAGES)
        yield from _judged_otherwise(document, raw, "compiled code", stages, ["choices"])
        if raw.kind == "choices":
            yield from _choices_problems(document, raw)


def _choices_problems(document: Document, raw: RawExpectation) -> Iterator[Diagnostic]:
    """Yield the counts of candidates that are not known where none is timed."""
    for name in ("refused", "timed", "won"):
        if name in raw.body:
            hint = f"which is fastest is not known: write {one_of(_COUNTED)}"
            message = f"'{name}' of candidates that are not timed"
            yield _at_key(document, (*raw.path, name), message, hint)
    if raw.body.get("backend") != "TRITON" and {"compiled", "failed"} & raw.body.keys():
        hint = "only candidates of Triton are compiled: add backend: TRITON, or write rendered"
        yield _at_key(document, raw.path, "'choices' counts what is not compiled", hint)


def _option_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield options that a simulated GPU does not show, and those that it needs otherwise."""
    data = anatomy.data
    options: list[tuple[Document, DataPath, str]] = []
    if isinstance(compile_options := data.get("compile", {}).get("options"), dict):
        paths = [("compile", "options", name) for name in compile_options]
        options += [(anatomy.document, path, path[-1]) for path in paths]
    for document, above, settings in [
        *((document, (), document.data) for document in (*anatomy.defaults, anatomy.document)),
        (anatomy.document, ("control",), data.get("control", {})),
    ]:
        for section in FIXED:
            named = option_names(settings.get(section), (*above, section))
            options += [(document, path, name) for path, name in named]
    for document, path, name in options:
        value = document.value(path)
        if isinstance(value, dict) and set(value) == {"value", "override"}:
            value = value["value"]
        if is_template(value):
            continue  # the worker checks the value
        if (why := config_refusal(name, value)) is not None:
            yield _at_key(document, path, f"'{name}' on a simulated GPU", why)
