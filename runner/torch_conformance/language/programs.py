"""The specs of a source of random programs: chains of operators, made by a seed, without torch.

Each operator is a row of a table, which says what its operand may be and what is known of its
result: shape, dtype, range, whether rounding reaches it, and how much it magnifies an error. A row
that does not fit is not taken, so that a program is valid, and rounding explains none of its
failures.
"""

import json
import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from torch_conformance.language.read.anatomy import PROGRAMS
from torch_conformance.model.diagnostics import Diagnostic
from torch_conformance.model.document import Document

VERSION = 2
"""The number in the ids; another one wherever the same seed gives another text."""

Shape: TypeAlias = tuple[int, ...]
Bounds: TypeAlias = tuple[float, float]

HALF = ("bfloat16", "float16")
FLOATS = ("float32", "float64", *HALF)
_NODES = (3, 12)
_MOST_ELEMENTS = 4096
_GREATEST = {"float32": 1000.0, "float64": 1000.0, "int64": 10_000.0}
"""The greatest magnitude of values; 64 of other dtypes."""
_STEEPEST = {"float32": 1000.0, "float64": 1000.0, "int64": math.inf}
"""How much an error of an input may be magnified; 32 times in other dtypes."""
_TRIES = 400


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of a value, without computing it."""

    name: str
    shapes: tuple[Shape, ...]
    """A shape for each call."""
    dtype: str
    bounds: Bounds
    slope: float = 1.0
    """A bound of the sum of its derivatives, of each element."""
    has_gradient: bool = False
    is_exact: bool = True
    """Whether no rounding of an operator has reached it."""
    root: str = ""
    """The value whose memory it may share."""

    @property
    def is_float(self) -> bool:
        """Whether its dtype is a floating one."""
        return self.dtype in FLOATS

    @property
    def greatest(self) -> float:
        """The greatest magnitude of its elements."""
        return max(map(abs, self.bounds))


# -- rules of the table ----------------------------------------------------------------------------

SMOOTH, KINK, JUMP = range(3)
"""A jump needs an exact operand. A kink, whose derivative jumps, needs one where there are
gradients.
"""

ANY: Bounds = (-1000.0, 1000.0)
SMALL: Bounds = (-3.0, 3.0)
POSITIVE: Bounds = (0.25, 1000.0)


def _ends(function: Callable[[float], float]) -> Callable[..., Bounds]:
    """Return the range of an increasing function."""
    return lambda low, high, _: (function(low), function(high))


def _between(low: float, high: float) -> Callable[..., Bounds]:
    return lambda *_: (low, high)


def _hull(*more: float) -> Callable[..., Bounds]:
    return lambda low, high, _: (min(low, *more), max(high, *more))


def _times(low: float, high: float, count: int) -> Bounds:
    return min(low * count, 0.0), max(high * count, 0.0)


def _added(low: float, high: float, count: int) -> Bounds:
    return _times(low, high, count + 1)


def _kept(low: float, high: float, _: int) -> Bounds:
    return low, high


def _scaled(low: float, high: float, _: int) -> Bounds:
    return min(low, low / 2), max(high, high / 2)


def _squares(low: float, high: float, _: int) -> Bounds:
    return 0.0, max(low * low, high * high)


def _same(shape: Shape, _: int) -> Shape:
    return shape


def _with(size: Callable[[int], int], least: int = 1) -> Callable[[Shape, int], Shape | None]:
    """Return the shape with another size of the dimension, where that has a least size."""
    return lambda shape, dim: (
        (*shape[:dim], size(shape[dim]), *shape[dim + 1 :]) if shape[dim] >= least else None
    )


def _without(shape: Shape, dim: int) -> Shape | None:
    return (*shape[:dim], *shape[dim + 1 :]) if shape[dim] else None


def _at_least(rank: int, size: int = 0) -> Callable[[Shape, int], Shape | None]:
    """Return the shape where it has a rank, and sizes, of at least these."""
    return lambda shape, _: (
        shape if len(shape) >= rank and min(shape, default=size) >= size else None
    )


def _pooled(shape: Shape, _: int) -> Shape | None:
    fits = len(shape) in (3, 4) and shape[-1] > 1 and shape[-2] > 1 and 0 not in shape
    return (*shape[:-2], shape[-2] - 1, shape[-1] - 1) if fits else None


def _product(shape: Shape, _: int) -> Shape | None:
    return (*shape[:-1], shape[-2]) if len(shape) > 1 and 0 < shape[-1] < 18 else None


def _swapped(shape: Shape, _: int) -> Shape | None:
    return (shape[-1], *shape[1:-1], shape[0]) if len(shape) > 1 else None


_LINE = _with(lambda size: size)


class Form(NamedTuple):
    """A row of the table.

    In the text X is the operand, Y the second one, D a dimension, K whether it is kept, V the
    result, I the numbers of D.
    """

    text: str
    bounds: Callable[..., Bounds] = _kept
    slope: float = 1.0
    """Of the derivative; where it is negative, that many times the size of the dimension."""
    kind: int = SMOOTH
    domain: Bounds = ANY
    shape: Callable[[Shape, int], Shape | None] = _same
    is_exact: bool = False
    """Whether nothing is rounded."""
    dtype: str = ""
    """Of the result; empty for that of the operand."""
    most: int = 64
    """The greatest size of the dimension."""
    is_view: bool = False
    differentiable: bool = True
    """Whether eager's gradient is specified, also where values are equal."""


def _rows(*rows: Form | tuple[Any, ...], **common: Any) -> tuple[Form, ...]:
    return tuple(Form(*row)._replace(**common) for row in rows)


SOFT = _rows(
    ("torch.sin(X)", _between(-1, 1), 1, SMOOTH, (-8, 8)),
    ("torch.cos(X)", _between(-1, 1), 1, SMOOTH, (-8, 8)),
    ("torch.tanh(X)", _between(-1, 1)),
    ("torch.sigmoid(X)", _between(0, 1)),
    ("torch.sigmoid(X) + 0.5", _between(0.5, 1.5)),
    ("torch.erf(X)", _between(-1, 1), 1.2),
    ("torch.atan(X)", _between(-1.6, 1.6)),
    ("torch.exp(X)", _ends(math.exp), 21, SMOOTH, SMALL),
    ("torch.expm1(X)", _ends(math.expm1), 21, SMOOTH, SMALL),
    ("torch.exp2(X)", _ends(lambda x: 2**x), 6, SMOOTH, SMALL),
    ("torch.log(X)", _ends(math.log), 4, SMOOTH, POSITIVE),
    ("torch.log1p(X)", _ends(math.log1p), 1, SMOOTH, (0, 1000)),
    ("torch.sqrt(X)", _ends(math.sqrt), 1, SMOOTH, POSITIVE),
    ("torch.rsqrt(X)", _between(0.03, 2), 4, SMOOTH, POSITIVE),
    ("torch.reciprocal(X)", _between(0.001, 4), 16, SMOOTH, POSITIVE),
    ("torch.square(X)", _squares, 12, SMOOTH, (-6, 6)),
    ("torch.square(X) + 0.5", lambda *x: (0.5, _squares(*x)[1] + 0.5), 6, SMOOTH, SMALL),
    ("torch.asinh(X)", _ends(math.asinh)),
    ("torch.lgamma(X)", _between(-0.2, 9), 3, SMOOTH, (1, 9)),
    ("torch.digamma(X)", _between(-0.6, 3), 2, SMOOTH, (1, 9)),
    ("torch.erfinv(X)", _between(-1.2, 1.2), 4, SMOOTH, (-0.9, 0.9)),
    ("torch.pow(X, 1.5)", _ends(lambda x: x**1.5), 6, SMOOTH, (0.25, 16)),
    ("F.gelu(X)", _hull(-0.2, 0.0), 1.2),
    ("F.gelu(X, approximate='tanh')", _hull(-0.2, 0.0), 1.2, SMOOTH, (-8, 8)),
    ("F.silu(X)", _hull(-0.3, 0.0), 1.2),
    ("F.mish(X)", _hull(-0.4, 0.0), 1.2),
    ("F.softplus(X) + 0.25", lambda low, high, _: (0.25, max(high, 0.0) + 1)),
    ("F.logsigmoid(X)", lambda low, *_: (min(low, 0.0) - 1, 0.0)),
    ("F.softsign(X)", _between(-1, 1)),
    ("X * 0.5", _scaled),
    ("X + 1", lambda low, high, _: (low + 1, high + 1)),
)
SHARP = _rows(
    ("torch.neg(X)", lambda low, high, _: (-high, -low)),
    ("torch.abs(X)", lambda low, high, _: (0.0, max(-low, high)), 1, KINK),
    ("torch.relu(X)", _ends(lambda x: max(x, 0.0)), 1, KINK),
    ("torch.clamp(X, -0.5, 0.75)", _ends(lambda x: min(max(x, -0.5), 0.75)), 1, KINK),
    ("F.leaky_relu(X, 0.25)", _ends(lambda x: max(x, x / 4)), 1, KINK),
    ("F.relu6(X)", _ends(lambda x: min(max(x, 0.0), 6.0)), 1, KINK),
    ("torch.floor(X * 2)", lambda low, high, _: (2 * low - 1, 2 * high), 0, JUMP),
    ("torch.ceil(X)", lambda low, high, _: (low, high + 1), 0, JUMP),
    ("torch.trunc(X * 4)", lambda low, high, _: (4 * low, 4 * high), 0, JUMP),
    ("torch.round(X * 4)", lambda low, high, _: (4 * low - 1, 4 * high + 1), 0, JUMP),
    ("torch.frac(X)", _between(-1, 1), 1, JUMP),
    ("torch.sign(X)", _between(-1, 1), 0, JUMP),
    ("torch.nan_to_num(X)",),
    is_exact=True,
)
CASTS = _rows(
    *((f"X.to(torch.{dtype})", _kept, 1, SMOOTH, ANY, _same, True, dtype) for dtype in FLOATS),
    ("X.to(torch.bfloat16).to(X.dtype)",),
    ("X > 0.25", _between(0, 1), 0, JUMP, ANY, _same, True, "bool"),
    ("X <= -0.5", _between(0, 1), 0, JUMP, ANY, _same, True, "bool"),
    ("(X * 4).to(torch.int64)", lambda low, high, _: (4 * low, 4 * high), 0, JUMP, ANY)
    + (_same, True, "int64"),
    ("(X * 4).round() / 4", lambda low, high, _: (low - 1, high + 1), 0, JUMP),
    is_exact=True,
)
REDUCTIONS = _rows(
    ("torch.sum(X, D, keepdim=K)", _times, -1),
    ("torch.mean(X, D, keepdim=K)",),
    ("torch.amax(X, D, keepdim=K)", _kept, 1, KINK, ANY, _without, True),
    ("torch.amin(X, D, keepdim=K)", _kept, 1, KINK, ANY, _without, True),
    ("torch.logsumexp(X, D, keepdim=K)", lambda low, high, n: (low, high + math.log(n or 1))),
    ("torch.var(X, D, keepdim=K, correction=0)", _squares, 12, SMOOTH, SMALL),
    ("(torch.square(X).sum(D, keepdim=K) + 0.5).sqrt()", lambda *x: (0.5, 48), 2, SMOOTH, (-6, 6)),
    ("torch.argmax(X, D, keepdim=K)", _between(0, 64), 0, JUMP, ANY, _without, True, "int64"),
    ("torch.any(X > 0.25, D, keepdim=K)", _between(0, 1), 0, JUMP, ANY, _without, True, "bool"),
    ("torch.count_nonzero(X > 0.25, D)", _between(0, 64), 0, JUMP, ANY) + (_without, True, "int64"),
    shape=_without,
)
LINES = _rows(
    ("torch.softmax(X, D)", _between(0, 1)),
    ("torch.log_softmax(X, D)", lambda low, high, n: (low - high - math.log(n or 1), 0.0), 2),
    ("torch.cumsum(X, D)", _times, -1),
    ("torch.flip(X, (D,))", _kept, 1, SMOOTH, ANY, _LINE, True),
    ("torch.roll(X, 1, D)", _kept, 1, SMOOTH, ANY, _LINE, True),
    ("torch.sort(X, dim=D, stable=True).values", _kept, 1, JUMP, ANY, _LINE, True),
    ("torch.argsort(X, dim=D, stable=True)", _between(0, 64), 0, JUMP, ANY, _LINE, True, "int64"),
    shape=_LINE,
) + _rows(
    ("F.layer_norm(X, X.shape[-1:], eps=0.125)", _between(-9, 9), 9, SMOOTH, ANY, _at_least(1, 1)),
    ("F.rms_norm(X, X.shape[-1:], eps=0.125)", _between(-9, 9), 9, SMOOTH, ANY, _at_least(1, 1)),
    ("torch.prod(X, D)", _between(0.01, 12), 24, SMOOTH, (0.5, 1.5), _without, False, "", 6),
    ("torch.cumprod(X, D)", _between(0.01, 12), 24, SMOOTH, (0.5, 1.5), _LINE, False, "", 6),
    ("torch.diff(X, dim=D)", lambda low, high, _: (low - high, high - low), 2, SMOOTH, ANY)
    + (_with(lambda size: size - 1),),
    ("F.batch_norm(X, None, None, training=True, eps=0.125)", _between(-64, 64), 9, SMOOTH, SMALL)
    + (_at_least(2, 2),),
    ("F.group_norm(X, 1, eps=0.125)", _between(-64, 64), 9, SMOOTH, SMALL, _at_least(3, 2)),
)
UNDERIVED = _rows(
    ("torch.cummax(X, D).values",),
    ("torch.median(X, D).values", _kept, 1, KINK, ANY, _without),
    ("torch.topk(X, (X.size(D) + 1) // 2, dim=D).values", _kept, 1, KINK, ANY)
    + (_with(lambda size: (size + 1) // 2),),
    ("torch.bucketize(X, torch.arange(-2.0, 3.0, device=X.device))", _between(0, 5), 0, JUMP, ANY)
    + (_same, True, "int64"),
    is_exact=True,
    differentiable=False,
)
_ROW = (_kept, 1, SMOOTH, ANY)
VIEWS = _rows(
    ("X.transpose(0, -1)", *_ROW, _swapped),
    ("X.movedim(0, -1)", *_ROW, lambda s, _: (*s[1:], s[0])),
    ("X.reshape(-1)", *_ROW, lambda s, _: (math.prod(s),)),
    ("X.unsqueeze(D)", *_ROW, lambda s, d: (*s[:d], 1, *s[d:])),
    ("X.narrow(D, 0, (X.size(D) + 1) // 2)", *_ROW, _with(lambda size: (size + 1) // 2)),
    ("X[::2]", *_ROW, lambda s, _: ((s[0] + 1) // 2, *s[1:])),
    ("X[..., 1:]", *_ROW, lambda s, _: (*s[:-1], s[-1] - 1) if s[-1] else None),
    ("X.select(D, -1)", *_ROW, _without),
    ("X.chunk(2, D)[0]", *_ROW, _with(lambda size: (size + 1) // 2)),
    ("X.unsqueeze(0).expand(3, *X.shape)", _kept, 3, SMOOTH, ANY, lambda s, _: (3, *s)),
    ("X.diagonal(dim1=0, dim2=-1)", *_ROW)
    + (lambda s, _: (*s[1:-1], min(s[0], s[-1])) if len(s) > 1 else None,),
    ("X.contiguous()",),
    is_exact=True,
    is_view=True,
)
COPIES = _rows(
    ("torch.cat([X, X], D)", _kept, 2, SMOOTH, ANY, _with(lambda size: 2 * size)),
    ("torch.stack([X, X], D)", _kept, 2, SMOOTH, ANY) + (lambda s, d: (*s[:d], 2, *s[d:]),),
    ("F.pad(X, (1, 2))", _hull(0.0), 1, SMOOTH, ANY, lambda s, _: (*s[:-1], s[-1] + 3)),
    ("F.pad(X, (2, 0), value=0.5)", _hull(0.5), 1, SMOOTH, ANY, lambda s, _: (*s[:-1], s[-1] + 2)),
    ("X.repeat_interleave(2, dim=D)", _kept, 2, SMOOTH, ANY, _with(lambda size: 2 * size)),
    ("torch.tril(X)", _hull(0.0), 1, SMOOTH, ANY, _at_least(2)),
    ("torch.triu(X, 1)", _hull(0.0), 1, SMOOTH, ANY, _at_least(2)),
    ("X.clone()",),
    ("F.max_pool2d(X, 2, stride=1)", _kept, 4, KINK, ANY, _pooled),
    is_exact=True,
)
INDEXING = _rows(
    ("X.index_select(D, I.flip(0))",),
    ("X.gather(D, X.argsort(dim=D, stable=True))", _kept, 1, JUMP),
    ("X.scatter(D, X.argsort(dim=D, stable=True), X * 0.5)", _scaled, 2, JUMP),
    ("X.index_fill(D, I[:1], 0.5)", _hull(0.5)),
    ("X.index_copy(D, I[:1], X.narrow(D, -1, 1))", _kept, 2),
    ("X.select_scatter(X.select(D, 0) * 0.5, D, -1)", _scaled, 2),
    ("X.masked_fill(X > 0.25, 0.5)", _hull(0.5), 1, JUMP),
    ("X.scatter_reduce(D, X.argsort(dim=D, stable=True) // 2, X, reduce='amax')", _kept, 3, JUMP),
    is_exact=True,
    shape=_LINE,
) + _rows(
    ("X.index_add(D, I.flip(0), X)", lambda low, high, _: (low * 2, high * 2), 2),
    ("X.index_add(D, I // 2, X * 0.5)", lambda low, high, _: _times(low, high, 2), 2),
    ("X.scatter_add(D, torch.zeros_like(X, dtype=torch.int64), X)", _added, -2),
    shape=_LINE,
    most=17,
)
WRITES = _rows(
    ("X.clone(); V.mul_(0.5)", _scaled),
    ("X.clone(); V[..., :1].mul_(0.5)", _scaled),
    ("X.clone(); V.select(D, 0).fill_(0.25)", _hull(0.25)),
    ("X.clone(); V[V > 0.5] = 0.25", _hull(0.25), 1, JUMP),
    ("X.clone(); V[0] = V[-1] * 0.5", _scaled, 2),
    ("X.clone(); V.masked_fill_(X > 0.25, 0.5)", _hull(0.5), 1, JUMP),
    ("X.clone(); V.clamp_(-0.5, 0.75)", _ends(lambda x: min(max(x, -0.5), 0.75)), 1, KINK),
    ("X.clone(); V.transpose(0, -1).mul_(0.5)", _scaled),
    is_exact=True,
    shape=_at_least(1, 1),
) + _rows(
    ("X.clone(); V.index_add_(D, I.flip(0), X)", lambda low, high, _: _times(low, high, 2), 2),
    ("torch.sin(X); V[..., 1:].add_(1)", _between(-1, 2), 1, SMOOTH, (-8, 8)),
    shape=_LINE,
)
MATRICES = _rows(
    ("torch.matmul(X, X.mT)", lambda low, high, n: (-9.0 * 18, 9.0 * 18), 108, SMOOTH, SMALL),
    ("torch.matmul(X, X.mT) * 0.125", _between(-21, 21), 14, SMOOTH, SMALL),
    ("torch.einsum('...ij,...kj->...ik', X, X.tanh())", _between(-54, 54), 72, SMOOTH, SMALL),
    ("F.linear(X, X.reshape(-1, X.size(-1))[:2] * 0.25)", _between(-42, 42), 28, SMOOTH, SMALL)
    + (lambda s, _: (*s[:-1], 2) if _product(s, 0) and math.prod(s[:-1]) > 1 else None,),
)
MATRICES = (*(row._replace(shape=_product) for row in MATRICES[:-1]), MATRICES[-1])
WHOLE = _rows(
    ("X + 1", lambda low, high, _: (low + 1, high + 1)),
    ("X * 2 - 1", lambda low, high, _: (2 * low - 1, 2 * high - 1)),
    ("X % 3", _between(0, 2)),
    ("X // 2", lambda low, high, _: (low / 2 - 1, high / 2)),
    ("X.clamp(0, 4)", _between(0, 4)),
    ("X.sum(D)", _times, 1, SMOOTH, ANY, _without),
    ("X.cumsum(D)", _times, 1, SMOOTH, ANY, _LINE),
    ("X.bitwise_and(5)", _between(0, 5)),
    ("X.flip(0)", _kept, 1, SMOOTH, ANY, _LINE),
    ("X > 1", _between(0, 1), 1, SMOOTH, ANY, _same, True, "bool"),
    ("X.to(torch.float32)", _kept, 1, SMOOTH, ANY, _same, True, "float32"),
    ("X.to(torch.bfloat16)", _kept, 1, SMOOTH, SMALL, _same, True, "bfloat16"),
    is_exact=True,
)
TRUTHS = _rows(
    ("~X",),
    ("X.to(torch.float32)", _kept, 1, SMOOTH, ANY, _same, True, "float32"),
    ("X.to(torch.int64)", _kept, 1, SMOOTH, ANY, _same, True, "int64"),
    ("X.any(D)", _kept, 1, SMOOTH, ANY, _without),
    ("X.transpose(0, -1).contiguous()", *_ROW, _swapped),
    is_exact=True,
)
GROUPS: tuple[tuple[int, tuple[Form, ...]], ...] = (
    (12, SOFT),
    (8, SHARP),
    (8, CASTS),
    (8, REDUCTIONS),
    (7, LINES),
    (3, UNDERIVED),
    (9, VIEWS),
    (6, COPIES),
    (9, INDEXING),
    (6, WRITES),
    (4, MATRICES),
)
"""With their weights."""


class Pair(NamedTuple):
    """A row of two operands, whose shapes are broadcast."""

    text: str
    bounds: Callable[[Bounds, Bounds], Bounds]
    slopes: Callable[[float, float], tuple[float, float]] = lambda x, y: (1, 1)
    """Of the derivatives, from the greatest magnitudes."""
    kind: int = SMOOTH
    second: Bounds = ANY
    """The domain of the second operand."""
    is_exact: bool = False
    same_dtype: bool = False
    dtype: str = ""


def _union(x: Bounds, y: Bounds) -> Bounds:
    return min(x[0], y[0]), max(x[1], y[1])


def _sum(x: Bounds, y: Bounds) -> Bounds:
    return x[0] + y[0], x[1] + y[1]


def _products(x: Bounds, y: Bounds) -> Bounds:
    ends = [a * b for a in x for b in y]
    return min(ends), max(ends)


_KINKED: Any = {"kind": KINK, "is_exact": True}
_JUMPING: Any = {"kind": JUMP, "is_exact": True}
PAIRS: tuple[Pair, ...] = (
    Pair("torch.add(X, Y)", _sum),
    Pair("torch.sub(X, Y)", lambda x, y: _sum(x, (-y[1], -y[0]))),
    Pair("torch.mul(X, Y)", _products, lambda x, y: (y, x)),
    Pair(
        "torch.div(X, Y)",
        lambda x, y: _products(x, (0, 4)),
        lambda x, y: (4, 16 * x),
        second=POSITIVE,
    ),
    Pair("torch.hypot(X, Y)", lambda x, y: (0.0, y[1] - x[0] + x[1]), second=(1.0, 99.0)),
    Pair("torch.atan2(X, Y)", lambda x, y: (-1.6, 1.6), lambda x, y: (4, 4), second=POSITIVE),
    Pair("torch.logaddexp(X, Y)", lambda x, y: (max(x[0], y[0]), max(x[1], y[1]) + 1)),
    Pair("torch.lerp(X, Y, 0.25)", _union, same_dtype=True),
    Pair(
        "torch.addcmul(X, X, Y)", lambda x, y: _sum(x, _products(x, y)), lambda x, y: (1 + y, x)
    )._replace(same_dtype=True),
    Pair("torch.maximum(X, Y)", _union, **_KINKED),
    Pair("torch.minimum(X, Y)", _union, **_KINKED),
    Pair("torch.clamp(X, min=Y)", _union, **_KINKED),
    Pair("torch.where(X >= Y, X, Y)", _union, **_JUMPING),
    Pair("X > Y", lambda x, y: (0, 1), lambda x, y: (0, 0), **_JUMPING, dtype="bool"),
    Pair("torch.copysign(X, Y)", lambda x, y: (-max(-x[0], x[1]), max(-x[0], x[1])), **_JUMPING),
)
MUTATIONS: tuple[tuple[str, Callable[..., Bounds]], ...] = (
    ("X.mul_(0.5)", _scaled),
    ("X.neg_()", lambda low, high, _: (-high, -low)),
    ("X[..., :1].fill_(0.25)", _hull(0.25)),
    ("X.transpose(0, -1).clamp_(-0.5, 0.75)", _hull(-0.5, 0.75)),
)
"""Of an input: nothing is rounded."""


# -- a program -------------------------------------------------------------------------------------

_SIZES = ((2, 3, 4, 5), (1, 3, 8), (4, 5, 17), (2, 8), (3, 7, 33))
_GRANTED = 7
"""The least number of tenths for the last values, which make chains."""


@dataclass(slots=True)
class _Program:
    """A program while it grows."""

    rng: random.Random
    trains: bool
    values: list[Value] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    inputs: list[list[dict[str, Any]]] = field(default_factory=list)
    """The inputs of each call."""

    def add_inputs(self, calls: int) -> None:
        """Add one to three inputs, with other sizes in a second call."""
        rng = self.rng
        main = rng.choice([*["float32"] * 4, "float64", *HALF, *HALF])
        sizes = rng.choice(_SIZES)
        shapes: list[Shape] = []
        self.inputs = [[] for _ in range(calls)]
        for index in range(rng.randint(1, 3)):
            shape = tuple(rng.choice(sizes) for _ in range(rng.choice([1, 2, 2, 3, 3, 4])))
            if index and rng.random() < 0.8:
                shape = tuple(size if rng.random() < 0.7 else 1 for size in shapes[0])
            if shape and rng.random() < 0.04:
                place = rng.randrange(len(shape))
                shape = (*shape[:place], 0, *shape[place + 1 :])
            elif rng.random() < 0.04:
                shape = ()
            shapes.append(shape)
            dtype = main if rng.random() < 0.8 else rng.choice(FLOATS)
            kind: dict[str, Any] = rng.choice([{"randn": 0}, {"randn": 0}, {"rand": 0}])
            bounds: Bounds = (-6.0, 6.0)
            if "rand" in kind:
                bounds = (0.5, 1.5) if rng.random() < 0.5 else (0.0, 1.0)
                kind = {**kind, "low": bounds[0], "high": bounds[1]}
            if index and rng.random() < 0.15:
                dtype, bounds, kind = "int64", (0, 8), {"randint": 0, "low": 0, "high": 9}
            order = rng.sample(range(len(shape)), len(shape))
            gap = rng.choice([1, 1, 2]) if rng.random() < 0.3 and 0 not in shape and shape else 0
            trains = self.trains and dtype in FLOATS and (not index or rng.random() < 0.6)
            of_calls = tuple(
                tuple(size + 2 * call if size > 2 else size for size in shape)
                for call in range(calls)
            )
            for call, sized in enumerate(of_calls):
                entry = {**kind, next(iter(kind)): [*sized], "dtype": dtype}
                if trains:
                    entry["requires_grad"] = True
                if gap:
                    strides, step = [0] * len(sized), gap
                    for place in order:
                        strides[place] = step
                        step *= sized[place]
                    entry["strides"] = strides
                self.inputs[call].append(entry)
            name = "abc"[index]
            self.values.append(Value(name, of_calls, dtype, bounds, has_gradient=trains, root=name))

    def grow(self) -> bool:
        """Add one node; return whether what was drawn fits."""
        rng = self.rng
        recent = self.values[-3:] if rng.random() < _GRANTED / 10 else self.values
        value = rng.choice(recent)
        if not value.is_float and rng.random() < 0.6:
            value = rng.choice([other for other in self.values if other.is_float])
        if rng.random() < 0.03 and self._mutate(value):
            return True
        if not value.is_float:
            form = rng.choice(TRUTHS if value.dtype == "bool" else WHOLE)
            return self._apply(form, value)
        if rng.random() < 0.2:
            floats = [other for other in self.values if other.is_float]
            return self._combine(rng.choice(PAIRS), value, rng.choice(floats))
        (forms,) = rng.choices([rows for _, rows in GROUPS], [weight for weight, _ in GROUPS])
        return self._apply(rng.choice(forms), value)

    @property
    def computed(self) -> list[Value]:
        """The values in memory of their own, with gradients in a program that trains: of a program
        that returns none of them a compiler need not compute anything.
        """
        own = [value for value in self.values if value.name[0] == "v" and value.root == value.name]
        return [value for value in own if value.has_gradient or not self.trains]

    def _mutate(self, value: Value) -> bool:
        """Write to an input; in a program with gradients only before anything may have saved it."""
        is_input = value.root == value.name and value.name in "abc"
        if (
            not (is_input and value.is_float and value.shapes[0])
            or value.has_gradient
            or (self.trains and self.statements)
        ):
            return False
        text, bounds = self.rng.choice(MUTATIONS)
        self.statements.append(_filled(text, X=value.name))
        changed = _union(value.bounds, bounds(*value.bounds, 1))
        self.values = [
            replace(other, bounds=_union(other.bounds, changed))
            if other.root == value.name
            else other
            for other in self.values
        ]
        return True

    def _apply(self, form: Form, value: Value) -> bool:
        rng, low, high = self.rng, *value.bounds
        rank = len(value.shapes[0])
        dim = rng.randrange(max(rank, 1))
        keeps = rng.random() < 0.5
        if (
            (rank == 0 and (form.shape is not _same or "D" in form.text))
            or not form.domain[0] <= low <= high <= form.domain[1]
            or not _is_smooth(form.kind, value)
            or (value.has_gradient and not form.differentiable)
            or form.dtype == value.dtype
        ):
            return False
        size = max(shape[dim] for shape in value.shapes) if rank else 1
        rule = _with(lambda _: 1) if "keepdim=K" in form.text and keeps else form.shape
        if (shapes := _all([rule(shape, dim) for shape in value.shapes])) is None:
            return False
        name = self._next_name()
        slope = form.slope if form.slope >= 0 else -form.slope * max(size, 1)
        placed = dim if rng.random() < 0.5 or "unsqueeze" in form.text else dim - rank
        if "stack" in form.text:
            placed = dim
        return size <= form.most and self._take(
            _filled(form.text, X=value.name, D=str(placed), K=str(keeps), V=name),
            replace(
                value,
                name=name,
                shapes=shapes,
                dtype=form.dtype or value.dtype,
                bounds=form.bounds(low, high, size),
                slope=max(slope * value.slope, 1.0),
                is_exact=value.is_exact and form.is_exact,
                root=value.root if form.is_view else name,
            ),
        )

    def _combine(self, pair: Pair, x: Value, y: Value) -> bool:
        shapes = _all([_broadcast(*both) for both in zip(x.shapes, y.shapes, strict=True)])
        if (
            shapes is None
            or not pair.second[0] <= y.bounds[0] <= y.bounds[1] <= pair.second[1]
            or not (_is_smooth(pair.kind, x) and _is_smooth(pair.kind, y))
            or (x.dtype != y.dtype and (pair.same_dtype or () in (*x.shapes, *y.shapes)))
        ):
            return False
        of_x, of_y = pair.slopes(x.greatest, y.greatest)
        name = self._next_name()
        return self._take(
            _filled(pair.text, X=x.name, Y=y.name),
            Value(
                name,
                shapes,
                pair.dtype or _promoted(x.dtype, y.dtype),
                pair.bounds(x.bounds, y.bounds),
                max(of_x * x.slope + of_y * y.slope, 1.0),
                has_gradient=x.has_gradient or y.has_gradient,
                is_exact=x.is_exact and y.is_exact and pair.is_exact,
                root=name,
            ),
        )

    def _take(self, text: str, value: Value) -> bool:
        """Add a node where its values are neither too many, too great nor badly conditioned."""
        if (
            max(map(math.prod, value.shapes)) > _MOST_ELEMENTS
            or value.greatest > _GREATEST.get(value.dtype, 64.0)
            or value.slope > _STEEPEST.get(value.dtype, 32.0)
        ):
            return False
        first, *writes = text.split("; ")
        self.statements += [f"{value.name} = {first}", *writes]
        has_gradient = value.has_gradient and value.is_float
        self.values.append(replace(value, has_gradient=has_gradient))
        return True

    def _next_name(self) -> str:
        return f"v{sum(value.name[0] == 'v' for value in self.values)}"


def _is_smooth(kind: int, value: Value) -> bool:
    """Whether rounding cannot move a value over a jump, nor a gradient."""
    return value.is_exact or kind == SMOOTH or (kind == KINK and not value.has_gradient)


def _all(shapes: list[Shape | None]) -> tuple[Shape, ...] | None:
    """Return the shapes; None where a call has none."""
    known = tuple(shape for shape in shapes if shape is not None)
    return known if len(known) == len(shapes) else None


def _broadcast(x: Shape, y: Shape) -> Shape | None:
    rank = max(len(x), len(y))
    pairs = zip((1,) * (rank - len(x)) + x, (1,) * (rank - len(y)) + y, strict=True)
    sizes = [(b if a == 1 else a) if 1 in (a, b) or a == b else None for a, b in pairs]
    return None if None in sizes else tuple(size for size in sizes if size is not None)


def _promoted(x: str, y: str) -> str:
    """Return the dtype of two floating ones, both of tensors with dimensions."""
    if x == y:
        return x
    return "float64" if "float64" in (x, y) else "float32"


def _filled(text: str, **words: str) -> str:
    text = re.sub(r"\bI\b", "torch.arange(X.size(D), device=X.device)", text)
    return re.sub(r"\b[XYDKV]\b", lambda match: words[match[0]], text)


_PRELUDE = """\
prelude: |
  import torch.nn.functional as F
"""
_LOSS = """\
  def loss(result):
      return sum(
          (t.float() * torch.linspace(0.5, 1.5, t.numel(), device=t.device).reshape(t.shape)).sum()
          for t in result if t.requires_grad
      )
"""
KEPT = tuple("tags backends requires config dynamo_config functorch_config env timeout".split())
"""The keys of a source that its programs have too; ``expect`` is that of each step."""


def problems(document: Document) -> list[Diagnostic]:
    """Return the problems of keys that a source of programs does not take."""
    known = (*KEPT, "summary", "source", "expect", "on_request")
    return [
        document.diagnostic((key,), "beside-programs", key=True, word=key, keys=", ".join(KEPT))
        for key in document.data
        if key not in known
    ]


def files_of(document: Document, folder: Path) -> dict[Path, bytes]:
    """Return the specs of a source by their paths; those that the folder has, whichever version
    made them.
    """
    seed, count = (document.data["source"][PROGRAMS][key] for key in ("seed", "count"))
    if frozen := sorted(folder.glob(f"{PROGRAMS}-*-s{seed}-*.yaml")):
        return {path: path.read_bytes() for path in frozen}
    return {
        folder / f"{PROGRAMS}-{VERSION}-s{seed}-{number:04}.yaml": text_of(
            document.data, seed, number
        ).encode()
        for number in range(count)
    }


def text_of(source: Mapping[str, Any], seed: int, number: int) -> str:
    """Return the spec of one program: the same text on every machine."""
    rng = random.Random(f"{VERSION} {seed} {number}")  # noqa: S311 - not for secrets
    program = None
    while program is None:
        program = _grown(rng)
    values = [value for value in program.values if value.name[0] == "v"]
    chosen = {values[-1].name, program.computed[-1].name}
    chosen.update(value.name for value in rng.sample(values, rng.choice([0, 1, 2])))
    outputs = sorted(chosen, key=lambda name: int(name[1:]))
    lines = [
        f"summary: Random program {number} of seed {seed} equals eager",
        "on_request: true",
        *(f"{key}: {json.dumps(source[key])}" for key in KEPT if key in source),
    ]
    if len(program.inputs) > 1 and rng.random() < 0.5:
        lines.append("compile: {dynamic: true}")
    expect = json.dumps(source.get("expect", [{"close": {"to": "eager"}}]))
    parameters = ", ".join(value.name for value in program.values if value.name[0] != "v")
    body = [*program.statements, f"return ({', '.join(outputs)},)"]
    lines += [
        f"{_PRELUDE}{_LOSS if program.trains else ''}function: |",
        f"  def fn({parameters}):",
        *(f"      {statement}" for statement in body),
        "inputs:",
        *(f"  - {json.dumps(entry)}" for entry in program.inputs[0]),
        "steps:",
    ]
    for call, inputs in enumerate(program.inputs):
        own = json.dumps({"inputs": inputs} if call else {})
        lines += [f"  - call: {own}", f"    expect: {expect}"]
        if program.trains:
            lines += ["  - backward: {loss: loss}", f"    expect: {expect}"]
    return "\n".join(lines) + "\n"


def _grown(rng: random.Random) -> _Program | None:
    """Return a program; None where what was drawn leads nowhere."""
    program = _Program(rng, trains=rng.random() < 0.5)
    program.add_inputs(2 if rng.random() < 0.25 else 1)
    wanted = len(program.values) + rng.randint(*_NODES)
    for _ in range(_TRIES):
        program.grow()
        if len(program.values) == wanted:
            return program if program.computed else None
    return None
