"""What ``run``, ``list``, ``explain`` and ``validate`` call for ``--profile``, readers of such a
journal, and a run that is red.
"""

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
    "lines_of",
    "load_profile",
    "problem_of_record",
    "prospect_of",
    "read_profile",
    "statement_of_run",
    "warnings_of",
    "with_profile",
]
