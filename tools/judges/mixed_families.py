"""Families of mixed precision: float32 inputs and results, which eager rounds to bfloat16 or
float16 on their way, as under autocast.

Right answers round once more or once less than eager at a cast, add in another order, or are fused.
A function receives float32 or float64 inputs; ``Rounding`` rounds only float32, so that the
reference of float64 is not rounded.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own abbreviation

from tools.judges.families import Family, Function, Tensor, normal

FORMATS = ("bfloat16", "float16")


@dataclass(frozen=True)
class Rounding:
    """How a function rounds to the narrow format, and in which order it adds."""

    kind: torch.dtype
    inputs: bool = True
    """Whether the inputs of products are rounded."""
    results: bool = True
    """Whether the results of products are rounded."""
    steps: bool = False
    """Whether what is added after a product is added in the narrow format: one rounding more."""
    parts: int = 1
    """In how many parts the sum of a product is split."""

    def operand(self, x: Tensor) -> Tensor:
        """Return an input of a product, as autocast casts it; float64 as it is."""
        return self._rounded(x) if self.inputs else x

    def result(self, x: Tensor) -> Tensor:
        """Return a result in the narrow format."""
        return self._rounded(x) if self.results else x

    def step(self, x: Tensor) -> Tensor:
        """Return what is between two operators, which eager fuses."""
        return self._rounded(x) if self.steps else x

    def _rounded(self, x: Tensor) -> Tensor:
        return x if x.dtype == torch.float64 else x.to(self.kind).to(x.dtype)

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiply with an accumulator of float32."""
        a, b = self.operand(a), self.operand(b)
        pairs = zip(a.chunk(self.parts, -1), b.chunk(self.parts, -2), strict=True)
        return functools.reduce(torch.add, (left @ right for left, right in pairs))


Mixed = Callable[..., Tensor]
"""Takes a ``Rounding``, then the inputs."""


def linear(by: Rounding, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A linear layer: eager rounds its inputs and its result."""
    return by.result(by.step(by.product(x, w)) + by.operand(b))


def chain(by: Rounding, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Two products with an activation between them, and a residual in float32: the last operator
    rounds nothing.
    """
    hidden = by.result(F.silu(linear(by, x, w, b)))
    return x + by.result(by.product(hidden, w.mT))


def weight_gradient(by: Rounding, x: Tensor, w: Tensor, g: Tensor) -> Tensor:
    """The gradient of the first weight of ``silu(x @ w)``, for the gradient ``g`` of the result."""
    hidden = by.result(by.product(x, w))
    share = torch.sigmoid(hidden)
    inner = by.result(by.operand(g) * by.step(share * (1 + hidden * (1 - share))))
    return by.result(by.product(x.mT, inner))


def mean_gradient(by: Rounding, x: Tensor, w: Tensor, g: Tensor) -> Tensor:
    """The gradient of a weight for the mean of ``silu(x @ w) @ v``: all rows of it are equal."""
    hidden = by.result(F.silu(by.result(by.product(x, w))))
    same = torch.full((len(x), 8), 1 / (8 * len(x)), dtype=x.dtype) + 0 * g[:, :8]
    return by.result(by.product(same.mT, hidden))


def bias_gradient(by: Rounding, x: Tensor, w: Tensor, g: Tensor) -> Tensor:
    """The gradient of a bias: the sum in float32 of numbers that were rounded."""
    hidden = by.result(by.product(x, w))
    return by.result(by.operand(g) * by.step(torch.sigmoid(hidden))).sum(0)


def norm(by: Rounding, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A layer norm in float32 of a linear layer in the narrow format."""
    hidden = linear(by, x, w, b)
    return F.layer_norm(hidden, hidden.shape[-1:]) * (1 + b) + b


def root_mean_square(by: Rounding, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A norm by the root mean square, whose result is rounded before it is multiplied in
    float32.
    """
    hidden = linear(by, x, w, b)
    return by.result(hidden * (hidden.square().mean(-1, keepdim=True) + 1e-6).rsqrt()) * (1 + b)


def probabilities(by: Rounding, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A softmax in float32 of scores in the narrow format."""
    return torch.softmax(linear(by, x, w, b) / 8, -1)


def losses(by: Rounding, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The cross entropy of each row, in float32."""
    scores = linear(by, x, w, b) / 4
    return torch.logsumexp(scores, -1) - scores[:, 3]


FUNCTIONS: Mapping[str, tuple[Mixed, tuple[tuple[int, ...], ...]]] = {
    "linear": (linear, ((96, 256), (256, 80), (80,))),
    "chain": (chain, ((64, 128), (128, 192), (192,))),
    "weight gradient": (weight_gradient, ((128, 96), (96, 80), (128, 80))),
    "mean gradient": (mean_gradient, ((64, 32), (32, 64), (64, 64))),
    "bias gradient": (bias_gradient, ((256, 64), (64, 128), (256, 128))),
    "norm": (norm, ((64, 128), (128, 192), (192,))),
    "root mean square": (root_mean_square, ((64, 128), (128, 192), (192,))),
    "probabilities": (probabilities, ((48, 64), (64, 256), (256,))),
    "losses": (losses, ((128, 64), (64, 256), (256,))),
}


def _lost(function: Mixed, by: Rounding) -> Function:
    def computed(x: Tensor, w: Tensor, *rest: Tensor) -> Tensor:
        without = x.clone()
        without[..., -1] = 0
        return function(by, without, w, *rest)

    return computed


def _family(name: str, kind: str) -> Family:
    function, shapes = FUNCTIONS[name]
    narrow = getattr(torch, kind)

    def rounding(**words: object) -> Function:
        return functools.partial(function, Rounding(narrow, **words))  # type: ignore[arg-type] # the words are those of the class

    return Family(
        f"{name} through {kind}",
        normal(*shapes),
        rounding(),
        {
            "once more": rounding(steps=True),
            "results not rounded": rounding(results=False),
            "inputs not rounded": rounding(inputs=False),
            "float32 throughout": rounding(inputs=False, results=False),
            "split k, 4 parts": rounding(parts=4),
            "split k, once more": rounding(parts=8, steps=True),
        },
        {
            "last k lost": _lost(function, Rounding(narrow)),
            "last k lost, not rounded": _lost(function, Rounding(narrow, results=False)),
        },
    )


MIXED: Mapping[str, Family] = {
    family.name: family
    for family in (_family(name, kind) for name in FUNCTIONS for kind in FORMATS)
}
