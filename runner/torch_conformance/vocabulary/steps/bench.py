"""``bench``: times and traces functions, compiled and eager.

Timings are reported and never judged.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from torch_conformance.model.diagnostics import Diagnostic, unknown
from torch_conformance.model.protocol import MAX_ATTACHMENT, Json
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.forms import Boolean, Contexts, Form, Inputs, common, whole
from torch_conformance.vocabulary.steps.call import (
    LOSSES,
    SUM,
    forget_gradients,
    gradient_leaves,
    make_optimizer,
    parameters_of,
)
from torch_conformance.vocabulary.steps.step_base import (
    Callee,
    DataPath,
    StepContext,
    StepKind,
    Traits,
    needed,
)
from torch_conformance.vocabulary.worker_session import Function, Session
from torch_conformance.vocabulary.worker_torch import torch

WARM_UP = 3
"""Warm-up rounds: the first compiles, and the next records CUDA graphs."""

TRACED = 3
"""Rounds in a trace."""

REPEAT = 10
"""The default number of timed rounds."""


@dataclass
class Subject:
    """A timed function in one form, with its times in milliseconds."""

    name: str
    form: str
    """``compiled`` or ``eager``."""
    run: Callable[[], None]
    taken: list[float] = field(default_factory=list)

    def timing(self) -> dict[str, Any]:
        """Return its timing for the report."""
        from statistics import median  # loads random and decimal: not for every command

        times = [round(milliseconds, 6) for milliseconds in self.taken]
        numbers = {
            "median_ms": round(median(times), 6),
            "least_ms": min(times),
            "most_ms": max(times),
            "count": len(times),
        }
        return {"name": self.name, "form": self.form, **numbers}


def _subjects(session: Session, arguments: "Bench") -> list[Subject]:
    entered = session.entered(arguments.context)
    names = list(session.compiled.targets) if arguments.functions is None else arguments.functions
    forms = ("compiled", "eager") if arguments.eager else ("compiled",)
    subjects = []
    for name in names:
        entries = names[name] if isinstance(names, Mapping) else arguments.inputs
        inputs = session.compiled.arguments if entries is None else session.scope.make_all(entries)
        called = [session.compiled.targets[name], *inputs]
        after = _after_backward(session, arguments, called) if arguments.backward else None
        for form in forms:
            target = (
                called[0]
                if form == "eager"
                else session.compiled_functions.target(session.compiled, name)
            )

            def run_once(
                target: Function = target, inputs: list[Any] = inputs, after: Any = after
            ) -> None:
                # the results of the last call are no longer used: CUDA graphs may reuse their
                # memory
                torch.compiler.cudagraph_mark_step_begin()
                with entered():
                    result = target(*inputs)
                if after is not None:
                    after(result)

            subjects.append(Subject(name, form, run_once))
    return subjects


def _after_backward(
    session: Session, arguments: "Bench", called: list[Any]
) -> Callable[[Any], None]:
    """Return a function that runs backward on a result, runs the optimizer if there is one, and
    deletes the gradients.
    """
    optimizer = None
    if (optimizer_arguments := arguments.optimizer) is not None:
        optimizer = make_optimizer(
            session,
            optimizer_arguments["call"],
            optimizer_arguments.get("kwargs"),
            parameters_of(called),
        )
    leaves = gradient_leaves(called)

    def after(result: object) -> None:
        LOSSES[SUM](result).backward()
        if optimizer is not None:
            optimizer.step()
        for leaf in leaves:
            leaf.grad = None

    forget_gradients(called)  # gradients of earlier steps may be in memory that CUDA graphs reuse
    return after


def timed_on_host(run_once: Callable[[], None]) -> float:
    """Return how many milliseconds a call took, by the clock of the host."""
    begun = time.perf_counter_ns()
    run_once()
    return (time.perf_counter_ns() - begun) / 1e6


def _trace(session: Session, subjects: list[Subject], name: str) -> tuple[list[str], list[str]]:
    """Trace some rounds, each subject under its name; return the file's name, or a note why there
    is none.
    """
    activities = [
        getattr(torch.profiler.ProfilerActivity, name) for name in session.device_api.activities
    ]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(TRACED):
            for subject in subjects:
                with torch.profiler.record_function(f"{subject.name} {subject.form}"):
                    subject.run()
        session.device_api.synchronize()
    path = Path(session.folder, name)
    profile.export_chrome_trace(str(path))
    size = path.stat().st_size
    if size > MAX_ATTACHMENT:
        path.unlink()
        return [], [
            f"the trace was left out: it has {size >> 20} MiB, and at most "
            f"{MAX_ATTACHMENT >> 20} are kept"
        ]
    return [name], []


_FUNCTIONS = Form(
    {
        "type": ["array", "object"],
        "title": "functions",
        "minItems": 1,
        "uniqueItems": True,
        "items": common("name"),
        "minProperties": 1,
        "propertyNames": {"pattern": "^[A-Za-z][A-Za-z0-9_]*$"},
        "additionalProperties": {"$ref": "inputs.schema.json#/$defs/list"},
    }
)

_OPTIMIZER = Form(
    {
        "title": "optimizer",
        "type": "object",
        "properties": {
            "call": {
                **common("callable"),
                "description": "The optimizer's class, or a function that "
                "makes one: called with the "
                "parameters.",
            },
            "kwargs": {
                "description": "Its keyword arguments: inputs of every kind.",
                "type": "object",
                "examples": [{"lr": 0.01}],
            },
        },
        "additionalProperties": False,
        "required": ["call"],
    }
)


@frozen
class Bench(StepKind):
    """Measure the time of functions in turn, on the device, after all expectations were measured.

    It runs under `run --bench` only; otherwise the step is left out, and the report says so. Times
    are reported and never judged. A bench has no result and no expectations, and it must be the
    last step.

    ``bench: {eager: true}``
    ``bench: {functions: [narrow, wide], backward: true, repeat: 20, trace: true}``
    """

    traits = Traits(
        enters_context=True,
        is_proof=False,
        is_optional=True,
        is_last=True,
        is_exclusive=True,
        why_once="bench itself repeats what it times",
    )
    functions: Annotated[list[str] | dict[str, list[Json]], _FUNCTIONS] | None = None
    """Names of functions, or a map from names to the arguments of each; all functions when absent.
    For example ``[narrow, wide]``, ``{narrow: [{rand: [8, 30522]}], wide: [{rand: [8, 30528]}]}``."""  # noqa: E501 - text that is read by its lines
    inputs: Inputs | None = None
    """Arguments for this step, instead of the spec's inputs."""
    context: Contexts | None = None
    """Contexts of each call, instead of the spec's."""
    backward: Boolean = False
    """Whether the sum of the result is run backward each time."""
    optimizer: Annotated[dict[str, Json], _OPTIMIZER] | None = None
    """With backward: an optimizer that takes a step each time.

    For example ``{call: torch.optim.Adam, kwargs: {lr: 0.01}}``.
    """
    repeat: Annotated[int, whole(1, 1000)] | None = None
    """How often each is measured, after three rounds that do not count; 10 when absent.

    For example ``10``.
    """
    eager: Boolean = False
    """Whether each function is measured in eager mode too."""
    trace: Boolean = False
    """Whether three more rounds are traced: a chrome trace in the case's folder, of at most 8 MiB.
    """

    @property
    def input_lists(self) -> Iterator[tuple[DataPath, Json]]:
        """Its own inputs, and those of each function."""
        if self.inputs is not None:
            yield ("inputs",), self.inputs
        if isinstance(self.functions, dict):
            for name, inputs in self.functions.items():
                yield ("functions", name), inputs

    @property
    def callees(self) -> Iterator[Callee]:
        """The class of the optimizer."""
        if self.optimizer is not None:
            yield Callee(**self.optimizer, place=("optimizer",))

    def problems(self, context: StepContext) -> Iterator[Diagnostic]:
        """Yield why it cannot be timed; a bench must not have expectations."""
        for kind, path in context.expected:
            hint = "claim it in a step above: a bench is reported and never judged"
            yield context.problem(path, f"'{kind}' is expected of a bench", hint, key=True)
        yield from context.compiling_nothing("the step 'bench'", "use another backend")
        if not context.functions:
            yield context.problem(
                context.path, "nothing to time: the spec has no function", "add function", key=True
            )
        if self.optimizer is not None and not self.backward:
            hint = "add backward: true: it gives the gradients"
            yield context.problem(
                (*context.path, "optimizer"), "'optimizer' without 'backward'", hint, key=True
            )
        functions = list(context.functions) if self.functions is None else self.functions
        is_map = isinstance(functions, Mapping)
        if is_map and self.inputs is not None:
            hint = "write the arguments of each function in 'functions', or one list in 'inputs'"
            yield context.problem(
                (*context.path, "inputs"),
                "'inputs' together with arguments in 'functions'",
                hint,
                key=True,
            )
        input_path: DataPath = (*context.path, "inputs") if self.inputs is not None else ("inputs",)
        for index, name in enumerate(functions):
            path = (*context.path, "functions", name if is_map else index)
            if name not in context.functions:
                yield context.problem(
                    path, *unknown("function", name, context.functions), key=is_map
                )
            elif isinstance(functions, Mapping):
                yield from context.input_problems(name, functions[name], path)
            else:
                yield from context.input_problems(name, self.inputs, input_path)

    def run(self, session: Session) -> None:
        """Time the functions; ``session.bench`` then holds the timings, and the name of the trace
        in the case's folder.

        Each round runs every subject once, so that a slow phase of the machine affects all of them.
        """
        number = session.kept[Bench.kind] = session.kept.get(Bench.kind, 0) + 1
        with session.phases("inputs"), needed("the arguments"):
            subjects = _subjects(session, self)
        with session.phases("bench"):
            for _ in range(WARM_UP):
                for subject in subjects:
                    subject.run()
            for _ in range(int(REPEAT if self.repeat is None else self.repeat)):
                for subject in subjects:
                    subject.taken.append(session.device_api.timed(subject.run))
            attachments, notes = (
                _trace(session, subjects, f"trace-{number}.json") if self.trace else ([], [])
            )
        session.bench = {
            "timings": [subject.timing() for subject in subjects],
            "attachments": attachments,
            "notes": notes,
        }
