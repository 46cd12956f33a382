"""What eager does not change, the compiled side must not change: not by one bit, under any
tolerance.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.compared_effects import compared
from tests.fakes import import_torch
from torch_conformance.model.expectation import Status

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

torch: Any = import_torch()

TOLERANCES: dict[str, dict[str, Any]] = {
    "default": {},
    "explicit": {"rtol": 1e-2, "atol": 1e-2},
    "infinite": {"rtol": 0.0, "atol": float("inf")},
}


class Module(torch.nn.Module):  # type: ignore[misc]  # the base class has the type Any: torch is what import_torch returned
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.register_buffer("kept", torch.ones(3))
        self.cache = {"last": [torch.ones(3)]}
        self.scale = 0.5
        self.phase = 1.0 + 2.0j


def ulp(tensor: Any) -> None:
    """Change the last bit of the first element."""
    tensor.detach().reshape(-1)[:1].view(
        {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    ).add_(1)


def with_gaps() -> Any:
    return torch.ones(4, 6)[:, ::2]


def between(tensor: Any) -> None:
    """Write between the elements of ``with_gaps``."""
    tensor.as_strided((1,), (1,), tensor.storage_offset() + 1).zero_()


def nested() -> Any:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def ones(dtype: Any) -> Callable[[], Any]:
    return lambda: torch.ones(3, dtype=dtype)


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], str]] = {
    "float32": (ones(torch.float32), ulp, "argument [0] "),
    "float64": (ones(torch.float64), ulp, "argument [0] "),
    "bfloat16": (ones(torch.bfloat16), ulp, "argument [0] "),
    "float16": (ones(torch.float16), ulp, "argument [0] "),
    "complex": (ones(torch.complex64), lambda x: ulp(torch.view_as_real(x)), "argument [0] "),
    "conjugate": (
        lambda: torch.ones(3, dtype=torch.complex64).conj(),
        lambda x: ulp(torch.view_as_real(x.conj())),
        "argument [0] ",
    ),
    "a scalar": (lambda: torch.tensor(1.0), ulp, "argument [0] "),
    "sign of zero": (lambda: torch.zeros(3), lambda x: x[0].fill_(-0.0), "argument [0] "),
    "bits of NaN": (
        lambda: torch.full((3,), float("nan")),
        lambda x: x.view(torch.int32)[0].add_(1),
        "argument [0] ",
    ),
    "strided": (with_gaps, lambda x: ulp(x[1, 1:2]), "argument [0] "),
    "between the elements": (with_gaps, between, "argument [0] "),
    "transposed": (lambda: torch.ones(3, 4).t(), lambda x: ulp(x.t()), "argument [0] "),
    "that needs a gradient": (lambda: torch.ones(3, requires_grad=True), ulp, "argument [0] "),
    "inference": (lambda: torch.inference_mode()(torch.ones)(3), ulp, "argument [0] "),
    "nested": (nested, lambda x: ulp(x.unbind()[1]), "argument [0][1] "),
    "sparse": (lambda: torch.eye(3).to_sparse(), lambda x: ulp(x._values()), "argument [0] "),
    "sparse rows": (
        lambda: torch.eye(3).to_sparse_csr(),
        lambda x: ulp(x.values()),
        "argument [0] ",
    ),
    "in a list": (
        lambda: [1, {"a": torch.ones(3)}],
        lambda x: ulp(x[1]["a"]),
        "argument [0][1]['a'] ",
    ),
    "of an object": (
        lambda: SimpleNamespace(held=torch.ones(3)),
        lambda x: ulp(x.held),
        "argument [0].held ",
    ),
    "parameter": (Module, lambda m: ulp(m.inner.weight), "argument [0].inner.weight "),
    "buffer": (Module, lambda m: ulp(m.kept), "argument [0].kept "),
    "attribute": (Module, lambda m: ulp(m.cache["last"][0]), "argument [0].cache['last'][0] "),
    "float": (Module, lambda m: setattr(m, "scale", 0.5 + 2**-53), "argument [0].scale "),
    "complex number": (
        Module,
        lambda m: setattr(m, "phase", 1.0 + 2.0000000000000004j),
        "argument [0].phase ",
    ),
    "float of an object": (
        lambda: SimpleNamespace(held=0.0),
        lambda x: setattr(x, "held", -0.0),
        "argument [0].held ",
    ),
}


@pytest.mark.parametrize("tolerance", TOLERANCES)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_what_eager_only_reads_fails(name: str, tolerance: str) -> None:
    make, change, path = CHANGES[name]
    judgement, _ = compared(
        lambda eager, _, given: None if eager else (change(given), None)[1],
        make,
        tolerance=TOLERANCES[tolerance],
    )
    assert (judgement.status, judgement.expected.startswith(path)) == (Status.FAILED, True), (
        judgement
    )
    assert judgement.expected.endswith("is as before the call: eager does not change it")
    assert judgement.observed.startswith("changed ")


@pytest.mark.parametrize("name", CHANGES)
def test_an_unchanged_value_passes(name: str) -> None:
    make, change, _ = CHANGES[name]
    assert compared(lambda *given: None, make)[0].status is Status.HELD
    both, _ = compared(lambda eager, _, given: (change(given), None)[1], make)
    assert both.status is Status.HELD, both


def test_what_eager_writes_with_the_bits_that_it_had_is_judged_as_computed() -> None:
    def change(eager: bool, _: Any, given: Any) -> None:
        given.copy_(torch.ones(3) if eager else torch.full((3,), 1 + 2**-22))

    assert compared(change, lambda: torch.ones(3))[0].status is Status.HELD


def test_what_eager_replaces_by_an_equal_value_is_judged_as_computed() -> None:
    def change(eager: bool, _: Any, module: Any) -> None:
        module.cache["last"][0] = torch.ones(3) if eager else torch.full((3,), 1 + 2**-22)

    assert compared(change, Module)[0].status is Status.HELD


def test_a_value_that_differed_before_the_call_is_kept_on_each_side() -> None:
    def sides() -> Callable[[], Any]:
        made = iter((1 + 2**-22, 1.0))
        return lambda: torch.full((3,), next(made))

    assert compared(lambda *given: None, sides())[0].status is Status.HELD
    judgement, _ = compared(
        lambda eager, _, given: None if eager else (ulp(given), None)[1], sides()
    )
    assert (
        judgement.observed
        == "changed in 1 of 3 elements: [0] from 1.000000238418579 to 1.0000003576278687"
    )


def test_overlapping_arguments_that_eager_writes_are_no_change_of_the_other() -> None:
    def views() -> Any:
        memory = torch.ones(4, 6)
        return [memory[:, ::2], memory[:, 1::2]]

    assert (
        compared(lambda eager, _, given: (given[1].mul_(2), None)[1], views)[0].status
        is Status.HELD
    )


def test_a_parameter_keeps_its_strides() -> None:
    def change(eager: bool, module: Any) -> None:
        if not eager:
            module.inner.weight.data = module.inner.weight.data.t().contiguous().t()

    assert compared(change, target=Module)[0].status is Status.FAILED
    judgement, _ = compared(
        lambda *given: (change(*given), given[0] or ulp(given[1].inner.weight[0]), None)[2],
        target=Module,
    )
    assert judgement.observed.startswith("changed in 1 of 9 elements: [0, 0] from ")
