"""The cases that the benchmark runs as plain pytest tests; ``../specs`` holds the same as specs,
and a unit test compares them.

Each test is a small check of ``torch.compile`` as PyTorch's own tests write it: eager first, then
the compiled function, the numbers compared and a counter asserted. No two share a kernel.
``BENCH_DEVICE`` says where they run (``cpu`` when it is unset).
"""

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache

DEVICE = os.environ.get("BENCH_DEVICE", "cpu")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Give each test an inductor cache folder of its own and a dynamo that knows nothing: else it
    is served what another compiled.
    """
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    with fresh_cache():
        yield
    torch._dynamo.reset()


def normal(*shape: int) -> torch.Tensor:
    """Return normal numbers, made on the CPU and moved, as the runner makes them."""
    return torch.randn(shape).to(DEVICE)


def whole(high: int, *shape: int) -> torch.Tensor:
    """Return whole numbers from [0, high)."""
    return torch.randint(0, high, shape).to(DEVICE)


def check(
    fn: Callable[..., Any],
    *calls: Sequence[torch.Tensor],
    dynamic: bool | None = None,
    backward: bool = False,
    tolerance: float | None = None,
) -> None:
    """Hold the compiled function, with ``backward`` its gradients too, against eager on copies; no
    graph comes from a cache.
    """
    compiled = torch.compile(fn, dynamic=dynamic)
    for inputs in calls:
        copies = copy.deepcopy(inputs)
        expected, observed = fn(*copies), compiled(*inputs)
        torch.testing.assert_close(observed, expected, atol=tolerance, rtol=tolerance)
        if backward:
            expected.sum().backward()
            observed.sum().backward()
            torch.testing.assert_close(
                [x.grad for x in inputs], [x.grad for x in copies], atol=tolerance, rtol=tolerance
            )
    assert counters["inductor"]["fxgraph_cache_miss"] == 1 + backward
    assert counters["inductor"]["fxgraph_cache_hit"] == 0


def test_pointwise():
    """Products and sums of elements are right."""

    def fn(x, y):
        return x * y + torch.sin(x) - y.abs()

    check(fn, [normal(64, 64), normal(64, 64)])


def test_activations():
    """A chain of activations is right."""

    def fn(x):
        return torch.tanh(x) * torch.sigmoid(x) + torch.relu(x)

    check(fn, [normal(32, 100)])


def test_clamp_where():
    """Bounds and choices by a mask are right."""

    def fn(x, y):
        return torch.where(x > y, x.clamp(-0.5, 0.5), y.exp())

    check(fn, [normal(48, 31), normal(48, 31)])


def test_casts():
    """Numbers that go through float64 and back are right."""

    def fn(x):
        return (x.double() * 3 + 1).float() / 7

    check(fn, [normal(513)])


def test_integers():
    """Whole numbers are divided, shifted and compared exactly."""

    def fn(a, b):
        return a // (b + 1), (a << 2) ^ b, a % 7 == b

    check(fn, [whole(1000, 40, 9), whole(100, 40, 9)])


def test_sum_of_rows():
    """Sums of rows and of columns are right."""

    def fn(x):
        return x.sum(dim=1), (x * 2).sum(dim=0)

    check(fn, [normal(40, 72)])


def test_extremes():
    """The largest and least elements of rows are right."""

    def fn(x):
        return x.amax(dim=-1) - x.amin(dim=-1)

    check(fn, [normal(33, 65)])


def test_variance():
    """Mean and variance are right."""

    def fn(x):
        return x.mean(dim=-1), x.var(dim=-1)

    check(fn, [normal(24, 129)])


def test_norm():
    """The length of vectors is right."""

    def fn(x):
        return x / (x * x).sum(dim=-1, keepdim=True).sqrt()

    check(fn, [normal(17, 80)])


def test_running_sum():
    """A running sum is right."""

    def fn(x):
        return torch.cumsum(x * 0.5, dim=1)

    check(fn, [normal(12, 50)])


def test_softmax():
    """A softmax of scaled rows is right."""

    def fn(x):
        return torch.softmax(x * 0.125, dim=-1)

    check(fn, [normal(20, 96)])


def test_log_softmax():
    """A log-softmax of columns is right."""

    def fn(x):
        return torch.log_softmax(x + 1, dim=0)

    check(fn, [normal(56, 18)])


def test_layer_norm():
    """A layer norm with weights and what follows it are right."""

    def fn(x, weight, bias):
        return torch.nn.functional.layer_norm(x, (88,), weight, bias).relu()

    check(fn, [normal(14, 88), normal(88), normal(88)])


def test_rms_norm():
    """A norm by the root of the mean square is right."""

    def fn(x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight

    check(fn, [normal(15, 76), normal(76)])


def test_matmul():
    """Matmul with an epilogue matches eager."""

    def fn(a, b):
        return (a @ b).relu() + 1

    check(fn, [normal(32, 24), normal(24, 40)], tolerance=1e-3)


def test_addmm():
    """Addmm matches eager."""

    def fn(bias, a, b):
        return torch.addmm(bias, a, b).sigmoid()

    check(fn, [normal(28), normal(16, 36), normal(36, 28)], tolerance=1e-3)


def test_bmm():
    """Products of a batch are right."""

    def fn(a, b):
        return torch.bmm(a, b.transpose(1, 2)) / 4

    check(fn, [normal(3, 10, 12), normal(3, 14, 12)], tolerance=1e-3)


def test_attention():
    """Attention as it is written out is right."""

    def fn(q, k, v):
        return torch.softmax(q @ k.mT - 1, dim=-1) @ v.cos()

    check(fn, [normal(2, 11, 8), normal(2, 13, 8), normal(2, 13, 8)], tolerance=1e-3)


def test_convolution():
    """A convolution and what follows it are right."""

    def fn(x, weight):
        return torch.nn.functional.conv2d(x, weight, padding=1).relu() * 2

    check(fn, [normal(1, 3, 14, 14), normal(8, 3, 3, 3)], tolerance=1e-3)


def test_depthwise():
    """A convolution of each channel by itself is right."""

    def fn(x, weight, bias):
        return torch.nn.functional.conv2d(x, weight, bias, stride=2, groups=4).tanh()

    check(fn, [normal(2, 4, 11, 11), normal(4, 1, 3, 3), normal(4)], tolerance=1e-3)


def test_max_pool():
    """The largest element of each window is right."""

    def fn(x):
        return torch.nn.functional.max_pool2d(x * x, 2)

    check(fn, [normal(2, 3, 16, 16)])


def test_avg_pool():
    """The mean of each window is right."""

    def fn(x):
        return torch.nn.functional.avg_pool2d(x.exp(), 3, stride=1, padding=1)

    check(fn, [normal(1, 4, 10, 10)])


def test_views():
    """Views, permutations and copies read the right elements."""

    def fn(x):
        return x.view(6, 4, 5).permute(2, 0, 1).contiguous().flatten(1) - 3

    check(fn, [normal(24, 5)])


def test_joins():
    """Slices that are joined are right."""

    def fn(x, y):
        return torch.cat([x[:, ::2], y[:, 1:]], dim=1) * 4

    check(fn, [normal(7, 22), normal(7, 13)])


def test_gather():
    """Elements are taken from where an index says."""

    def fn(table, picks):
        return table[picks] + torch.gather(table, 0, picks.unsqueeze(1).expand(-1, 9))

    check(fn, [normal(30, 9), whole(30, 21)])


def test_embedding():
    """Rows of an embedding are taken and summed."""

    def fn(picks, weight):
        return torch.nn.functional.embedding(picks, weight).sum(dim=1)

    check(fn, [whole(50, 6, 8), normal(50, 20)])


def test_dynamic_pointwise():
    """One dynamic graph serves two sizes."""

    def fn(x):
        return x.cos() * x.shape[0]

    check(fn, [normal(19, 6)], [normal(27, 6)], dynamic=True)


def test_dynamic_reduction():
    """One dynamic graph sums rows of two lengths."""

    def fn(x):
        return (x + 0.25).sum(dim=-1)

    check(fn, [normal(5, 23)], [normal(5, 41)], dynamic=True)


def test_backward_pointwise():
    """The gradients of a product of activations match eager."""

    def fn(x, y):
        return torch.tanh(x) * y.sin()

    check(fn, [normal(26, 10).requires_grad_(), normal(26, 10).requires_grad_()], backward=True)


def test_backward_linear():
    """The gradients of a linear layer and its activation are right."""

    def fn(x, weight, bias):
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias))

    check(
        fn,
        [
            normal(18, 30).requires_grad_(),
            normal(34, 30).requires_grad_(),
            normal(34).requires_grad_(),
        ],
        backward=True,
        tolerance=1e-3,
    )
