"""The vector math library and the threads of this process."""

import functools

_FROM_LIBRARIES = (
    *("acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "erfinv", "exp", "expm1", "floor", "lgamma", "log", "log10", "log1p"),
    *("log2", "round", "sin", "sinh", "sqrt", "rsqrt", "tan", "tanh", "trunc"),
)
"""Functions of numbers that torch takes from a vector math library where there is one."""


@functools.cache
def settle_math() -> None:
    """Call each function of the vector math library once, with one thread; later calls of this process and its forks find it ready.

    MKL's first call in a process, made by two threads at once, was seen to give 1.5e-4 of error where 1e-7 is right: 6 of 3,700
    processes that did nothing but ``torch.sin``, none of 9,000 with one thread or a settled library. Nothing of it is the case's doing.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    for name in _FROM_LIBRARIES:
        for dtype in (torch.float32, torch.float64):
            getattr(torch, name)(torch.full((64,), 0.5, dtype=dtype))
    torch.set_num_threads(before)


def set_threads(count: int) -> None:
    """Set the number of OpenMP threads of this process; its libraries were imported with one."""
    import torch

    settle_math()
    torch.set_num_threads(count)
