"""Whether a case can run here: the first thing that is missing, with a reason that is never
blank.
"""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import case, requirement
from tests.unit.language.test_names import make_torch
from torch_conformance.machine import capabilities
from torch_conformance.machine.capabilities import CAPABILITIES, TORCH_ROOT, Machine
from torch_conformance.machine.installed_torch import torch_at
from torch_conformance.model.case import Availability
from torch_conformance.model.diagnostics import UsageError

BARE = Machine(python=(3, 11, 7), torch="2.13.0+cpu", release=(2, 13, 0), gpus=0)
FOUND = {"triton": ("/triton",), "cxx": ("/usr/bin/g++",)}
NVIDIA = replace(
    BARE, torch="2.13.0+cu130", builds={"cuda": "13.0"}, gpus=2, gpu_memory=80 << 30, found=FOUND
)
NONE = replace(BARE, torch=None, release=None)
YES, NO, UNKNOWN = Availability.YES, Availability.NO, Availability.UNKNOWN


@pytest.mark.parametrize(
    ("name", "argument", "machine", "expected"),
    [
        ("cuda", None, NVIDIA, capabilities.CaseAvailability(YES)),
        (
            "cuda",
            None,
            BARE,
            capabilities.CaseAvailability(NO, "torch 2.13.0+cpu is built without CUDA", "cuda"),
        ),
        (
            "gpus",
            ">=3",
            NVIDIA,
            capabilities.CaseAvailability(NO, "2 GPUs visible, >=3 required", "gpus"),
        ),
        (
            "module",
            "json",
            NONE,
            capabilities.CaseAvailability(NO, "torch is not installed", "torch"),
        ),
    ],
)
def test_a_verdict_has_the_answer_of_the_capability_and_its_name(name, argument, machine, expected):
    assert (
        capabilities.availability_of(case(requires=(requirement(name, argument),)), machine)
        == expected
    )


def test_what_is_missing_comes_before_what_is_not_known():
    machine = replace(NVIDIA, gpus=None, found={})
    found = capabilities.availability_of(
        case(requires=(requirement("cuda"), requirement("triton"))), machine
    )
    assert (found.availability, found.capability) == (NO, "triton")


def test_a_worker_makes_the_unknown_known():
    machine = replace(NVIDIA, gpus=None, gpu_memory=None)
    informed = capabilities.with_facts(
        machine, {"gpus": 1, "gpu_memory": 8 << 30, "arch": "sm_90", "torch": "x"}
    )
    assert (informed.gpus, informed.gpu_memory, informed.arch) == (1, 8 << 30, "sm_90")
    assert informed.facts["torch"] == "x"
    assert capabilities.with_facts(machine, {}).gpus == 0


@pytest.mark.parametrize(("folder", "version"), [("other", "2.12.1"), ("torch", "2.12.2")])
def test_a_worker_with_another_torch_is_refused(folder, version, tmp_path):
    for name in ("torch", "other"):
        (tmp_path / name).mkdir()
    machine = replace(BARE, torch="2.12.1", torch_root=str(tmp_path / "torch"))
    known = {"torch": "2.12.1", TORCH_ROOT: str(tmp_path / "other" / ".." / "torch")}
    assert capabilities.with_facts(machine, known).facts == {"torch": "2.12.1"}
    with pytest.raises(UsageError) as caught:
        capabilities.with_facts(machine, {"torch": version, TORCH_ROOT: str(tmp_path / folder)})
    assert str(caught.value).startswith(
        f"the workers import torch {version} from {tmp_path / folder}, but the specs were "
        f"read for torch 2.12.1 in {tmp_path / 'torch'} ("
    )
    assert "PYTHONPATH" in str(caught.value)


def test_packages_are_found_without_import(monkeypatch, tmp_path):
    for name in ("triton", "ck4inductor"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setenv("ROCM_HOME", str(tmp_path))
    importlib.invalidate_caches()
    bare = capabilities.inspect_files(None)
    assert (bare.found["triton"], bare.found["ck"], bare.found["hipcc"]) == ((), (), ())
    clang = tmp_path / "llvm" / "bin" / "clang"
    clang.parent.mkdir(parents=True)
    clang.touch(0o755)
    for name in ("triton", "ck4inductor"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(
            "raise SystemExit('this must not be imported')\n"
        )
    importlib.invalidate_caches()
    full = capabilities.inspect_files(None)
    assert (full.found["triton"], full.found["ck"]) == (
        (str(tmp_path / "triton"),),
        (str(tmp_path / "ck4inductor"),),
    )
    assert full.found["hipcc"] == (str(clang),)


@pytest.mark.parametrize(
    ("config", "gpu", "reason"),
    [
        (
            'class rocm:\n    ck_supported_arch: list[Literal["gfx942"]] = ["gfx942"]\n',
            "gfx942",
            "",
        ),
        # one that torch 2.14 does not have
        (
            'class rocm:\n    ck_supported_arch = [\n        "gfx942",\n        "gfx1250",\n    ]',
            "gfx1250",
            "",
        ),
        (
            'class rocm:\n    ck_supported_arch: list[str] = ["gfx942"]\n',
            "gfx90a",
            "torch offers Composable Kernel on gfx942, and the GPU is gfx90a",
        ),
        (
            "class rocm:\n    arch = []\n",
            "gfx942",
            "torch offers Composable Kernel on no GPU, and the GPU is gfx942",
        ),
    ],
)
def test_where_composable_kernel_is_offered_is_read_from_the_installed_torch(
    tmp_path: Path, config: str, gpu: str, reason: str
) -> None:
    torch = torch_at(make_torch(tmp_path, _inductor__config=config))
    machine = replace(
        capabilities.inspect_files(torch),
        found={"ck": ("/ck4inductor",)},
        builds={"hip": "7.0"},
        gpus=1,
        arch=gpu,
    )
    assert CAPABILITIES["ck"].answer(machine, "")[1] == reason


@pytest.mark.parametrize(
    ("cxx", "installed", "found"),
    [
        (None, "g++ clang++", "g++"),
        (None, "clang++", None),  # torch does not look for it
        ("clang++", "g++ clang++", "clang++"),
        ("not-there", "g++", None),  # torch does not fall back
        ("g++ -std=c++20", "g++", None),  # torch starts the whole value as one program
        ("", "g++", None),
    ],
)
def test_the_compiler_is_the_one_that_torch_calls(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    cxx: str | None,
    installed: str,
    found: str | None,
) -> None:
    for name in installed.split():
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    if cxx is not None:
        monkeypatch.setenv("CXX", cxx)
    assert capabilities.inspect_files(None).found["cxx"] == (
        (str(tmp_path / found),) if found else ()
    )
