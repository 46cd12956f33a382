"""Answers that ``close`` must refuse, measured on real tensors; and the reference's answer to other
inputs.
"""

import functools
from typing import Any

import pytest

from tests.fakes import import_torch, reading
from torch_conformance.judge.mutants import Fate
from torch_conformance.model.expectation import Status
from torch_conformance.vocabulary.expectations import EXPECTATIONS, close, comparing
from torch_conformance.vocabulary.expectations.close import NAMES
from torch_conformance.vocabulary.expectations.stand_ins import (
    EQUAL,
    measure_other_inputs,
    measure_stand_ins,
)

pytestmark = pytest.mark.torch

torch: Any = import_torch()

EAGER, OUTPUT = "eager", "output"

NO_OTHER = "no other inputs here"


def measured(
    reference: Any, other: Any = NO_OTHER, *, rtol: float = 1.3e-6, atol: float = 1e-5
) -> dict[str, str]:
    """Return what each stand-in comes to: ``far``, ``near``, or why there is none."""
    against = functools.partial(comparing.differences, rtol=rtol, atol=atol)
    found = measure_stand_ins(reference, rtol=rtol, atol=atol, against=against)
    found["other inputs"] = measure_other_inputs(reference, other, against, atol)
    assert list(found) == list(NAMES)
    return {name: facts.get("why_not") or _how_far(facts, atol) for name, facts in found.items()}


def _how_far(facts: Any, atol: float) -> str:
    assert set(facts) == {"excess", "nan_mismatches", "inf_mismatches"}
    return (
        "far"
        if facts["excess"] > atol or facts["nan_mismatches"] or facts["inf_mismatches"]
        else "near"
    )


FAR = dict.fromkeys(NAMES, "far")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "complex64"])
def test_numbers(dtype: str) -> None:
    reference = torch.tensor([[1.0, 2.0], [3.0, -4.0]], dtype=getattr(torch, dtype))
    rtol, atol = comparing.default_tolerance(dtype)
    assert measured(reference, reference + 1, rtol=rtol, atol=atol) == FAR


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_numbers_that_are_exact(dtype: str) -> None:
    reference = torch.tensor([[1, 0], [0, 0]]).to(getattr(torch, dtype))
    other = torch.tensor([[0, 1], [1, 1]]).to(getattr(torch, dtype))
    assert measured(reference, other, rtol=0, atol=0) == {**FAR, "NaN": "its dtype has no NaN"}


def test_an_exact_claim_about_floats() -> None:
    assert measured(torch.tensor([1e30, 2.0]), rtol=0, atol=0)["one element off"] == "far"


def test_what_equals_the_reference_is_not_applicable() -> None:
    assert measured(torch.zeros(2, 2)) == {
        "zeros": EQUAL,
        "negated": EQUAL,
        "rows swapped": EQUAL,
        "one element off": "far",
        "NaN": "far",
        "other inputs": NO_OTHER,
    }
    assert measured(torch.ones(3, 1).expand(3, 4))["rows swapped"] == EQUAL
    assert measured(torch.ones(2), torch.ones(2))["other inputs"] == EQUAL


def test_rows_are_those_of_the_first_dimension_that_has_several() -> None:
    assert measured(torch.tensor([[[1.0], [2.0]]]))["rows swapped"] == "far"
    assert measured(torch.tensor([[[7.0]]]))["rows swapped"] == "the reference has one row"
    assert measured(torch.tensor(7.0))["rows swapped"] == "the reference has one row"


def test_a_tolerance_that_is_too_wide_lets_them_pass() -> None:
    assert measured(torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.4]), atol=1.0) == {
        **dict.fromkeys(NAMES, "near"),
        "one element off": "far",
        "NaN": "far",
    }


def test_nothing_to_compare() -> None:
    assert measured(torch.empty(0, 3), torch.empty(0, 3)) == dict.fromkeys(
        NAMES, "the reference has no elements"
    )


def test_no_number_is_finite() -> None:
    found = measured(torch.tensor([float("nan"), float("inf")]))
    assert found["NaN"] == found["one element off"] == "the reference has no finite element"
    assert found["zeros"] == found["negated"] == "far"


def test_a_large_tensor_is_measured_in_a_part_and_wholly_where_that_says_nothing() -> None:
    late = torch.zeros(3, 1000, 200)
    late[2, -1, -1] = 5.0
    assert measured(late)["zeros"] == "far"
    assert measured(late)["rows swapped"] == "far"
    sizes = []

    def against(stand_in: Any, reference: Any) -> Any:
        sizes.append(reference.numel())
        return comparing.differences(stand_in, reference, rtol=0, atol=0)

    measure_stand_ins(torch.rand(1000, 1000), rtol=0, atol=0, against=against)
    assert max(sizes) <= 1 << 17
    assert len(sizes) == 5


def test_other_inputs_that_give_another_shape() -> None:
    assert (
        measured(torch.ones(2), torch.ones(3))["other inputs"] == "other inputs give another shape"
    )


# -- measured for an expectation -------------------------------------------------------------------


OTHER = "the answer to other inputs"


def facts(values: dict[str, Any], **arguments: Any) -> Any:
    check = EXPECTATIONS["close"].parse({"to": "eager", "atol": 1e-5, "rtol": 1.3e-6, **arguments})
    measured_facts = close.measure(check.measurement(), values.__getitem__)
    if close.has_other_inputs(check.measurement()):
        close.add_other_inputs(
            measured_facts, check.measurement(), values[check.to], lambda: values[OTHER]
        )
    known = reading(measured=measured_facts)
    assert [one.status for one in check.judge(known)] == [Status.HELD]
    return {
        f"{mutant.name} of {mutant.where}": mutant.why_not or Fate.SURVIVED
        if mutant.facts is None or check.judge(mutant.facts)[0].status is Status.HELD
        else Fate.KILLED
        for mutant in check.mutants(known)
    }


def test_each_leaf_has_its_stand_ins() -> None:
    answer = {"a": torch.rand(3), "b": (torch.zeros(2), 3)}
    other = {"a": torch.rand(3) + 1, "b": (torch.zeros(2), 4)}
    found = facts({OUTPUT: answer, EAGER: answer, OTHER: other})
    assert found["other inputs of output['a']"] is Fate.KILLED
    assert found["other inputs of output['b'][0]"] == EQUAL
    assert found["one element off of output['b'][0]"] is Fate.KILLED
    assert found["another value of output['b'][1]"] is Fate.KILLED


def test_other_inputs_are_asked_of_eager_alone() -> None:
    answer = torch.rand(3)
    found = facts({OUTPUT: answer, "first": answer, OTHER: answer + 1}, to="first")
    assert found["other inputs of output"] == "only eager has a value for other inputs"


def test_nan_where_the_reference_has_it_too() -> None:
    answer = torch.tensor([float("nan"), 1.0, 2.0])
    found = facts({OUTPUT: answer, EAGER: answer, OTHER: answer})
    assert found["NaN of output"] is Fate.KILLED
    assert found["other inputs of output"] == EQUAL
