"""Times functions, compiled and as they are, and traces them: what is reported and never judged."""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from runner.core.protocol import MAX_ATTACHMENT
from runner.worker.case import inputs, parts
from runner.worker.case.session import Session, context_of, gradient_leaves, needed, synchronize, total_of
from runner.worker.case.training import make_optimizer, parameters_of

WARM_UP = 3
"""Rounds before the first that counts: the first compiles, and CUDA graphs are recorded in the next."""

TRACED = 3
"""Rounds in a trace."""

REPEAT = 10
"""Rounds that are timed when a spec does not say how many."""


@dataclass
class Subject:
    """One thing that is timed: a function in one of its forms, and what it took each time, in milliseconds."""

    name: str
    form: str
    """``compiled`` or ``eager``."""
    run: Callable[[], None]
    taken: list[float] = field(default_factory=list)

    def timing(self) -> dict[str, Any]:
        """Return what is reported of it."""
        taken = [round(each, 6) for each in self.taken]
        numbers = {"median_ms": round(median(taken), 6), "least_ms": min(taken), "most_ms": max(taken), "count": len(taken)}
        return {"name": self.name, "form": self.form, **numbers}


def bench(session: Session, arguments: Mapping[str, Any], attachment: str) -> None:
    """Time the functions; ``session.bench`` then holds the timings, and the name of the trace in the case's folder.

    In each round every subject has its turn, so that what slows the machine for a while slows all of them.
    """
    with session.phases("inputs"), needed("the arguments"):
        subjects = _subjects(session, arguments)
    with session.phases("bench"):
        for _ in range(WARM_UP):
            for subject in subjects:
                subject.run()
        timed = _timed_on_device if torch.device(session.device).type == "cuda" else _timed
        for _ in range(int(arguments.get("repeat", REPEAT))):
            for subject in subjects:
                subject.taken.append(timed(subject.run))
        attachments, notes = _trace(session, subjects, attachment) if arguments.get("trace") else ([], [])
    session.bench = {"timings": [subject.timing() for subject in subjects], "attachments": attachments, "notes": notes}


def _subjects(session: Session, arguments: Mapping[str, Any]) -> list[Subject]:
    names = arguments.get("functions", list(session.compiled.targets))
    forms = ("compiled", "eager") if arguments.get("eager") else ("compiled",)
    subjects = []
    for name in names:
        entries = names[name] if isinstance(names, Mapping) else arguments.get("inputs")
        given = session.compiled.arguments if entries is None else [inputs.make(entry, session.maker) for entry in entries]
        called = [session.compiled.targets[name], *given]
        after = _after_backward(session, arguments, called) if arguments.get("backward") else None
        for form in forms:
            target = called[0] if form == "eager" else session.compiled_target(name)
            subjects.append(Subject(name, form, _run(session, arguments, [target, *given], after)))
    return subjects


def _run(session: Session, arguments: Mapping[str, Any], called: list[Any], after: Callable[[Any], None] | None) -> Callable[[], None]:
    contexts = parts.resolved(arguments.get("context", session.plan["body"]["context"]), session.scope.named)

    def run() -> None:
        # the results of the last call are dead: CUDA graphs may use their memory again
        torch.compiler.cudagraph_mark_step_begin()
        with contextlib.ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context_of(context, session.device))
            result = called[0](*called[1:])
        if after is not None:
            after(result)

    return run


def _after_backward(session: Session, arguments: Mapping[str, Any], called: list[Any]) -> Callable[[Any], None]:
    """Return what is done with a result: backward, an optimizer's step where one is asked for, and gradients forgotten."""
    optimizer = make_optimizer(session, arguments["optimizer"], parameters_of(called)) if "optimizer" in arguments else None
    leaves = gradient_leaves(called)

    def forget() -> None:
        for leaf in leaves:
            leaf.grad = None

    def after(result: Any) -> None:
        total_of(result).backward()
        if optimizer is not None:
            optimizer.step()
        forget()

    forget()  # gradients of the steps above may lie in memory that CUDA graphs use again
    return after


def _timed(run: Callable[[], None]) -> float:
    begun = time.perf_counter_ns()
    run()
    return (time.perf_counter_ns() - begun) / 1e6


def _timed_on_device(run: Callable[[], None]) -> float:
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begun.record()
    run()
    ended.record()
    torch.cuda.synchronize()
    return float(begun.elapsed_time(ended))


def _trace(session: Session, subjects: list[Subject], name: str) -> tuple[list[str], list[str]]:
    """Trace some rounds, each subject under its name; return the file's name, or why there is none."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.device(session.device).type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(TRACED):
            for subject in subjects:
                with torch.profiler.record_function(f"{subject.name} {subject.form}"):
                    subject.run()
        synchronize(session.device)
    path = Path(session.plan["folder"], name)
    profile.export_chrome_trace(str(path))
    size = path.stat().st_size
    if size > MAX_ATTACHMENT:
        path.unlink()
        return [], [f"the trace was left out: it has {size >> 20} MiB, and at most {MAX_ATTACHMENT >> 20} are kept"]
    return [name], []
