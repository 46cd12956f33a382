"""The arguments of a case: each kind's numbers, dtype, layout and flags; the same seed gives the
same.
"""

import contextlib
from typing import Any

import pytest

pytestmark = pytest.mark.torch


@pytest.fixture
def make(torch: Any) -> Any:
    from torch_conformance.worker.case.scope import Scope

    def maker(
        entry: Any, *, device: str = "cpu", seed: int = 3, names: dict[str, Any] | None = None
    ) -> Any:
        known = {**(names or {}), "Linear": torch.nn.Linear}
        torch.manual_seed(seed)
        return Scope(known, device, contextlib.ExitStack()).make(entry)

    return maker


KINDS: list[tuple[dict[str, Any], list[int], str]] = [
    ({"rand": [2, 3]}, [2, 3], "float32"),
    ({"rand": []}, [], "float32"),
    ({"rand": [0, 3]}, [0, 3], "float32"),
    ({"rand": [2], "dtype": "bfloat16"}, [2], "bfloat16"),
    ({"randn": [2, 3], "dtype": "float64"}, [2, 3], "float64"),
    ({"randn": [4], "dtype": "complex64"}, [4], "complex64"),
    ({"rand": [2], "dtype": "float8_e4m3fn"}, [2], "float8_e4m3fn"),
    ({"randn": [2], "dtype": "float8_e5m2"}, [2], "float8_e5m2"),
    ({"randint": [2], "high": 3, "dtype": "float8_e5m2fnuz"}, [2], "float8_e5m2fnuz"),
    ({"arange": 3, "dtype": "uint16"}, [3], "uint16"),
    ({"zeros": [2], "dtype": "int64"}, [2], "int64"),
    ({"zeros": [2], "dtype": "float8_e4m3fn"}, [2], "float8_e4m3fn"),
    ({"ones": [2], "dtype": "bool"}, [2], "bool"),
    ({"full": [2, 2], "value": 7}, [2, 2], "int64"),
    ({"full": [2], "value": 0.5, "dtype": "float16"}, [2], "float16"),
    ({"randint": [5], "high": 3}, [5], "int64"),
    ({"randint": [5], "low": -3, "high": 3, "dtype": "int8"}, [5], "int8"),
    ({"arange": 4}, [4], "int64"),
    ({"arange": [1, 4], "dtype": "float32"}, [3], "float32"),
    ({"arange": [0, 1, 0.25]}, [4], "float32"),
    ({"values": [[1.0, 2.0]]}, [1, 2], "float32"),
    ({"values": [[True]]}, [1, 1], "bool"),
    ({"values": 5, "dtype": "uint8"}, [], "uint8"),
]


@pytest.mark.parametrize(("entry", "shape", "dtype"), KINDS)
def test_shape_and_dtype_of_each_kind(torch, make, entry, shape, dtype):
    made = make(entry)
    assert (list(made.shape), made.dtype) == (shape, getattr(torch, dtype))
    assert made.is_contiguous()
    assert not made.requires_grad


@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_numbers_from_0_to_1_are_not_converted_to_zeros(torch, make, dtype):
    with pytest.raises(NotImplementedError):
        make({"rand": [4], "dtype": dtype})


def test_the_numbers_of_each_kind(torch, make):
    assert make({"zeros": [2]}).tolist() == [0, 0]
    assert make({"ones": [2]}).tolist() == [1, 1]
    assert make({"full": [2], "value": 7}).tolist() == [7, 7]
    assert make({"arange": [1, 7, 2]}).tolist() == [1, 3, 5]
    assert make({"values": [1, 2.5]}).tolist() == [1, 2.5]
    assert set(make({"randint": [200], "low": -1, "high": 2}).tolist()) == {-1, 0, 1}
    assert set(make({"randint": [200], "high": 2}).tolist()) == {0, 1}
    uniform, normal = make({"rand": [500]}), make({"randn": [500]})
    assert 0 <= float(uniform.min()) < 0.1
    assert 0.9 < float(uniform.max()) < 1
    assert float(normal.min()) < -1 < 1 < float(normal.max())


@pytest.mark.parametrize(
    "entry",
    [
        {"rand": [9]},
        {"randn": [9]},
        {"randint": [9], "high": 1000},
        {"rand": [3, 3], "strides": [1, 5]},
        {"module": "Linear", "args": [3, 3]},
    ],
)
def test_the_same_seed_gives_the_same_numbers(torch, make, entry):
    def numbers(seed: int) -> Any:
        made = make(entry, seed=seed)
        return made.weight if isinstance(made, torch.nn.Module) else made

    assert torch.equal(numbers(3), numbers(3))
    assert not torch.equal(numbers(3), numbers(4))


def test_a_layout_changes_no_number(torch, make):
    plain = make({"rand": [4, 6]})
    for more in (
        {"strides": [1, 4]},
        {"strides": [8, 1]},
        {"requires_grad": True},
        {"strides": [10, 1]},
    ):
        assert torch.equal(make({"rand": [4, 6], **more}), plain)
    assert torch.equal(
        make({"rand": [1, 2, 3, 4], "memory_format": "channels_last"}), make({"rand": [1, 2, 3, 4]})
    )


@pytest.mark.parametrize("strides", [[6, 1], [1, 4], [8, 1], [1, 9], [2, 16]])
def test_strides_are_those_that_were_asked_for(torch, make, strides):
    made = make({"rand": [4, 6], "strides": strides})
    assert list(made.stride()) == strides
    assert made.untyped_storage().nbytes() >= (3 * strides[0] + 5 * strides[1] + 1) * 4
    assert made._base is None, "a view: torch compiles it otherwise"


def test_the_first_element_stands_for_a_dimension_of_stride_zero(torch, make):
    made = make({"values": [[1, 2], [3, 4]], "strides": [0, 1]})
    assert (made.tolist(), list(made.stride()), made._base) == ([[1, 2], [1, 2]], [0, 1], None)


@pytest.mark.parametrize("dtype", ["float32", "float8_e4m3fn", "bool"])
def test_an_offset_into_the_memory(torch, make, dtype):
    plain = make({"ones": [2, 3], "dtype": dtype, "strides": [1, 2]})
    made = make({"ones": [2, 3], "dtype": dtype, "strides": [1, 2], "storage_offset": 3})
    assert (made.storage_offset(), list(made.stride()), made._base) == (3, [1, 2], None)
    assert made.float().tolist() == plain.float().tolist()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn"])
def test_uniform_numbers_have_the_bounds_that_were_asked_for(make, dtype):
    made = make({"rand": [400], "low": -3, "high": 5, "dtype": dtype}).float()
    assert -3 <= made.min() < -2
    assert 4 < made.max() <= 5
    assert make({"rand": [400], "high": 0.5}).max() <= 0.5


def test_a_list_of_arguments(make):
    first, (second, number) = make([{"ones": [2]}, [{"rand": [3], "repeat": 1}, 7]])
    assert (first.shape[0], second.shape[0], number) == (2, 3, 7)


@pytest.mark.parametrize("strides", [[8, 1], [1, 9], [2, 16]])
def test_holes_stay_when_a_tensor_is_moved_or_copied(torch, make, strides):
    import copy

    moved = make({"rand": [4, 6], "strides": strides}, device="meta")
    assert (moved.device.type, list(moved.stride()), moved._base) == ("meta", strides, None)
    made = make({"rand": [4, 6], "strides": strides, "requires_grad": True})
    assert list(copy.deepcopy(made).stride()) == strides


def test_a_device_of_its_own_wins(torch, make):
    assert make({"rand": [2], "device": "meta"}).device.type == "meta"
    assert make({"rand": [2], "device": "cpu"}, device="meta").device.type == "cpu"
    assert make({"rand": [2], "on_device": True}, device="meta").device.type == "meta"
    assert make({"module": "Linear", "args": [2, 2], "device": "meta"}).weight.device.type == "meta"


def test_a_tensor_that_wants_gradients_is_a_leaf(torch, make):
    for entry in (
        {"rand": [2]},
        {"rand": [2, 2], "strides": [1, 2]},
        {"rand": [1, 2, 3, 4], "memory_format": "channels_last"},
    ):
        made = make({**entry, "requires_grad": True})
        assert made.requires_grad
        assert made.is_leaf
        assert not make({**entry, "requires_grad": False}).requires_grad


def test_modules(torch, make):
    made = make(
        {
            "module": "Linear",
            "args": [3],
            "kwargs": {"out_features": 5, "bias": False},
            "dtype": "float64",
            "eval": True,
        }
    )
    assert isinstance(made, torch.nn.Linear)
    assert (made.weight.shape, made.weight.dtype, made.bias, made.training) == (
        (5, 3),
        torch.float64,
        None,
        False,
    )
    assert make({"module": "Linear", "args": [3, 5]}).training


def test_a_jagged_input_has_the_components_asked_for(torch, make):
    made = make({"jagged": [[2, 3], [4, 3]], "dtype": "float64", "requires_grad": True})
    assert (made.is_nested, made.layout, made.dtype, made.requires_grad) == (
        True,
        torch.jagged,
        torch.float64,
        True,
    )
    assert [list(part.shape) for part in made.unbind()] == [[2, 3], [4, 3]]
    assert (
        make({"jagged": [[2, 3]]}).values().tolist()
        != make({"jagged": [[2, 3]]}, seed=4).values().tolist()
    )


def test_a_called_input_gets_values_of_every_kind(make):
    made = make(
        {
            "call": "pair",
            "args": [{"ones": [2]}, [{"ref": "seven"}]],
            "kwargs": {"c": {"value": {"ones": 1}}},
        },
        names=NAMES,
    )
    assert (made[0].tolist(), made[1], made[2]) == ([1.0, 1.0], [7], {"ones": 1})


NAMES = {"pair": lambda a, b, c: (a, b, c), "seven": 7}
