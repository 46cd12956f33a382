"""The functions of torch that steps may use: the protocol ``Torch`` in ``vocabulary/steps/session.py``."""

from runner.worker.torch_compat.counting import clear_counters, clear_metrics
from runner.worker.torch_compat.operators import announce_sample, own_fallbacks
from runner.worker.torch_compat.operators import find as find_operator
from runner.worker.torch_compat.output_folders import use_cache_dir
from runner.worker.torch_compat.resets import RESETS, delete_generated_files, reset_inductor

__all__ = [
    "RESETS",
    "announce_sample",
    "clear_counters",
    "clear_metrics",
    "delete_generated_files",
    "find_operator",
    "own_fallbacks",
    "reset_inductor",
    "use_cache_dir",
]
