"""What the core asks about cases that are compiled for a target: the checks of their specs, and their proof."""

from runner.tools.offline.offline_proof import proof, with_level
from runner.tools.offline.target_checks import target_problems

__all__ = ["proof", "target_problems", "with_level"]
