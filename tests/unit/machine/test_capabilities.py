"""What a machine may lack: each probe on machines that have it, lack it, or do not know yet."""

from typing import Any

import pytest

from torch_conformance.machine.capabilities import CAPABILITIES, Machine
from torch_conformance.model.case import Availability

YES, NO, UNKNOWN = Availability.YES, Availability.NO, Availability.UNKNOWN

MACHINE: dict[str, Any] = {"python": (3, 12, 1), "torch": "2.13.0+cpu", "release": (2, 13, 0)}
WITHOUT_TORCH = {"torch": None, "release": None}
CUDA, ROCM = {"builds": {"cuda": "13.0"}}, {"builds": {"hip": "7.0"}}
GIB = 1 << 30
CK: dict[str, Any] = {"found": {"ck": ("/opt/ck",)}}


PROBES: list[tuple[str, str, dict[str, Any], Availability, str]] = [
    ("cuda", "", WITHOUT_TORCH, NO, "torch is not installed"),
    ("cuda", "", {}, NO, "torch 2.13.0+cpu is built without CUDA"),
    ("cuda", "", CUDA, UNKNOWN, "whether torch sees an NVIDIA GPU is known only when torch runs"),
    ("cuda", "", {**CUDA, "gpus": 0}, NO, "no NVIDIA GPU is visible"),
    ("cuda", "", {**CUDA, "gpus": 1}, YES, ""),
    ("rocm", "", CUDA, NO, "torch 2.13.0+cpu is built without ROCm"),
    ("rocm", "", {**ROCM, "gpus": 8}, YES, ""),
    ("triton", "", {}, NO, "triton is not installed"),
    ("triton", "", {"found": {"triton": ("/triton",)}}, YES, ""),
    ("ck", "", {}, NO, "Composable Kernel (the package ck4inductor) is not installed"),
    ("ck", "", CK, YES, ""),
    ("ck", "", {**CK, **ROCM}, UNKNOWN, "the GPU's architecture is known only when torch runs"),
    ("ck", "", {**CK, **ROCM, "arch": "gfx942:sramecc+:xnack-"}, YES, ""),
    (
        "ck",
        "",
        {**CK, **ROCM, "arch": "gfx1100"},
        NO,
        "torch offers Composable Kernel on gfx90a, gfx942, gfx950, and the GPU is gfx1100",
    ),
    (
        "hipcc",
        "",
        {},
        NO,
        "no HIP compiler that torch calls: llvm/bin/clang of ROCm, whose folder $ROCM_HOME or "
        "$ROCM_PATH names",
    ),
    ("hipcc", "", {"found": {"hipcc": ("/opt/rocm/llvm/bin/clang",)}}, YES, ""),
    (
        "cxx",
        "",
        {},
        NO,
        "no C++ compiler that torch calls: $CXX, which is one program, or else g++",
    ),
    ("cxx", "", {"found": {"cxx": ("/usr/bin/g++",)}}, YES, ""),
    ("library", "liba.so", WITHOUT_TORCH, NO, "torch is not installed"),
    (
        "library",
        "liba.so",
        {"found": {"library": ("libtorch.so",)}},
        NO,
        "torch 2.13.0+cpu was installed without liba.so",
    ),
    ("library", "liba.so", {"found": {"library": ("liba.so", "libtorch.so")}}, YES, ""),
    ("redis", "", {}, NO, "the Python package redis is not installed (install the extra 'remote')"),
    ("redis", "", {"found": {"redis": ("/site/redis",)}}, YES, ""),
    ("python", ">3.11.8", {}, YES, ""),
    ("python", "<3.12", {}, NO, "python 3.12.1 is not <3.12"),
    ("torch", ">=2.13", {}, YES, ""),
    ("torch", ">=2.14", {}, NO, "torch 2.13.0+cpu is not >=2.14"),
    ("torch", ">=2.13", WITHOUT_TORCH, NO, "torch is not installed"),
    ("gpus", ">=2", {}, UNKNOWN, "how many GPUs torch sees is known only when torch runs"),
    ("gpus", ">=2", {"gpus": 1}, NO, "1 GPUs visible, >=2 required"),
    ("gpus", ">=2", {"gpus": 2}, YES, ""),
    ("gpu_memory", ">=64GiB", {}, UNKNOWN, "the GPU's memory is known only when torch runs"),
    ("gpu_memory", ">=64GiB", {"gpus": 0}, NO, "no GPU, >=64GiB of memory required"),
    ("gpu_memory", ">=64GiB", {"gpus": 1, "gpu_memory": 64 * GIB}, YES, ""),
    (
        "gpu_memory",
        ">=64GiB",
        {"gpus": 1, "gpu_memory": 64 * GIB - 1},
        NO,
        "the GPU has 64 GiB, >=64GiB required",
    ),
    (
        "gpu_memory",
        ">64GiB",
        {"gpus": 1, "gpu_memory": 64 * GIB},
        NO,
        "the GPU has 64 GiB, >64GiB required",
    ),
    ("gpu_memory", ">= 0.5 GB", {"gpus": 1, "gpu_memory": 500_000_000}, YES, ""),
    ("arch", "sm_80", {}, UNKNOWN, "the GPU's architecture is known only when torch runs"),
    ("arch", "sm_80", {"gpus": 0}, NO, "no GPU, the architecture sm_80 required"),
    ("arch", "sm_80", {"gpus": 1, "arch": "sm_80"}, YES, ""),
    ("arch", "sm_9", {"gpus": 1, "arch": "sm_90"}, NO, "the GPU is sm_90, sm_9 required"),
    ("arch", ">=sm_80", {"gpus": 1, "arch": "sm_75"}, NO, "the GPU is sm_75, >=sm_80 required"),
    ("arch", ">=sm_80", {"gpus": 1, "arch": "sm_100"}, YES, ""),
    ("arch", "<sm_90", {"gpus": 1, "arch": "sm_90"}, NO, "the GPU is sm_90, <sm_90 required"),
    ("arch", ">=sm_80", {"gpus": 1, "arch": "gfx942"}, NO, "the GPU is gfx942, >=sm_80 required"),
    ("arch", "gfx942", {"gpus": 1, "arch": "gfx942:sramecc+:xnack-"}, YES, ""),
    (
        "sms",
        ">=68",
        {},
        UNKNOWN,
        "how many multiprocessors the GPU has is known only when torch runs",
    ),
    ("sms", ">=68", {"gpus": 0}, NO, "no GPU, >=68 multiprocessors required"),
    ("sms", ">=68", {"gpus": 1, "facts": {"sms": 68}}, YES, ""),
    (
        "sms",
        ">=68",
        {"gpus": 1, "facts": {"gpus": 1}},
        NO,
        "torch does not tell how many multiprocessors the GPU has, >=68 required",
    ),
    (
        "sms",
        ">=68",
        {"gpus": 1, "facts": {"sms": 67}},
        NO,
        "the GPU has 67 multiprocessors, >=68 required",
    ),
    (
        *("big_gpu", "", {}, UNKNOWN),
        "whether the GPU is one that Inductor has templates for is known only when torch runs",
    ),
    ("big_gpu", "", {"gpus": 0}, NO, "no GPU, one that Inductor has templates for required"),
    ("big_gpu", "", {"gpus": 1, "facts": {"big_gpu": True}}, YES, ""),
    ("big_gpu", "", {"gpus": 1, "facts": {"big_gpu": "True"}}, YES, ""),
    (
        *("big_gpu", "", {"gpus": 1, "arch": "sm_75", "facts": {"big_gpu": False, "sms": 40}}, NO),
        "Inductor has no templates for the GPU, sm_75 with 40 multiprocessors",
    ),
    (
        *("big_gpu", "", {"gpus": 1, "facts": {"sms": 132}}, NO),
        "torch does not tell whether the GPU is one that Inductor has templates for",
    ),
    (
        "mkldnn",
        "float16",
        {},
        UNKNOWN,
        "whether oneDNN computes float16 on this CPU is known only when torch runs",
    ),
    ("mkldnn", "float16", {"facts": {"mkldnn": "float32 float16"}}, YES, ""),
    (
        *("mkldnn", "float16", {"facts": {"mkldnn": "float32 bfloat16"}}, NO),
        "oneDNN on this CPU does not compute float16 (it computes float32, bfloat16)",
    ),
    (
        *("mkldnn", "float32", {"facts": {"mkldnn": ""}}, NO),
        "oneDNN on this CPU does not compute float32 (it computes nothing: torch is built "
        "without it)",
    ),
    ("call", "json.ask", {}, UNKNOWN, "what json.ask() returns is known only when torch runs"),
    ("call", "json.ask", {"answers": {}}, NO, "json.ask() was not called"),
    ("call", "json.ask", {"answers": {"json.ask": "returned True"}}, YES, ""),
    (
        "call",
        "json.ask",
        {"answers": {"json.ask": "returned False"}},
        NO,
        "json.ask() returned False",
    ),
    (
        "call",
        "json.ask",
        {"answers": {"json.ask": "raised OSError: no"}},
        NO,
        "json.ask() raised OSError: no",
    ),
    (
        *("call", "no_such_package.ask", {}, NO),
        "no_such_package.ask() cannot be called: the module no_such_package is not installed",
    ),
    ("module", "json", {}, YES, ""),
    ("module", "no_such_package", {}, NO, "the module no_such_package is not installed"),
    ("xpu", "", {"builds": {"xpu": "20250101"}, "gpus": 1}, YES, ""),
    (
        "device",
        "npu=json.tool",
        {},
        UNKNOWN,
        "whether torch sees a device npu is known only when torch runs",
    ),
    ("device", "npu=json.tool", {"answers": {"npu=json.tool": "returned True"}}, YES, ""),
    (
        "device",
        "npu=json.tool",
        {"answers": {"npu=json.tool": "odd"}},
        NO,
        "the device npu of json.tool: odd",
    ),
    ("device", "npu=json.tool", {"answers": {}}, NO, "the device npu of json.tool: was not asked"),
    (
        "device",
        "npu=nowhere.x",
        {},
        NO,
        "the package nowhere is not installed, whose module registers the device npu",
    ),
    (
        "compiler",
        "fast@json.tool",
        {},
        UNKNOWN,
        "whether torch knows the compiler fast is known only when torch runs",
    ),
    ("compiler", "fast@", {"answers": {"fast@": "returned True"}}, YES, ""),
    (
        "compiler",
        "fast@json.tool",
        {"answers": {"fast@json.tool": "odd"}},
        NO,
        "the compiler fast of json.tool: odd",
    ),
    (
        "compiler",
        "fast@nowhere.x",
        {},
        NO,
        "the package nowhere is not installed, whose module registers the compiler fast",
    ),
]


@pytest.mark.parametrize(("name", "argument", "machine", "answer", "reason"), PROBES)
def test_probe(
    name: str, argument: str, machine: dict[str, Any], answer: Availability, reason: str
) -> None:
    assert CAPABILITIES[name].answer(Machine(**{**MACHINE, **machine}), argument) == (
        answer,
        reason,
    )


ARGUMENTS: dict[str, tuple[list[str], list[str]]] = {
    "python": ([">3.11.8"], ["3.11"]),
    "torch": ([">=2.12,<2.14"], [""]),
    "gpus": ([">=2"], ["2", ">=" + "9" * 5_000]),
    "gpu_memory": ([">=64GiB", " > 1.5 GB ", ">=64GiB\n"], ["64GiB", ">=64", "<64GiB", ">=64TiB"]),
    "device": (["npu=torch_npu"], ["npu", "npu=a b", "NPU=a", "npu:0=a"]),
    "compiler": (["fast@", "my-fast.one@a.b"], ["fast", "@a", "fast@a b", "fast@1a"]),
    "library": (["libtorchbind_test.so"], ["../lib/libtorch.so", ""]),
    "module": (["transformers", "a.b_c"], ["a..b", ".a", "a.", "a b", "1a", "a-b", "", "ä"]),
    "arch": (["sm_90", ">= sm_80", "gfx90a", "sm_90a"], ["80", ">=gfx942", ">=sm_90a", ""]),
    "sms": ([">=68"], ["68"]),
    "mkldnn": (["float16"], ["half"]),
    "call": (["a.b"], ["a", "a.b()"]),
}
"""Arguments that each takes, and that it refuses."""


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name: str) -> None:
    good, bad = ARGUMENTS[name]
    assert [CAPABILITIES[name].check(argument) for argument in good] == [None] * len(good)
    assert all(CAPABILITIES[name].check(argument) for argument in bad)
