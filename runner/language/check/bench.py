"""What bench and optimizer steps mean: functions that are there, arguments that fit, no claim of a time, a backward before an optimizer."""

from collections.abc import Iterable, Iterator, Mapping

from runner.core.diagnostics import Diagnostic, unknown
from runner.language.backends import Backends
from runner.language.check.functions import arity_problems
from runner.language.read.anatomy import Anatomy, RawStep
from runner.language.read.document import DataPath


def bench_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Return what is wrong with bench steps, and with optimizers."""
    timed = False
    trained = False
    for step in anatomy.steps:
        if timed and step.kind != "bench":
            hint = "move the bench to the end: what follows would see what it did to caches, counters and parameters"
            yield anatomy.document.problem(step.path, f"the step '{step.kind}' below a bench", hint, key=True)
        if step.kind == "optimizer" and not trained:
            yield anatomy.document.problem(step.path, "an optimizer before any backward", "put a backward step above it", key=True)
        if step.kind == "bench":
            yield from _problems(anatomy, backends, step)
        timed = timed or step.kind == "bench"
        trained = trained or step.kind == "backward"


def _problems(anatomy: Anatomy, backends: Backends, step: RawStep) -> Iterator[Diagnostic]:
    document = anatomy.document
    for expectation in step.expectations:
        hint = "claim it in a step above: a bench is reported and never judged"
        yield document.problem(expectation.path, f"'{expectation.kind}' is expected of a bench", hint, key=True)
    for name in anatomy.data["backends"]:
        backend = backends.by_name.get(name)
        if backend is not None and not backend.compiles:
            message = f"the step 'bench' on '{name}', which compiles nothing"
            yield document.problem(step.path, message, "use another backend", key=True)
    functions = step.arguments.get("functions", list(anatomy.functions))
    if not anatomy.functions:
        yield document.problem(step.path, "nothing to time: the spec has no function", "add function", key=True)
    if isinstance(functions, Mapping) and "inputs" in step.arguments:
        hint = "write the arguments of each function in 'functions', or one list in 'inputs'"
        yield document.problem((*step.path, "inputs"), "'inputs' beside arguments in 'functions'", hint, key=True)
    for index, name in enumerate(functions):
        if name not in anatomy.functions:
            mapped = isinstance(functions, Mapping)
            path = (*step.path, "functions", name if mapped else index)
            yield document.problem(path, *unknown("function", name, anatomy.functions), key=mapped)
    if "optimizer" in step.arguments and not step.arguments.get("backward"):
        hint = "add backward: true: it gives the gradients"
        yield document.problem((*step.path, "optimizer"), "'optimizer' without 'backward'", hint, key=True)
    for name, path in _given(step, functions):
        if name in anatomy.functions:
            yield from arity_problems(anatomy, name, document.value(path) if path in document.marks else [], path)


def _given(step: RawStep, functions: Iterable[str]) -> Iterator[tuple[str, DataPath]]:
    """Yield each function that is timed with the place of its arguments."""
    own: DataPath = (*step.path, "inputs") if "inputs" in step.arguments else ("inputs",)
    for name in functions:
        yield name, ((*step.path, "functions", name) if isinstance(functions, Mapping) else own)
