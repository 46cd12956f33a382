"""The additional runs of eager: one set for all that is compared after a call."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from torch_conformance.worker.case.additional import EagerCall, EagerRuns
from torch_conformance.worker.case.sides import ReferenceCall
from torch_conformance.worker.case.state import Generators

MOST = 1 + 1 + 2 * 11 + 8 + 8
"""Eager again, in float64, pairs of nudged inputs, other roundings, fine ones."""


def of_a_step(made: list[torch.dtype], *, refuses: bool = False) -> list[EagerRuns]:
    """Return the runs of a call and of a step after it, which may refuse float64."""

    class Steps(ReferenceCall):
        def stages(self, called: list[Any], around: AbstractContextManager[Any]) -> Iterator[Any]:
            with around:
                result = called[0](called[1])
            made.append(called[1].dtype)
            yield result
            if refuses and called[1].dtype is torch.float64:
                raise TypeError("it is for float32")
            yield result * 0.1

    call = EagerCall(
        nullcontext,  # type: ignore[arg-type]  # it records nothing
        Steps(Generators.now(), nullcontext, [torch.sin, torch.rand(9)]),
        compared=[(0, lambda result, called: result), (1, lambda result, called: [result])],
    )
    return [EagerRuns(call), EagerRuns(call, 1)]


def test_all_that_is_compared_after_a_call_shares_its_runs() -> None:
    made: list[torch.dtype] = []
    for runs in of_a_step(made):
        answers = runs.answers(torch.rand(9))
        assert answers.fine is not None
        assert len(answers.fine()) == 8
        assert (len(answers.pairs), len(answers.jittered), answers.why_not) == (12, 8, "")
    assert len(made) == MOST


def test_a_step_that_refuses_float64_leaves_the_call_its_reference() -> None:
    of_call, of_step = of_a_step([], refuses=True)
    assert of_call.answers(torch.rand(9)).why_not == ""
    answers = of_step.answers(torch.rand(9))
    assert answers.why_not == "the function refuses float64: TypeError: it is for float32"
    assert (len(answers.pairs), len(answers.jittered)) == (0, 8)
