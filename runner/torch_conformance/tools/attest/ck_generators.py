"""How many instances of Composable Kernel torch's generators give, and why one gives none: ``python
-m ...

FILE`` writes it as JSON.

torch turns an ImportError into an empty generator, and an incomplete package can break the import
of ``torch._inductor``. So this runs in a process of its own, through torch's own functions where
they exist, and asks the package itself for the reason.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from torch_conformance.model import protocol
from torch_conformance.worker.torch_compat import imports

_MODULES: Mapping[str, tuple[str, ...]] = {
    "universal_gemm": ("ck4inductor.universal_gemm.gen_instances", "ck4inductor.universal_gemm.op"),
    "batched_gemm": ("ck4inductor.batched_universal_gemm.gen_instances",),
    "grouped_conv": (
        "ck4inductor.grouped_conv_fwd.gen_instances",
        "ck4inductor.grouped_conv_fwd.op",
    ),
    "ck_tile": ("ck4inductor.universal_gemm.gen_instances", "ck4inductor.universal_gemm.op"),
}
"""The modules that torch imports before it offers the instances of a generator.

Its own templates have those of CK tile.
"""


def collect() -> dict[str, Any]:
    """Return ``inductor`` (why it cannot be imported), ``counts`` and ``reasons`` by generator."""
    counts: dict[str, int] = {}
    reasons: dict[str, str] = {}
    _, inductor = _tried(imports.import_inductor)
    for name, modules in _MODULES.items():
        reason = "torch._inductor cannot be imported" if inductor else ""
        if not inductor:
            count, reason = _tried(_count, name)
            if not reason:
                counts[name] = count
        if not counts.get(name):
            # torch hides the error that made a generator empty
            broken = (_tried(importlib.import_module, module)[1] for module in modules)
            reason = next(filter(None, broken), reason)
        if reason or not counts.get(name):
            reasons[name] = reason
    return {"inductor": inductor, "counts": counts, "reasons": reasons}


def _count(name: str) -> int:
    """Return the number of instances of a generator, as torch asks for them."""
    from torch._inductor.utils import try_import_ck_lib

    match name:
        case "universal_gemm":
            return len(try_import_ck_lib()[1]())
        case "batched_gemm":
            # torch imports it within CKGemmTemplate.gen_ops, which needs the tensors of a GEMM
            return len(importlib.import_module(_MODULES[name][0]).gen_ops_library())
        case "grouped_conv":
            return len(
                importlib.import_module(
                    "torch._inductor.codegen.rocm.ck_conv_template"
                ).gen_conv_ops_library()
            )
    # torch offers those of CK tile only where it found the package
    template = importlib.import_module(
        "torch._inductor.codegen.rocm.ck_tile_universal_gemm_template"
    )
    return len(template.ops()) if try_import_ck_lib()[0] else 0


def _tried(function: Callable[..., Any], *arguments: object) -> tuple[Any, str]:
    """Return what a function returned, and the exception that it raised."""
    try:
        return function(*arguments), ""
    except BaseException as error:
        # the package may raise anything, also SystemExit, when it is imported; the reason is what
        # is asked for
        return None, f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:300]


def main() -> None:
    """Write the answer to the file that the command line names."""
    with open(sys.argv[1], "xb") as stream:
        stream.write(protocol.dumps(protocol.encode(collect())))


if __name__ == "__main__":
    main()
