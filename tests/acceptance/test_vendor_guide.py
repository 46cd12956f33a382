"""The vendor guide, step by step: every command of ``docs/guides/vendor.md`` in its order, with the
exit code that the guide promises.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import vendor_device
from tests.fakes import (
    ENDED,
    close_facts,
    close_leaf,
    environment,
    observation,
    program,
    seen,
    use_executor,
)
from tests.fences import FILES, ROOT, fences, write
from tests.submissions import write_keys
from torch_conformance.cli.parser import main
from torch_conformance.execute.executor_protocol import Execution, Job
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.record.case_files import digest
from torch_conformance.run.pipeline import WorkerReport
from torch_conformance.tools.attest.commands import doctor

PAGE = ROOT / "docs" / "guides" / "vendor.md"

EXITS = {"run --profile npu-profile.yaml --out first": ExitCode.FAILED}
"""The exit codes that are not 0: the first run has the failure that step 6 waives."""

FIRST = ("--version", "doctor")
"""Commands of step 1, before there is a file.

``doctor`` without a path reads every shipped spec, which other tests do.
"""

NOT_OURS = ("pip", "openssl")
"""Programs that the tests do not run: the environment is installed, and ``keys`` makes the keys."""

CODE = """\
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()
cpp_fused_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
extern "C" void kernel(const float* in_ptr0, float* out_ptr0) { out_ptr0[0] = in_ptr0[0]; }
''')
def call(args):
    arg0_1, = args
    cpp_fused_0(arg0_1, buf0)
    return (buf0, )
"""


def commands() -> Iterator[list[str]]:
    """Yield the arguments of each command of the program, in the order of the page."""
    for fence in fences(PAGE):
        if fence.mark == "commands":
            for line in fence.text.splitlines():
                words = shlex.split(line, comments=True)
                if words and words[0] not in NOT_OURS:
                    assert words[0] == "torch-conformance", line
                    yield words[1:]


def write_files(folder: Path) -> None:
    """Write the files of the page, and a pair of keys, into an empty folder."""
    for fence in fences(PAGE):
        if fence.mark in FILES:
            write(fence, folder)
    write_keys(folder)


# -- with a worker that is made up -----------------------------------------------------------------


def npu_worker(folder: Path, *, wrong: str) -> Callable[[Job], Execution]:
    """Return what a worker of the device answers: right results, but for the ids that ``wrong``
    matches.
    """

    def answer(job: Job) -> Execution:
        assert job.plan is not None
        place = Path(folder, job.folder)
        place.mkdir(parents=True, exist_ok=True)
        (place / "code-0-0.txt").write_text(CODE)
        differs = (
            {"mismatches": 3, "excess": 0.5 - 1.3e-6, "max_abs": 0.5, "worst_value": 1.5}
            if re.search(wrong, job.plan["id"])
            else {}
        )
        leaf = close_leaf(device="npu:0", reference_device="npu:0", **differs)
        counters = {"stats": {"unique_graphs": 1}, "inductor": {"fxgraph_cache_miss": 1}}
        code: dict[str, Any] = {
            "code": 1,
            "code_digests": [digest(CODE.encode())],
            "code_graphs": [{"arguments": ["?"]}],
        }
        facts = seen(
            **code,
            counters=counters,
            graphs=[["npu"]],
            executed={"npu": 1},
            measured={"0": close_facts(leaf)},
        )
        sent = observation(facts, id=job.plan["id"], digest=job.plan["digest"])
        return Execution(
            job=job,
            observation=sent,
            ending=ENDED,
            seconds=1.0,
            isolation="fork",
            files=("code-0-0.txt",),
        )

    return answer


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder of a vendor whose package is installed, on a machine with the
    device.
    """
    site = tmp_path / "site" / "our_npu"
    site.mkdir(parents=True)
    for name in ("__init__.py", "torch_conformance.py"):
        (site / name).write_text("raise SystemExit('the runner imported a module of the vendor')\n")
    monkeypatch.syspath_prepend(str(site.parent))
    has_device = {
        "torch": "2.13.0",
        "gpus": 0,
        "torch_git": "c0ffee",
        "answers": {"npu=our_npu.torch_conformance": "returned True"},
    }
    monkeypatch.setattr("tests.fakes.FACTS", has_device)
    monkeypatch.setattr(
        doctor,
        "ask_worker",
        lambda machine, questions: WorkerReport(machine=machine, facts={"triton": "1"}),
    )
    folder = tmp_path / "npu"
    folder.mkdir()
    monkeypatch.chdir(folder)
    write_files(folder)
    return folder


def test_every_step_of_the_guide(
    vendor: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the empty folder to the verified submission."""
    said: dict[str, str] = {}
    for words in commands():
        line = shlex.join(words)
        if line in FIRST:
            continue
        if words[0] == "run":
            use_executor(monkeypatch, npu_worker(Path(words[-1]), wrong="float64"))
        assert main(words) == EXITS.get(line, ExitCode.OK), (line, capsys.readouterr())
        said[line] = capsys.readouterr().out
    runs = [text for line, text in said.items() if line.startswith("run ")]
    assert "P1  NOT CONFORMANT: 1 passed, 1 failed of 2 required" in runs[0]
    assert "CONFORMANT with 1 waiver: 2 passed, 1 waived of 3 required" in runs[1].splitlines()
    assert "NPU-12" in (vendor / "known.yaml").read_text()
    assert "CONFORMANT" in next(text for line, text in said.items() if line.startswith("verify "))


def test_without_the_device_the_submission_is_incomplete(
    vendor: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything is unavailable: nothing on the way to the sceptic says that it passed."""
    monkeypatch.setattr(
        "tests.fakes.FACTS", {"torch": "2.13.0", "gpus": 0, "torch_git": "c0ffee", "answers": {}}
    )
    use_executor(monkeypatch, lambda job: pytest.fail(f"a job of a case: {job}"))
    codes = {}
    for words in commands():
        if words[0] in ("run", "submit", "verify"):
            codes[shlex.join(words[:2])] = main(words)
    assert codes == {
        "run --profile": ExitCode.NOTHING,
        "submit second": ExitCode.OK,
        "verify npu.tar.zst": ExitCode.NOTHING,
    }, capsys.readouterr()
    assert "3 not executed of 3 required" in capsys.readouterr().out


# -- with a device ---------------------------------------------------------------------------------


@pytest.mark.nightly(
    reason="compiles a C++ extension and cases; test_every_step_of_the_guide "
    "runs the same commands "
    "without a device"
)
@pytest.mark.torch
def test_the_guide_with_a_device(tmp_path: Path) -> None:
    """The exit codes are those of the made-up worker: the example device has the failure that step
    6 waives.
    """
    vendor_device.build(tmp_path)
    write_files(tmp_path)
    variables = environment()
    variables["PYTHONPATH"] = os.pathsep.join([str(tmp_path), variables["PYTHONPATH"]])
    for words in [words for words in commands() if shlex.join(words) not in FIRST]:
        done = program(*words, env=variables, timeout=800, cwd=tmp_path)
        assert done.returncode == EXITS.get(shlex.join(words), ExitCode.OK), (
            words,
            done.stdout,
            done.stderr,
        )
    assert "CONFORMANT with 1 waiver: 2 passed, 1 waived of 3 required" in done.stdout.splitlines()
