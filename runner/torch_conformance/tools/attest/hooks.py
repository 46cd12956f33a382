"""What ``run``, ``list``, ``explain`` and ``validate`` call for ``--profile``, readers of such a
journal, and a run that is red.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch_conformance.machine.capabilities import Machine
from torch_conformance.plan.profile import Resolved
from torch_conformance.tools.attest.conformance import problem_of_record, statement_of_run
from torch_conformance.tools.attest.installed_files import changed_files
from torch_conformance.tools.attest.machine_checks import warnings_of
from torch_conformance.tools.attest.profiles import (
    cases_of,
    levels_of,
    lines_of,
    load_profile,
    prospect_of,
    read_profile,
    with_profile,
)

__all__ = [
    "cases_of",
    "changed_files",
    "levels_of",
    "load_profile",
    "outlook_of",
    "problem_of_record",
    "read_profile",
    "statement_of_run",
    "warnings_of",
    "with_profile",
]

if TYPE_CHECKING:
    from torch_conformance.plan.profile import Profiles
    from torch_conformance.record.conclusion import Statements
    from torch_conformance.tools.attest import hooks

    _CHECKED: tuple[Profiles, Statements] = hooks, hooks


def outlook_of(resolved: Resolved, machine: Machine) -> Iterator[str]:
    """Yield the levels of a profile, and whether a run on a machine could be complete."""
    return lines_of(resolved.record, prospect_of(resolved, machine))
