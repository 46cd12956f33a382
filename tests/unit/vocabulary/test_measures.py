"""What the worker measures of tensors, against torch's own answers: differences, equality,
strides.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes import reading
from tests.json_schemas import validator
from torch_conformance.judge.waiving import Failure
from torch_conformance.model.expectation import Status
from torch_conformance.model.protocol import decode, dumps, encode, loads
from torch_conformance.model.waivers import Signature
from torch_conformance.tools.author.commands.waive import signature_of
from torch_conformance.vocabulary.expectations import EXPECTATIONS, comparing
from torch_conformance.vocabulary.expectations.comparing import default_tolerance

pytestmark = pytest.mark.torch

NAN, INF = math.nan, math.inf


def judged(kind: str, body: Any, **values: Any) -> Any:
    """Measure as the worker does, send it over the pipe, judge it as the runner does."""
    check = EXPECTATIONS[kind].parse(body)
    arguments = decode(loads(dumps(encode(check.measurement()))))
    measured = decode(
        loads(dumps(encode(EXPECTATIONS[kind].measure(arguments, values.__getitem__))))
    )
    (judgement,) = check.judge(reading(measured=measured))
    return judgement


def test_the_peak_of_memory_is_of_what_lives_at_one_time(torch: Any) -> None:
    from torch_conformance.worker.torch_compat.device_modules import DeviceApi

    def peak(allocate: Callable[[], Any]) -> int:
        sizes: list[int] = []
        with DeviceApi("cpu").peak_memory(sizes):
            allocate()
        return sizes[0]

    def one_after_the_other() -> None:
        for _ in range(3):
            torch.empty(1 << 16)

    before = [torch.empty(1 << 20)]
    size = 4 << 16
    assert peak(lambda: None) == 0
    assert peak(lambda: torch.empty(1 << 16)) == size
    assert peak(lambda: [torch.empty(1 << 16) for _ in range(3)]) == 3 * size
    assert peak(one_after_the_other) == size
    assert peak(before.clear) == 0  # what was there before the call is not counted


def close(output: Any, eager: Any, **options: Any) -> Any:
    return judged("close", {"to": "first", **options}, output=output, first=eager)


PAIRS: dict[str, tuple[str, Any, Any]] = {
    "float32 same": ("float32", [1.0, -2.0, 0.0], [1.0, -2.0, 0.0]),
    "float32 near": ("float32", [1.0, 1000.0], [1.000001, 1000.001]),
    "float32 far": ("float32", [1.0, 2.0], [1.0, 2.001]),
    "float32 near zero": ("float32", [9e-6], [0.0]),
    "float32 off zero": ("float32", [1.1e-5], [0.0]),
    "float32 near large": ("float32", [1e6], [1e6 + 1]),
    "float32 far large": ("float32", [1e6], [1e6 + 2]),
    "float64 near": ("float64", [1.0], [1.0 + 1e-8]),
    "float64 far": ("float64", [1.0], [1.0 + 1e-5]),
    "float16 near": ("float16", [1.0], [1.001]),
    "float16 far": ("float16", [1.0], [1.01]),
    "bfloat16 near": ("bfloat16", [1.0, 100.0], [1.0078125, 101.0]),
    "bfloat16 far": ("bfloat16", [1.0], [1.0625]),
    "int same": ("int64", [1, -5], [1, -5]),
    "int one off": ("int64", [1, 2], [1, 3]),
    "large ints one off": ("int64", [2**53 + 1], [2**53]),
    "largest ints one off": ("int64", [2**63 - 1], [2**63 - 2]),
    "ints at both ends": ("int64", [2**63 - 1], [-(2**63)]),
    "int8 at both ends": ("int8", [127], [-128]),
    "uint8 same": ("uint8", [0, 255], [0, 255]),
    "uint8 far": ("uint8", [0], [255]),
    "bool same": ("bool", [True, False], [True, False]),
    "bool other": ("bool", [True, False], [True, True]),
    "complex near": ("complex64", [1 + 1j], [1.000001 + 1j]),
    "complex imaginary off": ("complex64", [1 + 1j], [1 + 1.01j]),
    "complex128 far": ("complex128", [1 + 1j], [1 + 1.0001j]),
    "complex nan": ("complex64", [complex(NAN, 0)], [complex(NAN, 0)]),
    "complex nan on one side": ("complex64", [complex(0, NAN)], [0j]),
    "float8 same": ("float8_e4m3fn", [1.0, 2.0], [1.0, 2.0]),
    "float8 other": ("float8_e4m3fn", [1.0, 2.0], [1.0, 2.25]),
    "float8_e5m2 other": ("float8_e5m2", [1.0], [1.25]),
    "float8_e5m2 infinite": ("float8_e5m2", [INF], [INF]),
    "nan in one place": ("float32", [NAN, 1.0], [NAN, 1.0]),
    "nan in two places": ("float32", [NAN, 1.0], [1.0, NAN]),
    "nan on the left": ("float32", [NAN, 1.0], [1.0, 1.0]),
    "nan on the right": ("float32", [1.0, 1.0], [NAN, 1.0]),
    "infinity in one place": ("float32", [INF, -INF], [INF, -INF]),
    "infinities of two signs": ("float32", [INF], [-INF]),
    "infinity on the left": ("float32", [INF, 1.0], [1.0, 1.0]),
    "infinity on the right": ("float32", [3e38, 1.0], [INF, 1.0]),
    "nan against infinity": ("float32", [NAN], [INF]),
    "infinity against nan": ("float32", [INF], [NAN]),
    "all three": ("float32", [NAN, INF, 1.0], [NAN, INF, 1.0]),
    "all three and one off": ("float32", [NAN, INF, 1.0], [NAN, INF, 1.1]),
    "float64 overflows": ("float64", [1e308], [-1e308]),
    "subnormal": ("float32", [1e-45], [0.0]),
    "empty": ("float32", [], []),
    "scalar same": ("float32", 1.5, 1.5),
    "scalar off": ("float32", 1.5, 1.6),
    "matrix": ("float32", [[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0, 4.5]]),
    "no columns": ("float32", [[], []], [[], []]),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("equal_nan", [True, False])
def test_the_verdict_is_that_of_allclose(torch, name, equal_nan):
    dtype, left, right = PAIRS[name]
    a, b = (
        torch.tensor(value, dtype=torch.float32 if "float8" in dtype else None).to(
            getattr(torch, dtype)
        )
        for value in (left, right)
    )
    rtol, atol = default_tolerance(dtype)
    wide = torch.float64 if a.is_floating_point() else a.dtype
    expected = torch.allclose(a.to(wide), b.to(wide), rtol=rtol, atol=atol, equal_nan=equal_nan)
    judgement = close(a, b, equal_nan=equal_nan)
    assert judgement.status is (Status.HELD if expected else Status.FAILED), judgement


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "complex64", "complex128"]
)
def test_random_numbers_about_the_bound(torch, dtype):
    generator = torch.Generator().manual_seed(5)
    kind = getattr(torch, dtype)
    rtol, atol = default_tolerance(dtype)
    base = torch.randn(200, generator=generator, dtype=torch.float64).to(kind)
    held = 0
    for factor in (0.5, 0.9, 1.1, 2.0):
        shifted = (base + (atol + rtol * base.abs()) * factor).to(kind)
        for a, b in zip(shifted.split(10), base.split(10), strict=True):
            wide = torch.complex128 if a.is_complex() else torch.float64
            expected = torch.allclose(a.to(wide), b.to(wide), rtol=rtol, atol=atol)
            assert (close(a, b).status is Status.HELD) is expected
            held += expected
    assert 0 < held < 80


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.t(),
    "every other": lambda x: x[::2, 1::2],
    "flipped": lambda x: x.flip(0),
    "expanded": lambda x: x[:1].expand(4, 6),
    "permuted": lambda x: x.reshape(2, 2, 6).permute(2, 0, 1),
    "channels last": lambda x: x.reshape(1, 2, 2, 6),
    "offset": lambda x: x.reshape(-1)[5:17].view(3, 4),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_worst_element_is_named_by_its_index_in_any_layout(torch, layout):
    reference = LAYOUTS[layout](torch.arange(24.0).reshape(4, 6))
    actual = reference.clone()
    index = tuple(size - 1 for size in actual.shape)
    actual[index] += 10
    actual[(0,) * actual.ndim] += 5
    facts = comparing.differences(actual, reference, rtol=0.0, atol=1.0)
    assert tuple(facts["worst_index"]) == index
    assert facts["worst_value"] == float(actual[index])
    assert facts["worst_reference"] == float(reference[index])
    assert (facts["max_abs"], facts["excess"]) == (10.0, 10.0)
    assert facts["mismatches"] == 2


def test_the_worst_is_what_exceeds_the_tolerance_most_not_what_differs_most(torch):
    facts = comparing.differences(
        torch.tensor([1000.0, 1.0]), torch.tensor([1010.0, 2.0]), rtol=0.01, atol=0.0
    )
    assert facts["worst_index"] == [1]
    assert facts["max_abs"] == 10.0


def test_nan_equals_nan_unless_it_is_said_otherwise(torch):
    nan = torch.tensor([NAN])
    assert close(nan, nan.clone()).status is Status.HELD
    assert (
        "first in 1: with equal_nan: false these differ"
        in close(nan, nan.clone(), equal_nan=False).observed
    )
    assert comparing.differences(nan, nan.clone(), rtol=0.0, atol=0.0)["nan_mismatches"] == 0


def test_infinities_and_nan_are_counted_apart_from_differences(torch):
    a = torch.tensor([INF, 1.0, INF, NAN, -INF, NAN, 2.0, INF])
    b = torch.tensor([1.0, -INF, -INF, NAN, -INF, 1.0, 5.0, NAN])
    facts = comparing.differences(a, b, rtol=0.5, atol=0.25)
    assert (facts["inf_mismatches"], facts["nan_mismatches"], facts["mismatches"]) == (3, 2, 1)
    assert (facts["worst_index"], facts["excess"], facts["max_abs"]) == ([6], 0.5, 3.0)
    assert close(a, b).observed.startswith(
        "output has NaN in 2 of 8 elements, first in 2, at other places; output has inf in 3"
    )
    assert (
        close(a[:3], b[:3]).observed
        == "output has inf in 2 of 3 elements, first in none; first has -inf in 2 of 3 elements, "
        "output in none"
    )


def test_what_differs_by_the_tolerance_itself_is_no_mismatch(torch):
    facts = comparing.differences(
        torch.tensor([1.5, 1.75]), torch.tensor([1.0, 1.0]), rtol=0.0, atol=0.5
    )
    assert (facts["mismatches"], facts["excess"]) == (1, 0.75)


def test_a_scalar_has_an_empty_index(torch):
    facts = comparing.differences(torch.tensor(1.0), torch.tensor(2.0), rtol=0.0, atol=0.0)
    assert (facts["worst_index"], facts["excess"], facts["mismatches"]) == ([], 1.0, 1)


@pytest.mark.parametrize("place", [0, 6, 7, 8, 13, 14, 19])
def test_chunks_are_seen_as_one(torch, monkeypatch, place):
    monkeypatch.setattr(comparing, "_CHUNK", 7)
    a, b = torch.zeros(4, 5), torch.zeros(4, 5)
    a.view(-1)[place] = 3.0
    a.view(-1)[(place + 7) % 20] = 1.0
    a[3, 4] = NAN if place != 19 else 3.0
    facts = comparing.differences(a, b, rtol=0.0, atol=0.5)
    assert facts["worst_index"] == [place // 5, place % 5]
    assert (facts["excess"], facts["worst_value"]) == (3.0, 3.0)
    assert facts["nan_mismatches"] == (place != 19)
    assert facts["mismatches"] == int(((a - b).abs() > 0.5).sum())


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        (2**63 - 1, -(2**63), 2.0**64),
        (2**53 + 1, 2**53, 1.0),
        (-1, 1, 2.0),
        (-(2**40), 3, 2.0**40 + 3),
        (5, 5, 0.0),
    ],
)
def test_integers_are_subtracted_as_such(torch, a, b, distance):
    facts = comparing.differences(torch.tensor([a]), torch.tensor([b]), rtol=0.0, atol=0.0)
    assert facts["max_abs"] == distance


def test_lazily_conjugated_tensors(torch):
    value = torch.tensor([1 + 2j])
    assert close(value.conj(), torch.tensor([1 - 2j])).status is Status.HELD
    assert close(value.conj(), value).status is Status.FAILED


def test_structures_are_walked(torch):
    one = torch.ones(2)
    for left, right, status in (
        ((one, [one, {"a": one}]), (one, [one, {"a": one}]), Status.HELD),
        ((one, [one, {"a": one}]), (one, [one, {"a": one + 1}]), Status.FAILED),
        ((one, one), [one, one], Status.FAILED),
        ((one,), (one, one), Status.FAILED),
        ({"a": one}, {"b": one}, Status.FAILED),
        ({"a": one, "b": one}, {"b": one, "a": one}, Status.FAILED),
        ((one, None), (one, None), Status.HELD),
        ((one, None), (one, one), Status.FAILED),
        ((None, one), (one, one), Status.FAILED),
        ((one, 3, "a", True, 0.5), (one, 3, "a", True, 0.5), Status.HELD),
        ((one, 3), (one, 4), Status.FAILED),
        ((one, 3), (one, 3.0), Status.FAILED),
        ((one, True), (one, 1), Status.FAILED),
        ((one, NAN), (one, NAN), Status.HELD),
        ((one, NAN), (one, 1.0), Status.FAILED),
        ((one, 1.0), (one, NAN), Status.FAILED),
        ((), (), Status.ERROR),
        (None, None, Status.ERROR),
        ([None, None], [None, None], Status.ERROR),
    ):
        assert close(left, right).status is status, (left, right)
    judgement = close({"result": one, "gradients": (one, one), "none": []}, (one, [one]))
    assert judgement.expected == "output is a tuple (a value, a list of 1 value)"
    assert (
        judgement.observed
        == "a dict with 'result', 'gradients' (a tuple of 2 values), 'none' (an empty list)"
    )


@pytest.mark.parametrize(
    ("left", "right", "fact"),
    [([1.0], [[1.0]], "shape"), ([1.0], [1.0, 1.0], "shape"), ([1.0], [1], "dtype")],
)
def test_what_broadcasts_or_promotes_is_not_close(torch, left, right, fact):
    judgement = close(torch.tensor(left), torch.tensor(right))
    assert judgement.status is Status.FAILED
    assert f"of {fact}" in judgement.expected


def test_the_stated_tolerance_is_the_one_that_is_used(torch):
    a, b = torch.tensor([1.0]), torch.tensor([1.5])
    assert close(a, b, atol=0.5, rtol=0).status is Status.HELD
    assert close(a, b, atol=0.4375, rtol=0).status is Status.FAILED
    assert close(a, b, atol=0, rtol=0.34).status is Status.HELD
    assert close(a, b, atol=0, rtol=0.33).status is Status.FAILED
    assert close(a, b, atol=1e300, rtol=0).status is Status.HELD


def test_a_waiver_of_errors_that_go_one_way_is_for_no_others(torch):
    right = torch.linspace(-3, 3, 64).sin()

    def numbers(wrong: Any) -> Any:
        return close(wrong, right, atol=1e-6, rtol=0).wrong[0].numbers

    def covers(waived: Any, other: Any) -> bool:
        proposed: Any = signature_of(Failure("close", "a", "", numbers(waived)))
        signature = Signature(
            "close", "a", numbers={"error": proposed["error"], **proposed["answer"]}
        )
        return signature.covers(numbers(other))

    for wrong in (
        lambda part: right + part,
        lambda part: right * (1 + part),
        lambda part: right + part * right.sgn(),
    ):
        assert covers(wrong(1e-3), wrong(3e-3))
        assert not covers(wrong(1e-3), wrong(-1e-3))
        assert not covers(wrong(-1e-3), wrong(1e-3))
    both_ways = torch.linspace(0, 1000, 64).sin() / 1000
    assert set(numbers(right + both_ways)) == {"error", "share", "nonfinite", "size", "likeness"}
    assert covers(right + both_ways, right - both_ways)
    assert covers(
        right - both_ways, right + 1e-3
    )  # an earlier file of waivers names no direction either
    assert (
        "bias"
        not in close(torch.tensor([1.0, 2.0, 2.9]), torch.tensor([1.0, 2.0, 3.0])).wrong[0].numbers
    )


def test_words_that_nothing_emits(torch):
    known = [
        "sqrt",
        "extern_kernels",
        "triton_poi_fused_add_native_layer_norm_",
        "_frozen_param",
        "cpp_fused",
    ]
    whole = (
        "sqrrXtt",
        "extern_kernXles",
        "triton_poi_fused_ad_native_layer_nrXom",
        "_frozen_paXrm",
        "convolutXoin",
    )
    misspelt = [word.replace("X", "") for word in whole]  # this file, too, is a loaded module
    assert EXPECTATIONS["filecheck"].measure({"words": [*known, *misspelt]}, {}.__getitem__) == {
        "unknown": misspelt
    }


# -- equality --------------------------------------------------------------------------------------


def equal(left: Any, right: Any) -> Any:
    return judged("equals", {"a": {"ref": "b"}}, a=left, b=right)


def tensors(torch: Any) -> list[tuple[Any, Any, bool]]:
    one = torch.tensor([1.0, NAN, -0.0])
    return [
        (one, one.clone(), True),
        (one, torch.tensor([1.0, NAN, 0.0]), False),
        (one, torch.tensor([1.0, 2.0, -0.0]), False),
        (one, one.double(), False),
        (one, one.reshape(1, 3), False),
        (one, one[:2], False),
        (torch.tensor([1e-45]), torch.tensor([0.0]), False),
        (
            torch.tensor([1.0], dtype=torch.bfloat16),
            torch.tensor([1.0], dtype=torch.bfloat16),
            True,
        ),
        (
            torch.tensor([1.0], dtype=torch.float16),
            torch.tensor([1.001], dtype=torch.float16),
            False,
        ),
        (torch.tensor([1, 2]), torch.tensor([1, 2]), True),
        (torch.tensor([2**53 + 1]), torch.tensor([2**53]), False),
        (torch.tensor([True]), torch.tensor([False]), False),
        (torch.tensor([1 + 1j, complex(NAN, 1)]), torch.tensor([1 + 1j, complex(NAN, 1)]), True),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 2j]), False),
        (torch.tensor([1 + 1j]).conj(), torch.tensor([1 - 1j]), True),
        (
            torch.tensor([1.0, NAN]).to(torch.float8_e4m3fn),
            torch.tensor([1.0, NAN]).to(torch.float8_e4m3fn),
            True,
        ),
        (
            torch.tensor([1.0]).to(torch.float8_e5m2),
            torch.tensor([1.25]).to(torch.float8_e5m2),
            False,
        ),
        (torch.zeros(0), torch.zeros(0), True),
        (torch.zeros(0), torch.zeros(0, 2), False),
        (torch.tensor(1.0), torch.tensor(1.0), True),
        (
            torch.arange(6.0).reshape(2, 3).t(),
            torch.arange(6.0).reshape(2, 3).t().contiguous(),
            True,
        ),
        (torch.ones(2, requires_grad=True), torch.ones(2), True),
        ([one, {"k": 1}], [one.clone(), {"k": 1}], True),
        ([one, {"k": 1}], [one.clone(), {"k": 2}], False),
        ([one, 1], [one, 1.0], False),
        ([one], (one,), False),
        (1, True, False),
        ("a", "a", True),
        (None, None, True),
        (one, None, False),
    ]


def test_equality_is_exact(torch):
    for left, right, expected in tensors(torch):
        assert equal(left, right).status is (Status.HELD if expected else Status.FAILED), (
            left,
            right,
        )
        differs = judged("differs", {"a": {"ref": "b"}}, a=left, b=right)
        assert differs.status is (Status.FAILED if expected else Status.HELD), (left, right)


def test_what_differs_in_form_could_not_have_failed(torch):
    one, size = torch.ones(3), torch.Size([2])
    rows = [
        (one, {"ref": "b"}, one * 2, ""),
        (one, {"ref": "b"}, one[:2], "shape [3], torch.float32 against shape [2], torch.float32"),
        (
            one,
            {"ref": "b"},
            one.double(),
            "shape [3], torch.float32 against shape [3], torch.float64",
        ),
        ([one, 1], {"ref": "b"}, [one, 1.5], ""),
        ([one, 1], {"ref": "b"}, [one], "2 elements against 1"),
        ([one], {"ref": "b"}, (one,), "list against tuple"),
        ({"k": [1]}, {"ref": "b"}, {"k": []}, "1 elements against 0"),
        ({"k": 1}, {"ref": "b"}, {"l": 1}, "other keys"),
        (1, {"ref": "b"}, None, ""),
        (size, [3], None, ""),
        (size, [2, 1], None, "1 elements against 2"),
        ([1], [], None, ""),  # it may be empty, and a tensor of a shape may not
        (one, [], None, "3 elements against 0"),
        (one, [1.0, 2.0, 3], None, ""),
        (torch.tensor(1), 2.5, None, ""),
        ({"k": (1, "a")}, {"k": [1, 2]}, None, "str against number"),
    ]
    for left, other, right, form in rows:
        measured = EXPECTATIONS["differs"].measure(
            {"pairs": {"a": other}}, {"a": left, "b": right}.__getitem__
        )
        mutants = EXPECTATIONS["differs"].parse({"a": other}).mutants(reading(measured=measured))
        assert [one.where for one in mutants if one.name == "any value of its form"] == (
            [f"a: {form}"] if form else []
        ), (left, other)


def test_two_empty_values_cannot_be_compared(torch):
    assert equal([], []).status is Status.ERROR
    assert equal({}, {}).status is Status.ERROR


def test_values_against_what_is_written(torch):
    for value, written, status in (
        (torch.tensor([[1.0, NAN]]), [[1.0, NAN]], Status.HELD),
        (torch.tensor([[1.0, 2.0]]), [1.0, 2.0], Status.FAILED),
        (torch.tensor([True]), [True], Status.HELD),
        (torch.tensor([1]), [True], Status.FAILED),
        (torch.tensor(3), 3, Status.HELD),
        (torch.Size([2, 3]), [2, 3], Status.HELD),
        ((1, (2, torch.tensor([5]))), [1, [2, [5]]], Status.HELD),
        ({"a": torch.Size([1])}, {"a": [1]}, Status.HELD),
        ({"a": torch.tensor([1.5])}, {"a": [1.5]}, Status.HELD),
        (INF, INF, Status.HELD),
        (torch.tensor([0.1]).item(), 0.1, Status.FAILED),
        ("text", "text", Status.HELD),
        (None, None, Status.HELD),
        (torch.float32, "torch.float32", Status.FAILED),
        (torch.zeros(10_001), [0.0] * 10_001, Status.FAILED),
        (torch.zeros(10_000), [0.0] * 10_000, Status.HELD),
        (torch.ones(1, requires_grad=True), [1.0], Status.HELD),
    ):
        assert judged("equals", {"a": written}, a=value).status is status, value


# -- strides ---------------------------------------------------------------------------------------


def test_strides_are_those_of_torch(torch):
    x = torch.empty_strided((2, 3), (1, 7))
    assert judged("strides", {"equals": [1, 7]}, output=x).status is Status.HELD
    assert judged("strides", {"equals": [3, 1]}, output=x).status is Status.FAILED
    assert judged("strides", {"contiguous": True}, output=x).status is Status.FAILED
    assert judged("strides", {"contiguous": True}, output=x.contiguous()).status is Status.HELD
    assert judged("strides", {"of": "y", "equals": [3, 1]}, y=x.contiguous()).status is Status.HELD


def test_memory_formats_are_those_of_torch(torch):
    image = torch.zeros(2, 3, 4, 5)
    video = torch.zeros(2, 3, 4, 5, 6)
    for value, name in ((image, "channels_last"), (video, "channels_last_3d")):
        last = value.to(memory_format=getattr(torch, name))
        assert judged("strides", {"contiguous": name}, output=last).status is Status.HELD
        assert (
            judged("strides", {"contiguous": "contiguous_format"}, output=last).status
            is Status.FAILED
        )
        assert judged("strides", {"contiguous": name}, output=value).status is Status.FAILED
    assert judged("strides", {"contiguous": "channels_last"}, output=video).status is Status.FAILED
    assert (
        judged("strides", {"contiguous": "channels_last"}, output=torch.zeros(3)).status
        is Status.FAILED
    )


def test_tensors_are_counted_and_other_values_are_not(torch):
    row, column = torch.zeros(2, 3), torch.zeros(3, 2).t()
    output = (row, 5, {"a": column}, None)
    assert judged("strides", {"output": 1, "equals": [1, 2]}, output=output).status is Status.HELD
    assert judged("strides", {"output": 2, "equals": [1, 2]}, output=output).status is Status.ERROR
    assert judged("strides", {"equals": [3, 1]}, output=5).status is Status.ERROR
    assert judged("strides", {"equals": []}, output=torch.tensor(1.0)).status is Status.HELD


@pytest.mark.parametrize(
    ("value", "reference", "words", "held"),
    [
        (1e-6, 1e-6, {"exact": True}, True),
        (9e-6, 1e-6, {"exact": True}, False),
        (1.000001, 1.0, {}, True),
        (9e-6, 1e-6, {}, False),
        (0.0, -0.0, {"exact": True}, False),
        (NAN, NAN, {"exact": True}, True),
        (1 + 1j, 1 + 1.0000000000000002j, {"exact": True}, False),
    ],
)
def test_plain_floats_are_judged_by_the_words_of_close(value, reference, words, held):
    assert (close([value], [reference], **words).status is Status.HELD) is held


@pytest.mark.parametrize(("dtype", "payload"), [("float32", 0x7FC00001), ("float16", 0x7E01)])
def test_the_bits_of_nan_are_compared_where_that_is_asked(torch, dtype, payload):
    whole = {"float32": torch.int32, "float16": torch.int16}[dtype]
    one, other = (
        torch.tensor([0, payload - bit], dtype=whole).view(getattr(torch, dtype)) for bit in (0, 1)
    )
    assert close(one, other, exact=True).status is Status.HELD
    assert close(one, one.clone(), exact="bits").status is Status.HELD
    judgement = close(one, other, exact="bits")
    assert judgement.status is Status.FAILED
    assert "nan of the bytes [1, " in judgement.observed


@dataclasses.dataclass
class One:
    value: Any


@dataclasses.dataclass
class Two:
    value: Any


@pytest.mark.filterwarnings("ignore")  # torch's sparse and nested tensors are in beta
def test_layouts_and_dataclasses_of_results_are_compared(torch):
    x = torch.eye(3)
    forms = [
        x,
        x.to_sparse(),
        x.to_sparse_csr(),
        One(x),
        Two(x),
        One(x.to_sparse()),
        torch.nested.nested_tensor([x]),
        (x,),
    ]
    for index, one in enumerate(forms):
        for other_index, other in enumerate(forms):
            judgement = close([one], [other], exact=True)
            assert (judgement.status is Status.HELD) is (index == other_index), (index, other_index)
    assert "[0] torch.sparse_coo" in close([x], [x.to_sparse()]).expected
    assert (
        "[0] of class test_measures.One, [0]['value'] torch.sparse_coo"
        in close([forms[4]], [forms[5]]).expected
    )


@pytest.mark.parametrize(
    ("shape", "wrong"),
    [((3,), 2), ((5000,), 4321), ((1000, 7), 6999), ((3, 900, 40), 77), ((2, 100_000), 199_999)],
)
def test_a_picture_is_bounded_and_shows_where_an_element_is_wrong(
    torch: Any, shape: tuple[int, ...], wrong: int
) -> None:
    eager = torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape)
    answer, error = eager.clone(), torch.zeros(shape)
    answer.view(-1)[wrong], error.view(-1)[wrong] = torch.nan, torch.nan
    seen = comparing.picture(answer, eager, error)
    count = len(seen["errors"])
    assert count == len(seen["values"]) == len(seen["eager_values"]) <= 1024
    assert count % seen["columns"] == 0
    height, width = seen["size"]
    row, column = divmod(wrong, width)
    place = row * (count // seen["columns"]) // height * seen["columns"]
    place += column * seen["columns"] // width
    assert [at for at, found in enumerate(seen["errors"]) if found] == [place]
    assert seen["eager_values"][place] == float(f"{wrong:.4g}")


def test_a_picture_shows_what_float64_or_a_bound_of_zero_would_hide(torch: Any) -> None:
    leaf = validator("observation").evolve(schema={"$ref": "observation.schema.json#/$defs/leaf"})
    whole = torch.tensor([[2**60, 2**60]])
    narrow = torch.tensor([[0.25, 0.5]], dtype=torch.float8_e4m3fn)
    pairs = [
        (whole + torch.tensor([[0, 1]]), whole),
        (torch.tensor([[0.25, 0.625]]).to(narrow.dtype), narrow),
        (torch.tensor([[True, False]]), torch.tensor([[True, True]])),
        (torch.tensor([[3j, -2j]]), torch.tensor([[3j, 2j]])),
        (torch.tensor([[3.0, math.nan]]).to_sparse(), torch.tensor([[3.0, 2.0]]).to_sparse()),
    ]
    arguments = {"rtol": 0.0, "atol": 0.0, "equal_nan": True}
    for actual, reference in pairs:
        sides = map(comparing.unnested, (actual, reference))
        picture = comparing.describe_leaf(*sides, arguments)["picture"]
        assert picture["errors"] == [0.0, math.inf], actual
        leaf.validate({"picture": encode(picture)})
        assert not leaf.is_valid({"picture": {**encode(picture), "values": [0] * 1025}})
    one = comparing.describe_leaf(torch.tensor(1.0), torch.tensor(2.0), arguments)["picture"]
    assert (one["columns"], one["size"], one["values"]) == (1, [1, 1], [1.0])
    empty = comparing.describe_leaf(torch.empty(0, 3), torch.empty(0, 3), arguments)
    assert "picture" not in empty
