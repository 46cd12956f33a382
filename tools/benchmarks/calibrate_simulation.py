r"""Compares Inductor's code for a simulated GPU with its code on the real one: ``python
tools/benchmarks/calibrate_simulation.py MODE``.

On a machine with the GPU, from the root of the project (about a minute; torch, Triton and g++ are
all that it needs)::

    S=tools/benchmarks/calibrate_simulation.py; (python3 $S dump --mode real --out $OUT/real.json >
    $OUT/real.log 2>&1) & (python3 $S dump \
    --mode simulated --out $OUT/simulated.json > $OUT/simulated.log 2>&1); wait; \
    python3 $S compare $OUT/real.json $OUT/simulated.json | tee $OUT/compare.txt

``dump --mode real`` compiles and runs each case on the GPU; ``dump --mode simulated`` generates and
compiles the same with the device hidden, by the same torch. Both write the wrappers, the candidates
of autotuning, and PTX and metadata of each configuration of each kernel. ``compare`` prints what
differs, and what it normalized (``calibration.NORMALIZED``), and exits with 1 where something
differs; ``--record FILE`` writes digests and counts.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools" / "benchmarks")]

import calibration  # noqa: E402 - found only after its folder is on sys.path

_ONE_TEMPLATE = "BLOCK_K=32, BLOCK_M=64, BLOCK_N=64.*num_stages=2, num_warps=4"
"""Of the candidates of a GEMM this one is left, so that nothing is timed."""

_GEMM = {
    "max_autotune": True,
    "max_autotune_gemm_backends": "TRITON",
    "test_configs.autotune_choice_desc_regex": _ONE_TEMPLATE,
}


@dataclass(frozen=True)
class Case:
    """A function that is compiled, and what it is called with. Both are made for the device."""

    function: Callable[[Any], Callable[..., Any]]
    inputs: Callable[[Any], list[Any]]
    config: Mapping[str, Any] = field(default_factory=dict)
    dynamic: bool | None = None
    backward: bool = False


def _randn(*shape: int, dtype: str = "float32", grad: bool = False) -> Any:
    import torch

    return torch.randn(shape, dtype=getattr(torch, dtype), device="cuda", requires_grad=grad)


def _conv(torch: Any) -> Any:
    layers = (torch.nn.Conv2d(3, 32, 3, stride=2), torch.nn.BatchNorm2d(32), torch.nn.ReLU())
    return torch.nn.Sequential(*layers).eval().to("cuda")


def _norm(torch: Any) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)).to("cuda")


CASES: Mapping[str, Case] = {
    "pointwise": Case(
        lambda t: lambda x, y: t.nn.functional.gelu(x) + y * 2,
        lambda t: [_randn(64, 1024), _randn(64, 1024)],
    ),
    "reduction": Case(lambda t: lambda x: x.sum(-1), lambda t: [_randn(512, 4096)]),
    "long_reduction": Case(lambda t: lambda x: x.sum(), lambda t: [_randn(2048, 4096)]),
    "softmax": Case(lambda t: lambda x: t.softmax(x, -1), lambda t: [_randn(64, 1024)]),
    "wide_softmax": Case(lambda t: lambda x: t.softmax(x, -1), lambda t: [_randn(64, 32768)]),
    "dynamic_softmax": Case(
        lambda t: lambda x: t.softmax(x, -1), lambda t: [_randn(64, 1000)], dynamic=True
    ),
    "layer_norm": Case(
        lambda t: lambda x: t.nn.functional.layer_norm(x, (4096,)),
        lambda t: [_randn(64, 4096, dtype="bfloat16")],
    ),
    "transposed_add": Case(
        lambda t: lambda x, y: x.t() + y, lambda t: [_randn(512, 256), _randn(256, 512)]
    ),
    "cumsum": Case(lambda t: lambda x: x.cumsum(-1), lambda t: [_randn(64, 2048)]),
    "argmax": Case(lambda t: lambda x: x.argmax(-1), lambda t: [_randn(64, 2048)]),
    "index": Case(
        lambda t: lambda x, y: x[(y[:, 0] > 0).long()] + 1,
        lambda t: [_randn(64, 256), _randn(64, 8)],
    ),
    "dropout": Case(
        lambda t: lambda x: t.nn.functional.dropout(x, 0.5), lambda t: [_randn(64, 1024)]
    ),
    "mm_template": Case(
        lambda t: lambda a, b: a @ b,
        lambda t: [_randn(512, 256, dtype="bfloat16"), _randn(256, 1024, dtype="bfloat16")],
        _GEMM,
    ),
    "mm_bias_relu": Case(
        lambda t: lambda a, b, c: t.relu(a @ b + c),
        lambda t: [
            _randn(512, 256, dtype="bfloat16"),
            _randn(256, 1024, dtype="bfloat16"),
            _randn(1024, dtype="bfloat16"),
        ],
        _GEMM,
    ),
    "bmm_template": Case(
        lambda t: lambda a, b: t.bmm(a, b),
        lambda t: [_randn(8, 256, 128, dtype="float16"), _randn(8, 128, 256, dtype="float16")],
        _GEMM,
    ),
    "mm_without_autotune": Case(
        lambda t: lambda a, b: t.relu(a @ b), lambda t: [_randn(512, 256), _randn(256, 512)]
    ),
    "padding": Case(
        lambda t: lambda a, b: a @ b,
        lambda t: [_randn(511, 255, dtype="float16"), _randn(255, 1023, dtype="float16")],
        {"shape_padding": True, "force_shape_pad": True},
    ),
    "conv_frozen": Case(_conv, lambda t: [_randn(3, 3, 32, 32)], {"freezing": True}),
    "conv": Case(_conv, lambda t: [_randn(3, 3, 32, 32)]),
    "linear_norm_backward": Case(_norm, lambda t: [_randn(32, 64)], backward=True),
    "gelu_backward": Case(
        lambda t: lambda x: t.nn.functional.gelu(x).sum(),
        lambda t: [_randn(64, 1024, grad=True)],
        backward=True,
    ),
}

_PROPERTIES = (
    *(
        "name",
        "major",
        "minor",
        "multi_processor_count",
        "regs_per_multiprocessor",
        "max_threads_per_multi_processor",
        "warp_size",
    ),
    *(
        "max_threads_per_block",
        "total_memory",
        "L2_cache_size",
        "shared_memory_per_block",
        "shared_memory_per_block_optin",
    ),
    *("shared_memory_per_multiprocessor", "gcnArchName"),
)


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
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        _simulate(options.target, Path(scratch))
    import torch
    import triton

    found: dict[str, Any] = {
        "mode": options.mode,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "scratch": scratch,
    }
    properties = torch.cuda.get_device_properties(0)
    found["properties"] = {name: getattr(properties, name, None) for name in _PROPERTIES}
    run = _simulated_case if options.mode == "simulated" else _real_case
    found["cases"] = {}
    for name, case in CASES.items():
        if not options.case or name in options.case:
            found["cases"][name] = _dumped(run, case, name)
            print(
                f"{time.monotonic() - began:6.1f} s  {name}  "
                f"{found['cases'][name].get('raised', 'ok')[-200:]}",
                flush=True,
            )
    Path(options.out).write_text(json.dumps(found, indent=1, default=str))
    sys.stdout.flush()
    os._exit(0)  # threads of a simulated device end a normal exit


def _simulate(name: str, scratch: Path) -> None:
    from torch_conformance.model.targets import TARGETS
    from torch_conformance.tools.offline.worker.zygote import install

    install(TARGETS[name], scratch)


def _dumped(run: Callable[[Case], dict[str, Any]], case: Case, name: str) -> dict[str, Any]:
    try:
        return run(case)
    except Exception:
        # each case is a measurement of its own: whatever one raises is written, and the next one
        # follows
        return {"raised": traceback.format_exc()[-3000:]}


def _options(case: Case, *, simulated: bool) -> contextlib.ExitStack:
    import torch._functorch.config as functorch_config
    import torch._inductor.config as config

    from torch_conformance.tools.offline.simulated_options import FIXED

    wanted: dict[str, Any] = {"use_static_cuda_launcher": False, **case.config}
    stack = contextlib.ExitStack()
    if simulated:
        stack.enter_context(functorch_config.patch(dict(FIXED["functorch_config"])))
        wanted = {**FIXED["config"], **wanted}
    else:
        wanted = {"force_disable_caches": True, **wanted}
    stack.enter_context(config.patch(wanted))
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
            function, given = case.function(torch), case.inputs(torch)
            with contextlib.suppress(codegen.Lowered):
                torch.compile(function, dynamic=case.dynamic)(*given)
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
            function, given = case.function(torch), case.inputs(torch)
            result = torch.compile(function, dynamic=case.dynamic)(*given)
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
                    f"{name} {type(one).__name__} {getattr(one, 'description', '')}"
                    for one in choices
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

    found = []
    for index, wrapper in enumerate(wrappers):
        for source in codegen.sources(wrapper):
            kernel = codegen.load(source)
            for config, made in zip(
                list(kernel.configs), codegen.compiled_configs(kernel), strict=True
            ):
                metadata = made.metadata
                found.append(
                    {
                        "graph": index,
                        "name": source.name,
                        "config": _config(config),
                        "shared": metadata.shared,
                        "ptx": made.asm.get("ptx", ""),
                    }
                )
    return found


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
            found = [launcher.config for launcher in kernel.launchers]
            _loads[kernel.fn.__name__] = [
                f"{dict(sorted(one.kwargs.items()))} warps {one.num_warps} stages {one.num_stages}"
                for one in found
            ]

        CachingAutotuner.precompile = recording
        CachingAutotuner.calibrated = True
    _loads.clear()
    return _loads


_loads: dict[str, list[str]] = {}


# -- compare ---------------------------------------------------------------------------------------


def compare(options: argparse.Namespace) -> int:
    """Print the table, what differs, and what was normalized; write the record."""
    real, simulated = (
        json.loads(Path(name).read_text()) for name in (options.real, options.simulated)
    )
    record, details = calibration.compared(real, simulated, options.most)
    for side in ("real", "simulated"):
        print(f"{side}: torch {record[side]['torch']}, triton {record[side]['triton']}")
    print("\n".join(calibration.table(record)))
    print("\n".join(details))
    for name, count in record["normalized"].items():
        print(
            f"normalized, {name}: differed in {count} pairs of texts "
            f"({calibration.NORMALIZED[name].why})"
        )
    if options.record:
        Path(options.record).write_text(json.dumps(record, indent=1) + "\n")
    return (
        0
        if not record["properties"]["differ"]
        and all(map(calibration.is_whole, record["cases"].values()))
        else 1
    )


def main() -> int:
    """Run a mode."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    modes = parser.add_subparsers(dest="command", required=True)
    made = modes.add_parser("dump")
    made.add_argument("--mode", choices=("real", "simulated"), required=True)
    made.add_argument("--target", default="cuda:sm_90")
    made.add_argument("--out", required=True)
    made.add_argument("--case", action="append", default=[])
    shown = modes.add_parser("compare")
    shown.add_argument("real")
    shown.add_argument("simulated")
    shown.add_argument("--most", type=int, default=40)
    shown.add_argument("--record", default="")
    options = parser.parse_args()
    return dump(options) if options.command == "dump" else compare(options)


if __name__ == "__main__":
    sys.exit(main())
