"""Which cases a compiler other than Inductor does not run: those that name something of Inductor,
and those that it does not claim.

Such a case is UNAVAILABLE on that compiler, and its reason names the word and the line.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from torch_conformance.model.case import Case
from torch_conformance.model.expectation import About
from torch_conformance.model.results import NOT_CLAIMED
from torch_conformance.vocabulary.backend import INDUCTOR, Backend
from torch_conformance.vocabulary.inputs import INPUTS
from torch_conformance.vocabulary.steps import SAMPLES, STEPS, traits_of

_SECTIONS = ("config", "functorch_config")
"""Sections with options of Inductor, or of parts that other compilers may not use."""

_ENVIRONMENT = ("TORCHINDUCTOR_", "TRITON_")

_NEUTRAL = ("fallback_random", "shape_padding")
"""Options of Inductor that another compiler may ignore: its random numbers are eager's without
them, or the claim fails.
"""


def with_unclaimed(case: Case, backend: Backend, *, is_joined: bool) -> Case:
    """Return a case with the reasons why the compiler of its backend need not run it: the compiler
    is another one than Inductor, or its entry claims less.

    For a compiler that does not train, the case compares no gradients.
    """
    why = [*case.missing_names]
    if is_joined and backend.compiler != INDUCTOR:
        why += [
            f"{word} is about Inductor, and {backend.name} compiles with {backend.compiler}"
            for word in words_of_inductor(case)
        ]
    why += [f"{NOT_CLAIMED} {backend.name}: {claim}" for claim in _unclaimed(case, backend)]
    case = replace(case, missing_names=tuple(dict.fromkeys(why)))
    if backend.claims.trains:
        return case
    steps = [
        replace(step, arguments={**step.arguments, "gradients": False})
        if step.kind == SAMPLES
        else step
        for step in case.steps
    ]
    context = (
        case.body.context if "no_grad" in case.body.context else (*case.body.context, "no_grad")
    )
    return replace(case, steps=tuple(steps), body=replace(case.body, context=context))


def words_of_inductor(case: Case) -> Iterator[str]:
    """Yield the words of a case that mean nothing for another compiler, each with its line."""
    for step in case.steps:
        if STEPS[step.kind].about is About.INDUCTOR:
            yield f"{step.kind} (line {step.position.line})"
        for expected in step.expectations:
            if expected.check.subject is About.INDUCTOR:
                yield f"{expected.kind} (line {expected.position.line})"
    for section, options in case.options.items():
        for name, option in options.items():
            is_ours = (section in _SECTIONS and name not in _NEUTRAL) or (
                section == "env" and name.startswith(_ENVIRONMENT)
            )
            if option.layer in ("spec", "defaults") and (
                is_ours or (section == "compile" and name in ("mode", "options"))
            ):
                yield f"{section}.{name} (line {option.position.line})"
    for name, spy in case.body.spies.items():
        if isinstance(spy, Mapping) and spy.keys() & {"lowering", "graph"}:
            yield f"the spy {name}"
    if case.body.handlers:
        yield "handlers"
    if case.body.services:
        yield "services"


def _unclaimed(case: Case, backend: Backend) -> Iterator[str]:
    claims = backend.claims
    of_gradients = (
        step
        for step in case.steps
        if traits_of(step).gives_gradients or step.arguments.get("gradients") == "required"
    )
    if not claims.trains and (step := next(of_gradients, None)):
        yield f"gradients (line {step.position.line})"
    if not claims.dynamic and case.body.settings.compile.get("dynamic"):
        yield "dynamic shapes"
    for step in case.steps if claims.file is not None else ():
        if step.kind == SAMPLES and case.params["op"] not in claims.operators.get(
            step.arguments["dtype"], ()
        ):
            yield f"the operator in {step.arguments['dtype']}"
    if claims.dtypes:
        described = [
            *case.body.inputs,
            *case.body.let.values(),
            case.params,
            *(step.arguments for step in case.steps),
        ]
        default = str(case.body.settings.torch.get("default_dtype", "float32"))
        yield from (
            f"the dtype {other}"
            for other in sorted({*_dtypes(described, default)} - claims.dtypes)[:1]
        )


def _dtypes(value: object, default: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        usual = next(
            (
                kind.dtype.replace("float32", default)
                for name, kind in INPUTS.items()
                if name in value
            ),
            "",
        )
        if isinstance(dtype := value.get("dtype", usual), str) and dtype:
            yield dtype
        value = list(value.values())
    if isinstance(value, list | tuple):
        yield from (dtype for entry in value for dtype in _dtypes(entry, default))
