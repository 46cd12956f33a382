"""The memory of tensors, compared by its bits. Zeros of different sign differ, and NaN is equal to NaN of the same bits."""

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from runner.worker.case.copies import extent, plain

Place = tuple[tuple[object, ...], ...]
"""Where the values of a tensor lie: address, offset, shape and strides of each of its parts."""

_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def place(tensor: torch.Tensor) -> Place | None:
    """Return where the values of a tensor lie; None where its memory cannot be read."""
    try:
        parts = _parts(tensor)
        places = tuple((part.untyped_storage().data_ptr(), part.storage_offset(), part.shape, part.stride()) for part in parts)
        return places if all(one[0] or not part.numel() for one, part in zip(places, parts, strict=True)) else None
    except (RuntimeError, NotImplementedError, AttributeError):  # a wrapper without a storage, a layout without parts
        return None


def is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one form have the same bits, also in the gaps between elements where their strides are equal.

    False where the memory of one cannot be read.
    """
    try:
        pairs = list(zip(_parts(one), _parts(other), strict=True))
        return all(_has_one_form(ours, theirs) and bool(torch.equal(*_alike(ours, theirs))) for ours, theirs in pairs)
    except (RuntimeError, NotImplementedError, AttributeError, ValueError):
        return False


def changed(now: torch.Tensor, before: torch.Tensor) -> str | None:
    """Return how a tensor differs from its value before; None where no bit does, and for tensors of two forms."""
    try:
        pairs = list(zip(_parts(now), _parts(before), strict=True))
    except (RuntimeError, NotImplementedError, AttributeError, ValueError):
        return None
    found = (_changed(ours, theirs) for ours, theirs in pairs if _has_one_form(ours, theirs))
    return next((one for one in found if one is not None), None)


def unchanged(now: torch.Tensor, before: torch.Tensor) -> torch.Tensor | None:
    """Return a mask of the elements of a strided tensor that have the bits of before; None for tensors of two forms."""
    try:
        (one,), (other,) = _parts(now), _parts(before)
    except (RuntimeError, NotImplementedError, AttributeError, ValueError):
        return None
    if not _has_one_form(one, other):
        return None
    one, other = (_bytes(_dense(part)).view(-1, part.element_size()) for part in (one, other))
    return (one == other).all(1).view(now.shape) if now.numel() else None


def other_gaps(one: torch.Tensor, other: torch.Tensor) -> str | None:
    """Return how the memory between the elements of two strided tensors differs; None where it does not, or they have other strides."""
    if one.layout is not torch.strided or one.is_nested or extent(one) <= one.numel():
        return None
    try:
        (ours,), (theirs,) = _parts(one), _parts(other)
    except (RuntimeError, NotImplementedError, AttributeError, ValueError):
        return None
    if not _has_one_form(ours, theirs) or ours.stride() != theirs.stride():
        return None
    is_gap = torch.ones(extent(ours), dtype=torch.bool, device=ours.device)
    is_gap.as_strided(ours.shape, ours.stride()).zero_()
    differs = (_bytes(ours) != _bytes(theirs)).view(-1, ours.element_size()).any(1) & is_gap
    return f"changed between its elements: {int(differs.sum())} elements of its memory" if differs.any() else None


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the strided tensors that hold the values of a tensor; raise ``NotImplementedError`` for a layout without them."""
    # no generator: two that take turns would leave torch functions disabled, because each restores what it found
    with torch._C.DisableTorchFunctionSubclass():
        if is_traceable_wrapper_subclass(tensor):
            names, _ = tensor.__tensor_flatten__()
            return [part for name in names for part in _parts(getattr(tensor, name))]
        if tensor.layout is torch.sparse_coo:
            return [tensor._indices(), tensor._values()]
        if tensor.layout in _COMPRESSED:
            return [*(getattr(tensor, name)() for name in _COMPRESSED[tensor.layout]), tensor.values()]
        if tensor.layout is torch.strided and not tensor.is_nested and tensor.device.type != "meta":
            return [plain(tensor).detach()]
        raise NotImplementedError(str(tensor.layout))


def _has_one_form(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)


def _alike(one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the memory of two tensors as bytes; that of their elements alone where their strides differ."""
    if (one.stride(), one.is_conj(), one.is_neg()) != (other.stride(), other.is_conj(), other.is_neg()):
        one, other = _dense(one), _dense(other)
    return _bytes(one), _bytes(other)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the memory of a tensor from its first element to its last, as uint8 of shape ``(bytes,)``; it shares the memory."""
    size = tensor.element_size()
    found = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return found.set_(tensor.untyped_storage(), tensor.storage_offset() * size, (extent(tensor) * size,), (1,))


def _changed(now: torch.Tensor, before: torch.Tensor) -> str | None:
    memory, memory_before = _alike(now, before)
    if torch.equal(memory, memory_before):
        return None
    now, before = _dense(now), _dense(before)
    ours, theirs = (_bytes(one).view(-1, one.element_size()) for one in (now, before))
    differs = (ours != theirs).any(1)
    if not differs.any():
        return f"changed between its elements: {int((memory != memory_before).sum())} bytes of its memory"
    first = int(differs.nonzero()[0])
    value, value_before = (repr(one.reshape(-1)[first].item()) for one in (now, before))
    if value == value_before:  # NaN of other bits
        value, value_before = (bytes(one[first].tolist()).hex() for one in (ours, theirs))
    from_to = f"from {value_before} to {value}"
    if not now.dim():
        return f"changed {from_to}"
    index = [int(part) for part in torch.unravel_index(torch.tensor(first), now.shape)]
    return f"changed in {int(differs.sum())} of {now.numel()} elements: {index} {from_to}"
