"""Stand-ins: wrong results that ``close`` must reject, each measured against the same reference.

Stand-ins are made of the reference, which equals a right result except for rounding: swapped rows of the reference are equal exactly where
its rows are. Of a large tensor a part is measured first; a stand-in that is wrong in a part is wrong.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from runner.core.protocol import Json

FAR = 10
"""The error of "one element off", in multiples of the tolerance."""

EQUAL = "it equals the reference"

_PART = 1 << 16
"""The approximate number of elements that are measured first."""

Measure = Callable[[Any, Any], Mapping[str, Any]]
"""Returns the ``differences`` of two tensors of one shape."""

Comparer = Callable[[Any], Mapping[str, Json]]
"""Returns the facts of a stand-in, as they replace those of a leaf."""


class Impossible(Exception):
    """The stand-in is impossible for this reference."""


def measure_stand_ins(reference: Any, *, rtol: float, atol: float, against: Measure) -> dict[str, Json]:
    """Return for each stand-in except "other inputs" ``excess``, ``nan_mismatches`` and ``inf_mismatches``, or ``why_not``.

    ``reference`` is a tensor of any shape, dtype and device.
    """
    makers: dict[str, Callable[[Any], tuple[Any, Any]]] = {
        "zeros": lambda part: (part.new_zeros(part.shape), part),
        "negated": lambda part: (_negated(part), part),
        "rows swapped": lambda part: (_swapped(part), part),
        "one element off": lambda part: _one_off(part, rtol, atol),
        "NaN": _one_nan,
    }
    return {name: _tried(_measured, make, reference.detach(), against) for name, make in makers.items()}


def measure_other_inputs(reference: Any, other: Any, against: Measure, comparer: Comparer | None = None) -> Mapping[str, Json]:
    """Return the same facts for the stand-in "other inputs". ``other`` is eager's value for other inputs, or why it is missing.

    ``comparer`` returns the facts where the judge has no tolerance.
    """
    if isinstance(other, str):
        return {"why_not": other}
    return _tried(_other, other, reference.detach(), against) if comparer is None else _tried(_wholly, other, reference.detach(), comparer)


def judged_stand_ins(right: Any, bounds: Any, comparer: Comparer, *, exact: bool = False) -> dict[str, Json]:
    """Return the facts of each wrong tensor by ``comparer``, or ``why_not``; ``bounds`` are those of the judge, by element."""
    wrong = wrong_answers(right, bounds, exact=exact)
    return {name: {"why_not": made} if isinstance(made, str) else _tried(comparer, made) for name, made in wrong}


def _wholly(other: Any, reference: Any, comparer: Comparer) -> Mapping[str, Json]:
    if (other.shape, other.dtype) != (reference.shape, reference.dtype):
        raise Impossible("other inputs give another shape")
    other = other.detach().to(reference.device)
    return {"why_not": EQUAL} if _same(other, reference) else comparer(other)


def _tried(function: Callable[..., Mapping[str, Json]], *arguments: Any) -> Mapping[str, Json]:
    try:
        return function(*arguments)
    except Impossible as why:
        return {"why_not": str(why)}
    except Exception as error:  # unsupported dtype, device out of memory: the case itself is not affected
        return {"why_not": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]}


def _measured(make: Callable[[Any], tuple[Any, Any]], reference: Any, against: Measure) -> Mapping[str, Json]:
    return _first_beyond(map(make, _parts(reference)), against)


def _other(other: Any, reference: Any, against: Measure) -> Mapping[str, Json]:
    if (other.shape, other.dtype) != (reference.shape, reference.dtype):
        raise Impossible("other inputs give another shape")
    return _first_beyond(zip(_parts(other.detach().to(reference.device)), _parts(reference), strict=True), against)


def _first_beyond(pairs: Iterable[tuple[Any, Any]], against: Measure) -> Mapping[str, Json]:
    """Return the facts of the first pair of a stand-in and its reference that are not close, else those of the last one that differs."""
    best: Mapping[str, Json] = {"why_not": "the reference has no elements"}
    for stand_in, right in pairs:
        if _same(stand_in, right):
            best = {"why_not": EQUAL}
            continue
        measured = against(stand_in, right)
        best = {name: measured[name] for name in ("excess", "nan_mismatches", "inf_mismatches")}
        if any(measured[name] for name in ("mismatches", "nan_mismatches", "inf_mismatches")):
            break
    return best


def _parts(tensor: Any) -> Iterator[Any]:
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


def _row_dimension(tensor: Any) -> int | None:
    return next((dimension for dimension, size in enumerate(tensor.shape) if size > 1), None)


def _same(stand_in: Any, reference: Any) -> bool:
    equal = stand_in == reference
    if reference.is_floating_point() or reference.is_complex():
        equal |= stand_in.isnan() & reference.isnan()
    return bool(equal.all())


def _negated(part: Any) -> Any:
    import torch

    return part.logical_not() if part.dtype is torch.bool else -part


def _swapped(part: Any) -> Any:
    rows = _row_dimension(part)
    if rows is None:
        raise Impossible("the reference has one row")
    return part.flip(rows)


def _finite(part: Any) -> Any:
    """Return the first finite element as a tensor of one. One wrong element makes the whole tensor wrong."""
    flat = part.reshape(-1)
    places = flat.isfinite().nonzero()
    if not len(places):
        raise Impossible("the reference has no finite element")
    at = int(places[0])
    return flat[at : at + 1].clone()


def _one_off(part: Any, rtol: float, atol: float) -> tuple[Any, Any]:
    import torch

    right = _finite(part)
    if right.dtype is torch.bool:
        return right.logical_not(), right
    if not (right.is_floating_point() or right.is_complex()):
        return right + max(1, math.ceil(FAR * (atol + rtol * abs(right.item())))), right
    value = right.item()
    off = torch.full_like(right, value + FAR * (atol + rtol * abs(value)))
    if _same(off, right):
        # the tolerance is 0, or ten times the tolerance is below the resolution of the dtype
        off = torch.nextafter(right, torch.full_like(right, math.inf))
    return off, right


def _one_nan(part: Any) -> tuple[Any, Any]:
    import torch

    if not (part.is_floating_point() or part.is_complex()):
        raise Impossible("its dtype has no NaN")
    right = _finite(part)
    return torch.full_like(right, math.nan), right


def wrong_answers(right: Any, bounds: Any, *, exact: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield for each stand-in except "other inputs" a wrong tensor, or why there is none; raise nothing.

    ``bounds`` is the bound of each element. With ``exact``, the sign of a zero matters too.
    """
    right = right.detach().contiguous()
    makers: dict[str, Callable[[], Any]] = {
        "zeros": lambda: right.new_zeros(right.shape),
        "negated": lambda: _negated(right),
        "rows swapped": lambda: _swapped(right),
        "one element off": lambda: _one_beyond(right, bounds),
        "NaN": lambda: _one_changed(right, _floating(right), lambda one: one.fill_(math.nan)),
        "one element zero": lambda: _one_changed(right, right != 0, lambda one: one.zero_()),
        "lower precision": lambda: _coarse(right),
    }
    if exact:
        makers["sign of zero"] = lambda: _signs_flipped(right)
    for name, make in makers.items():
        try:
            made = make()
            is_same = name != "sign of zero" and _same(made, right)
            yield name, EQUAL if is_same else made
        except Impossible as why:
            yield name, str(why)
        except Exception as error:  # an operation that the dtype lacks
            yield name, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]


def _floating(right: Any) -> Any:
    if not (right.is_floating_point() or right.is_complex()):
        raise Impossible("its dtype has no NaN")
    return right.isfinite()


def _one_changed(right: Any, places: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy with one element changed: that in the middle, by magnitude, of the finite ones at the places."""
    import torch

    sizes = right.reshape(-1).abs() if right.dtype is not torch.bool else right.reshape(-1).long()
    candidates = (places & right.isfinite()).reshape(-1).nonzero().reshape(-1)
    if not len(candidates):
        raise Impossible("the reference has no such element")
    ordered = candidates[sizes[candidates].argsort()]
    at = int(ordered[len(ordered) // 2])
    found = right.clone()
    change(found.reshape(-1)[at : at + 1])
    return found


def _one_beyond(right: Any, bounds: Any) -> Any:
    """Return a copy with one element off by ``FAR`` times its bound, and at least by the resolution of the dtype."""
    import torch

    if right.dtype is torch.bool:
        return _one_changed(right, right.isfinite(), lambda one: one.logical_not_())
    if not (right.is_floating_point() or right.is_complex()):
        return _one_changed(right, right.isfinite(), lambda one: one.add_(1))
    flat, limits = right.reshape(-1), bounds.reshape(-1)
    places = flat.isfinite().nonzero().reshape(-1)
    if not len(places):
        raise Impossible("the reference has no finite element")
    at = int(places[len(places) // 2])
    found = right.clone()
    off = flat[at].item() + FAR * float(limits[at])
    found.view(-1)[at] = off
    if _same(found, right):
        found.view(-1)[at] = torch.nextafter(flat[at], torch.full_like(flat[at], math.inf))
    return found


def _coarse(right: Any) -> Any:
    """Return the tensor with half of the bits of its fraction: float64 as float32, float32 as bfloat16, others with three bits."""
    import torch

    if right.dtype is torch.float64:
        return right.float().double()
    if right.dtype is torch.float32:
        return right.bfloat16().float()
    if right.dtype not in (torch.float16, torch.bfloat16):
        raise Impossible("its dtype has no lower precision")
    fraction, exponent = torch.frexp(right.double())
    return torch.ldexp((fraction * 16).round() / 16, exponent).to(right.dtype)


def _signs_flipped(right: Any) -> Any:
    if not right.is_floating_point() or not bool((right == 0).any()):
        raise Impossible("no element is a floating zero")
    return right.where(right != 0, -right)
