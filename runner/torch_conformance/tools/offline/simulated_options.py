"""Options of Inductor and of ``torch.compile`` with a simulated GPU: which it needs, and which it
does not show faithfully.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

FIXED: Mapping[str, Mapping[str, Any]] = {
    "config": {
        "compile_threads": 1,
        "force_disable_caches": True,
        "fx_graph_cache": False,
        "fx_graph_remote_cache": False,
        "autotune_local_cache": False,
        "autotune_remote_cache": False,
        "benchmark_epilogue_fusion": False,
        "autotune_num_choices_displayed": 0,
        "use_static_cuda_launcher": False,
    },
    "functorch_config": {"enable_autograd_cache": False, "force_non_lazy_backward_lowering": True},
}
"""Options that a simulated GPU needs.

Candidates are ranked without times, so that no cache may keep a rank.
"""

GENERATORS = ("ATEN", "TRITON", "CK", "CKTILE")
"""The words of ``max_autotune_gemm_backends`` whose candidates can be generated without the device.
"""


def _is_on(value: object) -> bool:
    return value is True


def _names_others(value: object) -> bool:
    return isinstance(value, str) and not {
        word.strip().upper() for word in value.split(",")
    } <= set(GENERATORS)


_OTHERS = f"its candidates need the vendor's compiler: write {', '.join(GENERATORS)}"
_TIMED = "it chooses by times of the device"

REFUSED_CONFIG: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "cpp_wrapper": (_is_on, "its C++ needs the headers of the GPU"),
    "triton.cudagraphs": (_is_on, "graphs are captured on the device"),
    "triton.cudagraph_trees": (_is_on, "graphs are captured on the device"),
    "coordinate_descent_tuning": (_is_on, _TIMED),
    "benchmark_kernel": (_is_on, _TIMED),
    "benchmark_fusion": (_is_on, _TIMED),
    "benchmark_combo_kernel": (_is_on, _TIMED),
    "autotune_in_subproc": (_is_on, _TIMED),
    "triton.autotune_at_compile_time": (_is_on, _TIMED),
    "max_autotune_gemm_backends": (_names_others, _OTHERS),
    "max_autotune_conv_backends": (_names_others, _OTHERS),
}
"""Options of Inductor that a simulated GPU does not show: which values, and why."""

REFUSED_MODES: Mapping[str, str] = {
    "reduce-overhead": "it captures graphs on the device: leave mode out",
    "max-autotune": "it captures graphs on the device: write max-autotune-no-cudagraphs",
}
"""Modes of ``torch.compile`` that a simulated GPU does not show, and why."""


def refusals(config: Mapping[str, object], compile_options: Mapping[str, object]) -> Iterator[str]:
    """Yield why options of Inductor and arguments of ``torch.compile`` are not faithful; templates
    are evaluated.
    """
    options = compile_options.get("options")
    for name, value in {**config, **(options if isinstance(options, Mapping) else {})}.items():
        if (why := config_refusal(name, value)) is not None:
            yield f"{name} {value}: {why}"
    mode = str(compile_options.get("mode"))
    if mode in REFUSED_MODES:
        yield f"mode {mode}: {REFUSED_MODES[mode]}"


def config_refusal(name: str, value: object) -> str | None:
    """Return why a value of an option is not faithful; None for one that is."""
    fixed = {**FIXED["config"], **FIXED["functorch_config"]}
    if name in fixed:
        return None if value == fixed[name] else f"a simulated GPU needs {fixed[name]}"
    is_refused, why = REFUSED_CONFIG.get(name, (None, ""))
    return why if is_refused is not None and is_refused(value) else None
