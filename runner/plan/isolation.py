"""Which cases may share a worker: those whose spec has ``isolation: worker`` and that use nothing that outlives a case."""

from collections.abc import Callable, Mapping

from runner.core.case import Case, OwnProcess
from runner.vocabulary.steps import traits_of


def _has_pool(case: Case) -> bool:
    config = case.body.settings.config
    return bool(config.get("autotune_in_subproc")) or config.get("compile_threads", 1) not in (1, None)


OWN_PROCESS: Mapping[str, tuple[Callable[[Case], bool], str]] = {
    "spies": (lambda case: bool(case.body.spies), "the function that a spy replaces may have been imported by name before, or after"),
    "handlers": (lambda case: bool(case.body.handlers), "code that was compiled under a handler may hold a reference to it"),
    "services": (lambda case: bool(case.body.services), "torch keeps its client of a server for the process"),
    "device": (lambda case: bool(case.module), "the module of a vendor registers its device for the process"),
    "processes": (_has_pool, "torch keeps its pool of processes"),
}
"""Features of a case that exclude a shared worker: the test for each, and the reason. Kinds of steps have ``Traits.own_process``."""


def needs_new_process(case: Case) -> bool:
    """Whether a case runs in a new Python process, in which torch has compiled nothing yet."""
    return case.body.isolation is OwnProcess.PROCESS


def why_alone(case: Case) -> str:
    """Return why a case needs a worker of its own; empty when it may share one."""
    if needs_new_process(case):
        return "its spec has 'isolation: process'"
    if case.body.isolation is not OwnProcess.WORKER:
        return "its spec does not have 'isolation: worker'"
    steps = ((step.kind, why) for step in case.steps if (why := traits_of(step).own_process))
    others = ((word, why) for word, (holds, why) in OWN_PROCESS.items() if holds(case))
    return next((f"{word}: {why}" for word, why in (*others, *steps)), "")
