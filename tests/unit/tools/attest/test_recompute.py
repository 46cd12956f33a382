"""Of which cases ``verify --recompute`` can make the inputs again, and how near numbers must be.

What it computes is tested by a real run, in ``tests/acceptance``.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.fakes import write_specs
from torch_conformance.language.load import load
from torch_conformance.tools.attest.recompute import _compared, _is_drawn_on_device, _Number

SPEC = """\
summary: A sum is right
backends: [cpu, cuda]
tags: [mine]
function: |
  def fn(x):
      return BODY
inputs: [INPUT]
expect: [{close: {to: eager}}]
"""
DRAWN = {
    "plain": ("x.sum(0)", "{rand: [4]}", False),
    "on-device": ("x.sum(0)", "{rand: [4], on_device: true}", True),
    "called": ("x.sum(0)", "{call: torch.eye, args: [4]}", True),
    "dropped": ("torch.nn.functional.dropout(x)", "{rand: [4]}", True),
    "noise": ("x + torch.randn_like(x)", "{rand: [4]}", True),
}


def test_what_a_gpu_may_draw_is_not_made_again(tmp_path: Path) -> None:
    texts = {
        name: SPEC.replace("BODY", body).replace("INPUT", made)
        for name, (body, made, _) in DRAWN.items()
    }
    write_specs(tmp_path, texts)
    cases = load([tmp_path / "specs"]).cases
    assert len(cases) == 2 * len(DRAWN)
    for case in cases:
        assert _is_drawn_on_device(case) is (case.backend == "cuda" and DRAWN[case.name][2]), (
            case.id
        )


def number(eager: float, *, device: str = "cpu", dtype: str = "float32", **more: Any) -> _Number:
    form = {"reference_dtype": dtype, "reference_shape": [4], "reference_device": device}
    worst = {"index": [1], "eager_value": eager, "reference_value": 1.0}
    leaf = {"path": "", **form, "rtol": 0.0, "atol": 0.0, "calibrated": {"worst": worst}, **more}
    return _Number(step=0, check=0, sample="", leaf=leaf)


HERE = {"at": {"index": [1], "eager": 1.0, "reference": 1.0, "bound": 1e-5}}
NAN = float("nan")


@pytest.mark.parametrize(
    ("there", "here", "count"),
    [
        (number(1.000001), number(1.0, **HERE), 0),
        (number(1.001), number(1.0, **HERE), 1),
        (number(NAN), number(1.0, **HERE), 1),
        (number(1.0), number(1.0, at={**HERE["at"], "reference": 2.0}), 1),
        (number(1.0), number(1.0, at={**HERE["at"], "eager": NAN}), 1),
        # products of a GPU may be in TF32
        (number(1.001, device="cuda"), number(1.0, **HERE), 0),
        (number(1.01, device="cuda"), number(1.0, **HERE), 1),
        (number(1.001, device="cuda", dtype="float64"), number(1.0, dtype="float64", **HERE), 1),
        # without a reference the tolerance of the leaf
        (number(1.001), number(1.0, at={"index": [1], "eager": 1.0}, rtol=0.01), 0),
        (number(1.1), number(1.0, at={"index": [1], "eager": 1.0}, rtol=0.01), 1),
        # another form, an element that is not there, a value that is not there
        (number(1.0), number(1.0, dtype="float16", **HERE), 1),
        (number(1.0), number(1.0), 1),
        (number(1.0), None, 1),
    ],
)
def test_how_near_a_number_must_be(there: _Number, here: _Number | None, count: int) -> None:
    assert sum(apart is not None for apart in _compared("case", there, here)) == count
