"""Compiles one kernel of Triton for a target: the texts of its stages, the report of the assembler, and the metadata."""

import contextlib
import hashlib
import io
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.core.targets import BINARIES, Target

_ALIGNMENT = 16
"""What ``aligned`` says of an argument: a multiple of so much, which Triton finds out at each launch."""

_NOT_RECORDED = ("hash", "extern_libs")
"""Metadata that depend on the folder of Triton."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """What the compiler made of one kernel."""

    texts: tuple[str, ...]
    """The stages in the order of the target; for NVIDIA, then the report of ptxas."""
    metadata: Mapping[str, Any]
    """Plain values by name."""


def compiled(kernel: Any, arguments: Mapping[str, Any], target: Target) -> Compiled:
    """Compile a kernel; raise whatever Triton raises. ``arguments`` are those of a step ``triton``."""
    from triton import compiler, knobs
    from triton.backends.compiler import GPUTarget

    knobs.nvidia.dump_ptxas_log = True
    source = compiler.ASTSource(kernel, *_signature(kernel, arguments))
    gpu = GPUTarget(target.backend, target.compiler_arch, target.warp_size)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            made = compiler.compile(source, target=gpu, options=dict(arguments.get("options") or {}))
    finally:
        sys.stdout.write(printed.getvalue())
    return taken(made, target, printed.getvalue())


def taken(made: Any, target: Target, printed: str) -> Compiled:
    """Return the texts and metadata of what Triton made; ``printed`` is the report of the assembler."""
    binary = made.asm[BINARIES[target.backend]]
    texts = [made.asm[stage] for stage in target.stages]
    if target.backend == "cuda":
        texts.append(printed)
    own = {"binary_bytes": len(binary), "binary_sha256": hashlib.sha256(binary).hexdigest()}
    return Compiled(texts=tuple(texts), metadata={**_plain(made.metadata._asdict()), **own})


def _signature(kernel: Any, arguments: Mapping[str, Any]) -> tuple[dict[str, str], dict[Any, Any], dict[Any, Any]]:
    """Return types, values and attributes as Triton takes them: the latter two by the place of the argument."""
    names = list(kernel.arg_names)
    values = dict(arguments.get("constexprs") or {})
    types = {name: arguments["signature"].get(name, "constexpr") for name in names}
    attributes: dict[Any, list[list[Any]]] = {}
    for name in arguments.get("aligned") or []:
        attributes.setdefault((names.index(name),), []).append(["tt.divisibility", _ALIGNMENT])
    for name, given in (arguments.get("attributes") or {}).items():
        attributes.setdefault((names.index(name),), []).extend([key, value] for key, value in given.items())
    return types, {(names.index(name),): value for name, value in values.items()}, attributes


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in metadata.items() if name not in _NOT_RECORDED}


def _value(value: Any) -> Any:
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields") and not hasattr(value, "warp_size"):
        return [_value(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def versions() -> dict[str, str]:
    """Return the versions of Triton and of the assemblers that it brings."""
    import triton

    tools = {"ptxas": triton.knobs.nvidia.ptxas, "ptxas_blackwell": triton.knobs.nvidia.ptxas_blackwell}
    return {"offline_triton": triton.__version__, **{f"offline_{name}": str(tool.version) for name, tool in tools.items()}}
