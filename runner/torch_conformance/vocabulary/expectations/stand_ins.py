"""Stand-ins: wrong results that ``close`` must reject, each measured against the same reference.

Stand-ins are made of the reference, which equals a right result except for rounding: swapped rows
of the reference are equal exactly where its rows are. Of a large tensor a part is measured first; a
stand-in that is wrong in a part is wrong.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torch_conformance.vocabulary.worker_session import Facts
from torch_conformance.vocabulary.worker_torch import torch

FAR = 10
"""The error of "one element off", in multiples of the tolerance."""

EQUAL = "it equals the reference"

_PART = 1 << 16
"""The approximate number of elements that are measured first."""

Measure = Callable[[Any, Any], Facts]
"""Returns the ``differences`` of two tensors of one shape."""

Comparer = Callable[[Any], Facts]
"""Returns the facts of a stand-in, as they replace those of a leaf."""


class Impossible(Exception):
    """The stand-in is impossible for this reference."""


def measure_stand_ins(
    reference: Any, *, rtol: float, atol: float, against: Measure
) -> dict[str, Facts]:
    """Return for each stand-in except "other inputs" ``excess``, ``nan_mismatches`` and
    ``inf_mismatches``, or ``why_not``.

    ``reference`` is a tensor of any shape, dtype and device. One wrong element makes the whole
    tensor wrong, so of those only the first finite one is measured.
    """
    right = reference.detach()
    flat = right.reshape(-1)
    finite = flat[:0]
    for part in flat.split(1 << 24):
        # of a large tensor whole copies in float64 and indices would take 16 times its memory
        places = (
            (part if part.is_complex() else part.double()).isfinite().nonzero()
        )  # no such question of float8
        if len(places):
            finite = part[int(places[0]) : int(places[0]) + 1].clone()
            break
    why_not = (
        "the reference has no finite element" if right.numel() else "the reference has no elements"
    )
    facts: dict[str, Facts] = {name: {"why_not": why_not} for name in (*_OF_ALL, *_OF_ONE)}

    def add(part: Any, names: Sequence[str]) -> None:
        sizes = part.abs().double() if part.is_complex() else part.double().abs()
        facts.update(
            judged_stand_ins(
                part,
                atol + rtol * sizes,
                lambda wrong: _measured(against(wrong, part)),
                names=names,
            )
        )

    names: Sequence[str] = _OF_ALL
    for part in _parts(right):
        if not names:
            break
        add(part, names)
        mismatches = ("nan_mismatches", "inf_mismatches")
        names = [
            name
            for name in names
            if not any(map(facts[name].get, mismatches))
            and not facts[name].get("excess", 0.0) > atol
        ]
    if len(finite):
        add(finite, _OF_ONE)
    return facts


_OF_ALL, _OF_ONE = ("zeros", "negated", "rows swapped"), ("one element off", "NaN")


def _measured(facts: Facts) -> Facts:
    return {name: facts[name] for name in ("excess", "nan_mismatches", "inf_mismatches")}


def measure_other_inputs(
    reference: Any, other: object, against: Measure, comparer: Comparer | None = None
) -> Facts:
    """Return the same facts for the stand-in "other inputs".

    ``other`` is eager's value for other inputs, or why it is missing.

    ``comparer`` returns the facts where the judge has no tolerance.
    """

    def compared(other: Any) -> Facts:
        if (other.shape, other.dtype) != (reference.shape, reference.dtype):
            raise Impossible("other inputs give another shape")
        other, right = other.detach().to(reference.device), reference.detach()
        if comparer is None:
            return _first_beyond(zip(_parts(other), _parts(right), strict=True), against, _alike)
        return {"why_not": EQUAL} if _alike(other, right) else comparer(other)

    return {"why_not": other} if isinstance(other, str) else _tried(compared, other)


def _tried(function: Callable[[Any], Facts], argument: object) -> Facts:
    try:
        return function(argument)
    except Impossible as why:
        return {"why_not": str(why)}
    except Exception as error:
        # unsupported dtype, device out of memory: the case itself is not affected
        return {
            "why_not": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[  # noqa: E501 - Python 3.11 breaks no line within a field
                :300
            ]
        }


def _first_beyond(
    pairs: Iterable[tuple[Any, Any]], against: Measure, same: Callable[[Any, Any], bool]
) -> Facts:
    """Return the facts of the first pair of a stand-in and its reference that are not close, else
    those of the last one that differs.
    """
    best: Facts = {"why_not": "the reference has no elements"}
    for stand_in, right in pairs:
        if same(stand_in, right):
            best = {"why_not": EQUAL}
            continue
        measured = against(stand_in, right)
        best = _measured(measured)
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


def _alike(stand_in: Any, reference: Any) -> bool:
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


def _same(stand_in: Any, reference: Any) -> bool:
    equal = stand_in == reference
    if reference.is_floating_point() or reference.is_complex():
        equal |= stand_in.isnan() & reference.isnan()
    return bool(equal.all())


def _swapped(part: Any) -> Any:
    rows = _row_dimension(part)
    if rows is None:
        raise Impossible("the reference has one row")
    return part.flip(rows)


def judged_stand_ins(
    right: Any,
    bounds: Any,
    comparer: Comparer,
    *,
    exact: bool = False,
    names: Sequence[str] | None = None,
) -> dict[str, Facts]:
    """Return for each stand-in except "other inputs", or for those of some names, its facts by
    ``comparer``, or ``why_not``; raise nothing.

    ``bounds`` is the bound of each element. With ``exact``, the sign of a zero matters too.
    """
    right = right.detach().contiguous()
    has_fractions = right.is_floating_point() or right.is_complex()

    def changed(places: Any, change: Callable[[Any], Any], share: float = 0.5) -> Any:
        """Return a copy with one element changed: of the finite ones at the places, that which
        exceeds a share of them in magnitude.
        """
        sizes = (
            right.reshape(-1).abs() if right.dtype is not torch.bool else right.reshape(-1).long()
        )
        candidates = (places & right.isfinite()).reshape(-1).nonzero().reshape(-1)
        if not len(candidates):
            raise Impossible("the reference has no such element")
        ordered = candidates[sizes[candidates].argsort()]
        at = int(ordered[min(int(len(ordered) * share), len(ordered) - 1)])
        wrong = right.clone()
        change(wrong.reshape(-1)[at : at + 1])
        return wrong

    def one_off() -> Any:
        """Return a copy with one element off by ``FAR`` times its bound, and at least by the
        resolution of the dtype.
        """
        if right.dtype is torch.bool:
            return changed(bounds == 0, lambda element: element.logical_not_())
        if not has_fractions:
            return changed(
                right.isfinite(),
                lambda element: element.add_(max(1, math.ceil(FAR * float(bounds.max())))),
            )
        flat, limits = right.reshape(-1), bounds.reshape(-1)
        places = flat.isfinite().nonzero().reshape(-1)
        if not len(places):
            raise Impossible("the reference has no finite element")
        at = int(places[len(places) // 2])
        wrong = right.clone()
        wrong.view(-1)[at] = flat[at].item() + FAR * float(limits[at])
        if _same(wrong, right):
            wrong.view(-1)[at] = torch.nextafter(flat[at], torch.full_like(flat[at], math.inf))
        return wrong

    def one_nan() -> Any:
        if not has_fractions:
            raise Impossible("its dtype has no NaN")
        return changed(right.isfinite(), lambda element: element.fill_(math.nan))

    def coarse() -> Any:
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

    def other_signs() -> Any:
        if not right.is_floating_point() or not bool((right == 0).any()):
            raise Impossible("no element is a floating zero")
        return right.where(right != 0, -right)

    makers: dict[str, Callable[[], Any]] = {
        "zeros": lambda: right.new_zeros(right.shape),
        "negated": lambda: right.logical_not() if right.dtype is torch.bool else -right,
        "rows swapped": lambda: _swapped(right),
        "one element off": one_off,
        "NaN": one_nan,
        # of gradients that are 0 but for rounding elsewhere, only the greatest is unlike 0
        "one element zero": lambda: changed(right != 0, lambda element: element.zero_(), share=1.0),
        "lower precision": coarse,
    }
    if exact:
        makers["sign of zero"] = other_signs

    def compared(name: str) -> Facts:
        wrong = makers[name]()
        same = _alike if name == "rows swapped" else _same
        return (
            {"why_not": EQUAL} if name != "sign of zero" and same(wrong, right) else comparer(wrong)
        )

    return {name: _tried(compared, name) for name in makers if names is None or name in names}
