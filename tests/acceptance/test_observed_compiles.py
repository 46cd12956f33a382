"""The words that observe a compile, end to end: specs that are right pass, and those with a planted
fault turn red for that reason.

All cases of ``tests/specs/observed`` are run once. The kinds of expectation are judged without
torch in ``test_expect_compilation.py``.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import ROOT, prestarted
from tests.ran import called
from torch_conformance.model.outcomes import ExitCode

pytestmark = pytest.mark.torch

SPECS = ROOT / "tests/specs/observed"
RIGHT = sorted(f"right/{path.stem}" for path in (SPECS / "right").glob("*.yaml"))

WRONG: Mapping[str, tuple[str, tuple[tuple[str, str, str], ...]]] = {
    "wrong/added-graph-break": (
        "FAIL",
        (("graph_breaks", "graph breaks: 0", "1"), ("graph", "count 1", "2")),
    ),
    "wrong/another-recompile": (
        "FAIL",
        (
            ("recompiles", "recompiles: 0", "1"),
            (
                "recompiles",
                "a reason in fn with 'size mismatch'",
                "dtype mismatch. expected Float, actual Double",
            ),
        ),
    ),
    "wrong/break-in-a-loop": ("FAIL", (("graph_breaks", "graph breaks: 1", "2"),)),
    "wrong/first-call-without-recompile": (
        "ERROR",
        (
            (
                "recompiles",
                "recompiles: 0",
                "dynamo compiled the functions of the step for the first time",
            ),
        )
        * 2,
    ),
    "wrong/graph-of-a-helper": (
        "FAIL",
        (
            ("graph", "ops operator.matmul 1", "0"),
            ("guards", "guards with \"L['x'].size()\"", ""),
            (
                "proof",
                "most of the operators that the answer of step 1 (call, line 15) comes from are "
                "compiled",
                "",
            ),
        ),
    ),
    "wrong/hook-not-called": ("FAIL", (("calls", "calls of copied: 2", "1"),)),
    "wrong/misspelt-operator": (
        "ERROR",
        (
            ("graph", "ops aten.addition.default", "torch has no operator aten.addition.default"),
            (
                "graph",
                "the post_grad graph of the step",
                "no graph of the case's function was made at this stage",
            ),
        ),
    ),
    "wrong/nothing-traced": (
        "ERROR",
        (
            (
                "graph_breaks",
                "graph breaks: 0",
                "dynamo traced no frame of the case's functions in the step",
            ),
        ),
    ),
    "wrong/one-more-kernel": (
        "FAIL",
        (("kernels", "launched 1", "2"), ("graph", "ops aten.sort 0", "1")),
    ),
    "wrong/other-output": (
        "FAIL",
        (("exit", "exit code 0 and standard output with 'two'", "one"),),
    ),
    "wrong/served-from-cache": (
        "ERROR",
        (
            ("kernels", "compiled 1", "0"),
            (
                "graph",
                "the post_grad graph of the step",
                "no graph of the case's function was made at this stage",
            ),
        ),
    ),
}
"""Each planted fault: the outcome, and every verdict that is not green with what was expected and a
part of what was observed.
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("observed") / "run"
    made = called("run", SPECS, "--out", out, env=prestarted())
    assert made.returncode == ExitCode.FAILED, made.stderr
    return out


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    lines = map(json.loads, (folder / "run.jsonl").read_text("utf-8").splitlines())
    return {line["case_id"].partition("[")[0]: line for line in lines if line["kind"] == "case"}


def test_every_spec_has_a_row(results: Mapping[str, Any]):
    assert {*RIGHT, *WRONG} == set(results)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_passes(name: str, results: Mapping[str, Any]):
    assert results[name]["outcome"] == "PASS", results[name]


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_fault_is_seen_for_its_reason(name: str, results: Mapping[str, Any]):
    outcome, wanted = WRONG[name]
    found = [
        verdict for verdict in results[name]["verdicts"] if verdict["status"] in ("failed", "error")
    ]
    assert results[name]["outcome"] == outcome
    assert [(one["kind"], one["expected"]) for one in found] == [
        (kind, expected) for kind, expected, _ in wanted
    ]
    for verdict, (_, _, observed) in zip(found, wanted, strict=True):
        assert observed in verdict["observed"]


def test_no_expectation_of_a_right_spec_could_not_have_failed(folder: Path):
    audited = called("audit", folder)
    assert "100.0%" in audited.stdout, audited.stdout


def test_graphs_lie_beside_the_generated_code(folder: Path, results: Mapping[str, Any]):
    files = {
        path.name for path in (folder / results["right/forward-and-backward"]["folder"]).iterdir()
    }
    assert {"graph-0-joint-0.txt", "graph-0-post_grad-0.txt", "code-0-0.txt"} <= files
    text = (
        folder / results["right/matmul-and-sort"]["folder"] / "graph-0-post_grad-0.txt"
    ).read_text("utf-8")
    assert "torch.ops.aten.mm.default" in text
