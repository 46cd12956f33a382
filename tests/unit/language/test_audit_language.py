"""``control`` and ``weak`` in a spec: what they become in a case."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from torch_conformance.language.load import load
from torch_conformance.model.case import Case

SPEC = """
summary: A sum that is frozen
backends: [cpu, cuda]
matrix: {dynamic: [true, false]}
config: {freezing: true}
compile: {dynamic: "{{ dynamic }}"}
function: |
  def fn(x):
      return x + 1
inputs: [{rand: [4]}]
expect: [{close: {to: eager}}, {counter: {inductor.fxgraph_cache_miss: 1}}]
"""

Cases = Callable[[str], Mapping[str, Case]]


@pytest.fixture
def cases(tmp_path: Path) -> Cases:
    def read(more: str) -> Mapping[str, Case]:
        (tmp_path / "sum.yaml").write_text(SPEC.lstrip("\n") + more)
        return {str(case.id): case for case in load([tmp_path / "sum.yaml"]).cases}

    return read


CPU = "sum[backend=cpu,dynamic=true]"
CUDA = "sum[backend=cuda,dynamic=true]"


def test_a_patch(cases: Cases) -> None:
    control = cases("control: {config: {freezing: false}, env: {OMP: 1}, fails: [counter]}\n")[
        CPU
    ].control
    assert control is not None
    assert control.patch == {"config": {"freezing": False}, "env": {"OMP": 1}}
    assert control.fails == ("counter",)
    assert (control.position.line, control.position.column) == (11, 1)


def test_a_patch_under_a_condition(cases: Cases) -> None:
    found = cases("control: {config: [{when: {device: cuda}, set: {freezing: false}}]}\n")
    assert found[CPU].control is None
    assert found[CUDA].control is not None
    assert found[CUDA].control.patch == {"config": {"freezing": False}}


def test_a_patch_with_a_template(cases: Cases) -> None:
    found = cases('control: {compile: {dynamic: "{{ not dynamic }}"}}\n')
    assert {
        id: case.control.patch["compile"]["dynamic"]
        for id, case in found.items()
        if case.control and "cpu" in id
    } == {
        "sum[backend=cpu,dynamic=true]": False,
        "sum[backend=cpu,dynamic=false]": True,
    }


def test_a_reason_stands_beside_its_kind(cases: Cases, tmp_path: Path) -> None:
    cases("")
    text = (
        (tmp_path / "sum.yaml")
        .read_text()
        .replace("{close: {to: eager}}", "{close: {to: eager}, weak: it is meant so}")
    )
    (tmp_path / "sum.yaml").write_text(text)
    close, counter = load([tmp_path / "sum.yaml"]).cases[0].steps[0].expectations
    assert (close.kind, close.weak, counter.weak) == ("close", "it is meant so", "")
