"""The functions that ``run``, ``list``, ``explain`` and ``validate`` call when ``--profile`` is given: read a profile, select its cases."""

from runner.tools.vendor.profiles import cases_of, levels_of, lines_of, load_profile, prospect_of, read_profile, with_profile

__all__ = ["cases_of", "levels_of", "lines_of", "load_profile", "prospect_of", "read_profile", "with_profile"]
