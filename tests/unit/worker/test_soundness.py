"""What a trial of a fact is compared with, and when its answer is unsound; no case is run."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
soundness = pytest.importorskip("torch_conformance.worker.case.soundness")


def trial(distance: int, fresh: dict[str, Any], **changes: Any) -> dict[str, Any]:
    known = {"recompiled": False, "refused": False, "difference": "eager 5, compiled 2"}
    return {"distance": distance, "fresh": fresh, **known, **changes}


NEW = {"distance": 0, "raised": False}


@pytest.mark.parametrize(
    ("found", "is_unsound"),
    [
        (trial(2, NEW), True),
        (trial(1, NEW), True),  # the bits of a new compile are eager's
        (trial(1, NEW, recompiled=True), False),  # rounding of another graph
        (trial(2, {"distance": 2, "raised": False}), False),  # wrong in each process
        (trial(2, {"distance": 0, "raised": True}), False),  # a call that cannot be compiled
        (trial(2, {"distance": 0, "raised": True}, refused=True), True),  # eager refuses it too
    ],
)
def test_an_answer_is_unsound_where_a_new_compile_is_nearer(
    found: dict[str, Any], is_unsound: bool
) -> None:
    assert soundness._is_unsound(found) is is_unsound


def test_a_process_that_dies_after_a_change_is_compared_with_a_new_compile() -> None:
    found = {"died": True, "why": "its process ended with -11"}
    assert soundness._is_suspect(found)
    assert found["difference"] == "its process ended with -11"
    assert not soundness._is_suspect({"distance": 0})


def test_what_rounding_may_change_is_that_of_the_dtype_of_autocast() -> None:
    values = torch.tensor([75.0]), torch.tensor([74.75])
    assert not soundness._is_near(*values)
    with torch.autocast("cpu", torch.bfloat16):
        assert soundness._is_near(*values)
        assert not soundness._is_near(torch.tensor([75.0]), torch.tensor([60.0]))
