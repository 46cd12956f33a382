"""``audit --nodes``: which operators of a function the inputs of a case do not exercise."""

import json
from pathlib import Path

import pytest

from tests.fakes import prestarted, write_specs
from tests.ran import called
from torch_conformance.model.outcomes import ExitCode

pytestmark = pytest.mark.torch

SPECS = {
    "clamp": """
summary: A clamp of numbers from 0 to 2
backends: [cpu, eager]
function: |
  def fn(x):
      y = x * 2
      return y.clamp(0, 2) + 1
inputs: [{rand: [8, 8]}]
expect: [{close: {to: eager}}]
""",
    "equal": """
summary: Two arguments with the same numbers
backends: [eager]
function: |
  def fn(x, y):
      return x / y
inputs: [{full: [4], value: 2}, {full: [4], value: 2}]
expect: [{close: {to: eager}}]
""",
    "one": """
summary: A mean of one row
backends: [eager]
function: |
  def fn(x):
      return x.mean(0)
inputs: [{rand: [1, 64]}]
expect: [{close: {to: eager}}]
""",
    "tolerance": """
summary: A tolerance that hides a term
backends: [eager]
function: |
  def fn(x):
      return x + x.sin() * 1e-4
inputs: [{randn: [64]}]
expect: [{close: {to: eager, rtol: 0.01, atol: 0.01}, weak: to be seen}]
""",
    "ones": """
summary: A scale of ones that a module writes to its buffer
backends: [eager]
prelude: |
  class Scale(torch.nn.Module):
      def __init__(self):
          super().__init__()
          self.register_buffer("scale", torch.ones(8))
          self.register_buffer("calls", torch.zeros(8))

      def forward(self, x):
          self.calls += 1
          return x * self.scale
function: {module: Scale}
inputs: [{randn: [4, 8]}]
expect: [{close: {to: eager}}]
""",
    "gradient": """
summary: The gradient of positive numbers
backends: [eager]
function: |
  def fn(x):
      return torch.relu(x) * 3
inputs: [{rand: [8], requires_grad: true}]
steps:
  - {call: {}, expect: [{close: {to: eager}}]}
  - {backward: {}, expect: [{close: {to: eager}}]}
""",
    "sound": """
summary: Each operator matters, those that cannot matter are no finding
backends: [eager]
function: |
  def fn(x, y):
      top = x.amax(1, keepdim=True)
      return (x - top).exp() / (x - top).exp().sum(1, keepdim=True) + torch.relu(y * y) + (x + y)
inputs: [{randn: [8, 8]}, {randn: [8, 8]}]
expect: [{close: {to: eager}}]
""",
    "silent": """
summary: Nothing is compared with eager
backends: [host]
steps: [{api: {call: operator.add, args: [1, 2], as: sum}, expect: [{equals: {sum: 3}}]}]
""",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    path = write_specs(
        tmp_path_factory.mktemp("nodes"), {name: text.lstrip("\n") for name, text in SPECS.items()}
    )
    done = called("audit", "specs", "--nodes", "--json", cwd=path, env=prestarted())
    assert done.returncode == ExitCode.FAILED, done.stderr
    return dict(json.loads(done.stdout))


def unnoticed(found: dict[str, object], name: str) -> dict[tuple[int, str], list[str]]:
    entries: list[dict[str, object]] = found["unnoticed"]  # type: ignore[assignment]
    return {
        (entry["line"], entry["operator"]): entry["changes"]  # type: ignore[misc]
        for entry in entries
        if Path(str(entry["file"])).stem == name
    }


def test_an_operator_that_the_inputs_do_not_reach(found) -> None:
    assert unnoticed(found, "clamp") == {(6, "aten.clamp.default"): ["dropped", "max 3 for 2"]}
    (entry,) = (entry for entry in found["unnoticed"] if entry["file"] == "specs/clamp.yaml")
    assert entry["cases"] == ["clamp[backend=cpu]"], "once for all backends"


def test_equal_arguments(found) -> None:
    assert "operands 0 and 1 swapped" in unnoticed(found, "equal")[5, "aten.div.Tensor"]


def test_a_size_of_one(found) -> None:
    assert unnoticed(found, "one") == {(5, "aten.mean.dim"): ["aten.sum.dim_IntList in its place"]}


def test_a_tolerance(found) -> None:
    assert "dropped" in unnoticed(found, "tolerance")[5, "aten.sin.default"]


def test_numbers_of_a_module_count_and_so_does_what_it_writes(found) -> None:
    names = {operator: changes for (_, operator), changes in unnoticed(found, "ones").items()}
    assert "dropped" in names["aten.mul.Tensor"]
    assert "aten.add.Tensor" not in names


def test_gradients(found) -> None:
    names = {operator: changes for (_, operator), changes in unnoticed(found, "gradient").items()}
    assert names == {
        "aten.relu.default": ["dropped"],
        "aten.threshold_backward.default": ["dropped"],
    }


def test_changes_that_make_no_difference_are_none(found) -> None:
    assert unnoticed(found, "sound") == {}
    counts = found["specs"][next(spec for spec in found["specs"] if spec.endswith("sound.yaml"))]
    assert counts["unnoticed"] == 0
    assert counts["equivalent"] > 0
    assert counts["noticed"] > counts["equivalent"]
    assert not [spec for spec in found["specs"] if "silent" in spec]
