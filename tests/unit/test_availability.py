"""Whether a case can run here: the first thing that is missing, with a reason that is never blank."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from runner.core.case import Availability
from runner.core.diagnostics import UsageError
from runner.system import availability
from runner.system.availability import TORCH_ROOT
from runner.system.capabilities import CAPABILITIES, Machine
from runner.system.installed_torch import InstalledTorch
from tests.fakes import case, requirement

BARE = Machine(python=(3, 11, 7), torch="2.13.0+cpu", release=(2, 13, 0), gpus=0)
FOUND = {"triton": ("/triton",), "cxx": ("/usr/bin/g++",)}
NVIDIA = replace(BARE, torch="2.13.0+cu130", builds={"cuda": "13.0"}, gpus=2, gpu_memory=80 << 30, found=FOUND)
AMD = replace(NVIDIA, torch="2.13.0+rocm7", builds={"hip": "7.0"}, found={**FOUND, "ck": ("/ck",)})
NONE = replace(BARE, torch=None, release=None)
YES, NO, UNKNOWN = Availability.YES, Availability.NO, Availability.UNKNOWN

PROBES = [
    ("cuda", None, NVIDIA, YES, ""),
    ("cuda", None, BARE, NO, "torch 2.13.0+cpu is built without CUDA"),
    ("cuda", None, AMD, NO, "torch 2.13.0+rocm7 is built without CUDA"),
    ("cuda", None, NONE, NO, "torch is not installed"),
    ("cuda", None, replace(NVIDIA, gpus=0), NO, "no NVIDIA GPU is visible"),
    ("cuda", None, replace(NVIDIA, gpus=None), UNKNOWN, "whether torch sees an NVIDIA GPU is known only when torch runs"),
    ("rocm", None, AMD, YES, ""),
    ("rocm", None, NVIDIA, NO, "torch 2.13.0+cu130 is built without ROCm"),
    ("rocm", None, replace(AMD, gpus=0), NO, "no AMD GPU is visible"),
    ("rocm", None, replace(AMD, gpus=None), UNKNOWN, "whether torch sees an AMD GPU is known only when torch runs"),
    ("rocm", None, NONE, NO, "torch is not installed"),
    ("triton", None, NVIDIA, YES, ""),
    ("triton", None, BARE, NO, "triton is not installed"),
    ("ck", None, AMD, YES, ""),
    ("ck", None, NVIDIA, NO, "Composable Kernel (the package ck4inductor) is not installed"),
    ("cxx", None, NVIDIA, YES, ""),
    ("cxx", None, BARE, NO, "no C++ compiler that torch calls: $CXX, which is one program, or else g++"),
    ("python", ">=3.11", BARE, YES, ""),
    ("python", ">3.11.7", BARE, NO, "python 3.11.7 is not >3.11.7"),
    ("redis", None, replace(BARE, found={"redis": ("/site/redis",)}), YES, ""),
    ("redis", None, BARE, NO, "the Python package redis is not installed (install the extra 'remote')"),
    ("torch", ">=2.13", BARE, YES, ""),
    ("torch", "<2.13", BARE, NO, "torch 2.13.0+cpu is not <2.13"),
    ("torch", ">=2.13", NONE, NO, "torch is not installed"),
    ("gpus", ">=2", NVIDIA, YES, ""),
    ("gpus", ">=3", NVIDIA, NO, "2 GPUs visible, >=3 required"),
    ("gpus", ">=1", replace(NVIDIA, gpus=None), UNKNOWN, "how many GPUs torch sees is known only when torch runs"),
    ("gpu_memory", ">=80GiB", NVIDIA, YES, ""),
    ("gpu_memory", ">80GiB", NVIDIA, NO, "the GPU has 80 GiB, >80GiB required"),
    ("gpu_memory", ">=81GiB", NVIDIA, NO, "the GPU has 80 GiB, >=81GiB required"),
    ("gpu_memory", ">=81GB", NVIDIA, YES, ""),
    ("gpu_memory", ">=1GiB", BARE, NO, "no GPU, >=1GiB of memory required"),
    ("gpu_memory", ">=1GiB", replace(NVIDIA, gpus=None, gpu_memory=None), UNKNOWN, "the GPU's memory is known only when torch runs"),
    ("arch", "sm_90", replace(NVIDIA, arch="sm_90"), YES, ""),
    ("arch", ">=sm_100", replace(NVIDIA, arch="sm_90"), NO, "the GPU is sm_90, >=sm_100 required"),
    ("sms", ">=100", replace(NVIDIA, facts={"sms": 132}), YES, ""),
    ("sms", ">=100", BARE, NO, "no GPU, >=100 multiprocessors required"),
    ("mkldnn", "bfloat16", replace(BARE, facts={"mkldnn": "float32 bfloat16"}), YES, ""),
    (
        *("mkldnn", "float16", replace(BARE, facts={"mkldnn": "float32"}), NO),
        "oneDNN on this CPU does not compute float16 (it computes float32)",
    ),
    ("call", "os.ask", replace(BARE, answers={"os.ask": "returned True"}), YES, ""),
    ("call", "os.ask", replace(BARE, answers={"os.ask": "returned False"}), NO, "os.ask() returned False"),
    ("xpu", None, replace(NVIDIA, builds={"xpu": "20250101"}), YES, ""),
    ("xpu", None, BARE, NO, "torch 2.13.0+cpu is built without XPU"),
    ("device", "npu=json.tool", replace(BARE, answers={"npu=json.tool": "returned True"}), YES, ""),
    ("device", "npu=json.tool", BARE, UNKNOWN, "whether torch sees a device npu is known only when torch runs"),
    (
        *("device", "npu=json.tool", replace(BARE, answers={"npu=json.tool": "its import raised OSError: no"}), NO),
        "the device npu of json.tool: its import raised OSError: no",
    ),
    ("device", "npu=json.tool", replace(BARE, answers={}), NO, "the device npu of json.tool: was not asked"),
    ("device", "npu=nowhere.x", BARE, NO, "the package nowhere is not installed, whose module registers the device npu"),
    ("library", "a.so", replace(BARE, found={"library": ("a.so",)}), YES, ""),
    ("library", "a.so", BARE, NO, "torch 2.13.0+cpu was installed without a.so"),
    ("module", "json", BARE, YES, ""),
    ("module", "json.decoder", BARE, YES, ""),
    ("module", "no_such_module_anywhere", BARE, NO, "the module no_such_module_anywhere is not installed"),
]


@pytest.mark.parametrize(("name", "argument", "machine", "wanted", "reason"), PROBES)
def test_each_probe_and_its_reason(name, argument, machine, wanted, reason):
    found = availability.of_case(case(requires=(requirement(name, argument),)), machine)
    torch_missing = machine.torch is None
    assert found == availability.Verdict(wanted, reason, "" if wanted is YES else "torch" if torch_missing else name)


def test_every_capability_is_probed_both_ways():
    for name in CAPABILITIES.keys() - {"target", "simulated"}:  # answers of compilers, in test_offline.py and test_simulated.py
        assert {wanted for probed, _, _, wanted, _ in PROBES if probed == name} >= {YES, NO}, name


def test_a_device_of_a_vendor_is_a_question_to_a_worker():
    wanted = [requirement("device", "npu=json.tool"), requirement("call", "os.ask"), requirement("module", "json")]
    assert availability.questions_of([case(requires=tuple(wanted)), case(requires=tuple(wanted))]) == ("npu=json.tool", "os.ask")


def test_a_case_that_requires_nothing_runs_where_torch_is():
    assert availability.of_case(case(), BARE) == availability.Verdict(YES)
    assert availability.of_case(case(), NONE) == availability.Verdict(NO, "torch is not installed", "torch")


def test_what_is_missing_comes_before_what_is_not_known():
    machine = replace(NVIDIA, gpus=None, found={})
    found = availability.of_case(case(requires=(requirement("cuda"), requirement("triton"))), machine)
    assert (found.availability, found.capability) == (NO, "triton")


def test_the_first_that_is_not_known_is_named():
    machine = replace(NVIDIA, gpus=None)
    found = availability.of_case(case(requires=(requirement("triton"), requirement("gpus", ">=1"), requirement("cuda"))), machine)
    assert (found.availability, found.capability) == (UNKNOWN, "gpus")


def test_names_that_only_another_torch_has():
    found = availability.of_case(case(missing_names=("config x is not in torch 2.13", "metric y is not in torch 2.13")), BARE)
    assert found == availability.Verdict(NO, "config x is not in torch 2.13; metric y is not in torch 2.13")


def test_a_worker_makes_the_unknown_known():
    machine = replace(NVIDIA, gpus=None, gpu_memory=None)
    informed = availability.with_facts(machine, {"gpus": 1, "gpu_memory": 8 << 30, "arch": "sm_90", "torch": "x"})
    assert (informed.gpus, informed.gpu_memory, informed.arch) == (1, 8 << 30, "sm_90")
    assert informed.facts["torch"] == "x"
    assert availability.with_facts(machine, {}).gpus == 0


@pytest.mark.parametrize(("folder", "version"), [("other", "2.12.1"), ("torch", "2.12.2")])
def test_a_worker_with_another_torch_is_refused(folder, version, tmp_path):
    for name in ("torch", "other"):
        (tmp_path / name).mkdir()
    machine = replace(BARE, torch="2.12.1", torch_root=str(tmp_path / "torch"))
    known = {"torch": "2.12.1", TORCH_ROOT: str(tmp_path / "other" / ".." / "torch")}
    assert availability.with_facts(machine, known).facts == {"torch": "2.12.1"}
    with pytest.raises(UsageError) as caught:
        availability.with_facts(machine, {"torch": version, TORCH_ROOT: str(tmp_path / folder)})
    assert str(caught.value).startswith(
        f"the workers import torch {version} from {tmp_path / folder}, but the specs were read for torch 2.12.1 in {tmp_path / 'torch'} ("
    )
    assert "PYTHONPATH" in str(caught.value)


def test_questions_are_asked_once_and_their_answers_are_no_facts():
    cases = [case(requires=(requirement("call", "os.ask"), requirement("module", "json"))), case(requires=(requirement("call", "os.ask"),))]
    assert availability.questions_of(cases) == ("os.ask",)
    informed = availability.with_facts(BARE, {"answers": {"os.ask": "returned True"}, "mkldnn": "float32"})
    assert informed.answers == {"os.ask": "returned True"}
    assert informed.facts == {"mkldnn": "float32"}
    assert availability.with_facts(BARE, {}).answers == {}


def test_a_glance_says_what_files_say(monkeypatch, tmp_path):
    installed = InstalledTorch(version="2.12.1+cu126", minor="2.12", root=tmp_path, builds={"cuda": "12.6", "hip": None}, git="abc")
    machine = availability.inspect_files(installed)
    assert (machine.torch, machine.release, machine.builds["cuda"]) == ("2.12.1+cu126", (2, 12, 1), "12.6")
    assert machine.python == sys.version_info[:3]
    assert machine.vendor == "nvidia"
    assert availability.inspect_files(None).torch is None


def test_packages_are_found_without_import(monkeypatch, tmp_path):
    for name in ("triton", "ck4inductor"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    importlib.invalidate_caches()
    bare = availability.inspect_files(None)
    assert (bare.found["triton"], bare.found["ck"]) == ((), ())
    for name in ("triton", "ck4inductor"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('this must not be imported')\n")
    importlib.invalidate_caches()
    full = availability.inspect_files(None)
    assert (full.found["triton"], full.found["ck"]) == ((str(tmp_path / "triton"),), (str(tmp_path / "ck4inductor"),))


@pytest.mark.parametrize("node", ["/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd", "/dev/dxg", None])
def test_without_a_device_node_there_is_no_gpu(monkeypatch, node):
    monkeypatch.setattr(Path, "exists", lambda self: str(self) == node)
    assert availability.inspect_files(None).gpus == (None if node else 0)


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
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cxx: str | None, installed: str, found: str | None
) -> None:
    for name in installed.split():
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    if cxx is not None:
        monkeypatch.setenv("CXX", cxx)
    assert availability.inspect_files(None).found["cxx"] == ((str(tmp_path / found),) if found else ())
