"""``--require NAME``: at least one case of the run that uses NAME must be executed. Pure."""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence

from runner.model.case import Case
from runner.model.results import CaseResult

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
    names: Collection[str],
    whole: Sequence[Case | CaseResult],
    selected: Sequence[Case | CaseResult],
    results: Mapping[str, CaseResult] | None,
) -> Iterator[str]:
    """Yield a line for each required name that the run does not use.

    ``whole`` is the selection of all shards, ``selected`` that of this one; both may be results. ``results`` is None before the run.
    """
    for name in dict.fromkeys(names):
        if not any(uses(case, name) for case in whole):
            yield f"--require {name}: no selected case uses {name}, so it cannot be met (select other cases, or remove the option)"
            continue
        using = [case.case_id if isinstance(case, CaseResult) else case.id for case in selected if uses(case, name)]
        if results is not None and using and not any(case_id in results and results[case_id].is_executed for case_id in using):
            which = "the one selected case that uses it was not"
            if len(using) > 1:
                which = f"none of the {len(using)} selected cases that use it was"
            yield f"--require {name}: {which} executed (the report has the reasons)"
