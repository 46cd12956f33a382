"""Which cases may run in a worker that ran others before: those whose specs say so, and that use nothing that outlives a case."""

from collections.abc import Callable, Mapping
from typing import Any

from runner.core.model import Case
from runner.vocabulary.steps import traits_of


def _body(*words: str) -> Callable[[Case], bool]:
    return lambda case: any(case.body.get(word) for word in words)


def _has_pool(case: Case) -> bool:
    config: Mapping[str, Any] = case.body["config"]
    return bool(config.get("autotune_in_subproc")) or config.get("compile_threads", 1) not in (1, None)


OWN_PROCESS: Mapping[str, tuple[Callable[[Case], bool], str]] = {
    "spies": (_body("spies"), "what a spy replaces may have been imported by name before, or after"),
    "handlers": (_body("handlers"), "what a handler saw may be kept by what was compiled under it"),
    "services": (_body("services"), "torch keeps its client of a server for the process"),
    "processes": (_has_pool, "torch keeps its pool of processes"),
}
"""What a case may not share a worker with, whatever its spec says: how it is seen, and why. Kinds of steps say it of themselves."""


def needs_new_process(case: Case) -> bool:
    """Whether a case is run in a new Python, in which torch has compiled nothing yet."""
    return bool(case.body.get("isolation") == "process")


def why_alone(case: Case) -> str:
    """Return why a case has a worker of its own; empty when it may share one."""
    if needs_new_process(case):
        return "its spec says 'isolation: process'"
    if case.body.get("isolation") != "worker":
        return "its spec does not say 'isolation: worker'"
    steps = ((step.kind, why) for step in case.steps if (why := traits_of(step).own_process))
    others = ((word, why) for word, (holds, why) in OWN_PROCESS.items() if holds(case))
    return next((f"{word}: {why}" for word, why in (*others, *steps)), "")
