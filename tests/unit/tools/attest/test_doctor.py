"""The checks of ``doctor``: each on machines that have what it looks for, lack it, or have half of
it.

Nothing here imports torch.
"""

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import ck_stand_in
from tests.fakes import case, place, step
from tests.json_schemas import validator
from tests.recorded import recorded
from torch_conformance.machine.capabilities import Machine
from torch_conformance.machine.installed_torch import InstalledTorch, installed_torch
from torch_conformance.model.case import Requirement
from torch_conformance.model.outcomes import Outcome
from torch_conformance.plan.schedule import tools_of
from torch_conformance.tools.attest import machine_checks
from torch_conformance.tools.attest.commands.doctor import as_json, lines, row_of, shown
from torch_conformance.tools.attest.machine_checks import (
    NOTE,
    OK,
    PROBLEM,
    WARNING,
    Finding,
    Printed,
    Scene,
    examine,
    run_program,
)
from torch_conformance.tools.attest.profiles import Prospect

INSTALLED = installed_torch()
assert INSTALLED is not None

FACTS: dict[str, Any] = {"torch": "2.13.0", "gpus": 0, "triton": "3.7.1"}


def torch_for(root: Path = INSTALLED.root, **builds: str) -> InstalledTorch:
    return InstalledTorch(
        version="2.13.0",
        minor="2.13",
        root=root,
        builds={"cuda": None, "hip": None, **builds},
        git="abc",
    )


def scene(tmp_path: Path, torch: InstalledTorch | None = None, **changes: Any) -> Scene:
    """Return a machine whose root is a folder of the test; nothing on it can be run."""
    machine = changes.pop("machine", {})
    made = Machine(
        python=(3, 12, 1),
        torch=torch.version if torch else None,
        release=(2, 13, 0) if torch else None,
        **machine,
    )
    given: dict[str, Any] = {
        "facts": FACTS if torch else None,
        "environ": {"PATH": str(tmp_path / "bin")},
        "run": Answers({}),
    }
    return Scene(machine=made, torch=torch, root=tmp_path, **{**given, **changes})


class Answers:
    """Programs by a part of their command, with what they print."""

    def __init__(self, answers: Mapping[str, Printed]) -> None:
        self.answers = answers
        self.commands: list[list[str]] = []

    def __call__(
        self, command: Sequence[str], *, stdin: bytes = b"", seconds: float = 0
    ) -> Printed:
        self.commands.append(list(command))
        line = " ".join(command)
        return next(
            (printed for part, printed in self.answers.items() if part in line),
            Printed("", "it cannot be started: No such file"),
        )


def made(path: Path, text: str = "", mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def told(findings: Any) -> list[tuple[str, str]]:
    return [(finding.id, finding.level.value) for finding in findings]


def only(findings: Any, id: str) -> Finding:
    (found,) = [finding for finding in findings if finding.id == id]
    return found


# -- findings --------------------------------------------------------------------------------------


def test_a_check_that_cannot_read_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(scene: Scene) -> list[Finding]:
        raise PermissionError(13, "Permission denied", "/proc/x")

    monkeypatch.setattr(
        machine_checks, "CHECKS", (("A", broken), ("B", lambda scene: [Finding("two", OK, "fine")]))
    )
    found = list(examine(scene(tmp_path)))
    assert [(group, finding.id, finding.level) for group, finding in found] == [
        ("A", "broken.unread", WARNING),
        ("B", "two", OK),
    ]
    assert found[0][1].cause == "Permission denied: /proc/x"


# -- Python and torch ------------------------------------------------------------------------------


def test_without_torch_the_rest_is_reported(tmp_path: Path) -> None:
    found = [finding for _, finding in examine(scene(tmp_path))]
    assert only(found, "torch.version").level is PROBLEM
    assert {
        "python.version",
        "cxx.version",
        "cuda.device",
        "rocm.home",
        "ck.package",
        "resources.memory",
    } <= {one.id for one in found}


def test_torch_and_triton(tmp_path: Path) -> None:
    died = scene(
        tmp_path, torch_for(), facts=None, worker_problem="Traceback\n ImportError: libcudart.so.13"
    )
    nightly = dataclasses.replace(
        torch_for(), version="2.99.0.dev20270101+cpu", minor="2.99", git="0123456789abcdef"
    )
    version, untested, _ = machine_checks.torch(scene(tmp_path, nightly))
    assert version.found.startswith("torch 2.99.0.dev20270101+cpu, commit 0123456789ab, ")
    assert (untested.id, untested.level.value) == ("torch.untested", "note")
    worker = only(machine_checks.torch(died), "torch.worker")
    assert (worker.level, worker.cause) == (PROBLEM, "Traceback ImportError: libcudart.so.13")
    broken = scene(
        tmp_path,
        torch_for(),
        facts={**FACTS, "triton": None},
        machine={"found": {"triton": (str(tmp_path),)}},
    )
    for machine, id, level in (
        (scene(tmp_path, torch_for()), "triton.version", "note"),
        (scene(tmp_path, torch_for(cuda="13.0")), "triton.version", "problem"),
        (broken, "triton.import", "problem"),
    ):
        assert told(machine_checks.triton(machine)) == [(id, level)]


# -- compilers -------------------------------------------------------------------------------------

GXX = Printed("g++ (Debian) 12.2.0\nCopyright\n")


def compiled(
    tmp_path: Path, answers: Mapping[str, Printed] | None = None, **environ: str
) -> list[Finding]:
    run = Answers({"--version": GXX, "-fopenmp": Printed("")} if answers is None else answers)
    return list(
        machine_checks.cxx(
            scene(tmp_path, environ={"PATH": str(tmp_path / "bin"), **environ}, run=run)
        )
    )


def test_the_compiler_that_torch_calls(tmp_path: Path) -> None:
    (absent,) = compiled(tmp_path)
    assert (absent.level, absent.remedy) == (PROBLEM, "install g++")
    path = made(tmp_path / "bin" / "clang++", "\x7fELF")
    (absent,) = compiled(tmp_path)  # torch does not fall back to clang
    assert (absent.level, absent.remedy) == (PROBLEM, f"export CXX={path}")
    made(tmp_path / "bin" / "g++", "\x7fELF")
    assert told(compiled(tmp_path)) == [("cxx.version", "ok"), ("cxx.openmp", "ok")]
    assert str(path) in compiled(tmp_path, CXX=str(path))[0].found
    for text in ("ccache g++ --token=geheim", ""):
        (wrong,) = compiled(tmp_path, CXX=text)
        assert (wrong.level, "geheim" in str(wrong), "several words" in wrong.cause) == (
            PROBLEM,
            False,
            bool(text),
        )
    (silent,) = compiled(tmp_path, {"--version": Printed("", "it did not end within 30 s")})
    assert (silent.level, silent.cause) == (PROBLEM, "it did not end within 30 s")
    broken = Printed(
        "In file included\n<stdin>:1: fatal error: omp.h: No such file\ncompilation terminated.",
        "it ended with exit code 1",
    )
    openmp = only(compiled(tmp_path, {"--version": GXX, "-fopenmp": broken}), "cxx.openmp")
    assert (openmp.level, openmp.cause) == (
        PROBLEM,
        "it ended with exit code 1: <stdin>:1: fatal error: omp.h: No such file",
    )


@pytest.mark.parametrize("name", ["ccache", "g++-12"])
def test_what_stands_in_place_of_a_compiler(tmp_path: Path, name: str) -> None:
    made(tmp_path / "other" / name, "")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "g++").symlink_to(f"../other/{name}")
    wrappers = [finding.level for finding in compiled(tmp_path) if finding.id == "cxx.wrapper"]
    assert wrappers == ([] if name == "g++-12" else [WARNING])


def test_programs_are_bounded() -> None:
    assert run_program(["/bin/sh", "-c", "cat; echo two >&2"], stdin=b"one\n") == Printed(
        "one\ntwo\n"
    )
    assert run_program(["/bin/sh", "-c", "exit 3"]).problem == "it ended with exit code 3"
    assert run_program(["/bin/sh", "-c", "kill -9 $$"]).problem == "it was ended by signal 9"
    assert run_program(["/nowhere/cc"]).problem == "it cannot be started: No such file or directory"
    assert (
        run_program(["/bin/sh", "-c", "sleep 60 & sleep 60"], seconds=0.1).problem
        == "it did not end within 0 s"
    )
    assert (
        len(run_program(["/bin/sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x"]).text) == 64_000
    )


@pytest.mark.parametrize(
    ("line", "phase", "tools"),
    [
        (5, "run", {"triton"}),
        (9, "run", {"triton", "cxx"}),
        (1, "run", {"triton", "cxx"}),
        (9, "eager", set()),
        (9, "", set()),
    ],
)
def test_a_crash_concerns_the_tools_of_its_step(line: int, phase: str, tools: set[str]) -> None:
    steps = [step(line=5), step(kind="aot", line=9)]
    of_gpu = case(*steps, requires=(Requirement(name="triton", argument=None, position=place(1)),))
    crashed = dataclasses.replace(recorded("one", Outcome.CRASH), position=place(line), phase=phase)
    assert tools_of(of_gpu, crashed) == tools
    assert tools_of(of_gpu, dataclasses.replace(crashed, node={"name": "another machine"})) == set()
    wrapped = case(*steps, body={"config": {"cpp_wrapper": True}})
    assert tools_of(wrapped, crashed) == ({"cxx"} if tools else set())


# -- accelerators ----------------------------------------------------------------------------------


def card(tmp_path: Path, vendor: str, kind: str = "0x030000") -> None:
    folder = tmp_path / "sys/bus/pci/devices" / f"0000:{len(list(tmp_path.rglob('vendor')))}"
    made(folder / "vendor", f"{vendor}\n")
    made(folder / "class", f"{kind}\n")


def of_device(tmp_path: Path, name: str, torch: InstalledTorch | None, **changes: Any) -> Finding:
    return only(machine_checks.accelerators(scene(tmp_path, torch, **changes)), f"{name}.device")


@pytest.mark.parametrize(
    ("name", "build", "vendor", "node"),
    [
        ("cuda", {"cuda": "13.0"}, "0x10de", "dev/nvidiactl"),
        ("rocm", {"hip": "7.1"}, "0x1002", "dev/kfd"),
    ],
)
def test_devices_against_the_build(
    tmp_path: Path, name: str, build: dict[str, str], vendor: str, node: str
) -> None:
    assert of_device(tmp_path, name, torch_for()).level is NOTE
    found = of_device(tmp_path, name, torch_for(**build))
    assert (found.level, f"no /{node}" in found.found) == (WARNING, True)
    card(tmp_path, "0x8086")
    card(tmp_path, vendor, "0x040300")  # its sound
    assert of_device(tmp_path, name, torch_for(**build)).level is WARNING
    card(tmp_path, vendor)
    found = of_device(tmp_path, name, torch_for(**build))
    assert (found.level, found.cause) == (PROBLEM, "its driver is not loaded")
    assert of_device(tmp_path, name, torch_for()).level is NOTE
    made(tmp_path / node, mode=0o666)
    assert of_device(tmp_path, name, torch_for()).level is WARNING
    found = of_device(tmp_path, name, torch_for(**build), machine={"gpus": 0})
    assert (found.level, found.found) == (PROBLEM, "there are device files, and torch sees no GPU")
    facts = {**FACTS, "device": "A GPU", "driver": "version 1"}
    seen = scene(
        tmp_path,
        torch_for(**build),
        machine={"gpus": 2, "gpu_memory": 64 << 30, "arch": "gfx942"},
        facts=facts,
    )
    found = only(machine_checks.accelerators(seen), f"{name}.device")
    assert (found.level, found.found) == (OK, "torch sees 2 GPUs: A GPU, gfx942, 64 GiB each")


def test_variables_that_change_results_are_shown(tmp_path: Path) -> None:
    names = {
        "MIOPEN_FIND_MODE": NOTE,
        "HIPBLASLT_TUNING_OVERRIDE_FILE": NOTE,
        "HSA_OVERRIDE_GFX_VERSION": WARNING,
    }
    findings = machine_checks.accelerators(
        scene(
            tmp_path,
            environ={**dict.fromkeys(names, "1"), "MIOPEN_OF_OURS": "1", "TORCH_LOGS": "1"},
        )
    )
    assert {finding.found: finding.level for finding in findings if finding.id == "variables"} == {
        f"{name}=1": names[name] for name in names
    }


# -- ROCm ------------------------------------------------------------------------------------------

HIPCC = Printed("HIP version: 7.1.25424-4179531dcd\nAMD clang version 20.0.0git\n")
CPUS = Printed(
    "Target: amdgcn-amd-amdhsa\nAvailable CPUs for this "
    "target:\n\n\tgfx1100\n\tgfx9-4-generic\n\tgfx90a\n\tgfx942\n\tgfx950\n"
)


def test_hipcc_and_its_targets(tmp_path: Path) -> None:
    made(tmp_path / "opt" / "rocm" / "bin" / "hipcc")
    made(tmp_path / "opt" / "rocm" / "llvm" / "bin" / "clang")
    known = {
        "run": Answers({"hipcc --version": HIPCC, "supported-cpus": CPUS}),
        "machine": {"arch": "gfx942:sramecc+:xnack-"},
    }
    found = list(
        machine_checks.rocm(
            scene(tmp_path, torch_for(hip="7.1.25424"), **known, environ={"PATH": ""})
        )
    )
    assert told(found) == [("rocm.home", "ok"), ("rocm.hipcc", "ok"), ("rocm.targets", "ok")]
    assert found[1].found.endswith("HIP 7.1.25424-4179531dcd")
    assert found[2].found.endswith("compiles for gfx1100, gfx90a, gfx942, gfx950")


# -- Composable Kernel -----------------------------------------------------------------------------

COUNTS = {"universal_gemm": 3, "batched_gemm": 3, "grouped_conv": 3, "ck_tile": 40}


@pytest.fixture(autouse=True, scope="module")
def read_once() -> Iterator[None]:
    """Read the sources of torch once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            machine_checks, "headers_of_torch", functools.cache(machine_checks.headers_of_torch)
        )
        yield


def ck(
    tmp_path: Path,
    generators: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    **of_package: Any,
) -> list[Finding]:
    package = ck_stand_in.make(tmp_path / "site", INSTALLED.root, **of_package)
    generators = generators or {"counts": COUNTS, "reasons": {}}
    here = scene(
        tmp_path,
        torch_for(hip="7.1"),
        machine={"found": {"ck": (str(package),)}},
        generators=generators,
        environ={"PATH": "", **(environ or {})},
    )
    return list(machine_checks.composable_kernel(here))


EVERY_HEADER = [*machine_checks.headers_of_torch(INSTALLED.root), "ck/config.h"]


@pytest.mark.parametrize("header", EVERY_HEADER[-3:])
def test_each_missing_header_is_red(tmp_path: Path, header: str) -> None:
    found = only(ck(tmp_path, without=[header]), "ck.header")
    assert found.level is PROBLEM
    assert f"the header {header} is not in" in found.found
    assert ("composablekernel-dev" in found.remedy) == (header == "ck/config.h")


def test_packages_and_generators(tmp_path: Path) -> None:
    assert {finding.level for finding in ck(tmp_path / "whole")} == {OK}
    for name in machine_checks.GENERATORS:
        report = {"counts": {**COUNTS, name: 0}, "reasons": {name: "ModuleNotFoundError: x"}}
        assert [(f.id, f.cause) for f in ck(tmp_path / name, report) if f.level is PROBLEM] == [
            ("ck.generator", "ModuleNotFoundError: x")
        ]
    broken = {"inductor": "ModuleNotFoundError: grouped_conv_fwd", "counts": {}, "reasons": {}}
    assert only(ck(tmp_path / "broken", broken), "ck.import").level is PROBLEM
    silent = only(
        ck(tmp_path / "other", {"problem": "it was ended by signal 11: ..."}), "ck.generators"
    )
    assert (silent.level, silent.cause) == (PROBLEM, "it was ended by signal 11: ...")


# -- what is printed -------------------------------------------------------------------------------

ROW = row_of(
    "rocm",
    "A backend",
    Prospect(required=5, possible=0, missing={"no AMD GPU is visible": 5}),
    False,
    "--backend rocm",
)
PROSPECT = Prospect(
    required=5, possible=1, missing={"a": 2, "b": 1}, uncertain={"c": 1, "d": 1}, problem="?"
)
PROFILE = row_of("rocm 1.0", "A backend", PROSPECT, None, "--profile rocm")
FINDINGS = [
    ("One", Finding("a.b", OK, "fine")),
    ("One", Finding("ck.header", PROBLEM, "a path /x", "because\x1b[31m", "install it")),
    ("Two", Finding("c.d", WARNING, "slow", "why", "do this")),
    ("Two", Finding("e.f", NOTE, "absent")),
]


def test_the_report_ends_with_what_to_do() -> None:
    report = [(group, shown(finding)) for group, finding in FINDINGS]
    printed = list(lines(report, {"backends": [ROW], "profiles": [PROFILE]}, ""))
    assert printed[:2] == ["One", "  ok      fine"]
    row = printed.index("  cannot  rocm: A backend")
    assert printed[row + 1 : row + 3] == [
        "          0 of 5 cases can run",
        "          5 cases: no AMD GPU is visible",
    ]
    row = printed.index("  perhaps rocm 1.0: A backend")
    assert printed[row + 1] == "          1 of 5 cases can run, 2 perhaps; ?"
    assert (
        printed[row + 5] == "          and 1 other reasons (torch-conformance list --profile rocm)"
    )
    assert printed[-4:] == [
        "  problem a path /x",
        "          because because",
        "          next: install it",
        "1 problem, 1 warning",
    ]
    assert "\x1b" not in "".join(printed)


def test_secrets_are_not_shown() -> None:
    finding = shown(
        Finding(
            "a.b",
            PROBLEM,
            "https://user:hunter2@host/x",
            "GITHUB_TOKEN=ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "x",
        )
    )
    assert "hunter2" not in str(finding)
    assert "ghp_" not in str(finding)


@pytest.mark.parametrize("findings", [FINDINGS, FINDINGS[:1]])
def test_the_json_fits_its_schema(findings: list[tuple[str, Finding]]) -> None:
    content = json.loads(json.dumps(as_json(findings, {"backends": [ROW], "profiles": [PROFILE]})))
    validator("doctor").validate(content)
    assert content["healthy"] == (len(findings) == 1)
    content["findings"][0].update(level="problem", remedy="")
    assert not validator("doctor").is_valid(content), "a problem says what to do"
