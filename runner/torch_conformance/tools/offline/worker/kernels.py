"""Compiles one kernel of Triton for a target: the texts of its stages, the report of the assembler,
and the metadata; and the canaries.

Canaries are kernels with a known result, compiled before any case of a target. A failed canary
makes the target unavailable.
"""

import contextlib
import hashlib
import io
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch_conformance.model.protocol import Json
from torch_conformance.model.targets import Target
from torch_conformance.model.values import frozen
from torch_conformance.tools.offline import problems_of_texts
from torch_conformance.vocabulary.expectations.compiled_kernels import code_of_stage
from torch_conformance.worker.case.source_module import SpecModule

if TYPE_CHECKING:
    from triton.compiler import CompiledKernel
    from triton.runtime import JITFunction

_ALIGNMENT = 16
"""What ``aligned`` says of an argument: a multiple of so much, which Triton finds out at each
launch.
"""

_NOT_RECORDED = ("hash", "extern_libs")
"""Metadata that depend on the folder of Triton."""


@frozen
class Compiled:
    """What the compiler made of one kernel."""

    texts: tuple[str, ...]
    """The stages in the order of the target; for NVIDIA, then the report of ptxas."""
    metadata: Mapping[str, Any]
    """Plain values by name."""


def compiled(kernel: "JITFunction", arguments: Mapping[str, Any], target: Target) -> Compiled:
    """Compile a kernel; raise whatever Triton raises.

    ``arguments`` are those of a step ``triton``.
    """
    from triton import compiler, knobs
    from triton.backends.compiler import GPUTarget

    knobs.nvidia.dump_ptxas_log = True
    names = list(kernel.arg_names)
    types = {name: arguments["signature"].get(name, "constexpr") for name in names}
    # values and attributes are by the place of the argument
    values = {
        (names.index(name),): value for name, value in (arguments.get("constexprs") or {}).items()
    }
    attributes: dict[Any, list[list[Any]]] = {}
    for name in arguments.get("aligned") or []:
        attributes.setdefault((names.index(name),), []).append(["tt.divisibility", _ALIGNMENT])
    for name, settings in (arguments.get("attributes") or {}).items():
        attributes.setdefault((names.index(name),), []).extend(
            [key, value] for key, value in settings.items()
        )
    source = compiler.ASTSource(kernel, types, values, attributes)
    gpu = GPUTarget(target.backend, target.compiler_arch, target.warp_size)
    options = dict(arguments.get("options") or {})
    with printed() as report:
        compiled_kernel = compiler.compile(source, target=gpu, options=options)
    return artifacts_of(compiled_kernel, target, report.getvalue())


@contextlib.contextmanager
def printed() -> Iterator[io.StringIO]:
    """Keep what is printed in this context, and print it at the end."""
    text = io.StringIO()
    try:
        with contextlib.redirect_stdout(text):
            yield text
    finally:
        sys.stdout.write(text.getvalue())


def artifacts_of(compiled_kernel: "CompiledKernel", target: Target, printed: str) -> Compiled:
    """Return the texts and metadata of what Triton made; ``printed`` is the report of the
    assembler.
    """
    binary = compiled_kernel.asm[{"hip": "hsaco", "cuda": "cubin"}[target.backend]]
    texts = [compiled_kernel.asm[stage] for stage in target.stages]
    if target.backend == "cuda":
        texts.append(printed)
    plain = {
        name: _value(value)
        for name, value in compiled_kernel.metadata._asdict().items()
        if name not in _NOT_RECORDED
    }
    of_binary = {"binary_bytes": len(binary), "binary_sha256": hashlib.sha256(binary).hexdigest()}
    return Compiled(texts=tuple(texts), metadata={**plain, **of_binary})


def _value(value: object) -> Json:
    """Return a value of Triton's metadata as plain data."""
    if (
        isinstance(value, list | tuple | set | frozenset)
        and not hasattr(value, "_fields")
        and not hasattr(value, "warp_size")
    ):
        return [_value(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def versions() -> dict[str, str]:
    """Return the versions of Triton and of the assemblers that it brings."""
    import triton

    tools = {
        "ptxas": triton.knobs.nvidia.ptxas,
        "ptxas_blackwell": triton.knobs.nvidia.ptxas_blackwell,
    }
    return {
        "offline_triton": triton.__version__,
        **{f"offline_{name}": str(tool.version) for name, tool in tools.items()},
    }


# -- canaries --------------------------------------------------------------------------------------

CANARIES = ("target", "instruction", "mutant")
"""What is tried, in order: the code names the target; a matrix product has its instruction; another
dtype gives other instructions.
"""

INSTRUCTIONS: Mapping[str, str] = {
    **dict.fromkeys(("hip:gfx90a", "hip:gfx942", "hip:gfx950"), "v_mfma_f32_"),
    **dict.fromkeys(("hip:gfx1100", "hip:gfx1151", "hip:gfx1201", "hip:gfx1250"), "v_wmma_f32_"),
    **dict.fromkeys(("cuda:sm_80", "cuda:sm_120"), "mma.sync."),
    "cuda:sm_90": "wgmma.mma_async.",
    "cuda:sm_100": "tcgen05.mma.",
}
"""The beginning of the instruction that multiplies matrices, from the manuals of the architectures.
"""

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
"""  # noqa: E501 - text that is read by its lines
_ADD = {"signature": {"x": "*fp32", "y": "*fp32", "out": "*fp32"}, "constexprs": {"BLOCK": 256}}


def canary_problems(target: Target) -> Iterator[str]:
    """Yield why the compiler for a target cannot be trusted."""
    block = {"name": "canary", "file": "<canaries>", "line": 1, "text": _SOURCE}
    module = SpecModule("canaries", {})
    texts = compiled(module.function(block, "canary_add"), _ADD, target)
    yield from (
        f"canary '{CANARIES[0]}': {problem}"
        for problem in problems_of_texts(target, ["canary_add"], texts.texts)
    )
    dot = module.function(block, "canary_dot")
    shape = {
        "constexprs": {"M": 128, "N": 64, "K": 64},
        "aligned": ["x", "y", "out"],
        "options": {"num_warps": 4},
    }
    products = (
        compiled(
            dot, {**shape, "signature": {"x": f"*{name}", "y": f"*{name}", "out": "*fp32"}}, target
        )
        for name in ("bf16", "fp16")
    )
    bf16, fp16 = (
        code_of_stage(product.texts[target.stages.index(target.isa)], target.isa).text
        for product in products
    )
    yield from problems_of_products(target, bf16, fp16)


def problems_of_products(target: Target, bf16: str, fp16: str) -> Iterator[str]:
    """Yield what is wrong with the instructions of two matrix products, which differ in their
    dtype.
    """
    if (instruction := INSTRUCTIONS[target.name]) not in bf16:
        yield f"canary 'instruction': a matrix product has no {instruction}"
    if bf16 == fp16:
        yield "canary 'mutant': the instructions of bf16 and fp16 are equal"
