"""Facts of the machine that only torch can tell: what predicates answer, and what oneDNN computes."""

import pytest

from runner.machine.capabilities import HOLDS
from tests.fakes import import_torch

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", autouse=True)
def torch() -> None:
    import_torch()


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("torch.distributed.is_available", HOLDS),
        ("torch.is_inference_mode_enabled", "returned False"),
        ("torch:is_inference_mode_enabled", "returned False"),
        ("torch.get_num_threads", "returned a value of type int, not True or False"),
        ("torch.no_such_predicate", "raised AttributeError: module 'torch' has no attribute 'no_such_predicate'"),
        ("operator.add", "raised TypeError: add expected 2 arguments, got 0"),
    ],
)
def test_what_a_predicate_answers(path: str, answer: str) -> None:
    from runner.worker.torch_compat import device_modules as facts

    assert facts._answer(path) == answer


def test_the_dtypes_of_onednn_are_in_the_facts() -> None:
    import torch

    from runner.worker.torch_compat import device_modules as facts

    found = facts.collect(["torch.distributed.is_available"])
    assert found["answers"] == {"torch.distributed.is_available": HOLDS}
    dtypes = found["mkldnn"].split()
    assert (dtypes[:1] == ["float32"]) is torch.backends.mkldnn.is_available()
    assert set(dtypes) <= {"float32", "bfloat16", "float16"}
