r"""Compares Inductor's code for a simulated GPU with its code on the real one.

On a machine with the GPU, from the root of the project (about a minute; torch, Triton and g++ are
all that it needs)::

    S="python3 -m tools.benchmarks.calibrate_simulation"; export PYTHONPATH=runner
    ($S dump --mode real --out $OUT/real.json > $OUT/real.log 2>&1) &
    ($S dump --mode simulated --out $OUT/simulated.json > $OUT/simulated.log 2>&1); wait
    $S compare $OUT/real.json $OUT/simulated.json | tee $OUT/compare.txt

``dump --mode real`` compiles and runs each case on the GPU; ``dump --mode simulated`` generates and
compiles the same with the device hidden, by the same torch. Both write the wrappers, the candidates
of autotuning, and PTX and metadata of each configuration of each kernel. ``compare`` prints what
differs without what ``NORMALIZED`` leaves out, and exits with 1 where something differs.
"""

import argparse
import contextlib
import difflib
import json
import os
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.reports import table

_GEMM = {
    "max_autotune": True,
    "max_autotune_gemm_backends": "TRITON",
    # of the candidates one is left, so that nothing is timed
    "test_configs.autotune_choice_desc_regex": "BLOCK_K=32, BLOCK_M=64, BLOCK_N=64.*"
    "num_stages=2, num_warps=4",
}


@dataclass(frozen=True)
class Case:
    """A function, as source, and the shapes of its arguments, which are normal numbers."""

    function: str
    shapes: Sequence[Sequence[int]]
    dtype: str = "float32"
    config: Mapping[str, Any] = field(default_factory=dict)
    dynamic: bool | None = None
    backward: bool = False

    def build(self) -> tuple[Any, list[Any]]:
        """Return the function and its arguments, on the device."""
        import torch

        with torch.device("cuda"):
            function = eval(
                self.function, {"torch": torch, "F": torch.nn.functional, **vars(torch.nn)}
            )
            kind = getattr(torch, self.dtype)
            inputs = [torch.randn(*shape, dtype=kind) for shape in self.shapes]
        if self.backward and not isinstance(function, torch.nn.Module):
            inputs = [part.requires_grad_() for part in inputs]
        return function, inputs


_CONV = "Sequential(Conv2d(3, 32, 3, stride=2), BatchNorm2d(32), ReLU()).eval()"
CASES: Mapping[str, Case] = {
    "pointwise": Case("lambda x, y: F.gelu(x) + y * 2", [(64, 1024)] * 2),
    "reduction": Case("lambda x: x.sum(-1)", [(512, 4096)]),
    "long_reduction": Case("lambda x: x.sum()", [(2048, 4096)]),
    "softmax": Case("lambda x: x.softmax(-1)", [(64, 1024)]),
    "wide_softmax": Case("lambda x: x.softmax(-1)", [(64, 32768)]),
    "dynamic_softmax": Case("lambda x: x.softmax(-1)", [(64, 1000)], dynamic=True),
    "layer_norm": Case("lambda x: F.layer_norm(x, (4096,))", [(64, 4096)], "bfloat16"),
    "transposed_add": Case("lambda x, y: x.t() + y", [(512, 256), (256, 512)]),
    "cumsum": Case("lambda x: x.cumsum(-1)", [(64, 2048)]),
    "argmax": Case("lambda x: x.argmax(-1)", [(64, 2048)]),
    "index": Case("lambda x, y: x[(y[:, 0] > 0).long()] + 1", [(64, 256), (64, 8)]),
    "dropout": Case("lambda x: F.dropout(x, 0.5)", [(64, 1024)]),
    "mm_template": Case("lambda a, b: a @ b", [(512, 256), (256, 1024)], "bfloat16", _GEMM),
    "mm_bias_relu": Case(
        "lambda a, b, c: torch.relu(a @ b + c)",
        [(512, 256), (256, 1024), (1024,)],
        "bfloat16",
        _GEMM,
    ),
    "bmm_template": Case("torch.bmm", [(8, 256, 128), (8, 128, 256)], "float16", _GEMM),
    "mm_without_autotune": Case("lambda a, b: torch.relu(a @ b)", [(512, 256), (256, 512)]),
    "padding": Case(
        "lambda a, b: a @ b",
        [(511, 255), (255, 1023)],
        "float16",
        {"shape_padding": True, "force_shape_pad": True},
    ),
    "conv_frozen": Case(_CONV, [(3, 3, 32, 32)], config={"freezing": True}),
    "conv": Case(_CONV, [(3, 3, 32, 32)]),
    "linear_norm_backward": Case(
        "Sequential(Linear(64, 64), LayerNorm(64))", [(32, 64)], backward=True
    ),
    "gelu_backward": Case("lambda x: F.gelu(x).sum()", [(64, 1024)], backward=True),
}

_PROPERTIES = """
    name major minor multi_processor_count regs_per_multiprocessor max_threads_per_multi_processor
    warp_size max_threads_per_block total_memory L2_cache_size shared_memory_per_block
    shared_memory_per_block_optin shared_memory_per_multiprocessor gcnArchName
""".split()


# -- dump ------------------------------------------------------------------------------------------


def dump(options: argparse.Namespace) -> int:
    """Compile every case, and write what was generated."""
    began, scratch = time.monotonic(), tempfile.mkdtemp(prefix="calibrate-")
    os.environ.update(
        TORCHINDUCTOR_CACHE_DIR=f"{scratch}/inductor",
        TRITON_CACHE_DIR=f"{scratch}/triton",
        TRITON_DISABLE_LINE_INFO="1",
    )
    if options.mode == "simulated":
        from torch_conformance.model.targets import TARGETS
        from torch_conformance.tools.offline.worker.zygote import install

        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        install(TARGETS[options.target], Path(scratch))
    import torch
    import triton

    record: dict[str, Any] = {
        "mode": options.mode,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "scratch": scratch,
    }
    properties = torch.cuda.get_device_properties(0)
    record["properties"] = {name: getattr(properties, name, None) for name in _PROPERTIES}
    run = _simulated_case if options.mode == "simulated" else _real_case
    record["cases"] = {}
    for name, case in CASES.items():
        if not options.case or name in options.case:
            try:
                record["cases"][name] = run(case)
            except Exception:  # whatever a case raises is written, and the next one follows
                record["cases"][name] = {"raised": traceback.format_exc()[-3000:]}
            outcome = record["cases"][name].get("raised", "ok")[-200:]
            print(f"{time.monotonic() - began:6.1f} s  {name}  {outcome}", flush=True)
    Path(options.out).write_text(json.dumps(record, indent=1, default=str))
    sys.stdout.flush()
    os._exit(0)  # threads of a simulated device end a normal exit


def _options(case: Case, *, simulated: bool) -> contextlib.ExitStack:
    import torch._functorch.config as functorch_config
    import torch._inductor.config as config

    from torch_conformance.tools.offline.simulated_options import FIXED

    options: dict[str, Any] = {"use_static_cuda_launcher": False, **case.config}
    stack = contextlib.ExitStack()
    if simulated:
        stack.enter_context(functorch_config.patch(dict(FIXED["functorch_config"])))
        options = {**FIXED["config"], **options}
    else:
        options = {"force_disable_caches": True, **options}
    stack.enter_context(config.patch(options))
    return stack


def _simulated_case(case: Case) -> dict[str, Any]:
    import torch
    from torch._subclasses import FakeTensorMode

    from torch_conformance.tools.offline.worker import simulated_codegen as codegen

    torch._dynamo.reset()
    codegen.take()
    choices = _recorded_choices()
    with _options(case, simulated=True):
        with (
            FakeTensorMode(allow_non_fake_inputs=True),
            contextlib.nullcontext() if case.backward else torch.no_grad(),
        ):
            function, inputs = case.build()
            with contextlib.suppress(codegen.Lowered):
                torch.compile(function, dynamic=case.dynamic)(*inputs)
        wrappers = [graph.wrapper for graph in codegen.take().graphs]
        return {"wrappers": wrappers, "choices": list(choices), "kernels": _kernels(wrappers)}


def _real_case(case: Case) -> dict[str, Any]:
    import torch
    from torch._inductor.graph import GraphLowering

    torch._dynamo.reset()
    wrappers: list[str] = []
    GraphLowering.save_output_code = staticmethod(wrappers.append)
    choices = _recorded_choices()
    loads = _recorded_loads()
    with _options(case, simulated=False):
        with contextlib.nullcontext() if case.backward else torch.no_grad():
            function, inputs = case.build()
            result = torch.compile(function, dynamic=case.dynamic)(*inputs)
            if case.backward:
                result.sum().backward()
        torch.cuda.synchronize()
        launched = dict(loads)
        return {
            "wrappers": wrappers,
            "choices": list(choices),
            "kernels": _kernels(wrappers),
            "launched": launched,
        }


_choices: list[list[str]] = []


def _recorded_choices() -> list[list[str]]:
    """Begin to record the candidates of each selection, in the order in which Inductor lists
    them.
    """
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    if not hasattr(AlgorithmSelectorCache, "calibrated"):
        original = AlgorithmSelectorCache.__call__

        def recording(selector: Any, name: Any, choices: Any, *args: Any, **kwargs: Any) -> Any:
            _choices.append(
                [
                    f"{name} {type(choice).__name__} {getattr(choice, 'description', '')}"
                    for choice in choices
                ]
            )
            return original(selector, name, choices, *args, **kwargs)

        AlgorithmSelectorCache.__call__ = recording
        AlgorithmSelectorCache.calibrated = True
    _choices.clear()
    return _choices


def _kernels(wrappers: list[str]) -> list[dict[str, Any]]:
    """Return what Triton makes of each configuration of each kernel."""
    from torch_conformance.tools.offline.worker import simulated_codegen as codegen

    kernels = []
    for index, wrapper in enumerate(wrappers):
        for source in codegen.sources(wrapper):
            kernel = codegen.load(source)
            for config, compiled in zip(
                list(kernel.configs), codegen.compiled_configs(kernel), strict=True
            ):
                metadata = compiled.metadata
                kernels.append(
                    {
                        "graph": index,
                        "name": source.name,
                        "config": _config(config),
                        "shared": metadata.shared,
                        "ptx": compiled.asm.get("ptx", ""),
                    }
                )
    return kernels


def _config(config: Any) -> str:
    return (
        f"{dict(sorted(config.kwargs.items()))} warps {config.num_warps} stages {config.num_stages}"
    )


def _recorded_loads() -> dict[str, list[str]]:
    """Begin to record, by kernel, the configurations that can be launched: Inductor may add some
    when it loads a kernel.
    """
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    if not hasattr(CachingAutotuner, "calibrated"):
        original = CachingAutotuner.precompile

        def recording(kernel: Any, *args: Any, **kwargs: Any) -> None:
            original(kernel, *args, **kwargs)
            configs = [_config(launcher.config) for launcher in kernel.launchers]
            _loads[kernel.fn.__name__] = configs

        CachingAutotuner.precompile = recording
        CachingAutotuner.calibrated = True
    _loads.clear()
    return _loads


_loads: dict[str, list[str]] = {}


# -- compare ---------------------------------------------------------------------------------------


NORMALIZED = (
    # comments name folders, graphs and places in the source
    (r"^\s*#.*$\n?", ""),
    (r"/\S*/(?:torchinductor_\w+|calibrate-\w+|inductor)/\S+", "PATH"),
    # a digest of Triton's files and driver
    (r"'backend_hash': '\w+'", "'backend_hash': HASH"),
    # the comment on a frozen parameter has the address of the object
    (r"(?<= )[0-9a-f]{12}$", "ADDRESS"),
    # a simulated GPU turns these off; the real side disables every cache by force_disable_caches
    (r"'autotune_(local|remote)_cache': \w+", r"'autotune_\1_cache': OPTION"),
    # Triton writes the version of the assembler that it calls, and torch chooses the assembler
    (r"^\.version \d+\.\d+$", ".version OF_THE_ASSEMBLER"),
    (r"[ \t]+$|\n(?=\n)", ""),
)
"""What is not compared, and what is put in its place, in this order."""


def plain(text: str) -> str:
    """Return a text without what is not compared."""
    for pattern, put in NORMALIZED:
        text = re.sub(pattern, put, text, flags=re.MULTILINE)
    return text.strip()


def parts_of(case: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return what is compared of a case, by name."""
    kernels = case["kernels"]
    return {
        "wrappers": [plain(wrapper) for wrapper in case["wrappers"]],
        "candidates": [choice for selection in case["choices"] for choice in selection],
        "kernels": list(dict.fromkeys(kernel["name"] for kernel in kernels)),
        "configurations": [
            f"{entry['name']} {entry['config']} {entry['shared']}" for entry in kernels
        ],
        "PTX": [plain(kernel["ptx"]) for kernel in kernels],
    }


def compared(
    real: Mapping[str, Any], simulated: Mapping[str, Any], most: int = 40
) -> tuple[list[list[str]], list[str]]:
    """Return a row for each case of two dumps, and what differs, at most ``most`` lines each."""
    details: list[str] = []

    def word(what: str, real: Sequence[str], other: Sequence[str]) -> str:
        lines = [text.splitlines() for text in ("\n".join(real), "\n".join(other))]
        differences = difflib.unified_diff(*lines, f"real {what}", "simulated", lineterm="", n=0)
        changed = [line[:300] for line in differences][:most]
        details.extend(changed)
        return f"{len(real)} differ" if changed else f"{len(real)} equal" if real else "none"

    properties = [[*map(str, side["properties"].items())] for side in (real, simulated)]
    rows = [["properties", word("properties", *properties)]]
    for name, case in real["cases"].items():
        other = simulated["cases"].get(name, {"raised": "absent"})
        if raised := [side["raised"] for side in (case, other) if "raised" in side]:
            details += raised
            rows.append([name, "differ: raised"])
            continue
        pairs = zip(parts_of(case).items(), parts_of(other).values(), strict=True)
        kernels = [(kernel["name"], kernel["config"]) for kernel in other["kernels"]]
        added = [
            f"{kernel} {config}"
            for kernel, configs in case.get("launched", {}).items()
            for config in configs
            if (kernel, config) not in kernels
        ]
        row = [word(f"{name}, {part}", mine, theirs) for (part, mine), theirs in pairs]
        rows.append([name, *row, word(f"{name}, added when loaded", added, [])])
    return rows, details


def compare(options: argparse.Namespace) -> int:
    """Print the table and what differs."""
    sides = [json.loads(Path(name).read_text()) for name in (options.real, options.simulated)]
    for side in sides:
        print(f"{side['mode']}: torch {side['torch']}, triton {side['triton']}")
    rows, details = compared(*sides, options.most)
    print("\n".join([*table(("case", *COLUMNS), rows), *details]))
    return int(any("differ" in cell for row in rows for cell in row))


COLUMNS = ("wrappers", "candidates", "kernels", "configurations", "PTX", "added when loaded")


def main() -> int:
    """Run a mode."""
    parser = argparse.ArgumentParser(description="Compare code for a simulated GPU with real code.")
    modes = parser.add_subparsers(dest="command", required=True)
    dump_options = modes.add_parser("dump")
    dump_options.add_argument("--mode", choices=("real", "simulated"), required=True)
    dump_options.add_argument("--target", default="cuda:sm_90")
    dump_options.add_argument("--out", required=True)
    dump_options.add_argument("--case", action="append", default=[])
    compare_options = modes.add_parser("compare")
    compare_options.add_argument("real")
    compare_options.add_argument("simulated")
    compare_options.add_argument("--most", type=int, default=40)
    options = parser.parse_args()
    return dump(options) if options.command == "dump" else compare(options)


if __name__ == "__main__":
    sys.exit(main())
