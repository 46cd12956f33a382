"""What the expectations share that call the compiled function again after the last step of the case.

The additional calls begin from the state of the step's own call: copies of its arguments, values of parameters and buffers, generators.
They run after the last step, so that counters, spies, caches and later steps of the case do not see them. A kind of this family has a
function ``repeat`` beside its class, which runs in the worker and returns facts; it stands in ``REPEATS``.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from runner.core.protocol import Json
from runner.vocabulary.expectations.base import Judgement, StepFacts


class CannotRepeat(Exception):
    """The call of the step cannot be repeated so: the expectation is an ERROR."""


@dataclass
class Poison:
    """What was allocated while fresh memory was poisoned."""

    allocations: int = 0
    bytes: int = 0


class Again(Protocol):
    """The call of a step, in the worker. Values are ``Any``: this module does not import torch."""

    result: Any
    """A copy of the step's result."""

    @property
    def reference(self) -> Any:
        """A copy of eager's result; raises ``CannotRepeat`` where the step has none."""
        ...

    def arguments(self) -> list[Any]:
        """Return fresh copies of the arguments of the step's call."""
        ...

    def run(self, arguments: list[Any] | None = None) -> Any:
        """Call the compiled function again; return its result, or its gradients after a backward step."""
        ...

    def close(self, arguments: Mapping[str, Any], result: Any) -> Json:
        """Return the facts of ``close`` for a result and eager's, with a float64 reference where ``arguments`` need one; no stand-ins.

        Raises ``CannotRepeat`` where the step has no eager result.
        """
        ...

    def poisoned(self) -> AbstractContextManager[Poison]:
        """Return a context in which memory that generated code allocates is filled with bytes 255: NaN for every float."""
        ...

    def with_candidate(self, number: int) -> AbstractContextManager[list[list[str]]]:
        """Return a context in which ``run`` compiles anew, and each autotuning may choose only the candidate of this number.

        The context has the names of the candidates of each autotuning, the chosen one first; it is complete after ``run``.
        """
        ...


Repeat = Callable[[Mapping[str, Any], Again], Json]
"""Makes the additional calls and returns the facts."""


def differing_bits(value: Any, expected: Any) -> list[dict[str, Any]]:
    """Return a fact for each leaf of ``value`` whose bits differ from those of ``expected``. NaN equals NaN.

    Raise ``CannotRepeat`` for values that cannot be compared: that is no error of the additional call.
    """
    from torch.utils import _pytree as pytree

    leaves, structure = pytree.tree_flatten_with_path(value)
    others, other_structure = pytree.tree_flatten_with_path(expected)
    if structure != other_structure:
        return [{"path": "", "why": f"the structure {str(structure)[:300]} instead of {str(other_structure)[:300]}"}]
    pairs = ((pytree.keystr(path), leaf, other) for (path, leaf), (_, other) in zip(leaves, others, strict=True))
    with comparing():
        return [{"path": path, "why": why} for path, leaf, other in pairs if (why := _difference(leaf, other))]


@contextlib.contextmanager
def comparing() -> Iterator[None]:
    """Convert an exception to ``CannotRepeat``: it comes from a comparison, not from the additional call."""
    try:
        yield
    except CannotRepeat:
        raise
    except Exception as error:  # comparing values of a spec may raise anything
        raise CannotRepeat(f"the results cannot be compared: {type(error).__name__}: {error}") from error


def _difference(leaf: Any, other: Any) -> str:
    import torch

    from runner.vocabulary.expectations import equality

    why = equality.leaf_difference(leaf, other)
    if not why or not isinstance(leaf, torch.Tensor) or not isinstance(other, torch.Tensor) or leaf.shape != other.shape:
        return why
    if not leaf.numel() or leaf.dtype != other.dtype:
        return why
    wide = torch.complex128 if leaf.is_complex() else torch.float64
    one, two = leaf.detach().to(wide).reshape(-1), other.detach().to(wide).to(leaf.device).reshape(-1)
    distance = (one - two).abs()
    distance[distance.isnan() & ~(one.isnan() & two.isnan())] = torch.inf
    place = int(distance.nan_to_num(0.0, posinf=torch.inf).argmax())
    index = [int(part) for part in torch.unravel_index(torch.tensor(place), leaf.shape)]
    return f"{why}; at {index}: {one[place].item()!r} instead of {two[place].item()!r}"


def tensors_of(value: Any) -> int:
    """Return the number of tensors in a value."""
    import torch
    from torch.utils import _pytree as pytree

    return sum(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))


def trouble(facts: StepFacts, expected: str) -> Judgement | None:
    """Return the judgement of facts that say nothing about the claim; None where the additional calls were made."""
    measured = facts.measured
    if measured is None:
        return Judgement.error("nothing was measured", expected=expected)
    if "why_not" in measured:
        return Judgement.error(str(measured["why_not"]), expected=expected)
    if "raised" in measured:
        return Judgement.failed(expected=expected, observed=f"an additional call raised {measured['raised']}")
    if not measured.get("done"):
        return Judgement.error("the case ended before the additional calls", expected=expected)
    if not measured["tensors"]:
        return Judgement.error("nothing to compare: the result holds no tensor", expected=expected)
    if measured["eager_calls"]:
        observed = f"{measured['eager_calls']} of the additional calls ran no compiled graph, as the step's own call did"
        return Judgement.error(observed, expected=expected)
    return None
