"""Stand-ins: wrong results that ``close`` must reject, each measured against the same reference.

Stand-ins are made of the reference, which equals a right result except for rounding: swapped rows
of the reference are equal exactly where its rows are. Of a large tensor a part is measured first; a
stand-in that is wrong in a part is wrong.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from torch_conformance.vocabulary.worker_session import Facts
from torch_conformance.vocabulary.worker_torch import Tensor, torch

FAR = 10
"""The error of "one element off", in multiples of the tolerance."""

EQUAL = "it equals the reference"

_PART = 1 << 16
"""The approximate number of elements that are measured first."""

Measure = Callable[[Tensor, Tensor], Facts]
"""Returns the ``differences`` of two tensors of one shape."""

Comparer = Callable[[Tensor], Facts]
"""Returns the facts of a stand-in, as they replace those of a leaf."""


class Impossible(Exception):
    """The stand-in is impossible for this reference."""


def measure_stand_ins(
    reference: Tensor, *, rtol: float, atol: float, against: Measure
) -> dict[str, Facts]:
    """Return for each stand-in except "other inputs" ``excess``, ``nan_mismatches`` and
    ``inf_mismatches``, or ``why_not``.

    ``reference`` is a tensor of any shape, dtype and device.
    """
    names = _BY_TOLERANCE
    facts: dict[str, Facts] = {name: {"why_not": _EMPTY} for name in names}
    for part in _parts(reference.detach()):
        sizes = part.abs().double() if part.is_complex() else part.double().abs()
        comparer = functools.partial(_measured, against, part)
        facts |= judged_stand_ins(part, atol + rtol * sizes, comparer, names=names)
        names = [name for name in names if not _is_far(facts[name], atol)]
    return facts


_BY_TOLERANCE: Sequence[str] = ("zeros", "negated", "rows swapped", "one element off", "NaN")

_EMPTY = "the reference has no elements"


def _measured(against: Measure, reference: Tensor, other: Tensor) -> Facts:
    facts = against(other, reference)
    return {name: facts[name] for name in ("excess", "nan_mismatches", "inf_mismatches")}


def _is_far(facts: Facts, atol: float) -> bool:
    return any(map(facts.get, ("nan_mismatches", "inf_mismatches"))) or (
        facts.get("excess", 0.0) > atol
    )


def measure_other_inputs(
    reference: Tensor,
    other: Tensor | str,
    against: Measure,
    atol: float,
    comparer: Comparer | None = None,
) -> Facts:
    """Return the same facts for the stand-in "other inputs".

    ``other`` is eager's value for other inputs, or why it is missing.

    ``comparer`` returns the facts where the judge has no tolerance.
    """
    if isinstance(other, str):
        return {"why_not": other}

    def compared() -> Facts:
        if (other.shape, other.dtype) != (reference.shape, reference.dtype):
            raise Impossible("other inputs give another shape")
        wrong, right = other.detach().to(reference.device), reference.detach()
        if comparer is not None:
            return {"why_not": EQUAL} if _alike(wrong, right) else comparer(wrong)
        facts: Facts = {"why_not": _EMPTY}
        for part, of_right in zip(_parts(wrong), _parts(right), strict=True):
            if _alike(part, of_right):
                facts = {"why_not": EQUAL}
            elif _is_far(facts := _measured(against, of_right, part), atol):
                break
        return facts

    return _tried(compared)


def _tried(compared: Callable[[], Facts]) -> Facts:
    try:
        return compared()
    except Impossible as why:
        return {"why_not": str(why)}
    except Exception as error:
        # unsupported dtype, device out of memory: the case itself is not affected
        line = str(error).partition("\n")[0]
        return {"why_not": f"{type(error).__name__}: {line}"[:300]}


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """Yield a part of a large tensor with at least two rows, then the whole tensor."""
    if tensor.numel() == 0:
        return
    if tensor.numel() > 2 * _PART:
        part, left, rows = tensor, _PART, _row_dimension(tensor)
        for dimension in reversed(range(tensor.ndim)):
            size = min(tensor.shape[dimension], max(left, 2 if dimension == rows else 1))
            part = part.narrow(dimension, 0, size)
            left //= size
        yield part
    yield tensor


def _row_dimension(tensor: Tensor) -> int | None:
    return next((dimension for dimension, size in enumerate(tensor.shape) if size > 1), None)


def _alike(stand_in: Tensor, reference: Tensor) -> bool:
    """Whether a stand-in is the reference but for rounding: means of many numbers are alike for all
    inputs.
    """
    if not reference.is_floating_point():
        return _same(stand_in, reference)
    rtol = 2 * torch.finfo(reference.dtype).eps
    return bool(
        torch.isclose(
            stand_in.double(), reference.double(), rtol=rtol, atol=0.0, equal_nan=True
        ).all()
    )


def _same(stand_in: Tensor, reference: Tensor) -> bool:
    equal = stand_in == reference
    if _has_fractions(reference):
        equal |= stand_in.isnan() & reference.isnan()
    return bool(equal.all())


def judged_stand_ins(
    right: Tensor,
    bounds: Tensor,
    comparer: Comparer,
    *,
    exact: bool = False,
    names: Sequence[str] | None = None,
) -> dict[str, Facts]:
    """Return for each stand-in except "other inputs", or for those of some names, its facts by
    ``comparer``, or ``why_not``; raise nothing.

    ``bounds`` is the bound of each element, of the shape of ``right``. With ``exact``, the sign of
    a zero matters too.
    """
    right = right.detach().contiguous()

    def compared(name: str) -> Facts:
        wrong = _MAKERS[name](right, bounds)
        if name == _OTHER_SIGNS:
            return comparer(wrong)
        same = _alike if name == "rows swapped" else _same
        return {"why_not": EQUAL} if same(wrong, right) else comparer(wrong)

    chosen = [name for name in _MAKERS if exact or name != _OTHER_SIGNS] if names is None else names
    return {name: _tried(functools.partial(compared, name)) for name in chosen}


Change = Callable[[Tensor, float], object]
"""Changes a tensor of one element in place; receives the bound of the element."""


def _changed(
    right: Tensor, bounds: Tensor, places: Tensor, change: Change, share: float = 0.5
) -> Tensor:
    """Return a copy with one element changed: of the finite ones at the places, that which exceeds
    a share of them in magnitude.
    """
    flat = right.reshape(-1)
    candidates = (places & right.isfinite()).reshape(-1).nonzero().reshape(-1)
    if not len(candidates):
        raise Impossible("the reference has no finite element")
    sizes = flat.long() if right.dtype is torch.bool else flat.abs()
    ordered = candidates[sizes[candidates].argsort()]
    at = int(ordered[min(int(len(ordered) * share), len(ordered) - 1)])
    wrong = right.clone()
    change(wrong.view(-1)[at : at + 1], float(bounds.reshape(-1)[at]))
    return wrong


def _swapped(right: Tensor, bounds: Tensor) -> Tensor:
    if (rows := _row_dimension(right)) is None:
        raise Impossible("the reference has one row")
    return right.flip(rows)


def _one_off(right: Tensor, bounds: Tensor) -> Tensor:
    """Return a copy with one element off by ``FAR`` times its bound, and at least by the resolution
    of the dtype.
    """
    if right.dtype is torch.bool:
        return _changed(right, bounds, bounds == 0, lambda element, _: element.logical_not_())

    def off(element: Tensor, bound: float) -> None:
        before = element.clone()
        if not _has_fractions(element):
            element.add_(max(1, math.ceil(FAR * bound)))
        elif _same(element.fill_(before.item() + FAR * bound), before):
            element.copy_(torch.nextafter(before, torch.full_like(before, math.inf)))

    return _changed(right, bounds, right.isfinite(), off)


def _has_fractions(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _one_nan(right: Tensor, bounds: Tensor) -> Tensor:
    if not _has_fractions(right):
        raise Impossible("its dtype has no NaN")
    return _changed(right, bounds, right.isfinite(), lambda element, _: element.fill_(math.nan))


def _coarse(right: Tensor, bounds: Tensor) -> Tensor:
    """Return the tensor with half of the bits of its fraction: float64 as float32, float32 as
    bfloat16, others with three bits.
    """
    if right.dtype is torch.float64:
        return right.float().double()
    if right.dtype is torch.float32:
        return right.bfloat16().float()
    if right.dtype not in (torch.float16, torch.bfloat16):
        raise Impossible("its dtype has no lower precision")
    fraction, exponent = torch.frexp(right.double())
    return torch.ldexp((fraction * 16).round() / 16, exponent).to(right.dtype)


def _other_signs(right: Tensor, bounds: Tensor) -> Tensor:
    if not right.is_floating_point() or not bool((right == 0).any()):
        raise Impossible("no element is a floating zero")
    return right.where(right != 0, -right)


_OTHER_SIGNS = "sign of zero"

_MAKERS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "zeros": lambda right, _: right.new_zeros(right.shape),
    "negated": lambda right, _: right.logical_not() if right.dtype is torch.bool else -right,
    "rows swapped": _swapped,
    "one element off": _one_off,
    "NaN": _one_nan,
    # of gradients that are 0 but for rounding elsewhere, only the greatest is unlike 0
    "one element zero": lambda right, bounds: _changed(
        right, bounds, right != 0, lambda element, _: element.zero_(), share=1.0
    ),
    "lower precision": _coarse,
    _OTHER_SIGNS: _other_signs,
}
"""What makes each stand-in of the reference and the bounds of its elements; raises
``Impossible``."""
