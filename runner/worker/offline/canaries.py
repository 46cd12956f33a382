"""Kernels with a known result, compiled for a target before any case of it: a compiler that does not pass them is not used.

They are compiled as those of specs are. A failed canary makes the target unavailable: no case of it is judged.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from runner.core.targets import Target
from runner.vocabulary.offline import isa
from runner.worker.case.source_module import SpecModule
from runner.worker.offline.kernels import Compiled, compiled

NAMES = ("target", "instruction", "mutant")
"""What is tried, in order: the code names the target; a matrix product has its instruction; another dtype gives other instructions."""

INSTRUCTIONS: Mapping[str, str] = {
    "hip:gfx90a": "v_mfma_f32_",
    "hip:gfx942": "v_mfma_f32_",
    "hip:gfx950": "v_mfma_f32_",
    "hip:gfx1100": "v_wmma_f32_",
    "hip:gfx1201": "v_wmma_f32_",
    "cuda:sm_80": "mma.sync.",
    "cuda:sm_90": "wgmma.mma_async.",
    "cuda:sm_100": "tcgen05.mma.",
    "cuda:sm_120": "mma.sync.",
}
"""The beginning of the instruction that multiplies matrices, from the manuals of the architectures."""

_SOURCE = """
import triton
import triton.language as tl


@triton.jit
def canary_add(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i))


@triton.jit
def canary_dot(x, y, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    product = tl.dot(tl.load(x + m[:, None] * K + k[None, :]), tl.load(y + k[:, None] * N + n[None, :]))
    tl.store(out + m[:, None] * N + n[None, :], product)
"""
_ADD = {"signature": {"x": "*fp32", "y": "*fp32", "out": "*fp32"}, "constexprs": {"BLOCK": 256}}


def problems(target: Target) -> Iterator[str]:
    """Yield why the compiler for a target cannot be trusted."""
    block = {"name": "canary", "file": "<canaries>", "line": 1, "text": _SOURCE}
    module = SpecModule("canaries", {}, lambda file, names: None)
    texts = compiled(module.function(block, "canary_add"), _ADD, target)
    yield from (f"canary '{NAMES[0]}': {problem}" for problem in isa.problems(target, ["canary_add"], texts.texts))
    dot = module.function(block, "canary_dot")
    bf16, fp16 = (_instructions(compiled(dot, _dot_of(dtype), target), target) for dtype in ("bf16", "fp16"))
    wanted = INSTRUCTIONS[target.name]
    if wanted not in bf16:
        yield f"canary '{NAMES[1]}': a matrix product has no {wanted}"
    if bf16 == fp16:
        yield f"canary '{NAMES[2]}': the instructions of bf16 and fp16 are equal"


def _dot_of(dtype: str) -> dict[str, Any]:
    signature = {"x": f"*{dtype}", "y": f"*{dtype}", "out": "*fp32"}
    return {"signature": signature, "constexprs": {"M": 128, "N": 64, "K": 64}, "aligned": ["x", "y", "out"], "options": {"num_warps": 4}}


def _instructions(made: Compiled, target: Target) -> str:
    return isa.code_of_stage(made.texts[target.stages.index(target.isa)], target.isa).text
