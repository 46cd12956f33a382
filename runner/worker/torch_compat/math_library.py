"""The vector math library and the threads of this process."""

import functools

_FROM_LIBRARIES = (
    *("acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "erfinv", "exp", "expm1", "floor", "lgamma", "log", "log10", "log1p"),
    *("log2", "round", "sin", "sinh", "sqrt", "rsqrt", "tan", "tanh", "trunc"),
)
"""Functions that torch calls in a vector math library where there is one."""


@functools.cache
def settle_math() -> None:
    """Initialize the vector math library: call each function once, with one thread, for this process and its forks.

    A concurrent first call of MKL by two threads can return wrong results: an error of 1.5e-4 instead of 1e-7 in 6 of 3,700 processes that
    only called ``torch.sin``, and in none of 9,000 with one thread or an initialized library. The case does not cause this error.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    for name in _FROM_LIBRARIES:
        for dtype in (torch.float32, torch.float64):
            getattr(torch, name)(torch.full((64,), 0.5, dtype=dtype))
    torch.set_num_threads(before)


def set_threads(count: int) -> None:
    """Set the number of OpenMP threads of this process, after the vector math library is initialized."""
    import torch

    settle_math()
    torch.set_num_threads(count)
