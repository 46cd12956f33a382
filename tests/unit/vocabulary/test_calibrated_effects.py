"""What a call, a backward and an optimizer's step leave beside their result, by the calibrated
judge.

Nothing of inductor is compiled.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import import_torch, observation, observed, seen
from tests.sessions import prepared
from torch_conformance.model.expectation import Status
from torch_conformance.model.protocol import dumps, encode, loads
from torch_conformance.vocabulary.expectations.side_effects import SideEffects

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),
]

torch: Any = import_torch()


Judge = Callable[..., list[Any]]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Return what carries out the steps of a spec and judges the side effects of each; ``change``
    may alter the compiled side after one.
    """
    torch._dynamo.reset()

    def run(
        text: str, change: Callable[[int, Any], None] = lambda number, called: None
    ) -> list[Any]:
        session, plan = prepared(tmp_path, text)
        finish = session.effects.finish
        numbers = iter(range(20))

        def changed(compiled: list[Any], *rest: Any) -> None:
            with torch.no_grad():
                change(next(numbers), compiled[0])
            finish(compiled, *rest)

        session.effects.finish = changed
        found = []
        for step in plan["steps"]:
            session.begin_step(step)
            session.do(step)
            found.append(session.effects.facts)
        session.additional.run()
        sent = [loads(dumps(encode(facts))) for facts in found]
        read = observed(observation(*(seen(effects=facts) for facts in sent)))
        assert not read.nonsense, read.nonsense
        return [SideEffects().judge(step.effects) for step in read.steps]

    return run


CACHE = """\
prelude: |
  class Cache(torch.nn.Module):
      def __init__(self):
          super().__init__()
          self.register_buffer("kept", torch.zeros(32, 64, dtype=torch.bfloat16))

      def forward(self, x):
          found = x.float().exp() if torch.compiler.is_compiling() else x.exp().float()
          self.kept.copy_(FOUND)
          return x + 1
function: {module: Cache}
inputs: [{randn: [32, 64], dtype: bfloat16}]
expect: [{close: {to: eager}}]
"""


def test_a_cache_in_bfloat16_that_is_slightly_wrong_is_refused(judge: Judge) -> None:
    (right,) = judge(CACHE.replace("FOUND", "found"))
    assert right.status is Status.HELD, right
    scaled = CACHE.replace("FOUND", "found * (1.012 if torch.compiler.is_compiling() else 1)")
    (wrong,) = judge(scaled)
    assert wrong.status is Status.FAILED
    assert wrong.expected.startswith("function.kept within 2 x eager's error against float64")


TRAINING = """\
prelude: |
  class Block(torch.nn.Module):
      def __init__(self):
          super().__init__()
          self.linear = torch.nn.Linear(64, 32)
          self.norm = torch.nn.BatchNorm1d(32)

      def forward(self, x):
          if torch.compiler.is_compiling():
              w = self.linear.weight
              x = x[:, :20] @ w[:, :20].t() + (x[:, 20:] @ w[:, 20:].t() + self.linear.bias)
          else:
              x = self.linear(x)
          return torch.nn.functional.gelu(self.norm(x)).square()
function: {module: Block}
inputs: [{randn: [128, 64]}]
steps:
  - call: {}
    expect: [{close: {to: eager}}]
  - backward: {}
  - optimizer: {call: torch.optim.Adam, kwargs: {lr: 0.001}}
"""


def parameter(name: str, by: float, at: int = 2) -> Callable[[int, Any], None]:
    def change(number: int, module: Any) -> None:
        if number == at:
            module.get_parameter(name).reshape(-1)[3] += by

    return change


def gradient(number: int, module: Any) -> None:
    if number == 1:
        module.linear.weight.grad[5] *= 1.001


def counted(number: int, module: Any) -> None:
    if number == 0:
        module.norm.num_batches_tracked.add_(1)


@pytest.mark.parametrize(
    ("change", "at", "expected"),
    [
        (parameter("linear.weight", 0.002), 2, "function.linear.weight within 2 x eager's error"),
        (parameter("norm.weight", 0.001), 2, "function.norm.weight within 2 x eager's error"),
        (parameter("linear.bias", 0.02), 2, "function.linear.bias within 2 x eager's error"),
        (gradient, 1, "function.linear.weight.grad"),
        (counted, 0, "function.norm.num_batches_tracked within atol=0"),
    ],
)
def test_a_wrong_value_that_a_step_leaves_is_refused(
    judge: Judge, change: Any, at: int, expected: str
) -> None:
    judgements = judge(TRAINING, change)
    assert [judgement.status for judgement in judgements[: at + 1]] == [
        *[Status.HELD] * at,
        Status.FAILED,
    ]
    assert expected in judgements[at].expected


def test_rounding_that_an_optimizer_turns_into_steps_and_gradients_of_a_second_call_are_right(
    judge: Judge,
) -> None:
    judgements = judge(TRAINING)
    assert [judgement.status for judgement in judgements] == [Status.HELD] * 3, judgements
    assert "values by the float64 reference" in judgements[0].observed, (
        "running_mean of another order of additions"
    )
    assert "by the float64 reference" in judgements[2].observed
    twice = TRAINING.replace(
        "  - optimizer: {call: torch.optim.Adam, kwargs: {lr: 0.001}}\n",
        "  - call: {}\n  - backward: {}\n",
    )
    judgements = judge(twice)
    assert [judgement.status for judgement in judgements] == [Status.HELD] * 4, judgements[3]
    assert "no float64 reference" not in judgements[3].observed


PARTIAL = """\
prelude: |
  class Cache(torch.nn.Module):
      def __init__(self):
          super().__init__()
          self.register_buffer("rows", torch.randn(8, 33, dtype=torch.DTYPE))

      def forward(self, x):
          self.rows[2] = x.exp()
          return x + 1
function: {module: Cache}
inputs: [{randn: [33], dtype: DTYPE}]
expect: [{close: {to: eager}}]
"""


@pytest.mark.parametrize(("dtype", "bits"), [("float32", "int32"), ("bfloat16", "int16")])
def test_a_row_that_eager_does_not_write_must_not_change(
    judge: Judge, dtype: str, bits: str
) -> None:
    def moved(row: int, by: int) -> Callable[[int, Any], None]:
        return lambda number, module: module.rows[row].view(getattr(torch, bits)).add_(by)

    text = PARTIAL.replace("DTYPE", dtype)
    assert judge(text)[0].status is Status.HELD
    (found,) = judge(text, moved(5, 3))
    assert (found.status, found.observed.partition(";")[0]) == (
        Status.FAILED,
        "33 of 264 elements changed that eager does not write",
    ), found
    (found,) = judge(text, moved(2, 1))
    assert "eager does not write" not in found.observed, "this row is computed"


def test_a_computed_number_that_equals_the_one_before_may_round(judge: Judge) -> None:
    mean = """\
prelude: |
  class Mean(torch.nn.Module):
      def __init__(self):
          super().__init__()
          self.register_buffer("kept", torch.arange(-2000, 2000).float())

      def forward(self, x):
          if torch.compiler.is_compiling():
              self.kept.copy_((self.kept.double() * 0.7 + x.double() * 0.3).float().nextafter(x + 1))
          else:
              self.kept.mul_(0.7).add_(x, alpha=0.3)
          return x + 1
function: {module: Mean}
inputs: [{arange: [-2000, 2000], dtype: float32}]
expect: [{close: {to: eager}}]
"""  # noqa: E501 - text that is read by its lines
    (found,) = judge(mean)
    assert found.status is Status.HELD, found


def test_what_is_changed_beside_a_tensor_in_float64_has_no_second_rule() -> None:
    from torch_conformance.vocabulary.expectations.calibrated import (
        Sample,
        changed_elements,
        scale_of,
    )

    for dtype, count in (
        (torch.float32, 1),
        (torch.float64, None),
        (torch.float16, 1),
        (torch.complex64, 1),
    ):
        eager = torch.ones(16, dtype=dtype)
        answer = eager.clone()
        answer[3] = 1.5
        wide = eager.to(torch.complex128 if dtype.is_complex else torch.float64)
        scale = scale_of([Sample(eager, wide, 0.0)], eager, wide)
        found = changed_elements(answer, scale, torch.ones(16, dtype=torch.bool))
        assert (found and found["count"]) == count, dtype
        assert changed_elements(answer, scale, torch.arange(16) != 3) is None, (
            "eager wrote this element"
        )
        assert changed_elements(eager, scale, torch.ones(16, dtype=torch.bool)) is None


NUMBERS = """\
function: |
  def fn(*numbers):
      for number in numbers:
          number.mul_(1.7 * (1 + 12 * 2**-23) if torch.compiler.is_compiling() else 1.7)
inputs: [{rand: [1], low: 1, high: 2, repeat: 9}]
expect: [{close: {to: eager}}]
"""


def test_a_median_of_small_arguments_is_said_to_be_of_several(judge: Judge) -> None:
    (wrong,) = judge(NUMBERS)
    assert wrong.expected == "the values together within 2 x eager's error against float64"
    assert wrong.observed.startswith("the median error of 9 elements of small values is ")
