"""The functions of torch that steps may use."""

from runner.worker.torch_compat.opinfo import announce_sample
from runner.worker.torch_compat.opinfo import find as find_operator
from runner.worker.torch_compat.torch_state import RESETS, clear_counters, clear_metrics, delete_generated_files, use_cache_dir

__all__ = ["RESETS", "announce_sample", "clear_counters", "clear_metrics", "delete_generated_files", "find_operator", "use_cache_dir"]
