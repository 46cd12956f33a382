"""Functions with a known result, lowered and compiled for a simulated target before any case of it."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runner.core.simulated import PROPERTIES
from runner.core.targets import Target
from runner.vocabulary.offline import isa
from runner.worker.offline import simulated_kernels
from runner.worker.offline.canaries import INSTRUCTIONS
from runner.worker.torch_compat import option_state
from runner.worker.torch_compat import simulated_codegen as codegen

NAMES = ("device", "target", "instruction", "mutant")
"""What is tried, in order: the wrapper names the device's properties; the code names the target; a matrix product has its instruction;
another dtype gives other instructions."""

_ONE_TEMPLATE = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}
_NUMBERS = ("multi_processor_count", "major", "regs_per_multiprocessor", "max_threads_per_multi_processor", "warp_size")


def problems(target: Target) -> Iterator[str]:
    """Yield why the code for a simulated target cannot be trusted."""
    graphs = lowered(lambda x, y: (x + y,), [(64, 64), (64, 64)], "float32")
    yield from (f"canary '{NAMES[0]}': {problem}" for problem in device_problems(target, "\n".join(one.wrapper for one in graphs)))
    made = simulated_kernels.compiled(graphs, target)
    if made is None:
        yield f"canary '{NAMES[1]}': no kernel was generated for a sum"
        return
    kernels = [source.name for graph in graphs for source in codegen.sources(graph.wrapper)]
    yield from (f"canary '{NAMES[1]}': {problem}" for problem in isa.problems(target, kernels, made.texts))
    bf16, fp16 = (_product(target, dtype) for dtype in ("bfloat16", "float16"))
    wanted = INSTRUCTIONS[target.name]
    if wanted not in bf16:
        yield f"canary '{NAMES[2]}': a matrix product has no {wanted}"
    if bf16 == fp16:
        yield f"canary '{NAMES[3]}': the instructions of bf16 and fp16 are equal"


def device_problems(target: Target, wrapper: str) -> Iterator[str]:
    """Yield what a wrapper says of the device otherwise than the table."""
    given = re.search(r"DeviceProperties\(type='(\w+)', ([^)]*)\)", wrapper)
    if given is None:
        yield "the wrapper names no device"
        return
    found = dict(part.split("=", 1) for part in given[2].split(", "))
    cc = str(target.compiler_arch) if target.backend == "cuda" else f"'{target.arch}'"
    wanted = {"type": target.backend, "cc": cc, **{name: str(PROPERTIES[target.name][name].value) for name in _NUMBERS}}
    for name, value in wanted.items():
        if (said := {**found, "type": given[1]}.get(name)) != value:
            yield f"the wrapper has {name} {said}, the table {value}"


def _product(target: Target, dtype: str) -> str:
    made = simulated_kernels.compiled(lowered(lambda x, y: (x @ y,), [(256, 128), (128, 256)], dtype, _ONE_TEMPLATE, largest=True), target)
    return isa.code_of_stage(made.texts[target.stages.index(target.isa)], target.isa).text if made else ""


def lowered(
    function: Callable[..., Any],
    shapes: list[tuple[int, ...]],
    dtype: str,
    config: Mapping[str, Any] | None = None,
    *,
    largest: bool = False,
) -> list[codegen.Graph]:
    """Return the graphs of a function of tensors. ``largest``: of a GEMM, only the template with the largest blocks is left."""
    import torch
    from torch._subclasses import FakeTensorMode

    torch._dynamo.reset()
    codegen.take(compiles_candidates=False)
    pinned = {"test_configs.autotune_choice_desc_regex": r"BLOCK_M=128, BLOCK_N=(128|64)\b.*num_warps=(4|8)"} if largest else {}
    wanted = {**codegen.FIXED, "config": {**codegen.FIXED["config"], **(config or {}), **pinned}}
    with option_state.patched_options(wanted), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        given = [torch.empty(shape, dtype=getattr(torch, dtype), device="cuda") for shape in shapes]
        with contextlib.suppress(codegen.Lowered):
            torch.compile(function, fullgraph=True)(*given)
        return codegen.take().graphs
