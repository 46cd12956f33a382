"""What the core asks of profiles: for ``--profile`` of ``run``, ``list`` and ``validate``."""

from runner.tools.vendor.profiles import cases_of, levels_of, lines_of, load_profile, prospect_of, read_profile, with_profile

__all__ = ["cases_of", "levels_of", "lines_of", "load_profile", "prospect_of", "read_profile", "with_profile"]
