"""Forms of the samples of an operator: other memory, other sizes, other numbers.

``repro --sample`` writes this file into its script: it needs only torch.
"""

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

RESIZED = "resized"
"""The form that is called after the sample that it is made of, by what was compiled for that."""

_MOST_ELEMENTS = 1 << 20
"""Of a tensor with other sizes."""

_OFFSET = 3
"""In elements: no vector begins there."""


Call = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments of a call, by position and by keyword."""

Change = Callable[[torch.Tensor], torch.Tensor | None]
"""Returns another tensor in the place of one; None where it has none."""


def in_forms(
    function: Callable[..., object], calls: Sequence[Call], forms: Sequence[str]
) -> Iterator[tuple[int, str, tuple[Any, ...], dict[str, Any]]]:
    """Yield for each form the number of a call, the form, and the arguments that it makes of that
    call: of the one with most elements that it changes, and that eager then takes.
    """

    def elements(number: int) -> int:
        return max((leaf.numel() for leaf in _tensors(calls[number])), default=0)

    largest = sorted(range(len(calls)), key=elements, reverse=True)
    for form in forms:
        for number in largest:
            transformed = [
                call
                for call in FORMS[form](calls[number])
                if call is not None and _takes(function, call)
            ]
            if transformed:
                yield from ((number, form, *call) for call in transformed)
                break


def _tensors(call: object) -> list[torch.Tensor]:
    """Return the strided tensors of a call."""
    return [
        leaf
        for leaf in pytree.tree_leaves(call)
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and not leaf.is_nested
    ]


def _takes(function: Callable[..., object], call: Call) -> bool:
    """Whether eager computes it, on the CPU: on a GPU a wrong index ends the process.

    What is expanded may not be written.
    """

    def copied() -> Call:
        return pytree.tree_map_only(
            torch.Tensor, lambda tensor: copy.deepcopy(tensor.detach()).cpu(), call
        )

    args, kwargs = copied()
    try:
        with torch.no_grad():
            function(*args, **kwargs)
    except Exception:  # an operator refuses arguments with any exception
        return False
    pairs = zip(*map(_tensors, ((args, kwargs), copied())), strict=True)
    return all(0 not in after.stride() or torch.equal(after, before) for after, before in pairs)


def _changed(call: Call, change: Change, most: int) -> Call | None:
    """Return a call with the first ``most`` tensors that ``change`` changes; None where it changes
    none, for which it returns None.
    """
    addresses, count = {id(tensor) for tensor in _tensors(call)}, 0

    def other(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal count
        if id(tensor) not in addresses or count == most:
            return tensor
        result = change(tensor.detach())
        count += result is not None
        return tensor if result is None else result.requires_grad_(tensor.requires_grad)

    result = pytree.tree_map_only(torch.Tensor, other, call)
    return result if count else None


def _elsewhere(change: Change, call: Call) -> Iterator[Call | None]:
    """Yield the call with all tensors changed, then with only the first, where there are more."""
    yield _changed(call, change, len(_tensors(call)))
    if sum(change(tensor.detach()) is not None for tensor in _tensors(call)) > 1:
        yield _changed(call, change, 1)


def _transposed(tensor: torch.Tensor) -> torch.Tensor | None:
    is_matrix = tensor.ndim > 1 and min(tensor.shape[-2:]) > 1
    return tensor.mT.clone(memory_format=torch.contiguous_format).mT if is_matrix else None


def _transposed_rows(call: Call) -> Iterator[Call | None]:
    """Yield the same of rows, where the call has no matrix: of each its numbers, there and back."""
    calls = [call for call in _elsewhere(_transposed, call) if call is not None]
    yield from calls
    if not calls and max((tensor.ndim for tensor in _tensors(call)), default=0) == 1:
        yield _changed(
            call,
            lambda row: _transposed(torch.stack([row, row.flip(0)])) if row.ndim else None,
            len(_tensors(call)),
        )


def _expanded(tensor: torch.Tensor) -> torch.Tensor | None:
    dim = next((dim for dim in reversed(range(tensor.ndim)) if tensor.shape[dim] > 1), None)
    if dim is None or not tensor.is_floating_point():  # equal indices are another call
        return None
    return tensor.narrow(dim, 0, 1).clone().expand(tensor.shape)


def at_offset(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy of a tensor, behind other elements."""
    memory = tensor.new_ones(_OFFSET + tensor.numel(), requires_grad=False)
    return memory[_OFFSET:].view(tensor.shape).copy_(tensor.detach())


def is_at_offset(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in its memory as ``at_offset`` places it."""
    is_plain = tensor.layout is torch.strided and not tensor.is_nested
    return is_plain and tensor.is_contiguous() and tensor.storage_offset() == _OFFSET


def _nonfinite(call: Call) -> Iterator[Call | None]:
    """Yield the call with NaN and infinities, at other places in each tensor."""
    place = -1

    def change(tensor: torch.Tensor) -> torch.Tensor | None:
        nonlocal place
        if not tensor.is_floating_point() or not tensor.numel():
            return None
        changed = tensor.clone(memory_format=torch.contiguous_format)
        for value in (torch.nan, torch.inf, -torch.inf)[: tensor.numel()]:
            place += 1
            changed.view(-1)[place % tensor.numel()] = value
        changed.view(-1)[-1] = torch.nan  # where a vector's tail is
        return changed

    yield _changed(call, change, len(_tensors(call)))


def _with_sizes(call: Call, size_of: Callable[[int], int]) -> Call | None:
    """Return the call with other sizes, the same for the same size in each tensor; numbers are
    repeated, and indices remain within the least size.
    """
    sizes = {size for tensor in _tensors(call) for size in tensor.shape if size > 1}
    least = min(map(size_of, sizes), default=1)

    def change(tensor: torch.Tensor) -> torch.Tensor | None:
        if all(size <= 1 or size_of(size) == size for size in tensor.shape):
            return None
        changed = tensor
        for dim, size in enumerate(tensor.shape):
            if size > 1:
                places = torch.arange(size_of(size), device=tensor.device) % size
                changed = changed.index_select(dim, places)
        return changed % max(least, 1) if tensor.dtype in (torch.int32, torch.int64) else changed

    elements = sum(
        torch.Size([size_of(size) if size > 1 else size for size in tensor.shape]).numel()
        for tensor in _tensors(call)
    )
    return _changed(call, change, len(_tensors(call))) if elements <= _MOST_ELEMENTS else None


def _odd(call: Call) -> Iterator[Call | None]:
    yield _with_sizes(call, lambda size: 2 * size + 1)


def _empty(call: Call) -> Iterator[Call | None]:
    """Yield the call with each of two sizes as 0: those of an outer and of an inner dimension."""
    sizes = dict.fromkeys(size for tensor in _tensors(call) for size in tensor.shape if size > 1)
    for none in [*sizes][:2]:

        def size_of(size: int, none: int = none) -> int:
            return size * (size != none)

        yield _with_sizes(call, size_of)


FORMS: dict[str, Callable[[Call], Iterator[Call | None]]] = {
    "transposed": _transposed_rows,
    "expanded": functools.partial(_elsewhere, _expanded),
    "offset": functools.partial(_elsewhere, at_offset),
    "empty": _empty,
    "single": lambda call: iter([_with_sizes(call, lambda size: 1)]),
    "odd": _odd,
    "nonfinite": _nonfinite,
    RESIZED: _odd,
}
"""By name; ``vocabulary/steps/samples`` has what each is."""
