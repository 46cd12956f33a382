"""Runs on a fleet whose nodes are fakes (``tests/fleet.py``): their specs, their settings and what
they recorded.
"""

from pathlib import Path

from tests.fleet import RAY
from torch_conformance.cli.parser import main
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import read_run


def spec_of(cases: int) -> str:
    """Return a spec with so many cases."""
    return f"""\
summary: A product of two matrices is right at every point
backends: [cpu]
matrix: {{size: {list(range(1, cases + 1))}}}
function: |
  def fn(x, y):
      return x @ y
inputs: [{{rand: [4, "{{{{ size }}}}"]}}, {{rand: ["{{{{ size }}}}", 4]}}]
expect: [{{close: {{to: eager}}}}]
"""


def run(*more: str, out: str = "out") -> int:
    """Run ``spec.yaml`` of the working folder; return the exit code."""
    return main(["run", "spec.yaml", *RAY, *([] if "--resume" in more else ["--out", out]), *more])


def results(out: str = "out") -> dict[str, CaseResult]:
    """Return the results of a run by the ids of its cases."""
    found = read_run(Path(out) / "run.jsonl").results
    assert len({result.case_id for result in found}) == len(found), "a case was counted twice"
    return {result.case_id: result for result in found}


def outcomes(out: str = "out") -> list[str]:
    """Return the outcomes of a run, as text."""
    return [result.outcome.label for result in results(out).values()]
