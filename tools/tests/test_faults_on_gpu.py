"""A lost context, a full memory and a kernel without end on a GPU: the outcome of one case, and the
next has a GPU as ever.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes import ROOT, environment, program
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import read_run

SPECS = ROOT / "tests" / "specs" / "hostile-gpu"


def why_no_gpu() -> str:
    """Return why there is no NVIDIA GPU here; empty when there is one. torch is not asked: it would
    have to be imported.
    """
    if not list(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/dxg").exists():
        return "no NVIDIA GPU among the devices of this machine (/dev/nvidia*)"
    if (command := shutil.which("nvidia-smi")) is None:
        return "no nvidia-smi, which names the NVIDIA GPUs of this machine"
    done = subprocess.run([command, "-L"], capture_output=True, text=True, timeout=60, check=False)
    return (
        ""
        if "GPU 0" in done.stdout
        else f"nvidia-smi names no GPU: {(done.stdout + done.stderr).strip()[:200]}"
    )


pytestmark = [pytest.mark.torch, pytest.mark.skipif(bool(why_no_gpu()), reason=why_no_gpu())]

DURING = {
    "device-assert": (Outcome.FAIL, "device-side assert triggered"),
    "endless-kernel": (Outcome.TIMEOUT, "outlived its deadline while in phase"),
    "illegal-access": (Outcome.FAIL, "an illegal memory access was encountered"),
    "out-of-memory": (Outcome.FAIL, "out of memory"),
}
"""What a fault comes to, and what its reason says somewhere."""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, CaseResult]:
    out = tmp_path_factory.mktemp("gpu") / "out"
    # one after another: each fault is followed by a case of its own spec that does the same without
    # it
    options = ("--jobs", 1, "--timeout", 120, "--out", out)
    done = program("run", SPECS, *options, timeout=900, env=environment())
    results = {result.case_id: result for result in read_run(out / "run.jsonl").results}
    if all(result.outcome is Outcome.UNAVAILABLE for result in results.values()):
        pytest.skip(f"no case can run: {next(iter(results.values())).reason}")
    assert "Traceback" not in done.stderr, done.stderr
    return results


@pytest.mark.parametrize("name", DURING)
def test_a_fault_on_the_gpu_is_the_outcome_of_its_case(ran, name):
    (result,) = [
        result for result in ran.values() if result.name == name and "turn=during" in result.case_id
    ]
    outcome, words = DURING[name]
    assert result.outcome is outcome, result.reason
    assert re.search(words, result.reason), result.reason


def test_no_other_case_suffers(ran):
    suffered = {
        case: result.reason
        for case, result in ran.items()
        if "turn=during" not in case and result.outcome is not Outcome.PASS
    }
    assert suffered == {}
    assert len(ran) == 18
