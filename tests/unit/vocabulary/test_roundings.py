"""Which format eager rounded the values of a result to, and what the judge makes of it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes import import_torch
from torch_conformance.vocabulary.expectations.calibrated import FORMATS, between, form_of

pytestmark = pytest.mark.torch

torch: Any = import_torch()

BF16, HALF = torch.bfloat16, torch.float16


def through(function: Callable[..., Any], *inputs: Any) -> str:
    """Return what the mode records for the result of a function."""
    from torch_conformance.worker.torch_compat.numerics import Roundings

    with Roundings() as mode:
        return mode.narrowest(function(*inputs))


def written(target: Any, source: Any) -> Any:
    target.copy_(source)
    return target


def added(targets: Any, others: Any) -> Any:
    torch._foreach_add_(targets, others)
    return targets[0]


def trained(x: Any) -> Any:
    norm = torch.nn.BatchNorm2d(3)
    norm((x * 2).to(BF16))
    return norm.running_mean


def gradient(w: Any) -> Any:
    w = w.requires_grad_()
    with torch.autocast("cpu", dtype=BF16):
        torch.nn.functional.linear(torch.ones(2, 4), w).sum().backward()
    return w.grad


ONE = torch.ones(4, 4)

ROWS = {
    "nothing rounds": (lambda x: (x @ x).exp(), (ONE,), ""),
    "a cast": (lambda x: x.to(BF16).float().exp(), (ONE,), "bfloat16"),
    "a view of it": (lambda x: x.to(BF16).float().T[1:], (ONE,), "bfloat16"),
    "the narrowest counts": (
        lambda x: (x.to(HALF).to(BF16).float() + x).to(HALF).float(),
        (ONE,),
        "bfloat16",
    ),
    "an input in the format was not rounded": (lambda x: x.float() * 3, (ONE.to(BF16),), ""),
    "a copy rounds nothing": (lambda x: x.clone().float(), (ONE.to(BF16),), ""),
    "an operator in the format does": (lambda x: (x * 3).float(), (ONE.to(BF16),), "bfloat16"),
    "a mask is no value": (lambda x: torch.where(x.to(BF16) > 1, x, 0.0), (ONE,), ""),
    "a shape is no value": (lambda x: torch.ones_like(x.to(BF16), dtype=torch.float32), (ONE,), ""),
    "what is written": (lambda x: written(torch.zeros(4, 4), x.to(BF16)), (ONE,), "bfloat16"),
    "a list that is written": (
        lambda x: added([x.clone()], [x.to(BF16).float()]),
        (ONE,),
        "bfloat16",
    ),
    "running statistics": (trained, (torch.ones(2, 3, 4, 4),), "bfloat16"),
    "a gradient under autocast": (gradient, (torch.ones(3, 4),), "bfloat16"),
    "a cast to float8 is a part of the function": (
        lambda x: x.to(torch.float8_e4m3fn).float(),
        (ONE,),
        "",
    ),
    "no tensor": (lambda x: 3, (ONE,), ""),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_narrowest_format_of_the_values_is_recorded(name: str) -> None:
    function, inputs, expected = ROWS[name]
    assert through(function, *inputs) == expected


def test_numbers_of_a_format_are_judged_as_that_format() -> None:
    facts = {"through": "bfloat16", "is_rounded": True, "worst": {"eager_value": 1.5}}
    assert form_of("float32", facts) is FORMATS["bfloat16"]
    assert form_of("float32", {}) is FORMATS["float32"]


@pytest.mark.parametrize(
    ("dtype", "changes"),
    [
        ("float32", {"worst": {"eager_value": 1.0001}}),
        ("bfloat16", {}),
        ("float16", {"through": "float16"}),
        ("float32", {"through": "x"}),
    ],
)
def test_facts_that_do_not_fit_have_no_format(dtype: str, changes: Any) -> None:
    with pytest.raises((ValueError, KeyError)):
        form_of(
            dtype,
            {"through": "bfloat16", "is_rounded": True, "worst": {"eager_value": 1.5}, **changes},
        )


def test_what_was_rounded_on_its_way_has_the_floor_of_the_narrow_format_at_most() -> None:
    outer, inner = FORMATS["float32"], FORMATS["bfloat16"]
    assert between(outer, inner, [2.0**16], 0.0).element_floor == 1.5 * 2**16
    assert between(outer, inner, [1e3, 2e3], 1e9).element_floor == 8 * 2e3, (
        "the mean of many roundings has less"
    )
    assert between(outer, inner, [], 1e3).element_floor == 8e3, "few elements have no quantile"
    assert between(outer, inner, [0.0], 1e3).element_floor == 8e3
    assert between(outer, inner, [1.0], 2.0).element_floor == outer.element_floor
    assert between(outer, inner, [2.0**16], 0.0).bias_floor == inner.bias_floor
