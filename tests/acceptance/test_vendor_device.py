"""A device that torch does not bring: a backend names the module that registers it.

It is that of ``docs/guides/example-device.md``.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import vendor_device
from tests.fakes import PACKAGE, environment, program, write_specs
from tests.ran import Ran
from torch_conformance.model.outcomes import ExitCode, Outcome

SPECS = {
    "kernels": """\
summary: A sum of matrices and its rows' maximum are right
backends: [npu]
function: |
  def fn(x, y):
      return (x * 2 + y).relu().sum(1), torch.sin(x)
inputs: [{rand: [16, 8], device: npu}, {rand: [16, 8], device: "{{ device }}"}]
expect:
  - close: {to: eager}
""",
    "gradients": """\
summary: A gradient is right, and a probe of the vendor holds
backends: [npu]
requires: [{call: our_npu.torch_conformance.has_fp8}]
function: "def fn(x): return (x * x).sum()"
inputs: [{rand: [16], requires_grad: true}]
steps:
  - call: {as: sum}
    expect: [{close: {to: eager}}]
  - backward: {}
    expect: [{close: {to: eager}}]
""",
}


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    return written(tmp_path)


def written(folder: Path) -> Path:
    (folder / "npu.yaml").write_text(vendor_device.BACKENDS)
    return write_specs(folder, SPECS)


def ran(folder: Path, *more: str, site: Path | None = None) -> Ran:
    variables = environment()
    if site is not None:
        variables["PYTHONPATH"] = os.pathsep.join([str(site), variables["PYTHONPATH"]])
    arguments = (
        folder / "specs",
        "--backends",
        folder / "npu.yaml",
        "--out",
        folder / "out",
        *more,
    )
    done = program(
        "run", *arguments, env=variables, timeout=800
    )  # three environments, of which each warms a zygote
    return Ran(folder / "out", done.returncode, done.stdout, done.stderr)


def test_without_the_package_every_case_is_unavailable(specs: Path) -> None:
    found = ran(specs)
    assert found.code == ExitCode.NOTHING, found.stdout + found.stderr
    reason = "the package our_npu is not installed, whose module registers the device npu"
    assert {(result.outcome, result.reason) for result in found.results.values()} == {
        (Outcome.UNAVAILABLE, reason)
    }


ASK = """\
import multiprocessing, sys
import torch
from torch_conformance.worker.torch_compat import device_modules, imports

print(*device_modules.answers(["madeup=vendor_not_forked"]).values())
imports._INTERVALS, imports._SECONDS = 4, 2  # what floods its pipe takes a core for all of it
forks = multiprocessing.get_context("fork")  # a new Python for each imports torch for seconds
multiprocessing.get_context = lambda kind: forks
print(*device_modules.answers(sys.argv[1:]).values(), sep="\\n")
assert not [name for name in sys.modules if name.startswith("vendor_")]
"""

WORKS = """\
import torch, types; torch.utils.rename_privateuse1_backend('madeup'); module = types.ModuleType('madeup')
module.is_available = lambda: True; module.device_count = lambda: 1; module.synchronize = print
torch._register_device_module('madeup', module)
"""  # noqa: E501 - text that is read by its lines
MODULES = {
    "vendor_not_forked": (
        "import multiprocessing; assert 'Fork' not in "
        f"multiprocessing.current_process().name\n{WORKS}",
        "returned True",
    ),
    "vendor_raises": (
        "raise SystemExit('no licence\\nsecond line')",
        "its import raised SystemExit: no licence",
    ),
    "vendor_dies": (
        "import os; os.kill(os.getpid(), 11)",
        "the process that imported its module ended without an answer: SIGSEGV",
    ),
    "vendor_exits": (
        "import os; os._exit(3)",
        "the process that imported its module ended without an answer: exit code 3",
    ),
    "vendor_floods": (
        "while True: print('x' * 10000, flush=True)",
        "the import of its module does not end: it waits, or takes minutes",
    ),
    "vendor_hangs": (
        "import time; time.sleep(600)",
        "the import of its module does not end: it waits, or takes minutes",
    ),
    "vendor_nothing": (
        "",
        "its import raised ImportError: vendor_nothing was imported, and torch has no device "
        "'madeup'",
    ),
    "vendor_renames": (
        "import torch; torch.utils.rename_privateuse1_backend('madeup')",
        "its import raised ImportError: vendor_renames was imported, and torch.madeup has no "
        "is_available, device_count, synchronize",
    ),
    "vendor_hidden": (
        WORKS.replace("True", "False", 1),
        "torch.madeup.is_available() returned False",
    ),
    "vendor_works": (WORKS, "returned True"),
    "vendor_tells": (
        f"{WORKS}module.get_device_name = lambda index: 'Made up 1'\nconformance_facts = "
        f"lambda: {{'driver': 24.1, 'code': 'x' * 999}}\n",
        'returned True\t{"madeup.device": "Made up 1", "madeup.driver": "24.1", "madeup.code": "'
        + "x" * 300
        + '"}',
    ),
}


@pytest.mark.torch
def test_what_a_process_says_of_modules(tmp_path: Path) -> None:
    for name, (text, _) in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    variables = environment() | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])
    }
    command = [
        sys.executable,
        "-c",
        ASK,
        *(f"madeup={name}" for name in MODULES if name != "vendor_not_forked"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env=variables, timeout=240, check=False
    )
    answers = []
    for line in done.stdout.splitlines():
        answer, _, facts = line.partition("\t")
        found = json.loads(facts or "{}")
        found.pop("madeup.module", None)  # the digest of its files
        answers.append(f"{answer}\t{json.dumps(found)}" if found else answer)
    assert answers == [answer for _, answer in MODULES.values()], done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.torch
def test_what_files_say_of_an_amd_machine(tmp_path: Path) -> None:
    from torch_conformance.worker.torch_compat.device_modules import facts_of_amd

    files = {
        "lib/libMIOpen.so": "four",
        "rocm/lib/libMIOpen.so": "",
        "rocm/lib/librocblas.so.5.0.70000": "2!",
        "rocm/.info/version": "7\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "rocm/lib/librocblas.so").symlink_to("librocblas.so.5.0.70000")
    facts = facts_of_amd(tmp_path / "lib", tmp_path / "rocm", tmp_path / "no-driver")
    assert facts == {
        "rocm": "7",
        "miopen": "libMIOpen.so, 4 bytes",
        "rocblas": "librocblas.so.5.0.70000, 2 bytes",
    }


WHOLE = pytest.mark.nightly(
    reason="compiles a C++ extension; the language, the probe and the unavailable case are tested "
    "without it"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    vendor_device.build(folder)
    return folder


@WHOLE
@pytest.mark.torch
def test_specs_of_the_device_run_as_those_of_any_backend(tmp_path: Path, site: Path) -> None:
    found = ran(written(tmp_path), site=site)
    told = found.stdout + found.stderr
    assert found.outcomes == {
        "gradients[backend=npu]": Outcome.PASS,
        "gradients[backend=npu-lazy]": Outcome.FELL_BACK,
        "gradients[backend=npu-wrong]": Outcome.FAIL,
        "kernels[backend=npu]": Outcome.PASS,
        "kernels[backend=npu-lazy]": Outcome.FELL_BACK,
        "kernels[backend=npu-wrong]": Outcome.FAIL,
    }, told
    wrong = found.results["kernels[backend=npu-wrong]"]
    assert "close" in {verdict.kind for verdict in wrong.failed}, told


OWN_OPERATORS = """\
summary: An operator of the device is right
backends: [npu-eager]
function: "def fn(x): return {}"
inputs: [{{rand: [16, 8]}}]
expect: [{{close: {{to: eager}}}}]
"""


@WHOLE
@pytest.mark.torch
def test_kernels_of_the_device_are_the_vendors_and_its_fallback_is_aten(
    tmp_path: Path, site: Path
) -> None:
    (tmp_path / "npu.yaml").write_text(vendor_device.OWN_OPERATORS)
    calls = {"own": "x.floor()", "fallback": "x.sin()", "both": "x.floor() + x"}
    write_specs(tmp_path, {name: OWN_OPERATORS.format(code) for name, code in calls.items()})
    found = ran(tmp_path, site=site)
    assert found.outcomes == {
        "both[backend=npu-eager]": Outcome.FELL_BACK,
        "fallback[backend=npu-eager]": Outcome.FELL_BACK,
        "own[backend=npu-eager]": Outcome.PASS,
    }, found.stdout + found.stderr
    reasons = {name: found.results[f"{name}[backend=npu-eager]"].reason for name in calls}
    assert "0% of 1 operators; by ATen: aten.sin" in reasons["fallback"]
    assert "50% of 2 operators; by ATen: aten.add" in reasons["both"]


@WHOLE
@pytest.mark.torch
def test_an_extension_without_its_library_is_unavailable(tmp_path: Path) -> None:
    folder = written(tmp_path)
    vendor_device.install(folder / "site")
    found = ran(folder, "--backend", "npu", site=folder / "site")
    assert found.code == ExitCode.NOTHING, found.stdout + found.stderr
    reasons = {result.reason for result in found.results.values()}
    assert len(reasons) == 1
    assert reasons.pop().startswith(
        "the device npu of our_npu.torch_conformance: its import raised OSError: "
    )


@WHOLE
@pytest.mark.torch
def test_a_hidden_device_is_unavailable(
    tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPU_HIDDEN", "1")
    found = ran(written(tmp_path), "--backend", "npu", site=site)
    reason = "the device npu of our_npu.torch_conformance: torch.npu.is_available() returned False"
    assert {result.reason for result in found.results.values()} == {reason}
