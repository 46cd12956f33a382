"""``--require NAME``: at least one case of the run that uses NAME must be executed. Pure."""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence

from runner.core.case import Case
from runner.core.results import CaseResult

EVERY_CASE = "torch"
"""The capability that every case uses, even without ``requires``."""


def uses(case: Case | CaseResult, name: str) -> bool:
    """Whether a case runs on the backend with this name or requires the capability; a service is a capability too."""
    required = case.requires if isinstance(case, CaseResult) else [requirement.name for requirement in case.requires]
    return name in (EVERY_CASE, case.backend) or name in required


def names_in(options: Mapping[str, str]) -> list[str]:
    """Return the names of ``--require`` among the recorded options of a run."""
    try:
        return shlex.split(options.get("require", ""))
    except ValueError:  # not written by this program
        return [options["require"]]


def problems(
    names: Collection[str], whole: Sequence[Case], selected: Sequence[Case], results: Mapping[str, CaseResult] | None
) -> Iterator[str]:
    """Yield a line for each required name that the run does not use.

    ``whole`` is the selection of all shards, ``selected`` that of this one. ``results`` is None before the run.
    """
    for name in dict.fromkeys(names):
        if not any(uses(case, name) for case in whole):
            yield _unused(name)
            continue
        using = [case.id for case in selected if uses(case, name)]
        if results is not None and using and not any(case_id in results and results[case_id].is_executed for case_id in using):
            yield _not_executed(name, len(using))


def problems_of_recorded(names: Collection[str], results: Sequence[CaseResult]) -> Iterator[str]:
    """Yield the same lines for a recorded whole run, such as a merged one, in which every case has a result."""
    for name in dict.fromkeys(names):
        using = [result for result in results if uses(result, name)]
        if not using:
            yield _unused(name)
        elif not any(result.is_executed for result in using):
            yield _not_executed(name, len(using))


def _unused(name: str) -> str:
    return f"--require {name}: no selected case uses {name}, so the requirement cannot be met (select other cases, or remove the option)"


def _not_executed(name: str, count: int) -> str:
    which = "the one selected case that uses it was not" if count == 1 else f"none of the {count} selected cases that use it was"
    return f"--require {name}: {which} executed (the report has the reasons)"
