"""Which cases may run in a worker that ran others before: those whose specs say so, and that use nothing that outlives a case."""

from collections.abc import Callable, Mapping

from runner.core.case import Case, OwnProcess
from runner.vocabulary.steps import traits_of


def _has_pool(case: Case) -> bool:
    config = case.body.settings.config
    return bool(config.get("autotune_in_subproc")) or config.get("compile_threads", 1) not in (1, None)


OWN_PROCESS: Mapping[str, tuple[Callable[[Case], bool], str]] = {
    "spies": (lambda case: bool(case.body.spies), "what a spy replaces may have been imported by name before, or after"),
    "handlers": (lambda case: bool(case.body.handlers), "what a handler saw may be kept by what was compiled under it"),
    "services": (lambda case: bool(case.body.services), "torch keeps its client of a server for the process"),
    "processes": (_has_pool, "torch keeps its pool of processes"),
}
"""What a case may not share a worker with, whatever its spec says: how it is seen, and why. Kinds of steps say it of themselves."""


def needs_new_process(case: Case) -> bool:
    """Whether a case is run in a new Python, in which torch has compiled nothing yet."""
    return case.body.isolation is OwnProcess.PROCESS


def why_alone(case: Case) -> str:
    """Return why a case has a worker of its own; empty when it may share one."""
    if needs_new_process(case):
        return "its spec says 'isolation: process'"
    if case.body.isolation is not OwnProcess.WORKER:
        return "its spec does not say 'isolation: worker'"
    steps = ((step.kind, why) for step in case.steps if (why := traits_of(step).own_process))
    others = ((word, why) for word, (holds, why) in OWN_PROCESS.items() if holds(case))
    return next((f"{word}: {why}" for word, why in (*others, *steps)), "")
