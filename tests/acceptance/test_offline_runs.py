"""Kernels that are really compiled for a GPU that this machine lacks: what passes, what fails, and
code of a spec that does harm.
"""

import os
from pathlib import Path

import pytest

from tests.fakes import ROOT, environment, program, write_specs
from tests.fences import every_fence
from torch_conformance.machine.capabilities import CAPABILITIES
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import read_run

look = CAPABILITIES["triton"].look
HAS_TRITON = bool(look and look())
pytestmark = pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")

HEAD = """\
summary: A copy of an array is compiled for a GPU
targets: [hip:gfx942]
prelude: |
  import os
  import triton
  import triton.language as tl
"""
COPY = """\
triton:
  source: |
    @triton.jit
    def copy(x, out, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i))
  signature: {x: "*fp32", out: "*fp32"}
  constexprs: {BLOCK: 256}
  aligned: [x, out]
  options: {num_warps: 1}
"""
LOADS = (
    'expect: [{filecheck: {stage: amdgcn, checks: "CHECK: buffer_load_dwordx4"}}, {resources: '
    "{shared: 0}}]\n"
)
CONTROL = "control: {triton: {constexprs: {BLOCK: 64}}, fails: [filecheck]}\n"


def harmful(code: str) -> str:
    """Return a spec whose prelude does something before its kernel is compiled."""
    return HEAD.replace("  import os\n", f"  import os\n  {code}\n") + COPY + LOADS


SPECS = {
    "good": HEAD + COPY + LOADS + CONTROL,
    "wrong": HEAD + COPY + 'expect: [{filecheck: {stage: amdgcn, checks: "CHECK: v_mfma"}}]\n',
    "broken": HEAD
    + COPY.replace("tl.store(out", "tl.stor(out")
    + "expect: [{resources: {spills: 0}}]\n",
    "refused": HEAD
    + COPY.replace("num_warps: 1", "num_warps: 3")
    + "expect: [{raises: {type: AssertionError, match: power of 2}}]\n",
    "dies": harmful("os.abort()"),
    "raises": harmful("raise ValueError('prelude')"),
    "hangs": "timeout: 3\n" + harmful("import time; time.sleep(600)"),
    "leaves": harmful("os._exit(0)"),
    "forges": harmful(
        "import torch_conformance.tools.offline.worker.kernels as k; k.compiled = print"
    ),
    "replaces": harmful("import triton.compiler as c; c.compile = print"),
    "floods": harmful("print('x' * (1 << 20))"),
}
"""Specs by name; each has one case, of one target, so that its canaries are compiled once."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_specs(tmp_path_factory.mktemp("offline"), SPECS)


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, CaseResult]:
    done = program("run", folder / "specs", "--out", folder / "run", "--jobs", "2")
    assert done.returncode == ExitCode.FAILED, done.stdout + done.stderr
    return {result.name: result for result in read_run(folder / "run" / "run.jsonl").results}


EXPECTED = {
    "good": (Outcome.OFFLINE_PASS, "evidence O3 instructions"),
    "wrong": (Outcome.OFFLINE_FAIL, "filecheck: expected"),
    "broken": (Outcome.OFFLINE_FAIL, "raised: expected no exception"),
    "refused": (Outcome.OFFLINE_PASS, "evidence O2 compiled"),
    "dies": (Outcome.CRASH, "SIGABRT"),
    "raises": (Outcome.ERROR, "ValueError: prelude"),
    "hangs": (Outcome.TIMEOUT, "outlived its deadline"),
    "leaves": (Outcome.CRASH, "ended without an answer"),
    "forges": (
        Outcome.ERROR,
        "code of the case replaced torch_conformance.tools.offline.worker.kernels.compiled",
    ),
    "replaces": (Outcome.ERROR, "code of the case replaced triton.compiler.compile"),
    "floods": (Outcome.OFFLINE_PASS, "evidence O3 instructions"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_case_has_its_outcome(results: dict[str, CaseResult], name: str) -> None:
    outcome, words = EXPECTED[name]
    assert results[name].outcome is outcome, results[name].reason
    assert words in results[name].reason
    assert not results[name].is_executed


def test_a_control_fails_and_no_mutant_survives_without_torch(folder: Path, tmp_path: Path) -> None:
    """The torch here has no version and cannot be imported."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('torch is imported')\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = program(
        "audit", folder / "specs" / "good.yaml", "--run", env=environment(PYTHONPATH=path)
    )
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert "1 of 1 controls failed as they must" in done.stdout
    assert "0 survived" in done.stdout


def test_a_triton_that_cannot_be_imported_makes_the_target_unavailable(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("raise ImportError('no such library')\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = program(
        "run",
        folder / "specs" / "good.yaml",
        "--out",
        tmp_path / "out",
        "--require",
        "target",
        env=environment(PYTHONPATH=path),
    )
    (result,) = read_run(tmp_path / "out" / "run.jsonl").results
    assert done.returncode == ExitCode.FAILED
    assert result.outcome is Outcome.ERROR
    assert (
        result.reason
        == "--require target: the compiler for hip:gfx942 does not work here: ImportError: no "
        "such library"
    )


@pytest.mark.nightly(
    reason="compiles every kernel twice; the tests above run a case of one target and its control"
)
@pytest.mark.timeout(1200)
def test_every_shipped_kernel_passes_and_its_control_fails(tmp_path: Path) -> None:
    (guide,) = (fence for fence in every_fence() if fence.name == "double.yaml")
    (tmp_path / "double.yaml").write_text(guide.text)
    done = program(
        "run",
        ROOT / "specs" / "offline",
        tmp_path / "double.yaml",
        "--out",
        tmp_path / "out",
        timeout=900,
    )
    assert done.returncode == ExitCode.NOTHING, done.stdout + done.stderr
    for path in (ROOT / "specs" / "offline", tmp_path / "double.yaml"):
        audited = program("audit", path, "--run", timeout=900)
        assert audited.returncode == ExitCode.OK, audited.stdout + audited.stderr
        assert "0 survived" in audited.stdout
        passed = audited.stderr.count("OFFLINE_PASS")
        assert passed > 0
        assert f"{passed} of {passed} controls failed as they must" in audited.stdout
