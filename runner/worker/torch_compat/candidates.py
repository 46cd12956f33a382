"""Leaves autotuning one candidate, so that this one is compiled and run."""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def only(number: int) -> Iterator[list[list[str]]]:
    """Compile anew within the context; each autotuning may choose only the candidate ``number``, counted from 0.

    An autotuning with fewer candidates counts on from its first. The context has the names of all candidates of each autotuning, the chosen
    one first. Caches are off: the result of another candidate must not be found.
    """
    import torch._dynamo
    from torch._inductor import config, select_algorithm

    seen: list[list[str]] = []

    def choose(choices: list[Any]) -> list[Any]:
        if not choices:
            return choices
        chosen = choices[number % len(choices)]
        seen.append([str(one.name) for one in (chosen, *(one for one in choices if one is not chosen))])
        return [chosen]

    functions = select_algorithm.get_algorithm_selector_cache().preprocessing_fns
    functions.append(choose)
    torch._dynamo.reset()
    try:
        with config.patch(force_disable_caches=True):
            yield seen
    finally:
        functions.remove(choose)
        torch._dynamo.reset()
