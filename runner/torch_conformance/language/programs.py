"""The specs of a source of random programs: chains of operators, made by a seed, without torch.

Each operator is a row of a table: what its operands may be, the shape, dtype, range and rounding of
its result, and how much it magnifies an error. A row that does not fit is not taken, so that a
program is valid, and rounding explains none of its failures.
"""

import json
import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, product, zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from torch_conformance.language.read.anatomy import PROGRAMS
from torch_conformance.model.diagnostics import Diagnostic
from torch_conformance.model.document import Document

VERSION = 4
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
    def is_input(self) -> bool:
        """Whether it is an argument of the function."""
        return self.name in "abc"


# -- rules of the table ----------------------------------------------------------------------------

FUNCTIONS: Mapping[str, Callable[[float, float], float]] = {
    "2**x": lambda x, _: 2**x,
    "x**1.5": lambda x, _: x**1.5,
    "xx": lambda x, _: x * x,
    "relu": lambda x, _: max(x, 0.0),
    "x+log(n)": lambda x, n: x + math.log(n or 1),
    "x+y": lambda x, y: x + y,
    "x-y": lambda x, y: x - y,
    "xy": lambda x, y: x * y,
    "x/y": lambda x, y: x / y,
    "x+xy": lambda x, y: x + x * y,
    "max": max,
    "hypot": math.hypot,
}
"""Monotone in each operand. The size n of the dimension is in the place of a second operand."""


def _at(word: str, x: float, y: float) -> float:
    """Return the value of a number, of a term as ``2x-1`` (of x, y or n), of a function of the
    table or of one of ``math``.
    """
    if word in FUNCTIONS:
        return FUNCTIONS[word](x, y)
    if term := re.fullmatch(r"(-?[\d.]*)([xyn])([+-][\d.]+)?", word):
        return float(term[1] or 1) * {"x": x, "y": y, "n": max(y, 1)}[term[2]] + float(term[3] or 0)
    return float(getattr(math, word)(x) if hasattr(math, word) else word)


def _range(words: str, x: Bounds, y: Bounds) -> Bounds:
    """Return the least range that has the values of all words at the ends of the operands."""
    ends = [_at(word, *corner) for word in words.split(",") for corner in product(x, y)]
    return min(ends), max(ends)


def _with(size: Callable[[int], int], least: int = 1) -> Callable[[Shape, int], Shape | None]:
    """Return the shape with another size of the dimension, where that has a least size."""
    return lambda shape, dim: (
        (*shape[:dim], size(shape[dim]), *shape[dim + 1 :]) if shape[dim] >= least else None
    )


def _at_least(rank: int, size: int = 0) -> Callable[[Shape, int], Shape | None]:
    """Return the shape where it has a rank, and sizes, of at least these."""
    return lambda s, _: s if len(s) >= rank and min(s, default=size) >= size else None


SHAPES: Mapping[str, Callable[[Shape, int], Shape | None]] = {
    "same": lambda s, _: s,
    "line": _with(lambda size: size),
    "one": _with(lambda _: 1),
    "without": lambda s, d: (*s[:d], *s[d + 1 :]) if s[d] else None,
    "half": _with(lambda size: (size + 1) // 2),
    "double": _with(lambda size: 2 * size),
    "less": _with(lambda size: size - 1),
    "full": _at_least(1, 1),
    "matrix": _at_least(2),
    "batch": _at_least(2, 2),
    "groups": _at_least(3, 2),
    "swapped": lambda s, _: (s[-1], *s[1:-1], s[0]) if len(s) > 1 else None,
    "moved": lambda s, _: (*s[1:], s[0]),
    "flat": lambda s, _: (math.prod(s),),
    "unsqueezed": lambda s, d: (*s[:d], 1, *s[d:]),
    "stacked": lambda s, d: (*s[:d], 2, *s[d:]),
    "second": lambda s, _: ((s[0] + 1) // 2, *s[1:]),
    "shorter": lambda s, _: (*s[:-1], s[-1] - 1) if s[-1] else None,
    "three": lambda s, _: (3, *s),
    "diagonal": lambda s, _: (*s[1:-1], min(s[0], s[-1])) if len(s) > 1 else None,
    "padded": lambda s, _: (*s[:-1], s[-1] + 3),
    "windows": lambda s, d: (*s[:d], s[d] - 1, *s[d + 1 :], 2) if s[d] > 1 else None,
    "pooled": lambda s, _: (
        (*s[:-2], s[-2] - 1, s[-1] - 1)
        if len(s) in (3, 4) and min(s) > 0 and 1 not in s[-2:]
        else None
    ),
    "product": lambda s, _: (*s[:-1], s[-2]) if len(s) > 1 and 0 < s[-1] < 18 else None,
    "two": lambda s, _: (*s[:-1], 2) if math.prod(s[:-1]) > 1 and 0 < s[-1] < 18 else None,
}


class Form(NamedTuple):
    """A row of the table.

    In the text X is the operand, Y the second one, D a dimension, K whether it is kept, V the
    result, I the numbers of D.
    """

    text: str
    range: str = "x"
    """Numbers and functions, whose least range this is."""
    slope: str = "1"
    """Of the derivative, of each operand."""
    kind: str = "smooth"
    """A jump needs an exact operand. A kink, whose derivative jumps, needs one where there are
    gradients.
    """
    domain: str = "-1000,1000"
    second: str = "-1000,1000"
    """The domain of the second operand."""
    shape: str = "same"
    exact: str = ""
    """Whether nothing is rounded."""
    dtype: str = ""
    """Of the result; empty for that of the operands."""
    most: str = "64"
    """The greatest size of the dimension."""
    view: str = ""
    underived: str = ""
    """Whether the gradient is not specified where values are equal."""
    alike: str = ""
    """Whether both operands have one dtype."""


_TABLE = """
# 12 float
torch.{sin;cos}(X) | range=-1,1 domain=-8,8
torch.{tanh;sigmoid}(X) | range=-1,1
torch.sigmoid(X) + 0.5 | range=0.5,1.5
torch.{erf;atan}(X) | range=-1.6,1.6 slope=1.2
torch.{exp;expm1;exp2;sinh}(X) | range={exp;expm1;2**x;sinh} slope={21;21;6;11} domain=-3,3
torch.{log;sqrt;log1p}(X) | range={log;sqrt;log1p} slope={4;1;1} domain={0.25;0.25;0},1000
torch.{rsqrt;reciprocal}(X) | range=0.001,4 slope={4;16} domain=0.25,1000
torch.square(X) | range=xx,0 slope=12 domain=-6,6
torch.square(X) + 0.5 | range=0.5,9.5 slope=6 domain=-3,3
torch.asinh(X) | range=asinh
torch.{lgamma;digamma}(X) | range=-0.6,11 slope=3 domain=1,9
torch.{erfinv;logit}(X) | range=-3,3 slope={4;12} domain={-0.9;0.1},0.9
torch.sinc(X) | range=-1,1 slope=2 domain=0.25,3
torch.pow(X, 1.5) | range=x**1.5 slope=6 domain=0.25,16
F.{gelu;silu;mish}(X) | range=x,-0.4,0 slope=1.2
F.gelu(X, approximate='tanh') | range=x,-0.2,0 slope=1.2 domain=-8,8
F.{elu;logsigmoid;softsign}(X) | range={x,-1;x,-1,0;-1,1}
F.softplus(X) + 0.25 | range=0.25,relu,x+1
X {* 0.5;+ 1} | range={0.5x;x+1}
# 16 float exact=yes
torch.{neg;nan_to_num}(X) | range={-1x;x}
torch.{abs;relu}(X) | range={fabs,0;relu} kind=kink
torch.clamp(X, -0.5, 0.75) | range=-0.5,0.75 kind=kink
F.{relu6(X);leaky_relu(X, 0.25)} | range={0,6;x,0.25x} kind=kink
torch.{floor;trunc;round}(X * 4) | range=4x-1,4x+1 slope=0 kind=jump
torch.{ceil;sign;frac}(X) | range={ceil;-1,1;-1,1} slope={0;0;1} kind=jump
torch.where(X > 0.25, X, -0.5) | range=x,-0.5 kind=jump
X.to(torch.{float32;float64;bfloat16;float16}) | dtype={float32;float64;bfloat16;float16}
X.to(torch.bfloat16).to(X.dtype) | view=yes
X {> 0.25;<= -0.5} | range=0,1 slope=0 kind=jump dtype=bool
(X * 4).{to(torch.int64);round()} | range=4x-1,4x+1 slope=0 kind=jump dtype={int64;}
# 8 float shape=without
torch.{sum;mean}(X, D, keepdim=K) | range={xy,0;x} slope={n;1}
torch.{amax;amin}(X, D, keepdim=K) | kind=kink exact=yes
torch.logsumexp(X, D, keepdim=K) | range=x,x+log(n)
torch.var(X, D, keepdim=K, correction=0) | range=0,9 slope=12 domain=-3,3
(torch.square(X).sum(D, keepdim=K) + 0.5).sqrt() | range=0.5,48 slope=2 domain=-6,6
torch.{argmax(X;count_nonzero(X > 0.25}, D) | range=0,64 slope=0 kind=jump exact=yes dtype=int64
torch.any(X > 0.25, D, keepdim=K) | range=0,1 slope=0 kind=jump exact=yes dtype=bool
torch.{prod;cumprod}(X, D) | range=0.01,12 slope=24 domain=0.5,1.5 shape={without;line} most=6
# 7 float shape=line
torch.{softmax;log_softmax}(X, D) | range={0;-60},1 slope={1;2} domain=-26,26
torch.{cumsum;logcumsumexp}(X, D) | range=x,{xy;x+log(n)} slope={n;1}
torch.{flip(X, (D,));roll(X, 1, D)} | exact=yes
torch.sort(X, dim=D, stable=True).values | kind=jump exact=yes
torch.argsort(X, dim=D, stable=True) | range=0,64 slope=0 kind=jump exact=yes dtype=int64
torch.diff(X, dim=D) | range=-60,60 slope=2 domain=-30,30 shape=less
F.{layer_norm;rms_norm}(X, X.shape[-1:], eps=0.125) | range=-12,12 slope=9 shape=full
F.batch_norm(X, None, None, training=True, eps=1) | range=-7,7 slope=9 domain=-3,3 shape=batch
F.group_norm(X, 1, eps=0.125) | range=-17,17 slope=9 domain=-3,3 shape=groups
# 3 float exact=yes underived=yes kind=kink
torch.{cummax;median}(X, D).values | kind={smooth;kink} shape={line;without}
torch.topk(X, (X.size(D) + 1) // 2, dim=D).values | shape=half
torch.bucketize(X, X.new_ones(3).cumsum(0) - 2) | range=0,3 slope=0 kind=jump dtype=int64
# 9 float exact=yes view=yes
X.{transpose;movedim}(0, -1) | shape={swapped;moved}
X.{reshape(-1);unsqueeze(D);select(D, -1)} | shape={flat;unsqueezed;without}
X.narrow(D, 0, (X.size(D) + 1) // 2) | shape=half
X[{::2;..., 1:}] | shape={second;shorter}
X.unfold(D, 2, 1) | slope=2 shape=windows
X.unsqueeze(0).expand(3, *X.shape) | slope=3 shape=three
X.diagonal(dim1=0, dim2=-1) | shape=diagonal
X.contiguous()
# 6 float exact=yes
torch.{cat;stack}([X, X], D) | slope=2 shape={double;stacked}
F.pad(X, (1, 2), value={0;0.5}) | range=x,0,0.5 shape=padded
X.repeat_interleave(2, dim=D) | slope=2 shape=double
X.chunk(2, D)[0].clone() | shape=half
torch.{tril(X);triu(X, 1)} | range=x,0 shape=matrix
X.clone()
F.{max;avg}_pool2d(X, 2, stride=1) | slope={4;1} kind={kink;smooth} exact={yes;} shape=pooled
# 9 float exact=yes shape=line
X.index_select(D, I.flip(0))
X.gather(D, X.argsort(dim=D, stable=True)) | kind=jump
X.scatter(D, X.argsort(dim=D, stable=True), X * 0.5) | range=x,0.5x slope=2 kind=jump
X.{index_fill(D, I[:1];masked_fill(X > 0.25}, 0.5) | range=x,0.5 kind={smooth;jump}
X.index_copy(D, I[:1], X.narrow(D, -1, 1)) | slope=2
X.select_scatter(X.select(D, 0) * 0.5, D, -1) | range=x,0.5x slope=2
X.scatter_reduce(D, X.argsort(dim=D, stable=True) // 2, X, reduce='amax') | slope=3 kind=jump
torch.ones_like(X).index_add(D, I.flip(0), X) | range=x+1 exact=
torch.zeros_like(X).index_add(D, I // 2, X) | range=x,2x,0 slope=2 exact=
torch.zeros_like(X).scatter_add(D, I.new_zeros(X.shape), X) | range=xy,0 slope=n exact= most=17
# 6 float exact=yes shape=full
X.clone(); V{;[..., :1];.transpose(0, -1)}.mul_(0.5) | range=x,0.5x
X.clone(); V.select(D, 0).fill_(0.25) | range=x,0.25
X.clone(); {V[V > 0.5] = 0.5;V.masked_fill_(X > 0.25, 0.5)} | range=x,0.5 kind=jump
X.clone(); V[0] = V[-1] * 0.5 | range=x,0.5x slope=2
X.clone(); V.clamp_(-0.5, 0.75) | range=-0.5,0.75 kind=kink
X.clone(); V.narrow(D, 0, 1).copy_(X.narrow(D, -1, 1)) | slope=2
torch.sin(X); V[..., 1:].add_(1) | range=-1,2 domain=-8,8 exact=
torch.ones_like(X); V.index_add_(D, I.flip(0), X) | range=x+1 exact=
# 4 float domain=-3,3 shape=product
torch.matmul(X, X.mT){; * 0.125} | range={-162,162;-21,21} slope={108;14}
torch.einsum('...ij,...kj->...ik', X, X.tanh()) | range=-54,54 slope=72
F.linear(X, X.reshape(-1, X.size(-1))[:2] * 0.25) | range=-42,42 slope=28 shape=two
# 20 floats slope=1,1
torch.{add;sub;mul}(X, Y) | range={x+y;x-y;xy} slope={1,1;1,1;y,x}
torch.{div;atan2}(X, Y) | range={x/y;-1.6,1.6} slope=4,{16x;4} second=0.25,1000
torch.hypot(X, Y) | range=hypot,0 second=1,99
torch.logaddexp(X, Y) | range=max,x+1,y+1
torch.{lerp(X, Y, 0.25);addcmul(X, X, Y)} | range={x,y;x+xy} slope={1;y+1},{1;x} alike=yes
torch.{maximum(X, Y);minimum(X, Y);clamp(X, min=Y)} | range=x,y kind=kink exact=yes
X > Y | range=0,1 slope=0,0 kind=jump exact=yes dtype=bool
torch.{where(X >= Y, X;copysign(X}, Y) | range=x,{y;-1x} kind=jump exact=yes
# 1 int64 exact=yes
X {+ 1;* 2 - 1;% 3;// 2;> 1} | range={x+1;2x-1;0,2;0.5x-1,0.5x;0,1} dtype={;;;;bool}
X.{clamp(0, 4);bitwise_and(5)} | range=0,5
X.{sum(D);cumsum(D);flip(0)} | range={xy,0;x,xy;x} shape={without;line;line}
X.to(torch.{float32;bfloat16}) | domain={-1000,1000;-3,3} dtype={float32;bfloat16}
# 1 bool exact=yes
{~X;X.any(D);X.transpose(0, -1).contiguous()} | shape={same;without;swapped}
X.to(torch.{float32;int64}) | dtype={float32;int64}
# 3 writes
X.{mul_(0.5);neg_()} | range=x,{0.5x;-1x}
X[..., :1].fill_(0.25) | range=x,0.25
X.transpose(0, -1).clamp_(-0.5, 0.75) | range=x,-0.5,0.75
"""
"""Rows ``TEXT | KEY=VALUE ...``; those with ``{a;b}`` are several, each with one of the texts. The
first line of a group has its weight, the kind of its operands and what its rows have in common.

What a sum by index adds is never what it adds to: torch reads elements of that which it has changed
(docs/guides/findings.md), and this one defect would hide others. Of a write to an input
(``writes``) nothing is rounded.
"""


def _group(lines: str) -> tuple[int, str, list[Form]]:
    header, *rows = lines.strip().splitlines()
    weight, operand, *common = header.split()
    forms = []
    for row in rows:
        several = [part.split(";") for part in re.findall(r"{(.*?)}", row)]
        for words in zip(*several, strict=True) if several else [()]:
            pieces = zip_longest(re.split("{.*?}", row), words, fillvalue="")
            text, _, keys = "".join(chain(*pieces)).partition(" | ")
            fields = dict(word.split("=") for word in (*common, *keys.split()))
            forms.append(Form(text, **fields))
    return int(weight), operand, forms


GROUPS = tuple(map(_group, _TABLE.split("# ")[1:]))


# -- a program -------------------------------------------------------------------------------------

_SIZES = ((2, 3, 4, 5), (1, 3, 8), (4, 5, 17), (2, 8), (3, 7, 33))
_OF_LAST_VALUES = 0.7
"""How often a node takes one of the last values at least, which makes chains."""


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
        first: Shape = ()
        self.inputs = [[] for _ in range(calls)]
        for name in "abc"[: rng.randint(1, 3)]:
            shape = tuple(rng.choice(sizes) for _ in range(rng.choice([1, 2, 2, 3, 3, 4])))
            if name == "a":
                first = shape
            elif rng.random() < 0.8:
                shape = tuple(size if rng.random() < 0.7 else 1 for size in first)
            if rng.random() < 0.04:
                place = rng.randrange(len(shape))
                shape = (*shape[:place], 0, *shape[place + 1 :])
            elif rng.random() < 0.04:
                shape = ()
            dtype = main if rng.random() < 0.8 else rng.choice(FLOATS)
            kind, bounds = rng.choice(
                [("randn", (-6.0, 6.0))] * 4 + [("rand", (0.5, 1.5)), ("rand", (0.0, 1.0))]
            )
            if name != "a" and rng.random() < 0.15:
                kind, bounds, dtype = "randint", (0, 9), "int64"
            ends = {} if kind == "randn" else dict(zip(("low", "high"), bounds, strict=True))
            trains = self.trains and dtype in FLOATS and (name == "a" or rng.random() < 0.6)
            order = rng.sample(range(len(shape)), len(shape))
            gap = rng.choice([1, 1, 2]) if rng.random() < 0.3 and 0 not in shape and shape else 0
            of_calls = tuple(
                tuple(size + 2 * call if size > 2 else size for size in shape)
                for call in range(calls)
            )
            for inputs, sized in zip(self.inputs, of_calls, strict=True):
                entry = {kind: [*sized], **ends, "dtype": dtype}
                if trains:
                    entry["requires_grad"] = True
                if gap:
                    strides, step = [0] * len(sized), gap
                    for place in order:
                        strides[place] = step
                        step *= sized[place]
                    entry["strides"] = strides
                inputs.append(entry)
            self.values.append(Value(name, of_calls, dtype, bounds, has_gradient=trains, root=name))

    def grow(self) -> None:
        """Add one node, if what is drawn fits."""
        rng = self.rng
        value = rng.choice(self.values[-3:] if rng.random() < _OF_LAST_VALUES else self.values)
        floats = [other for other in self.values if other.is_float]
        if not value.is_float and rng.random() < 0.6:
            value = rng.choice(floats)
        kinds = ("float", "floats", "writes") if value.is_float else (value.dtype,)
        groups = [group for group in GROUPS if group[1] in kinds]
        ((_, kind, forms),) = rng.choices(groups, [weight for weight, _, _ in groups])
        form = rng.choice(forms)
        if kind == "writes":
            self._write(form, value)
        else:
            self._apply(form, [value, rng.choice(floats)] if kind == "floats" else [value])

    @property
    def computed(self) -> list[Value]:
        """The values in memory of their own, with gradients in a program that trains: of a program
        that returns none of them a compiler need not compute anything.
        """
        return [
            value
            for value in self.values
            if not value.is_input
            and value.root == value.name
            and (value.has_gradient or not self.trains)
        ]

    def _write(self, form: Form, value: Value) -> None:
        """Write to an input; in a program with gradients only before anything may have saved it."""
        if (
            value.is_input
            and value.shapes[0]
            and not value.has_gradient
            and not (self.trains and self.statements)
        ):
            self.statements.append(_filled(form.text, X=value.name))
            self.values = [
                replace(other, bounds=_range(form.range, other.bounds, other.bounds))
                if other.root == value.name
                else other
                for other in self.values
            ]

    def _apply(self, form: Form, operands: list[Value]) -> None:
        """Add a node where it is valid, and its values are neither too many, too great nor badly
        conditioned.
        """
        rng, x, y = self.rng, operands[0], operands[-1]
        rank = len(x.shapes[0])
        dim = rng.randrange(max(rank, 1))
        keeps = rng.random() < 0.5
        size = max((shape[dim] for shape in x.shapes), default=1) if rank else 1
        bounds = (x.bounds, y.bounds if len(operands) > 1 else (float(size), float(size)))
        if (
            (rank == 0 and (form.shape != "same" or re.search(r"\bD\b", form.text)))
            or not _is_within(x.bounds, form.domain)
            or not (len(operands) == 1 or _is_within(y.bounds, form.second))
            or not all(_is_smooth(form.kind, operand) for operand in operands)
            or (x.has_gradient and form.underived)
            or form.dtype == x.dtype
            or (x.dtype != y.dtype and (form.alike or () in (*x.shapes, *y.shapes)))
            or size > int(form.most)
        ):
            return
        rule = SHAPES["one" if "keepdim=K" in form.text and keeps else form.shape]
        shapes = [
            _broadcast(*pair) if len(operands) > 1 else rule(pair[0], dim)
            for pair in zip(x.shapes, y.shapes, strict=True)
        ]
        greatest = [max(map(abs, ends)) for ends in bounds]
        slope = sum(
            _at(word, *greatest) * operand.slope
            for word, operand in zip(form.slope.split(","), operands, strict=True)
        )
        positive = form.shape in ("unsqueezed", "stacked") or rng.random() < 0.5
        dtype = form.dtype or _promoted(x.dtype, y.dtype)
        name = f"v{sum(not value.is_input for value in self.values)}"
        value = Value(
            name,
            tuple(shape for shape in shapes if shape is not None),
            dtype,
            _range(form.range, *bounds),
            max(slope, 1.0),
            has_gradient=dtype in FLOATS and any(operand.has_gradient for operand in operands),
            is_exact=bool(form.exact) and all(operand.is_exact for operand in operands),
            root=x.root if form.view else name,
        )
        if (
            len(value.shapes) == len(shapes)
            and max(map(math.prod, value.shapes)) <= _MOST_ELEMENTS
            and max(map(abs, value.bounds)) <= _GREATEST.get(dtype, 64.0)
            and value.slope <= _STEEPEST.get(dtype, 32.0)
        ):
            place = dim if positive else dim - rank
            words = {"X": x.name, "Y": y.name, "D": str(place), "K": str(keeps), "V": name}
            first, *writes = _filled(form.text, **words).split("; ")
            self.statements += [f"{name} = {first}", *writes]
            self.values.append(value)


def _is_within(bounds: Bounds, domain: str) -> bool:
    low, high = map(float, domain.split(","))
    return low <= bounds[0] <= bounds[1] <= high


def _is_smooth(kind: str, value: Value) -> bool:
    """Whether rounding cannot move a value over a jump, nor a gradient."""
    return value.is_exact or kind == "smooth" or (kind == "kink" and not value.has_gradient)


def _broadcast(x: Shape, y: Shape) -> Shape | None:
    rank = max(len(x), len(y))
    pairs = zip((1,) * (rank - len(x)) + x, (1,) * (rank - len(y)) + y, strict=True)
    sizes = [(b if a == 1 else a) if 1 in (a, b) or a == b else None for a, b in pairs]
    return None if None in sizes else tuple(size for size in sizes if size is not None)


def _promoted(x: str, y: str) -> str:
    """Return the dtype of two floating ones, both of tensors with dimensions."""
    return x if x == y else "float64" if "float64" in (x, y) else "float32"


def _filled(text: str, **words: str) -> str:
    text = re.sub(r"\bI\b", "torch.arange(X.size(D), device=X.device)", text)
    return re.sub(r"\b[XYDKV]\b", lambda match: words[match[0]], text)


_LOSS = """
  def loss(result):
      return sum(
          (t.float() * torch.linspace(0.5, 1.5, t.numel(), device=t.device).reshape(t.shape)).sum()
          for t in result if t.requires_grad
      )"""
KEPT = tuple("tags backends requires config dynamo_config functorch_config env timeout".split())
"""The keys of a source that its programs have too; ``expect`` is that of each step."""
_EXPECT = [{"close": {"to": "eager", "strides": "any"}}]


def problems(document: Document) -> list[Diagnostic]:
    """Return the problems of keys that a source of programs does not take."""
    allowed = (*KEPT, "summary", "source", "expect", "on_request")
    return [
        document.diagnostic((key,), "key-with-programs", key=True, word=key, keys=", ".join(KEPT))
        for key in document.data
        if key not in allowed
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
    values = [value for value in program.values if not value.is_input]
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
    expect = json.dumps(source.get("expect", _EXPECT))
    parameters = ", ".join(value.name for value in program.values if value.is_input)
    body = [*program.statements, f"return ({', '.join(outputs)},)"]
    lines += [
        f"prelude: |\n  import torch.nn.functional as F{_LOSS if program.trains else ''}",
        "function: |",
        f"  def fn({parameters}):",
        *(f"      {statement}" for statement in body),
        "inputs:",
        *(f"  - {json.dumps(entry)}" for entry in program.inputs[0]),
        "steps:",
    ]
    for call, inputs in enumerate(program.inputs):
        arguments = json.dumps({"inputs": inputs} if call else {})
        lines += [f"  - call: {arguments}", f"    expect: {expect}"]
        if program.trains:
            lines += ["  - backward: {loss: loss}", f"    expect: {expect}"]
    return "\n".join(lines) + "\n"


def _grown(rng: random.Random) -> _Program | None:
    """Return a program; None where what was drawn leads nowhere."""
    program = _Program(rng, trains=rng.random() < 0.5)
    program.add_inputs(2 if rng.random() < 0.25 else 1)
    size = len(program.values) + rng.randint(*_NODES)
    for _ in range(_TRIES):
        program.grow()
        if len(program.values) == size:
            return program if program.computed else None
    return None
