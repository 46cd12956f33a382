"""What ``--require NAME`` demands of a whole run: some case that uses NAME was executed. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from runner.core.diagnostics import UsageError, unknown
from runner.core.model import Case, CaseResult
from runner.language.backends import Backends
from runner.system.capabilities import CAPABILITIES

EVERY_CASE = "torch"
"""The capability that every case uses, whether it says so or not."""


def check_names(names: Sequence[str], backends: Backends) -> None:
    """Raise ``UsageError`` for a name that is neither a backend nor a capability."""
    for name in names:
        if name not in backends.by_name and name not in CAPABILITIES:
            message, hint = unknown("backend or capability", name, [*backends.by_name, *CAPABILITIES])
            raise UsageError(f"--require: {message} ({hint})")


def uses(case: Case, name: str) -> bool:
    """Whether a case runs on the backend of this name, or requires the capability (a service is one too)."""
    return name in (EVERY_CASE, case.backend) or any(requirement.name == name for requirement in case.requires)


def problems(
    names: Collection[str], whole: Sequence[Case], selected: Sequence[Case], results: Mapping[str, CaseResult] | None
) -> Iterator[str]:
    """Yield a line for each required name that the run does not exercise.

    ``whole`` is the selection of all shards, ``selected`` that of this one; ``results`` is None before the run.
    """
    for name in dict.fromkeys(names):
        if not any(uses(case, name) for case in whole):
            yield f"--require {name}: no selected case uses {name}, so nothing was required (select other cases, or leave it out)"
            continue
        using = [case.id for case in selected if uses(case, name)]
        if results is not None and using and not any(case_id in results and results[case_id].outcome.is_executed for case_id in using):
            count = (
                "the one selected case that uses it was not"
                if len(using) == 1
                else f"none of the {len(using)} selected cases that use it was"
            )
            yield f"--require {name}: {count} executed (the report has the reasons)"
