"""A row of the catalogue, and the cases that many rows name."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A fault, what it breaks, the cases that must see it, and a cheap one that must not.

    ``seen_by`` and ``spares`` are ids of cases, or globs over them.
    """

    name: str
    plant: Callable[[], None]
    breaks: str
    seen_by: tuple[str, ...]
    spares: str


ARGUMENT_KEY = "codecache/fx-key-tensor-metadata[backend=host]"
CHANNELS_LAST = "padding/channels-last-not-padded[backend=host]"
CONFIG_KEY = "codecache/fx-key-inductor-config[backend=host]"
CONSTANT_KEY = "codecache/fx-key-constant-tensor[backend=host]"
KERNELS = "codecache/cache-hit-kernel-count[backend=cpu]"
NARROW_ROWS = "padding/strides-below-threshold[backend=host]"
NEW_SIZES = "codecache/static-size-guard-miss[backend=cpu,dtype=float32]"
NO_CANDIDATE = "max_autotune/no-valid-choices-error[backend=cpu]"
NVCC = "codecache/nvcc-command-flags[backend=host]"
OPTIONS_KEY = "codecache/fx-key-option-order[backend=host]"
OTHER_CONSTANTS = "codecache/constant-value-cache-miss[backend=cpu]"
RELU = "relu[backend=cpu]"
SECOND_BFLOAT16_DYNAMIC = "codecache/fx-cache-hit[backend=cpu,dtype=bfloat16,dynamic=true]"
THRESHOLD = "padding/stride-threshold-and-dtypes[backend=host]"
VIEW = "padding/view-not-padded[backend=cpu]"
WIDE_ROWS = "padding/wide-strides-padded[backend=host]"
