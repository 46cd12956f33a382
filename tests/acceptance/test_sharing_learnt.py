"""``--isolation auto``: a case that changes what a later one does, unnoticed by expectations, is found and no longer shares a worker."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from runner.core.results import CaseResult
from runner.plan.schedule import _lot
from runner.record.journal import read_run
from tests.fakes import prestarted_program

SPEC = """\
summary: A third has digits
backends: [host]
isolation: worker
prelude: |
  import decimal
  from torch._dynamo.utils import counters

  def act():
      {act}
      return 1
steps:
  - api: {{call: act, as: found}}
    expect: [{{equals: {{found: 1}}}}]
"""

CONTAMINATES = "decimal.getcontext().prec = 3"
"""No reset brings it back, and no check of the worker sees it."""
IS_CHANGED = "counters['probe']['digits'] = decimal.getcontext().prec"
INNOCENT = "pass"

ORDER = ("contaminates", "changed", "innocent")


def run(folder: Path, number: int) -> tuple[Mapping[str, CaseResult], list[str]]:
    seed = next(seed for seed in range(1000) if sorted(ORDER, key=lambda name: _lot(seed, f"{name}[backend=host]")) == list(ORDER))
    out = folder / f"out-{number}"
    done = prestarted_program(
        *("run", folder / "specs", "--out", out, "--isolation", "auto", "--jobs", "1", "--shuffle", seed, "--history", folder / "h.sqlite")
    )
    assert done.returncode == 0, done.stdout + done.stderr
    recorded = read_run(out / "run.jsonl")
    return {result.name: result for result in recorded.results}, [
        line for line in (done.stdout + done.stderr).splitlines() if "sharing: " in line
    ]


@pytest.mark.torch
def test_a_case_that_changes_its_worker_is_found_and_forbidden(tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    for name, act in zip(ORDER, (CONTAMINATES, IS_CHANGED, INNOCENT), strict=True):
        (tmp_path / "specs" / f"{name}.yaml").write_text(SPEC.format(act=act))

    learnt, said = run(tmp_path, 1)
    assert "sharing: 3 learning" in said
    assert {result.isolation for result in learnt.values()} == {"fork"}

    tried, said = run(tmp_path, 2)
    assert {name: result.isolation for name, result in tried.items()} == {"contaminates": "shared", "changed": "fork", "innocent": "shared"}
    assert "PASS after 1 other case in a shared worker: in a shared worker it had other counters than alone" in tried["changed"].company
    assert tried["innocent"].company == ""
    assert any("contaminates[backend=host] no longer shares a worker: changed[backend=host] ran after it" in line for line in said), said

    after, _ = run(tmp_path, 3)
    assert {name: result.isolation for name, result in after.items()} == {"contaminates": "fork", "changed": "fork", "innocent": "shared"}
    assert all(result.company == "" for result in after.values())
