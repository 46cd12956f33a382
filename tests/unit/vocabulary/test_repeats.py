"""Additional calls of a step: the state from which they begin, what they are compared with, and
that the case does not see them.

Nothing of inductor is compiled.
"""

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import import_torch, reading
from tests.sessions import prepared
from torch_conformance.language.load import load
from torch_conformance.model.diagnostics import InvalidSpecs
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.protocol import decode, dumps, encode, loads

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

torch: Any = import_torch()

Judged = list[list[Verdict]]


@pytest.fixture
def judged(tmp_path: Path) -> Callable[[str], Judged]:
    """Return a function that runs a spec's steps and its additional calls, and judges every
    expectation of each step.
    """
    torch._dynamo.reset()

    def run(text: str) -> Judged:
        session, plan = prepared(tmp_path, text)
        (one,) = load([tmp_path / "spec.yaml"]).cases
        steps = []
        for step in plan["steps"]:
            session.begin_step(step)
            session.do(step)
            measured, unmeasured = session.measure(step)
            assert not unmeasured
            steps.append(measured)
        calls = {name: spy.facts() for name, spy in session.spies.items()}
        session.additional.run()
        assert {name: spy.facts() for name, spy in session.spies.items()} == calls
        steps = decode(loads(dumps(encode(steps))))
        return [
            [
                expected.check.judge(reading(measured=measured[str(index)]))[0]
                for index, expected in enumerate(step.expectations)
                if str(index) in measured
            ]
            for step, measured in zip(one.steps, steps, strict=True)
        ]

    return run


def test_each_call_begins_from_the_same_state(judged: Callable[[str], Judged]) -> None:
    text = (
        "prelude: |\n  class Counting(torch.nn.Module):\n      def __init__(self):\n          "
        "super().__init__()\n"
        "          self.register_buffer('count', torch.zeros(3))\n      def forward(self, "
        "x):\n          self.count += 1\n"
        "          x.add_(self.count)\n          return x + torch.rand(3), self.count\n"
        "function: {module: Counting}\ninputs: [{rand: [3]}]\n"
        "steps: [{call: {}}, {call: {}, expect: [{deterministic: {runs: 3}}]}, {call: {}}]"
    )
    ((), (found,), ()) = judged(text)
    assert (found.status, found.observed) == (Status.HELD, "2 tensors with the same bits in 3 runs")


CHANGING = (
    "prelude: |\n  numbers = (n for n in range(1, 99))\n  @torch._dynamo.disable\n"
    "  def count(): return next(numbers)\n"
    "function: |\n  def fn(x):\n      seen = count()\n      return {value}\n"
)
"""A function whose answer depends on what nothing sets back: a generator of Python."""


def test_an_answer_that_changes_between_calls(judged: Callable[[str], Judged]) -> None:
    ((found,),) = judged(
        CHANGING.format(value="[x, x * (2 if seen < 4 else 3)]")
        + "inputs: [{ones: [3]}]\nexpect: [{deterministic: {runs: 5}}]"
    )
    assert found.status is Status.FAILED
    assert found.observed.startswith("run ")
    assert "output[1]: 3 of 3 elements; at [0]: 3.0 instead of 2.0" in found.observed


def test_zeros_of_two_signs_differ_and_nan_equals_nan(judged: Callable[[str], Judged]) -> None:
    text = CHANGING.format(value="x * (0.0 if seen < 3 else -0.0), x * float('nan')")
    ((found,),) = judged(text + "inputs: [{ones: [3]}]\nexpect: [{deterministic: {}}]")
    assert "output[0]: 3 of 3 elements" in found.observed


def test_gradients_of_a_backward_are_repeated(judged: Callable[[str], Judged]) -> None:
    text = (
        "function: |\n  def fn(x, w):\n      return (x * w).sin()\ninputs: [{rand: [3], "
        "requires_grad: true}, {rand: [3]}]\n"
    )
    _, (found,) = judged(
        text + "steps: [{call: {}}, {backward: {}, expect: [{deterministic: {}}]}]"
    )
    assert (found.status, found.observed) == (Status.HELD, "1 tensors with the same bits in 3 runs")


SUM = (
    "function: |\n  def fn(x, w):\n      return {value}\ninputs: [{{rand: [6, 3]}}, {{rand: "
    "[3]}}]\nexpect: [{{batch_invariant: {body}}}]"
)


@pytest.mark.parametrize(
    ("value", "body", "status", "words"),
    [
        (
            "x * w, (x + 1).sum(1)",
            "{sizes: [1, 4]}",
            Status.HELD,
            "the same bits for 4 parts of a batch of 6",
        ),
        (
            "x * w * x.shape[0]",
            "{sizes: [2]}",
            Status.FAILED,
            "elements 0 to 1 of 6: output: 6 of 6 elements",
        ),
        ("x.cumsum(0) * w", "{sizes: [2]}", Status.FAILED, "elements 4 to 5 of 6: output"),
        ("x.t() * w[0]", "{}", Status.ERROR, "shape [3, 6]: its dimension 0 is not the batch of 6"),
        ("x.t() * w[0], 1", "{dim: 1}", Status.ERROR, "its dimension 1 is not the batch of 3"),
        ("x * w", "{inputs: [2]}", Status.ERROR, "inputs names argument 2, and the call has 2"),
        ("x * w", "{inputs: [0, 1]}", Status.ERROR, "different sizes in dimension 0: [3, 6]"),
        (
            "x * w",
            "{inputs: [1], dim: 1}",
            Status.ERROR,
            "argument 1 is not a tensor with a dimension 1",
        ),
        ("x * w", "{sizes: [6]}", Status.ERROR, "size 6 is not smaller than the batch of 6"),
        ("x * w + [0][6 - x.shape[0]]", "{}", Status.FAILED, "an additional call raised"),
    ],
)
def test_parts_of_a_batch(
    judged: Callable[[str], Judged], value: str, body: str, status: Status, words: str
) -> None:
    ((found,),) = judged(SUM.format(value=value, body=body))
    assert found.status is status, found
    assert words in found.observed


def test_a_package_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    text = (
        "function: |\n  def fn(x):\n      return x\ninputs: [{rand: [3]}]\nsteps: [{aot: {}, "
        "expect: [{deterministic: {}}]}]"
    )
    path.write_text(f"summary: A package that is called again\nbackends: [cpu]\n{text}")
    with pytest.raises(InvalidSpecs) as raised:
        load([path])
    assert "the step 'aot' cannot be repeated" in str(raised.value.diagnostics[0])


# -- poison and candidates -------------------------------------------------------------------------


def test_poison_fills_what_generated_modules_allocate() -> None:
    from torch._inductor.codecache import PyCodeCache

    from torch_conformance.worker.torch_compat.compiling import poisoned

    allocate = torch._C._dynamo.guards._empty_strided_cpu
    module = types.ModuleType("generated")
    vars(module).update(empty_strided_cpu=allocate)
    PyCodeCache.modules.append(module)
    try:
        with poisoned() as poison:
            made = [
                module.empty_strided_cpu((2, 3), (4, 1), dtype)
                for dtype in (torch.float32, torch.bfloat16, torch.float16)
            ]
            whole = module.empty_strided_cpu((3,), (1,), torch.int32)
            module.empty_strided_cpu((0,), (1,), torch.float32)
    finally:
        PyCodeCache.modules.remove(module)
    assert all(bool(one.isnan().all()) for one in made)
    assert bool(made[0].as_strided((7,), (1,)).isnan().all()), "gaps between rows too"
    assert whole.tolist() == [-1] * 3
    assert poison.allocations == 5
    assert module.empty_strided_cpu is allocate


def test_only_one_candidate_is_left() -> None:
    from torch._inductor import config
    from torch._inductor.select_algorithm import get_algorithm_selector_cache

    from torch_conformance.worker.torch_compat.compiling import only_candidate as only

    functions = get_algorithm_selector_cache().preprocessing_fns
    before = list(functions)
    choices = [types.SimpleNamespace(name=name) for name in ("mm", "cpp_1", "cpp_2")]
    for number, name in ((0, "mm"), (2, "cpp_2"), (4, "cpp_1")):
        with only(number) as seen:
            assert [one.name for one in functions[-1](choices)] == [name]
            assert functions[-1]([]) == []
            assert config.force_disable_caches
        assert [len(names) for names in seen] == [3]
        assert seen[0][0] == name
    assert functions == before
