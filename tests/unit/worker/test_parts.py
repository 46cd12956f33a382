"""Parts of values, and values of the case in options and contexts, in the worker."""

import contextlib
from collections import namedtuple
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

Pair = namedtuple("Pair", "left right")


@pytest.fixture(scope="module")
def parts(torch: Any) -> Any:
    from torch_conformance.worker.case import scope

    return scope


@pytest.mark.parametrize(
    ("found", "path", "wanted"),
    [
        ((1, (2, 3)), "1.0", 2),
        ([{"loss": 5}], "0.loss", 5),
        ({"a": {"b": 7}}, "a.b", 7),
        ({0: "zero"}, "0", "zero"),
        ({"0": "text", 0: "number"}, "0", "text"),
        (Pair(1, 2), "right", 2),
        (Pair(1, 2), "0", 1),
        ({}, "keys", {}.keys),
        (4, "real", 4),
    ],
)
def test_a_path_leads_through_keys_indices_and_attributes(parts, found, path, wanted):
    got = parts.follow(found, path)
    assert got() == wanted() if callable(wanted) else got == wanted


@pytest.mark.parametrize(
    ("found", "path", "message"),
    [
        ((1, 2), "2", "out has no part '2': it is a tuple of 2, 0 to 1"),
        ((), "0", "out has no part '0': it is a tuple of 0"),
        (
            Pair(1, 2),
            "up",
            "out has no part 'up': it is a Pair of 2, 0 to 1, also called left, right",
        ),
        ({"logits": 1}, "loss", "out has no part 'loss': it is a dict with the keys logits"),
        ({}, "0", "out has no part '0': it is an empty dict"),
        (((1,),), "0.0.real.3", "out.0.0.real has no part '3': it is a int"),
        ("text", "uper", "out has no part 'uper': it is a str (did you mean 'upper'?)"),
    ],
)
def test_a_part_that_is_not_there_is_an_error_that_names_what_is(parts, found, path, message):
    with pytest.raises(parts.MissingPart) as raised:
        parts.follow(found, path, "out")
    assert str(raised.value).startswith(message)


def test_a_tensor_is_one_value_and_not_its_rows(parts, torch):
    with pytest.raises(
        parts.MissingPart, match=r"out has no part '0': it is a tensor of shape \[4, 2\]"
    ):
        parts.follow(torch.zeros(4, 2), "0", "out")
    assert parts.follow(torch.zeros(4, 2), "shape.1") == 2


def test_references_are_replaced_at_any_depth_and_other_maps_are_data(parts):
    named = {"f": 1, "g.h": 2}.__getitem__
    value = {"a": {"ref": "f"}, "b": [{"ref": "g.h"}, {"ref": "f", "more": 1}], "c": "ref"}
    assert parts.resolved(value, named) == {"a": 1, "b": [2, {"ref": "f", "more": 1}], "c": "ref"}


def test_a_context_is_an_object_or_what_a_function_makes_for_each_call(parts, torch):
    made = []

    @contextlib.contextmanager
    def fresh():
        made.append(1)
        yield

    names = {"again": torch.no_grad(), "fresh": fresh, "three": 3, "returns_three": lambda: 3}
    scope = parts.Scope(names, "cpu", contextlib.ExitStack())
    enter = scope.entering([{"ref": "again"}, {"ref": "fresh"}])
    for count in (1, 2):
        with enter():
            assert not torch.is_grad_enabled()
        assert made == [1] * count
    for name in ("three", "returns_three"):
        with (
            pytest.raises(
                TypeError, match="a int in 'context' is neither a context manager nor a function"
            ),
            scope.entering([{"ref": name}])(),
        ):
            pass
