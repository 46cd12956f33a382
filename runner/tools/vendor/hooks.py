"""What ``run``, ``list``, ``explain`` and ``validate`` call when ``--profile`` is given, and readers of the journal of such a run."""

from runner.tools.vendor.conformance import problem_of_record, statement_of_run
from runner.tools.vendor.profiles import cases_of, levels_of, lines_of, load_profile, prospect_of, read_profile, with_profile

__all__ = [
    "cases_of",
    "levels_of",
    "lines_of",
    "load_profile",
    "problem_of_record",
    "prospect_of",
    "read_profile",
    "statement_of_run",
    "with_profile",
]
