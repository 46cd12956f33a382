"""How many instances of Composable Kernel torch's generators give, and why one gives none: ``python -m ... FILE`` writes it as JSON.

torch turns an ImportError into an empty generator, and an incomplete package can break the import of ``torch._inductor``. So this runs in
a process of its own, through torch's own functions where they exist, and asks the package itself for the reason.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from runner.core import protocol

_MODULES: Mapping[str, tuple[str, ...]] = {
    "universal_gemm": ("ck4inductor.universal_gemm.gen_instances", "ck4inductor.universal_gemm.op"),
    "batched_gemm": ("ck4inductor.batched_universal_gemm.gen_instances",),
    "grouped_conv": ("ck4inductor.grouped_conv_fwd.gen_instances", "ck4inductor.grouped_conv_fwd.op"),
    "ck_tile": ("ck4inductor.universal_gemm.gen_instances", "ck4inductor.universal_gemm.op"),
}
"""The modules that torch imports before it offers the instances of a generator. Its own templates have those of CK tile."""


def collect() -> dict[str, Any]:
    """Return ``inductor`` (why it cannot be imported), ``counts`` and ``reasons`` by generator."""
    counts: dict[str, int] = {}
    reasons: dict[str, str] = {}
    inductor = _failure(_import_inductor)
    for name, count in _GENERATORS.items():
        if reason := (inductor and "torch._inductor cannot be imported") or _failure(count, counts, name):
            reasons[name] = reason
        if not counts.get(name):
            # torch hides the error that made a generator empty
            reasons[name] = _broken_module(name) or reasons.get(name, "")
    return {"inductor": inductor, "counts": counts, "reasons": reasons}


def _import_inductor() -> None:
    from runner.worker.torch_compat import imports

    imports.import_inductor()


def _universal(counts: dict[str, int], name: str) -> None:
    from torch._inductor.utils import try_import_ck_lib

    counts[name] = len(try_import_ck_lib()[1]())


def _batched(counts: dict[str, int], name: str) -> None:
    # torch imports it within CKGemmTemplate.gen_ops, which needs the tensors of a GEMM
    counts[name] = len(importlib.import_module(_MODULES[name][0]).gen_ops_library())


def _conv(counts: dict[str, int], name: str) -> None:
    counts[name] = len(importlib.import_module("torch._inductor.codegen.rocm.ck_conv_template").gen_conv_ops_library())


def _tile(counts: dict[str, int], name: str) -> None:
    from torch._inductor.utils import try_import_ck_lib

    # torch offers them only where it found the package
    found = try_import_ck_lib()[0]
    template = importlib.import_module("torch._inductor.codegen.rocm.ck_tile_universal_gemm_template")
    counts[name] = len(template.ops()) if found else 0


_GENERATORS: Mapping[str, Callable[[dict[str, int], str], None]] = {
    "universal_gemm": _universal,
    "batched_gemm": _batched,
    "grouped_conv": _conv,
    "ck_tile": _tile,
}


def _failure(function: Callable[..., None], *arguments: Any) -> str:
    try:
        function(*arguments)
    except BaseException as error:  # the package may raise anything, also SystemExit, when it is imported; the reason is what is asked for
        return _described(error)
    return ""


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:300]


def _broken_module(name: str) -> str:
    return next((reason for module in _MODULES[name] if (reason := _failure(_import, module))), "")


def _import(module: str) -> None:
    importlib.import_module(module)


def main() -> None:
    """Write the answer to the file that the command line names."""
    found = collect()
    with open(sys.argv[1], "xb") as stream:
        stream.write(protocol.dumps(protocol.encode(found)))


if __name__ == "__main__":
    main()
