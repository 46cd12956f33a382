"""The arguments of capabilities: how each is written, and what is wrong with one."""

import math
import re

from runner.core import devices
from runner.core.conditions import BadRange, VersionRange
from runner.core.diagnostics import one_of
from runner.core.simulated import PROPERTIES
from runner.core.targets import TARGETS


def check_device(argument: str) -> str | None:
    """Return what is wrong with an argument of the capability; None for nothing."""
    return None if devices.VendorDevice.fits(argument) else f"'{argument[:60]}' is not KIND=MODULE: write for example npu=torch_npu"


_ARCH = re.compile(r"(?:(>=|<=|==|!=|>|<)\s*(?=sm_))?(sm_[0-9]+[a-z]?|gfx[0-9a-f]+[a-z0-9:+-]*)\Z")

_MKLDNN_DTYPES = ("float32", "bfloat16", "float16")


def split_arch(argument: str) -> tuple[str, str]:
    """Return the comparison and the architecture."""
    match = _ARCH.match(argument.strip())
    if match is None:
        raise ValueError(argument)
    return match[1] or "", match[2]


def check_arch(argument: str) -> str | None:
    """Return what is wrong with an argument of the capability; None for nothing."""
    match = _ARCH.match(argument.strip())
    if match is None or (match[1] and not match[2][3:].isdecimal()):
        return f"'{argument[:60]}' is not an architecture: write for example sm_90, \">=sm_80\" or gfx942"
    return None


def check_mkldnn(argument: str) -> str | None:
    """Return what is wrong with an argument of the capability; None for nothing."""
    return None if argument in _MKLDNN_DTYPES else f"'{argument[:60]}' is none of the dtypes {', '.join(_MKLDNN_DTYPES)}"


def check_target(argument: str) -> str | None:
    """Return what is wrong with an argument of the capability; None for nothing."""
    return None if argument in TARGETS else f"'{argument[:60]}' is no target: {one_of(TARGETS)}"


def check_simulated(argument: str) -> str | None:
    """Return what is wrong with an argument of the capability; None for nothing."""
    return None if argument in PROPERTIES else f"'{argument[:60]}' is no target that can be simulated: {one_of(PROPERTIES)}"


def check_call(argument: str) -> str | None:
    """Return what is wrong with an argument of the capability; None for nothing."""
    fits = re.fullmatch(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+", argument, re.ASCII)
    return None if fits else f"'{argument[:60]}' is not a dotted path: write for example torch.cuda.is_bf16_supported"


def check_library(argument: str) -> str | None:
    """Return what is wrong with an argument of the capability; None for nothing."""
    fits = re.fullmatch(r"[A-Za-z0-9_][\w.+-]*", argument, re.ASCII)
    return None if fits else f"'{argument[:60]}' is not the name of a file: write for example libtorchbind_test.so"


_MEMORY = re.compile(r"(>=|>)\s*([0-9]+(?:\.[0-9]+)?)\s*(GiB|MiB|GB|MB)\Z")
_UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "GB": 10**9, "MB": 10**6}


def split_memory(argument: str) -> tuple[str, float]:
    """Return the comparison and the number of bytes."""
    match = _MEMORY.match(argument.strip())
    if match is None:
        raise ValueError(argument)
    return match[1], float(match[2]) * _UNITS[match[3]]


def memory_of(argument: str) -> int:
    """Return the bytes of an argument of ``gpu_memory``, without its comparison sign."""
    return math.ceil(split_memory(argument)[1])


def check_range(argument: str) -> str | None:
    """Return what is wrong with an argument of the capability; None for nothing."""
    try:
        VersionRange.parse(argument)
    except BadRange as error:
        return str(error)
    return None


def check_memory(argument: str) -> str | None:
    """Return what is wrong with an argument of the capability; None for nothing."""
    return None if _MEMORY.match(argument.strip()) else f"'{argument[:60]}' is not an amount of memory: write for example \">=64GiB\""


def check_module(argument: str) -> str | None:
    """Return what is wrong with an argument of the capability; None for nothing."""
    return None if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", argument, re.ASCII) else f"'{argument[:60]}' is not the name of a module"
