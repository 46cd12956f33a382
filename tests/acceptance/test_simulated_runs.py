"""Code that Inductor really generates for a simulated GPU: what passes, what fails, what is refused
while it is lowered.
"""

import json
import os
from pathlib import Path

import pytest

from tests import ck_stand_in
from tests.fakes import ROOT, environment, program, write_specs
from torch_conformance.machine.capabilities import CAPABILITIES
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import read_run

HEAD = (
    "summary: A function is lowered for a simulated GPU\ntargets: [hip:gfx942]\ncontext: "
    "[no_grad]\n"
)
SUM = 'function: "def fn(x): return x + 1"\ninputs: [{rand: [64, 64]}]\n'
SPILLS = "expect: [{resources: {spills: 0}}]\n"
TEMPLATE = (
    "config: {max_autotune: true, max_autotune_gemm_backends: TRITON, "
    "test_configs.autotune_choice_desc_regex: %s}\n"
)
PRODUCT = 'function: "def fn(x, y): return x @ y"\ninputs: [{rand: [64, 64]}, {rand: [64, 64]}]\n'
ATTENTION = (
    'function: "def fn(x): return torch.nn.functional.scaled_dot_product_attention(x, x, '
    'x)"\ninputs: [{rand: [1, 2, 16, 16]}]\n'
)
BREAK = (
    "function: |\n  def fn(x):\n      print(x.sum().item())\n      return x + 1\ninputs: "
    "[{rand: [64, 64]}]\n"
)

SPECS = {
    "good": HEAD + SUM + SPILLS,
    "rendered": HEAD
    + SUM
    + 'expect: [{filecheck: {stage: wrapper, checks: "CHECK: triton_poi_fused_add_0"}}]\n',
    "wrong": HEAD + SUM + 'expect: [{filecheck: {stage: amdgcn, checks: "CHECK: v_mfma"}}]\n',
    "attention": HEAD + ATTENTION + SPILLS,
    "aten": HEAD + PRODUCT + SPILLS,
    "breaks": HEAD + BREAK + SPILLS,
    "raises": HEAD
    + 'function: "def fn(x): raise ValueError(str(x.shape))"\ninputs: [{rand: [4]}]\n'
    + SPILLS,
    "no-candidate": HEAD + TEMPLATE % "no such candidate" + PRODUCT + SPILLS,
    "timed": HEAD + PRODUCT.replace("[64, 64]}", "[1023, 1023], dtype: float16}") + SPILLS,
    "templated": HEAD
    + "matrix: {cpp: [true]}\nconfig: {cpp_wrapper: '{{ cpp }}'}\n"
    + SUM
    + SPILLS,
    "no-backward": HEAD + SUM + f"steps:\n  - call: {{}}\n  - backward: {{}}\n    {SPILLS}",
    "dies": HEAD + "prelude: |\n  import os\n  os.abort()\n" + SUM + SPILLS,
    "replaces": HEAD
    + "prelude: |\n  import triton.compiler\n  triton.compiler.compile = print\n"
    + SUM
    + SPILLS,
    "forges": HEAD
    + "prelude: |\n  import torch_conformance.tools.offline.worker.simulated_kernels as "
    "kernels\n  kernels.compiled = print\n" + SUM + SPILLS,
}
EXPECTED = {
    "good": (Outcome.OFFLINE_PASS, "evidence O2 compiled"),
    "rendered": (Outcome.OFFLINE_PASS, "evidence O1 rendered"),
    "wrong": (Outcome.OFFLINE_FAIL, "filecheck: expected"),
    "attention": (Outcome.ERROR, "C++ code chooses its implementation by how torch was built"),
    "aten": (Outcome.ERROR, "no kernel of Triton"),
    "breaks": (Outcome.OFFLINE_FAIL, "torch._dynamo.exc"),
    "raises": (Outcome.OFFLINE_FAIL, "torch._dynamo.exc.Unsupported in phase 'trace'"),
    "no-candidate": (Outcome.OFFLINE_FAIL, "raised: expected no exception"),
    "timed": (Outcome.ERROR, "a choice that Inductor makes by timing something on the device"),
    "templated": (Outcome.ERROR, "cpp_wrapper True: its C++ needs the headers of the GPU"),
    "no-backward": (Outcome.ERROR, "no backward graph was compiled with the call"),
    "dies": (Outcome.CRASH, "SIGABRT"),
    "replaces": (Outcome.ERROR, "code of the case replaced triton.compiler.compile"),
    "forges": (
        Outcome.ERROR,
        "code of the case replaced "
        "torch_conformance.tools.offline.worker.simulated_kernels.compiled",
    ),
}

pytestmark = [
    pytest.mark.nightly(
        reason="a simulated device imports torch and compiles canaries; "
        "tests/unit/tools/offline/test_simulated.py "
        "judges texts made by hand"
    ),
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not all(CAPABILITIES[name].look() for name in ("triton", "cxx")),
        reason="needs Triton and a C++ compiler",
    ),
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CaseResult]:
    folder = write_specs(tmp_path_factory.mktemp("simulated"), SPECS)
    done = program("run", folder / "specs", "--out", folder / "run", timeout=900)
    assert done.returncode == ExitCode.FAILED, done.stdout + done.stderr
    return {result.name: result for result in read_run(folder / "run" / "run.jsonl").results}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_case_has_its_outcome(results: dict[str, CaseResult], name: str) -> None:
    outcome, words = EXPECTED[name]
    assert results[name].outcome is outcome, results[name].reason
    assert words in results[name].reason
    assert not results[name].is_executed


@pytest.mark.parametrize(
    ("empty", "outcome"), [((), Outcome.OFFLINE_PASS), (("universal_gemm",), Outcome.OFFLINE_FAIL)]
)
def test_instances_of_a_made_up_composable_kernel_are_rendered(
    tmp_path: Path, empty: tuple[str, ...], outcome: Outcome
) -> None:
    (tmp_path / "ck").mkdir()
    ck_stand_in.make(tmp_path / "ck", installed_torch().root, empty=empty)
    spec = ROOT / "specs" / "simulated" / "ck-instances-rendered.yaml"
    path = os.pathsep.join([str(tmp_path / "ck"), str(ROOT)])
    program(
        "run",
        spec,
        "--select",
        "*gfx942*",
        "--out",
        tmp_path / "out",
        env=environment(PYTHONPATH=path),
        timeout=600,
    )
    (result,) = read_run(tmp_path / "out" / "run.jsonl").results
    assert result.outcome is outcome, result.reason
    assert result.level == ("O1" if outcome is Outcome.OFFLINE_PASS else "")


def test_every_shipped_spec_passes_or_is_waived_and_its_control_fails(tmp_path: Path) -> None:
    done = program(
        "run",
        ROOT / "specs" / "simulated",
        "--out",
        tmp_path / "out",
        "--waivers",
        ROOT / "specs" / "waivers.yaml",
        timeout=1500,
    )
    assert done.returncode == ExitCode.NOTHING, done.stdout + done.stderr
    outcomes = {
        result.name: result.outcome for result in read_run(tmp_path / "out" / "run.jsonl").results
    }
    assert outcomes.pop("mm-template-nonkdim") is Outcome.XFAIL
    assert outcomes.pop("ck-instances-rendered") in (Outcome.UNAVAILABLE, Outcome.OFFLINE_PASS)
    assert set(outcomes.values()) == {Outcome.OFFLINE_PASS}
    audited = program(
        "audit",
        ROOT / "specs" / "simulated",
        "--run",
        "--select",
        "*target=hip%3Agfx942*",
        "--json",
        timeout=1500,
    )
    assert json.loads(audited.stdout)["survivors"] == []
