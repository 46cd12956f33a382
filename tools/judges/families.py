"""Right and wrong answers of some functions, for the table of judges: one family a function, in
several dtypes and scales of its inputs.

A right answer computes the same with another order of additions or with fewer roundings. A wrong
answer is a right one with a defect. Some defects are smaller than rounding; ``Cell.is_wrong``
decides that without any judge: a defect counts where the error against float64 is greater than that
of eager and of every other way to compute it, as a maximum or at one of the quantiles 0.5, 0.9 and
0.99.
"""

import functools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own abbreviation

Tensor = torch.Tensor
Function = Callable[..., Tensor]

DTYPES = ("float64", "float32", "bfloat16", "float16")
FEW = 32
"""A tensor of fewer elements has no quantile that is judged."""

AT_RANDOM = "rounded at random"
"""The right answer of narrow dtypes that is the reference, stochastically rounded."""

NARROW = ("bfloat16", "float16")
SCALES = (1.0, 1e-2, 1e2)


@dataclass(frozen=True)
class Family:
    """A function, its inputs, and other ways to compute it."""

    name: str
    make: Callable[[torch.Generator], Sequence[Tensor]]
    """Inputs in float64, at scale 1."""
    eager: Function
    right: Mapping[str, Function]
    """Each takes the inputs in the dtype and returns an answer in the dtype."""
    wrong: Mapping[str, Function] = field(default_factory=dict)
    """Defects of this family only, computed from the inputs."""
    scaled: tuple[int, ...] = (0,)
    """The inputs that the scale multiplies."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One family in one dtype at one scale, with its answers."""

    family: Family
    dtype: str
    scale: float
    inputs: Sequence[Tensor]
    eager: Tensor
    reference: Tensor
    """In float64; for float64 by error-free additions where the family has them, else the same as
    eager computes.
    """
    right: Mapping[str, Tensor]
    wrong: Mapping[str, Tensor]

    @functools.cached_property
    def _limits(self) -> list[float]:
        computed = [
            answer for name, answer in self.right.items() if name != AT_RANDOM
        ]  # so small a defect would hide in its quantiles
        columns = zip(
            *(_figures(one, self.reference) for one in [self.eager, *computed]), strict=True
        )
        return [max(column) for column in columns]

    def is_wrong(self, answer: Tensor) -> bool:
        """Whether an answer's error is outside of what eager and the other ways to compute it
        have.
        """
        return any(
            not figure <= limit
            for figure, limit in zip(_figures(answer, self.reference), self._limits, strict=True)
        )


def _figures(answer: Tensor, reference: Tensor) -> list[float]:
    rounded = reference.to(answer.dtype)
    same = (answer == rounded) & ~rounded.isfinite() | (answer.isnan() & rounded.isnan())
    errors = (
        torch.where(same, 0.0, (answer.double() - reference).abs())
        .nan_to_num(nan=math.inf)
        .reshape(-1)
    )
    count = len(errors)
    return [
        float(errors.kthvalue(min(int(share * count) + 1, count)).values)
        for share in (0.5, 0.9, 0.99, 1.0)
    ]


# -- ways to add -----------------------------------------------------------------------------------


def wide(tensor: Tensor) -> Tensor:
    """Return a tensor in the dtype in which accelerators accumulate it."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def low(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of an accumulator that is too narrow for a dtype."""
    return (
        torch.float32
        if dtype == torch.float64
        else torch.bfloat16
        if dtype != torch.float16
        else torch.float16
    )


def matmul_in_tiles(a: Tensor, b: Tensor, *, tile: int, backwards: bool = False) -> Tensor:
    """Multiply with one accumulator, a tile of k after the other."""
    a_wide, b_wide = wide(a), wide(b)
    starts = range(0, a.shape[-1], tile)
    total = a_wide.new_zeros((*a.shape[:-1], b.shape[-1]))
    for start in reversed(starts) if backwards else starts:
        total = total + a_wide[..., start : start + tile] @ b_wide[..., start : start + tile, :]
    return total.to(a.dtype)


def matmul_split(a: Tensor, b: Tensor, *, parts: int) -> Tensor:
    """Multiply with several accumulators, which are added at the end."""
    size = math.ceil(a.shape[-1] / parts)
    pairs = zip(wide(a).split(size, -1), wide(b).split(size, -2), strict=True)
    return torch.stack([left @ right for left, right in pairs]).sum(0).to(a.dtype)


def matmul_narrow(a: Tensor, b: Tensor) -> Tensor:
    """Multiply with an accumulator of a dtype that is too narrow."""
    dtype = low(a.dtype)
    tile = max(16, a.shape[-1] // 256)
    total = torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=dtype, device=a.device)
    for start in range(0, a.shape[-1], tile):
        part = wide(a)[..., start : start + tile] @ wide(b)[..., start : start + tile, :]
        total = (total.to(part.dtype) + part).to(dtype)
    return total.to(a.dtype)


def matmul_lost(a: Tensor, b: Tensor) -> Tensor:
    """Multiply without the last k."""
    return (wide(a)[..., :-1] @ wide(b)[..., :-1, :]).to(a.dtype)


def sum_in_lanes(x: Tensor, *, lanes: int) -> Tensor:
    """Add along the last dimension with some accumulators, one after the other, then their sums."""
    x_wide = wide(x)
    total = x_wide.new_zeros((*x.shape[:-1], lanes))
    for start in range(0, x.shape[-1], lanes):
        total = total + x_wide[..., start : start + lanes]
    return total.sum(-1).to(x.dtype)


def sum_in_blocks(x: Tensor, *, block: int) -> Tensor:
    """Add blocks along the last dimension, then their sums."""
    return wide(x).unflatten(-1, (-1, block)).sum(-1).sum(-1).to(x.dtype)


def sum_narrow(x: Tensor) -> Tensor:
    """Add with an accumulator of a dtype that is too narrow."""
    total = torch.zeros(x.shape[:-1], dtype=low(x.dtype), device=x.device)
    step = max(1, x.shape[-1] // 512)
    for part in x.split(step, -1):
        total = (wide(total) + wide(part).sum(-1)).to(low(x.dtype))
    return total.to(x.dtype)


# -- softmax, norm, attention, convolution, scans --------------------------------------------------


def softmax_online(x: Tensor, *, tile: int) -> Tensor:
    """Softmax of the last dimension with a running maximum and sum, by powers of 2."""
    x_wide, base = wide(x), math.log2(math.e)
    most = x_wide.new_full((*x.shape[:-1], 1), -math.inf)
    total = torch.zeros_like(most)
    for part in x_wide.split(tile, -1):
        maximum = torch.maximum(most, part.amax(-1, keepdim=True))
        total = total * torch.exp2((most - maximum) * base) + torch.exp2(
            (part - maximum) * base
        ).sum(-1, keepdim=True)
        most = maximum
    return (torch.exp2((x_wide - most) * base) / total).to(x.dtype)


def softmax_narrow(x: Tensor) -> Tensor:
    """Softmax whose sum is kept in a dtype that is too narrow."""
    powers = (wide(x) - wide(x).amax(-1, keepdim=True)).exp()
    return (powers / wide(sum_narrow(powers.to(low(x.dtype))).to(low(x.dtype)))[..., None]).to(
        x.dtype
    )


def softmax_lost(x: Tensor) -> Tensor:
    """Softmax whose sum lacks the last element."""
    powers = (wide(x) - wide(x).amax(-1, keepdim=True)).exp()
    return (powers / powers[..., :-1].sum(-1, keepdim=True)).to(x.dtype)


def softmax_bare(x: Tensor) -> Tensor:
    """Softmax whose powers may overflow."""
    powers = wide(x).exp()
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The layer norm of eager."""
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def layer_norm_by(
    mean: Callable[[Tensor], Tensor], x: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """Layer norm in two passes, with a function for the mean of the last dimension."""
    x_wide = wide(x)
    centred = x_wide - mean(x_wide)[..., None]
    scale = (mean(centred * centred)[..., None] + 1e-5).rsqrt()
    return (centred * scale * wide(weight) + wide(bias)).to(x.dtype)


def layer_norm_unbiased(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Layer norm with the variance of k - 1 elements."""
    x_wide = wide(x)
    scale = (x_wide.var(-1, keepdim=True, unbiased=True) + 1e-5).rsqrt()
    return ((x_wide - x_wide.mean(-1, keepdim=True)) * scale * wide(weight) + wide(bias)).to(
        x.dtype
    )


def bias_twice(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Layer norm that adds the bias once more in one row."""
    result = layer_norm(wide(x), wide(weight), wide(bias))
    result[len(result) // 2] += wide(bias)
    return result.to(x.dtype)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The attention of eager."""
    return F.scaled_dot_product_attention(q, k, v)


def attention_written_out(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention as a user writes it: every step rounds."""
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v


def attention_fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention that rounds at its end."""
    return attention_written_out(wide(q), wide(k), wide(v)).to(q.dtype)


def attention_in_tiles(q: Tensor, k: Tensor, v: Tensor, *, tile: int = 16) -> Tensor:
    """Attention with a running maximum; the probabilities are rounded to the dtype before they are
    multiplied.
    """
    scores = wide(q) @ wide(k).transpose(-1, -2) / math.sqrt(q.shape[-1])
    most = scores.new_full((*scores.shape[:-1], 1), -math.inf)
    total, out = torch.zeros_like(most), wide(v).new_zeros(q.shape)
    for part, values in zip(scores.split(tile, -1), v.split(tile, -2), strict=True):
        maximum = torch.maximum(most, part.amax(-1, keepdim=True))
        powers = (part - maximum).exp()
        total = total * (most - maximum).exp() + powers.sum(-1, keepdim=True)
        out = out * (most - maximum).exp() + wide(powers.to(q.dtype)) @ wide(values)
        most = maximum
    return (out / total).to(q.dtype)


def attention_lost(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention without the last key."""
    return attention_fused(q, k[..., :-1, :], v[..., :-1, :])


def attention_masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention in which one query does not see one key."""
    mask = torch.zeros(q.shape[-2], k.shape[-2], dtype=wide(q).dtype, device=q.device)
    mask[len(mask) // 2, 0] = -math.inf
    return F.scaled_dot_product_attention(wide(q), wide(k), wide(v), attn_mask=mask).to(q.dtype)


def attention_narrow(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention whose products are accumulated in a dtype that is too narrow."""
    scores = matmul_narrow(q, k.transpose(-1, -2).contiguous())
    return matmul_narrow(torch.softmax(wide(scores) / math.sqrt(q.shape[-1]), -1).to(q.dtype), v)


def conv(x: Tensor, w: Tensor) -> Tensor:
    """The convolution of eager."""
    return F.conv2d(x, w, padding=1)


def conv_by(matmul: Function, x: Tensor, w: Tensor) -> Tensor:
    """Convolution as a product of matrices."""
    columns = F.unfold(wide(x), w.shape[-2:], padding=1).to(x.dtype)
    result = matmul(w.flatten(1).expand(len(x), -1, -1), columns)
    return result.unflatten(-1, x.shape[-2:])


def conv_channels(x: Tensor, w: Tensor) -> Tensor:
    """Convolution with one accumulator, a quarter of the channels after the other."""
    parts = zip(wide(x).chunk(4, 1), wide(w).chunk(4, 1), strict=True)
    return functools.reduce(
        torch.add, (F.conv2d(left, right, padding=1) for left, right in parts)
    ).to(x.dtype)


def scan_in_blocks(x: Tensor, *, block: int) -> Tensor:
    """Cumulative sum of blocks along the last dimension, each with the sum of those before it."""
    parts = wide(x).unflatten(-1, (-1, block)).cumsum(-1)
    before = parts[..., -1].cumsum(-1)
    shifted = torch.cat([torch.zeros_like(before[..., :1]), before[..., :-1]], -1)
    return (parts + shifted[..., None]).flatten(-2).to(x.dtype)


def scan_narrow(x: Tensor) -> Tensor:
    """Cumulative sum with an accumulator of a dtype that is too narrow."""
    total = torch.zeros_like(x[..., 0], dtype=low(x.dtype))
    totals = []
    for part in x.unbind(-1):
        total = (wide(total) + wide(part)).to(low(x.dtype))
        totals.append(total)
    return torch.stack(totals, -1).to(x.dtype)


def scan_lost(x: Tensor) -> Tensor:
    """Cumulative sum that lacks the last element."""
    result = x.cumsum(-1)
    result[..., -1] = result[..., -2]
    return result


# -- pointwise -------------------------------------------------------------------------------------


def epilogue(a: Tensor, b: Tensor) -> Tensor:
    """A product and what follows it: eager rounds four times."""
    return (a @ b).cos() * 0.5 + 1


def epilogue_of(matmul: Function, a: Tensor, b: Tensor) -> Tensor:
    """The same after another product, rounded at its end."""
    return (wide(matmul(a, b)).cos() * 0.5 + 1).to(a.dtype)


def cancelling(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """A chain whose last step cancels the leading digits."""
    return (x * y + z) * z - z * z


def shifted(x: Tensor) -> Tensor:
    """A chain that loses the last digits of small inputs."""
    return torch.sigmoid(x + 16) - x.tanh()


def roots(x: Tensor) -> Tensor:
    """A function of NaN and infinities."""
    return x.tanh() * x.abs().sqrt()


def quadrants(y: Tensor, x: Tensor) -> Tensor:
    """A function in which the sign of zero matters."""
    return torch.atan2(y, x) + x


def fused(function: Function) -> Function:
    """Return a function that rounds at its end."""
    return lambda *inputs: function(*map(wide, inputs)).to(inputs[0].dtype)


def narrowed(function: Function) -> Function:
    """Return a function that computes in a dtype that is too narrow."""
    return lambda *inputs: function(*(part.to(low(part.dtype)) for part in inputs)).to(
        inputs[0].dtype
    )


def rounded_at_random(reference: Tensor, kind: torch.dtype, generator: torch.Generator) -> Tensor:
    """Round each number to one of its two neighbours, the nearer one more often, as accelerators
    with stochastic rounding do.

    Of few numbers the farther neighbour is taken, so that the table does not depend on one draw.
    """
    near = reference.to(kind)
    other = torch.nextafter(
        near, torch.where(near.double() < reference, math.inf, -math.inf).to(kind)
    )
    gap = (other.double() - near.double()).abs()
    share = ((reference - near.double()).abs() / gap).nan_to_num(0.0, 0.0, 0.0)
    drawn = torch.rand(reference.shape, generator=generator, dtype=torch.float64).to(
        reference.device
    )
    if reference.numel() < FEW:
        drawn = torch.zeros_like(drawn)
    return torch.where((drawn < share) & other.isfinite(), other, near)


# -- the families ----------------------------------------------------------------------------------


def normal(*shapes: tuple[int, ...]) -> Callable[[torch.Generator], list[Tensor]]:
    """Return what draws normally distributed inputs of some shapes."""
    return lambda generator: [
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes
    ]


def _norm_inputs(generator: torch.Generator) -> list[Tensor]:
    x, weight, bias = normal((64, 768), (768,), (768,))(generator)
    return [x * 3 + 1, weight * 0.1 + 1, bias * 0.1]


def _uneven(generator: torch.Generator) -> list[Tensor]:
    a, b, rows, columns = normal((96, 256), (256, 80), (96, 1), (1, 80))(generator)
    return [a * torch.exp(3 * rows), b * torch.exp(3 * columns)]


def _uneven_elements(generator: torch.Generator) -> list[Tensor]:
    x, y, z, size = normal(*[(64, 512)] * 4)(generator)
    spread = torch.exp(2 * size)
    return [x * spread, y, z * spread]


def _signed_zeros(generator: torch.Generator) -> list[Tensor]:
    y, x = normal((64, 256), (64, 256))(generator)
    zero = torch.rand(y.shape, generator=generator) < 0.05
    return [torch.where(zero, torch.copysign(torch.zeros_like(y), y), y), x]


def _nonfinite(generator: torch.Generator) -> list[Tensor]:
    (x,) = normal((64, 512))(generator)
    x[3, 5], x[7, 9], x[11, 13] = math.nan, math.inf, -math.inf
    return [x]


MATMULS: Mapping[str, Function] = {
    "split k, 4 parts": functools.partial(matmul_split, parts=4),
    "split k, 16 parts": functools.partial(matmul_split, parts=16),
    "tiles of 32": functools.partial(matmul_in_tiles, tile=32),
    "tiles of 128, last first": functools.partial(matmul_in_tiles, tile=128, backwards=True),
    "fp32 throughout": fused(torch.matmul),
}

BAD_MATMULS: Mapping[str, Function] = {
    "narrow accumulator": matmul_narrow,
    "last k lost": matmul_lost,
}

SUMS: Mapping[str, Function] = {
    "16 lanes": functools.partial(sum_in_lanes, lanes=16),
    "8 lanes": functools.partial(sum_in_lanes, lanes=8),
    "blocks of 256": functools.partial(sum_in_blocks, block=256),
}

BAD_SUMS: Mapping[str, Function] = {
    "narrow accumulator": sum_narrow,
    "last k lost": lambda x: wide(x)[..., :-1].sum(-1).to(x.dtype),
}


def scalar(functions: Mapping[str, Function]) -> dict[str, Function]:
    """Return functions that add one row, as functions to a scalar."""
    return {name: functools.partial(_first, function) for name, function in functions.items()}


def chain(name: str, make: Callable[[torch.Generator], Sequence[Tensor]], of: Function) -> Family:
    """Return the family of a chain of pointwise operators."""
    return Family(name, make, of, {"fused": fused(of)}, {"narrow accumulator": narrowed(of)})


def _first(function: Function, x: Tensor) -> Tensor:
    return function(x)[0]


BAD_ATTENTION: Mapping[str, Function] = {
    "narrow accumulator": attention_narrow,
    "last k lost": attention_lost,
    "one key masked for one query": attention_masked,
}

NORMS: Mapping[str, Function] = {
    "two passes": functools.partial(layer_norm_by, lambda x: x.mean(-1)),
    "blocks of 64": functools.partial(
        layer_norm_by, lambda x: sum_in_blocks(x, block=64) / x.shape[-1]
    ),
}

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family(
            "matmul",
            normal((128, 256), (256, 160)),
            torch.matmul,
            MATMULS,
            BAD_MATMULS,
            scaled=(0, 1),
        ),
        Family(
            "matmul of k 32768",
            normal((32, 32768), (32768, 48)),
            torch.matmul,
            MATMULS,
            BAD_MATMULS,
            scaled=(0,),
        ),
        Family("matmul of uneven rows", _uneven, torch.matmul, MATMULS, BAD_MATMULS, scaled=(0,)),
        Family(
            "matmul and epilogue",
            normal((96, 256), (256, 80)),
            epilogue,
            {"fused": fused(epilogue)},
            {
                name: functools.partial(epilogue_of, function)
                for name, function in BAD_MATMULS.items()
            },
        ),
        Family(
            "batched matmul",
            normal((4, 48, 256), (4, 256, 40)),
            torch.matmul,
            MATMULS,
            BAD_MATMULS,
            scaled=(0, 1),
        ),
        Family(
            "convolution",
            normal((4, 16, 14, 14), (24, 16, 3, 3)),
            conv,
            {
                "as matmul": functools.partial(conv_by, MATMULS["tiles of 32"]),
                "by channels": conv_channels,
            },
            {name: functools.partial(conv_by, function) for name, function in BAD_MATMULS.items()},
        ),
        Family(
            "softmax",
            normal((32, 4096)),
            lambda x: torch.softmax(x, -1),
            {
                "online, tiles of 512": functools.partial(softmax_online, tile=512),
                "online, tiles of 64": functools.partial(softmax_online, tile=64),
            },
            {
                "narrow accumulator": softmax_narrow,
                "last k lost": softmax_lost,
                "wrong axis": lambda x: torch.softmax(x, 0),
                "no maximum subtracted": softmax_bare,
            },
        ),
        Family(
            "layer norm",
            _norm_inputs,
            layer_norm,
            NORMS,
            {
                "narrow accumulator": functools.partial(
                    layer_norm_by, lambda x: wide(sum_narrow(x.to(low(x.dtype)))) / x.shape[-1]
                ),
                "last k lost": functools.partial(
                    layer_norm_by, lambda x: x[..., :-1].sum(-1) / x.shape[-1]
                ),
                "variance of k - 1": layer_norm_unbiased,
                "bias twice in one row": bias_twice,
            },
        ),
        Family(
            "attention",
            normal(*[(2, 4, 64, 32)] * 3),
            attention,
            {"fused": attention_fused, "tiles of 16": attention_in_tiles},
            BAD_ATTENTION,
        ),
        Family(
            "attention written out",
            normal(*[(2, 4, 64, 32)] * 3),
            attention_written_out,
            {
                "fused": attention_fused,
                "tiles of 16": attention_in_tiles,
                "of one kernel": fused(attention),
            },
            BAD_ATTENTION,
        ),
        Family("sum", normal((64, 32768)), lambda x: x.sum(-1), SUMS, BAD_SUMS),
        Family(
            "sum of positive numbers",
            lambda generator: [torch.rand((64, 32768), generator=generator, dtype=torch.float64)],
            lambda x: x.sum(-1),
            SUMS,
            BAD_SUMS,
        ),
        Family(
            "sum to a scalar",
            normal((1, 4096)),
            lambda x: x.sum(),
            scalar(SUMS),
            scalar(BAD_SUMS),
        ),
        Family(
            "cumsum",
            normal((32, 2048)),
            lambda x: x.cumsum(-1),
            {
                "blocks of 64": functools.partial(scan_in_blocks, block=64),
                "blocks of 256": functools.partial(scan_in_blocks, block=256),
            },
            {
                "narrow accumulator": scan_narrow,
                "last k lost": scan_lost,
                "wrong axis": lambda x: x.cumsum(0),
            },
        ),
        chain("cancelling chain", normal(*[(64, 512)] * 3), cancelling),
        chain("uneven cancelling chain", _uneven_elements, cancelling),
        chain("shifted chain", normal((64, 512)), shifted),
        Family(
            "NaN and infinities",
            _nonfinite,
            roots,
            {"fused": fused(roots)},
            {
                "NaN becomes 0": lambda x: roots(x).nan_to_num(0.0, math.inf, -math.inf),
                "infinity becomes the greatest number": lambda x: roots(x).nan_to_num(math.nan),
            },
        ),
        Family(
            "signed zeros",
            _signed_zeros,
            quadrants,
            {"fused": fused(quadrants)},
            {
                "sign of zero": lambda y, x: quadrants(torch.where(y == 0, 0.0, y).to(y.dtype), x),
            },
        ),
    )
}


# -- wrong answers of every family -----------------------------------------------------------------


def _at(answer: Tensor, share: float, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Change the element of an answer that has this rank among the magnitudes."""
    result = answer.clone().contiguous()
    size = (
        result.double().abs().reshape(-1).nan_to_num(-1.0, -1.0, -1.0)
    )  # elements that are not finite have another defect
    place = size.argsort()[min(int(share * result.numel()), result.numel() - 1)]
    flat = result.view(-1)
    flat[place] = change(flat[place])
    return result


def _tile(answer: Tensor) -> Tensor:
    """Set a tile of at most 32 by 32 elements to 0, in the middle."""
    result = answer.clone()
    if result.ndim == 0:
        return torch.zeros_like(result)
    part = result
    for dimension in range(result.ndim):
        length = result.shape[dimension]
        size = min(32, max(length // 4, 1)) if dimension >= result.ndim - 2 else 1
        part = part.narrow(dimension, length // 2 - size // 2, size)
    part.zero_()
    return result


def _tile_transposed(answer: Tensor) -> Tensor:
    """Transpose a square tile of at most 32 by 32 elements, at the start of the last two
    dimensions.
    """
    result = answer.clone()
    if result.ndim < 2:
        return -result
    size = min(32, *result.shape[-2:])
    result[..., :size, :size] = answer[..., :size, :size].transpose(-1, -2)
    return result


def _last_block_twice(answer: Tensor) -> Tensor:
    """Write the block before the last one, of at most 16 rows, also in place of the last one."""
    result = answer.clone()
    size = min(16, len(answer) // 2) if answer.ndim else 0
    if size == 0:
        return result * 2
    result[-size:] = answer[-2 * size : -size]
    return result


def _last_column(answer: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    result = answer.clone()
    if result.ndim == 0:
        return change(result)
    result[..., -1] = change(result[..., -1])
    return result


def _scaled(answer: Tensor, factor: float) -> Tensor:
    return (answer.double() * factor).to(answer.dtype)


WRONG: Mapping[str, Callable[[Tensor], Tensor]] = {
    "zeros": torch.zeros_like,
    "x 1.02": lambda answer: _scaled(answer, 1.02),
    "last column x (1 + 2**-7)": lambda answer: _last_column(
        answer, lambda one: _scaled(one, 1 + 2**-7)
    ),
    "last column 0": lambda answer: _last_column(answer, torch.zeros_like),
    "tile transposed": _tile_transposed,
    "last block twice": _last_block_twice,
    "x 2": lambda answer: answer * 2,
    "largest element 0": lambda answer: _at(answer, 1.0, torch.zeros_like),
    "median element 0": lambda answer: _at(answer, 0.5, torch.zeros_like),
    "small element doubled": lambda answer: _at(answer, 0.1, lambda one: one * 2),
    "tile 0": _tile,
    "rows rotated": lambda answer: answer.roll(1, 0) if answer.ndim else -answer,
    "NaN": lambda answer: _at(answer, 0.5, lambda one: torch.full_like(one, math.nan)),
}


def cell(family: Family, dtype: str, scale: float, *, device: str = "cpu", seed: int = 0) -> Cell:
    """Compute a cell of the table."""
    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(zlib.crc32(f"{family.name} {seed}".encode()))

    def drawn() -> list[Tensor]:
        inputs = family.make(generator)
        return [
            (part * scale if index in family.scaled else part).to(kind).to(device)
            for index, part in enumerate(inputs)
        ]

    inputs, other_inputs = drawn(), drawn()
    eager = family.eager(*inputs)
    wrong = {name: defect(eager) for name, defect in WRONG.items()}
    wrong |= {name: defect(*inputs) for name, defect in family.wrong.items()} | {
        "another input": family.eager(*other_inputs)
    }
    right = {name: function(*inputs) for name, function in family.right.items()}
    reference = family.eager(*(part.double() for part in inputs))
    wrong["x 1.002, then rounded"] = (reference * 1.002).to(kind)
    if dtype in NARROW:
        right[AT_RANDOM] = rounded_at_random(reference, kind, generator)
    return Cell(family, dtype, scale, inputs, eager, reference, right, wrong)


def cells(
    names: Sequence[str] = (),
    dtypes: Sequence[str] = DTYPES,
    scales: Sequence[float] = SCALES,
    **options: Any,
) -> Iterator[Cell]:
    """Yield cells; all families where no name is given."""
    for name in names or FAMILIES:
        for dtype in dtypes:
            for scale in scales:
                yield cell(FAMILIES[name], dtype, scale, **options)
