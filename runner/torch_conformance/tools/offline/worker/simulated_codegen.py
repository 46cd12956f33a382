"""Inductor's code for a simulated GPU: wrappers are recorded, not loaded; their kernels are
compiled and not launched.
"""

import ast
import contextlib
import copy
import importlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from torch_conformance.tools.offline.simulated_options import FIXED
from torch_conformance.worker.process.channel import exception_text
from torch_conformance.worker.torch_compat import choice_census, compiling, torch_state
from torch_conformance.worker.torch_compat.choice_census import Tuning

if TYPE_CHECKING:
    import torch
    from torch._inductor.graph import GraphLowering
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

_SELECTOR = "torch._inductor.select_algorithm"


class Unfaithful(Exception):
    """Something that a simulated GPU does not show. The text names it."""


class Lowered(Exception):
    """Raised where generated code would be called: the graphs of the call are generated, and
    nothing runs.
    """


@dataclass
class Graph:
    """The code of one graph."""

    wrapper: str
    is_backward: bool


@dataclass
class Recording:
    """What was generated since the recording began."""

    graphs: list[Graph] = field(default_factory=list)
    tunings: list[Tuning] = field(default_factory=list)
    compiles_candidates: bool = True
    """Whether each candidate of a selection is compiled."""
    refused: list[str] = field(default_factory=list)
    """What is not faithful, in the order in which it was met."""

    def refuse(self, what: str) -> Unfaithful:
        """Record why the code is not faithful, also where torch catches the exception; return the
        exception.
        """
        if what not in self.refused:
            self.refused.append(what)
        return Unfaithful(what)


_recording: list[Recording] = [Recording()]


def take(*, compiles_candidates: bool = True) -> Recording:
    """Return the recording, and begin a new one."""
    recording, _recording[0] = _recording[0], Recording(compiles_candidates=compiles_candidates)
    return recording


class _Module:
    """Stands for the module of a wrapper."""

    __file__ = "<generated for a simulated GPU>"

    def call(self, *args: object, **kwargs: object) -> NoReturn:
        raise Lowered


def install() -> None:
    """Set the options and install the hooks for the rest of the process.

    Import Inductor after the simulation only.
    """
    for section, options in FIXED.items():
        for name, value in options.items():
            setattr(
                importlib.import_module(torch_state.OPTIONS[section]), name, copy.deepcopy(value)
            )
    benchmarking = "torch._inductor.runtime.benchmarking"
    for module, name, on_call in (
        ("torch._inductor.graph", "GraphLowering.compile_to_module", _record_wrapper),
        (_SELECTOR, "AlgorithmSelectorCache.__call__", _record_selection),
        (_SELECTOR, "AlgorithmSelectorCache.make_benchmark_fn", _rank_by_place),
        (
            _SELECTOR,
            "AlgorithmSelectorCache.make_precompile_fn",
            lambda call: dict,
        ),
        # the tables of times would show invented numbers
        (_SELECTOR, "AlgorithmSelectorCache.log_results", _do_nothing),
        (_SELECTOR, "_log_autotune_choices_stats", _do_nothing),
        # dynamo's graph, and the graph that Inductor lowers
        ("torch._inductor.compile_fx", "compile_fx", _refuse_operators),
        ("torch._inductor.compile_fx", "_compile_fx_inner", _refuse_operators),
    ):
        compiling.hook(module, name, on_call)
    for module, name, on_call in (
        # it builds and loads a candidate of Composable Kernel
        (
            "torch._inductor.codegen.rocm.rocm_benchmark_request",
            "ROCmBenchmarkRequest.update_workspace_size",
            _do_nothing,
        ),
        (benchmarking, "Benchmarker.benchmark", _refuse_times),
        (benchmarking, "Benchmarker.benchmark_gpu", _refuse_times),
        (benchmarking, "TritonBenchmarker.benchmark_gpu", _refuse_times),
        (benchmarking, "InductorBenchmarker.benchmark_gpu", _refuse_times),
        # where padding is decided only by time
        ("torch._inductor.fx_passes.pad_mm", "should_pad_bench_key", _refuse_times),
    ):
        # not every torch has the module, nor every class its own method
        with contextlib.suppress(AttributeError, ImportError):
            compiling.hook(module, name, on_call)


def _record_wrapper(call: compiling.Call) -> _Module:
    """Record the code of a wrapper in the place of loading it."""
    graph: GraphLowering = call.args[0]
    if graph.cpp_wrapper:
        raise _recording[0].refuse(
            "cpp_wrapper: its C++ is not compiled without the headers of the GPU"
        )
    code, _ = graph.codegen()
    _recording[0].graphs.append(Graph(code.value, bool(graph.is_backward)))
    return _Module()


def _rank_by_place(call: compiling.Call) -> object:
    """Nothing is timed: the first template of Triton is taken, else the first candidate.

    Which is fastest is not known.
    """

    def ranked(candidates: Sequence[Any], *more: object, **others: object) -> dict[Any, float]:
        first = [
            choice for choice in candidates if choice_census.backend_of(choice) == "TRITON"
        ] or list(candidates)
        places = {id(choice): place for place, choice in enumerate(first)}
        return {
            choice: float(places.get(id(choice), len(candidates))) + 1.0 for choice in candidates
        }

    return ranked


def _do_nothing(call: compiling.Call) -> None:
    """Return None in the place of a function."""


def _refuse_times(call: compiling.Call) -> NoReturn:
    raise _recording[0].refuse("a choice that Inductor makes by timing something on the device")


_CHOSEN_IN_CPP = (
    "scaled_dot_product",
    "flash_attention",
    "efficient_attention",
    "transformer_encoder_layer",
    "native_multi_head_attention",
)
"""Parts of the names of operators whose implementation C++ code chooses by how torch was built."""

_COLLECTIVES = ("_c10d_functional", "c10d.")


def refuse_operators(nodes: "Iterable[torch.fx.Node]") -> None:
    """Raise ``Unfaithful`` where a graph has an operator that a simulated GPU does not show."""
    for node in nodes:
        name = f"{getattr(node.target, '__module__', '')}.{getattr(node.target, '__name__', node.target)}"  # noqa: E501 - Python 3.11 breaks no line within a field
        if any(part in name for part in _CHOSEN_IN_CPP):
            raise _recording[0].refuse(
                f"{name}: C++ code chooses its implementation by how torch was built"
            )
        if any(part in str(node.target) for part in _COLLECTIVES):
            raise _recording[0].refuse(f"{name}: a collective needs its processes")


def _refuse_operators(call: compiling.Call) -> object:
    refuse_operators(call.args[0].graph.nodes)
    return call()


def _record_selection(call: compiling.Call) -> object:
    """Record the candidates of a selection, and compile those of Triton."""
    from torch._inductor import select_algorithm
    from torch._inductor.codecache import PyCodeCache

    # the candidates that the options of ``test_configs`` leave, as the selector filters them
    arguments = call.arguments
    candidates = list(arguments["choices"])
    for name in ("filter_choices_by_name_regex", "filter_choices_by_desc_regex"):
        candidates = list(getattr(select_algorithm, name)(candidates))
    tuning = Tuning(op=str(arguments["name"]), how="only" if len(candidates) == 1 else "untimed")
    _recording[0].tunings.append(tuning)
    for choice in candidates:
        tally = tuning.tallies[tuning.add(choice)]
        request: Any = getattr(choice, "bmreq", None)
        if _recording[0].compiles_candidates and hasattr(request, "module_path"):
            _choose_assembler()
            try:
                module = PyCodeCache.load_by_key_path(
                    request.module_cache_key, request.module_path, set_sys_modules=False
                )
                list(compiled_configs(getattr(module, request.kernel_name)))
            except Exception as error:  # a compiler may raise anything: it is counted
                tally["failed"] += 1
                tally["error"] = tally["error"] or " ".join(exception_text(error).split())[:300]
            else:
                tally["compiled"] += 1
    return call()


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel of Triton in a wrapper."""

    name: str
    text: str


def sources(wrapper: str) -> list[Source]:
    """Return the kernels that a wrapper defines, in order."""
    kernel_sources: list[Source] = []
    for node in ast.parse(wrapper).body:
        match node:
            case ast.Assign(
                targets=[ast.Name()],
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id="async_compile"), attr="triton"),
                    args=[ast.Constant(value=str(name)), ast.Constant(value=str(text)), *_],
                ),
            ):
                kernel_sources.append(Source(name, text))
    return kernel_sources


def load(source: Source) -> "CachingAutotuner":
    """Return the kernel of a source with Inductor's own options: its heuristics, its configurations
    and its assembler.
    """
    from torch._inductor.codecache import PyCodeCache

    _choose_assembler()
    return getattr(PyCodeCache.load(source.text), source.name)


def _choose_assembler() -> None:
    """Let torch choose the assembler, as before it compiles a kernel: some wheels have their own,
    and Triton writes its version of PTX.
    """
    from torch._inductor.runtime.compile_tasks import _set_triton_ptxas_path

    _set_triton_ptxas_path()


def compiled_configs(kernel: "CachingAutotuner") -> Iterator[Any]:
    """Yield what Triton made of each configuration of a kernel, as Inductor compiles it."""
    for config in kernel.configs:
        yield kernel._precompile_config(config).kernel
