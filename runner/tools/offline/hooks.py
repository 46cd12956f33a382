"""The functions that the core calls for specs with ``targets``: check the spec, and judge that the code is of the target."""

from runner.tools.offline.offline_proof import proof, with_level
from runner.tools.offline.target_checks import target_problems

__all__ = ["proof", "target_problems", "with_level"]
