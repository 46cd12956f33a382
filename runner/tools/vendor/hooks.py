"""What the core asks of profiles: for ``--profile`` of ``run``, ``list`` and ``validate``."""

from runner.tools.vendor.profile_cases import cases_of, with_profile
from runner.tools.vendor.profile_file import read_profile
from runner.tools.vendor.profile_prospects import levels_of, lines_of, load_profile, prospect_of

__all__ = ["cases_of", "levels_of", "lines_of", "load_profile", "prospect_of", "read_profile", "with_profile"]
