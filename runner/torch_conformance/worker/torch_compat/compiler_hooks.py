"""Hooks in torch that record what it does for a case: phases, compiled and called graphs, code,
guards, kernel calls, autotuning.

Each function of torch has one hook, besides that of its phase. What only an expectation asks for
(``asked``) is recorded only then, and only of functions that the case compiles with its own
``torch.compile``.
"""

import contextlib
import functools
import importlib
import math
import threading
import types
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._C._dynamo.eval_frame import set_guard_complete_hook
from torch._dynamo import exc
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.utils import graph_break_reasons, guard_failures
from torch._guards import CompileContext
from torch._inductor import select_algorithm
from torch._inductor.graph import GraphLowering
from torch._inductor.output_code import CompiledFxGraph, OutputCode
from torch._inductor.virtualized import V

from torch_conformance.vocabulary.expectations import EXPECTATIONS, compilation
from torch_conformance.worker.process.channel import Phases, exception_text
from torch_conformance.worker.torch_compat import choice_census, compiling
from torch_conformance.worker.torch_compat.compiling import Call, Function
from torch_conformance.worker.torch_compat.residue import Origins

_MOST_REASONS = 20
_MOST_REASON = 500
"""The maximum number of reasons for abandoned frames that are sent, and of characters of each."""

_MOST_GRAPHS = 50
"""The maximum number of graphs of a stage that are recorded in a step."""

_MOST_TEXT = 2 << 20
"""The maximum number of characters of all graphs of a stage in a step; the rest is cut off."""

_MOST_EVENTS = 200
_MOST_OF_EVENT = 4000
"""The maximum number of recompiles or graph breaks that are recorded in a step, and of characters
of a reason.
"""

_MOST_GUARDS = 5000
"""The maximum number of guards whose text is recorded in a step."""

PHASES: tuple[tuple[str, str, str], ...] = (
    ("torch._inductor.graph", "GraphLowering.run", "lower"),
    ("torch._inductor.graph", "GraphLowering.codegen", "codegen"),
    ("torch._inductor.codecache", "PyCodeCache.load_by_key_path", "kernel build"),
    ("torch._inductor.async_compile", "AsyncCompile.wait", "kernel build"),
    ("torch._inductor.codecache", "AotCodeCompiler.compile", "kernel build"),
    ("torch._inductor.select_algorithm", "AlgorithmSelectorCache.__call__", "autotune"),
    ("torch._inductor.output_code", "CompiledFxGraph.__call__", "run"),
    ("torch.export.pt2_archive._package", "AOTICompiledModel.__call__", "run"),
)
"""Module, method, and the phase of a case during its calls."""


PASSES: Mapping[str, tuple[str, str]] = {
    "pre_grad": ("torch._inductor.compile_fx", "_recursive_pre_grad_passes"),
    "joint": ("torch._inductor.compile_fx", "_recursive_joint_graph_passes"),
    "post_grad": ("torch._inductor.compile_fx", "_recursive_post_grad_passes"),
}
"""The function that runs the passes of a stage. It changes the graph, or returns a new one."""


@dataclass
class Seen:
    """What the hooks recorded in one step; ``model/case_facts`` says what the facts are that are
    made of it.
    """

    entered: int = 0
    """Calls of inductor's entry, and calls of what lies behind it by code of the spec."""
    graphs: list[list[str]] = field(default_factory=list)
    executed: dict[str, int] = field(default_factory=dict)
    """Calls of graphs that the case's own ``torch.compile`` compiled, by device: forward, and
    backward whenever it was compiled.
    """
    executed_others: dict[str, int] = field(default_factory=dict)
    """Calls of all other compiled graphs, by device: ahead-of-time packages, and graphs that code
    of the spec compiled itself.
    """
    frames: int = 0
    broken: list[str] = field(default_factory=list)
    handed: int = 0
    captured: int = 0
    captured_others: int = 0
    abandoned: list[str] = field(default_factory=list)
    """The reasons of frames that dynamo gave up, after an error or at its recompile limit.

    They run eagerly, without an exception.
    """
    uncompiled: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    code_graphs: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """For a piece of code its graph; empty where a cache had it."""
    choices: list[dict[tuple[str, str], float]] = field(default_factory=list)
    """For each autotuning the time of each choice in milliseconds, by its name and class."""
    tunings: list[choice_census.Tuning] = field(default_factory=list)
    stages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """For each asked stage its graphs in order: ``ops``, ``text``, whether the text was ``cut``,
    ``problem``.
    """
    reused: int = 0
    """How many calls found code that was compiled before, by its guards."""
    guards: list[str] = field(default_factory=list)
    unread: str = ""
    """Why guards could not be read."""
    guarded: int = 0
    """How many frames got guards."""
    recompiles: list[dict[str, str]] = field(default_factory=list)
    graph_breaks: list[dict[str, str]] = field(default_factory=list)
    kernels: list[tuple[str, str]] = field(default_factory=list)
    """The kind and the name of each kernel call."""
    counted: int = 0
    """How many calls of compiled graphs had their kernel calls counted."""
    uncounted: list[str] = field(default_factory=list)
    """Why kernel calls could not be counted."""
    generated: set[str] = field(default_factory=set)
    """The kernels that were compiled."""
    ungenerated: list[str] = field(default_factory=list)
    """Why kernels that were compiled could not be counted."""
    origins: Origins | None = None
    """What traces where values come from, and learns which operators a compiled graph called."""

    @property
    def own_calls(self) -> int:
        """Calls of graphs of the case's own functions, whichever backend compiled them."""
        return sum(self.executed.values()) + self.captured

    def run(self, graph: Function, *inputs: object) -> object:
        """Call a graph of the case's functions."""
        return self.origins.through(graph, *inputs) if self.origins else graph(*inputs)

    def count(self, devices: Iterable[str], *, is_own: bool = True) -> None:
        """Count a call of a graph, of the case's own functions or of others, on each device."""
        counts = self.executed if is_own else self.executed_others
        for device in devices:
            counts[device] = counts.get(device, 0) + 1

    def facts(self) -> dict[str, Any]:
        """Return what is sent of each step, without the code, which goes to files.

        A choice that was not timed (infinity) is left out.
        """
        choices = [
            [
                {"name": n, "class": c}
                for (n, c), time in sorted(timed.items())
                if math.isfinite(time)
            ]
            for timed in self.choices
        ]
        return {
            **{
                name: getattr(self, name)
                for name in ("entered", "graphs", "executed", "executed_others")
            },
            "dynamo": {
                "frames": self.frames,
                "broken": self.broken[:_MOST_REASONS],
                "graphs": self.handed,
                "calls": self.captured,
                "calls_others": self.captured_others,
                "is_backward_idle": bool(_watch.backwards) and not any(_watch.backwards),
            },
            "abandoned": self.abandoned[:_MOST_REASONS],
            "uncompiled": [reason[:_MOST_REASON] for reason in self.uncompiled[:_MOST_REASONS]],
            "choices": choices,
            "code_graphs": [self.code_graphs.get(code, {}) for code in self.code],
            "tunings": {
                "count": len(self.tunings),
                "found": [
                    tuning.to_json() for tuning in self.tunings[: choice_census.MOST_TUNINGS]
                ],
            },
        }

    def compilation(self) -> dict[str, Any]:
        """Return what expectations measure, by their kind; ``graph`` has three functions besides
        the graphs of each stage.
        """

        def is_available(stage: str) -> bool:
            return stage not in PASSES or _has_passes(*PASSES[stage])

        events = {"recompiles": self.recompiles, "graph_breaks": self.graph_breaks}
        counted = {"recorded": _watch.records_asked, "frames": self.frames, "reused": self.reused}
        return {
            "kernels": {
                "launched": {
                    kind: sum(called == kind for called, _ in self.kernels)
                    for kind in compilation.KINDS
                },
                "names": [f"{kind} {name}" for kind, name in self.kernels[:_MOST_EVENTS]],
                "recorded": _watch.records_asked,
                "ran": self.counted,
                "uncounted": list(dict.fromkeys(self.uncounted)),
                "compiled": len(self.generated),
                "uncompiled": list(dict.fromkeys(self.ungenerated)),
            },
            "graph": {
                "stages": self.stages,
                "is_available": is_available,
                "is_known": compiling.is_known,
                "is_decomposed": compiling.is_decomposed,
            },
            "guards": {
                "frames": self.guarded,
                "problem": self.unread,
                "count": len(self.guards),
                "texts": self.guards[:_MOST_GUARDS],
            },
            **{
                kind: {**counted, "count": len(of_kind), "events": of_kind[:_MOST_EVENTS]}
                for kind, of_kind in events.items()
            },
        }


class Witness:
    """The record of the hooks. ``paused`` excludes work that the runner does itself."""

    def __init__(self) -> None:
        self.seen = Seen()

    def take(self) -> Seen:
        """Return the record since the last call, and start a new one."""
        seen, self.seen = self.seen, Seen()
        return replace(seen, code=list(dict.fromkeys(seen.code)))

    @contextlib.contextmanager
    def paused(self) -> Iterator[Seen]:
        """Record into the yielded ``Seen`` instead, until the context ends."""
        outer, self.seen = self.seen, Seen()
        try:
            yield self.seen
        finally:
            self.seen = outer


@dataclass
class Watch:
    """The state of the hooks for the running case.

    The hooks themselves are installed once per process.
    """

    phases: Phases = field(default_factory=Phases)
    witness: Witness = field(default_factory=Witness)
    asked: frozenset[str] = frozenset()
    """Kinds of expectations of the case that ask for records of their own, and stages of graphs."""
    records_asked: bool = False
    """Whether the hooks for these are installed."""
    has_converted: bool = False
    """Whether dynamo converted a frame of the case's own functions: before that, the compiled code
    that it finds is of others.
    """
    backends: list[Any] = field(default_factory=list)
    """Dynamo's backend objects of the case's functions."""
    depth: int = 0
    """The number of calls of these backends on the stack."""
    within: int = 0
    """The number of calls of inductor's entry on the stack."""
    own: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    """The graphs that these backends compiled, by ``id``."""
    backwards: list[bool] = field(default_factory=list)
    """For each backward graph that a compiler other than inductor got, whether it calls anything.
    """
    contexts: dict[int, Any] = field(default_factory=dict)
    """Torch's contexts of these compiles, by ``id``.

    A backward that is compiled at its first run is compiled in its forward's context.
    """

    @property
    def seen(self) -> Seen:
        """The record that hooks write to."""
        return self.witness.seen


_watch = Watch()
_in_thread = threading.local()
"""``error``: the latest exception from the conversion of a frame in this thread; ``is_in_passes``:
passes call themselves for graphs within a graph."""


def watch(phases: Phases, witness: Witness, questions: Collection[str] = ()) -> None:
    """Record for a new case from now on."""
    # the object is sealed
    vars(_watch).update(vars(Watch(phases, witness, frozenset(questions), _watch.records_asked)))
    choice_census.forget()
    compiling.wrappers.clear()


def asked_by(plan: Mapping[str, Any]) -> set[str]:
    """Return the kinds of expectations of a plan that ask for records, and the stages of graphs."""
    measures = [
        request
        for step in plan["steps"]
        for request in step["measure"]
        if request["kind"] in EXPECTATIONS and EXPECTATIONS[request["kind"]].is_of_compiles
    ]
    stages = {request["arguments"]["stage"] for request in measures if request["kind"] == "graph"}
    return {request["kind"] for request in measures} | stages


def claim(backend: object) -> None:
    """Count the graphs that this backend object compiles as the case's own."""
    _watch.backends.append(backend)


def _is_claimed(*backends: object) -> bool:
    return any(backend is claimed for backend in backends for claimed in _watch.backends)


def _is_own_compile() -> bool:
    """Whether the current compile is of the case's own functions."""
    context = CompileContext.try_get()
    return _watch.depth > 0 or (context is not None and _watch.contexts.get(id(context)) is context)


@functools.cache
def install() -> None:
    """Install the hooks in torch for the rest of the process."""
    for module, name, phase in PHASES:
        compiling.hook(module, name, functools.partial(_in_phase, phase))
    # the methods by which dynamo calls the backend objects that ``torch.compile`` makes
    for name in (
        "_TorchCompileInductorWrapper",
        "_TorchCompileAOTInductorWrapper",
        "_TorchCompileWrapper",
    ):
        if "__call__" in vars(getattr(torch, name)):
            compiling.hook("torch", f"{name}.__call__", _compiling_own)
    for module, name, on_call in (
        ("torch._dynamo.convert_frame", "ConvertFrame.__call__", _noticing_abandoned),
        ("torch._dynamo.convert_frame", "ConvertFrameAssert.__call__", _watching_frames),
        ("torch._dynamo.output_graph", "OutputGraph.call_user_compiler", _watching_captured),
        ("torch._functorch.aot_autograd", "aot_module_simplified", _noting_backward),
        ("torch._dynamo.backends.common", "aot_module_simplified", _noting_backward),
        ("torch._inductor.compile_fx", "compile_fx", _counting_entries),
        ("torch._inductor.compile_fx", "_compile_fx_inner", _counting_direct_entries),
        ("torch._inductor.graph", "GraphLowering.codegen", _noting_graph),
        ("torch._inductor.output_code", "CompiledFxGraph.post_compile", _recording_graphs),
        ("torch._inductor.output_code", "CompiledFxGraph.__call__", _counting_calls),
        ("torch._inductor.codecache", "AotCodeCompiler.compile", _recording_ahead),
        ("torch.export.pt2_archive._package", "AOTICompiledModel.__call__", _counting_ahead),
    ):
        compiling.hook(module, name, on_call)

    def record_times(timings: Mapping[Any, float], *rest: object) -> None:
        """Record which choices an autotuning timed, in milliseconds."""
        timed = {
            (str(choice.name), choice_census.class_of_choice(choice)): float(time)
            for choice, time in timings.items()
        }
        _watch.seen.choices.append(timed)

    # each piece of code that inductor generates or loads from a cache
    GraphLowering.save_output_code = _recording_code
    select_algorithm.add_feedback_saver(record_times)
    # a package is compiled ahead of time only by the case, without a backend object of dynamo
    choice_census.install(
        lambda tuning: _watch.seen.tunings.append(tuning),
        lambda: V.aot_compilation or _is_own_compile(),
    )


@functools.cache
def install_asked() -> None:
    """Install the hooks that only expectations of compiles need."""
    _watch.records_asked = True
    for stage, (module, name) in PASSES.items():
        if _has_passes(module, name):
            compiling.hook(module, name, functools.partial(_recording_stage, stage))
    compiling.hook("torch._dynamo.guards", "CheckFunctionManager.__init__", _recording_guards)
    compiling.hook("torch._inductor.codecache", "PyCodeCache.load_by_key_path", _noting_wrappers)

    def count_reuse(is_found: bool) -> bool:
        """Count where dynamo compared the guards of a frame's compiled codes with its arguments,
        and one of them fits.
        """
        _watch.seen.reused += is_found and _watch.has_converted
        return is_found

    set_guard_complete_hook(count_reuse)


def _has_passes(module: str, name: str) -> bool:
    """Whether this torch has the function of a stage."""
    return hasattr(importlib.import_module(module), name)


def _in_phase(phase: str, call: Callable[[], object]) -> object:
    if _watch.phases.current == phase:
        return call()
    with _watch.phases(phase):
        return call()


# -- frames ----------------------------------------------------------------------------------------


def _noticing_abandoned(call: Call) -> object:
    """Record why dynamo gave a frame up, where it runs eagerly after an error."""
    _in_thread.error = None
    try:
        returned = call()
        error = _in_thread.error
        if error is not None and not compiling.is_graph_break(error):
            _watch.seen.abandoned.append(exception_text(error)[:_MOST_REASON])
        return returned
    finally:
        _in_thread.error = None  # its traceback keeps the frames' values alive


def _watching_frames(call: Call) -> object:
    """Count a frame that dynamo converts; record its recompile, its graph breaks, and why it was
    skipped.
    """
    convert, frame, entry, *_ = call.args
    is_own, seen = _is_claimed(*compiling.backends_of(convert)), _watch.seen
    name, why, breaks = str(frame.f_code.co_name), "", len(graph_break_reasons)
    is_counted = is_own and entry is not None and "recompiles" in _watch.asked
    failed = {code: len(reasons) for code, reasons in guard_failures.items()} if is_counted else {}
    seen.frames += is_own
    _watch.has_converted |= is_own
    skipped: list[str] = []
    try:
        converted = call()
    except Exception as error:
        # converting a frame can raise any error: it is recorded for the step and raised again
        _in_thread.error, why = error, exception_text(error)[:_MOST_REASON]
        if compiling.is_graph_break(error) and isinstance(error, exc.Unsupported | exc.UserError):
            skipped = list(filter(None, [str(error)]))  # the frame runs without a graph
        raise
    else:
        if getattr(converted, "guarded_code", converted) is None:
            reason = getattr(converted, "skip_reason", None)  # until torch 2.12
            why = str(reason or "dynamo skipped the frame")
        if is_counted:
            # the guards that failed since: one for each compiled code of the frame that did not fit
            recompile_reasons = [
                reason
                for code, reasons in guard_failures.items()
                for reason in list(reasons)[failed.get(code, 0) :]
            ]
            seen.recompiles.append(
                {"frame": name, "reason": "\n".join(recompile_reasons)[:_MOST_OF_EVENT]}
            )
        return converted
    finally:
        if is_own:
            reasons = [str(graph_break.reason) for graph_break in graph_break_reasons[breaks:]]
            seen.broken += [reason[:_MOST_REASON] for reason in [*reasons, why] if reason]
            seen.graph_breaks += [
                {"frame": name, "reason": reason[:_MOST_OF_EVENT]}
                for reason in [*skipped, *reasons]
            ]


def _watching_captured(call: Call) -> object:
    """Count the calls of a graph that dynamo captured and a backend other than Inductor
    compiled.
    """
    output: OutputGraph = call.args[0]
    is_own = _is_claimed(output.compiler_fn, *compiling.backends_of(output.compiler_fn))
    entered = _watch.seen.entered
    _watch.seen.handed += is_own
    compiled = call()

    def count() -> None:
        _watch.seen.captured += is_own
        _watch.seen.captured_others += not is_own

    if _watch.seen.entered > entered:  # calls of inductor's graphs are counted where they happen
        return compiled
    if getattr(output, "package", None) is not None:
        # torch stores what the backend returned, and must get that
        count()
        return compiled

    # a graph module has attributes that a function cannot have
    @functools.wraps(
        compiled,
        updated=("__dict__",)
        if isinstance(compiled, types.FunctionType | types.MethodType)
        else (),
    )
    def counted(*inputs: object, **named: object) -> object:
        count()

        def run(*inputs: object) -> object:
            return _in_phase("run", functools.partial(compiled, *inputs, **named))

        return _watch.seen.run(run, *inputs) if is_own else run(*inputs)

    return counted


def _recording_guards(call: Call) -> None:
    """Record the guards of a frame."""
    call()
    if "guards" in _watch.asked and _is_own_compile():
        seen = _watch.seen
        seen.guarded += 1
        try:
            seen.guards.extend(compiling.guards_of(call.args[0]))
        except Exception as error:
            # the text of a guard is made of any value: that must not end the compile
            seen.unread = f"guards cannot be read: {exception_text(error)}"[:_MOST_OF_EVENT]


# -- compiles --------------------------------------------------------------------------------------


def _compiling_own(call: Call) -> object:
    """Mark what is compiled during this call as the case's own, and record dynamo's graph."""
    backend, graph, *_ = call.args
    is_own = _is_claimed(backend)
    _watch.depth += is_own
    if is_own:
        context = CompileContext.try_get()
        _watch.contexts[id(context)] = context
        if "dynamo" in _watch.asked:
            _record_graph("dynamo", graph)
    try:
        return call()
    finally:
        _watch.depth -= is_own


def _noting_backward(call: Call) -> object:
    """Note for each backward graph whether it calls anything."""
    arguments = call.arguments
    compiler = arguments.get("bw_compiler") or arguments["fw_compiler"]
    if not _watch.depth or not isinstance(compiler, types.FunctionType | types.MethodType):
        return call()

    @functools.wraps(compiler)
    def noting(graph: object, *inputs: object) -> object:
        _watch.backwards.append(compiling.calls(graph))
        return compiler(graph, *inputs)

    return call.original(**{**arguments, "bw_compiler": noting})


def _counting_entries(call: Call) -> object:
    """Count a call of Inductor's entry; record what it raised."""
    _watch.seen.entered += 1
    _watch.within += 1
    try:
        return call()
    except Exception as error:  # torch may raise anything here: it is recorded and raised again
        # dynamo may treat it as a graph break and continue eagerly; otherwise the step raises
        reason = exception_text(error)[:_MOST_REASON]
        if not isinstance(error, exc.RestartAnalysis) and reason not in _watch.seen.abandoned:
            _watch.seen.abandoned.append(reason)
        raise
    finally:
        _watch.within -= 1


def _counting_direct_entries(call: Call) -> object:
    """Count a call of what lies behind Inductor's entry, and the calls of a graph that calls
    nothing.
    """
    graph, inputs, *_ = call.args
    # called by code of the spec, or by a compiler that imported ``compile_fx`` before the hooks
    # were set, not by torch in a compile of a backward
    is_late = CompileContext.try_get() is not None and call.kwargs.get("is_backward", False)
    _watch.seen.entered += not _watch.within and not is_late
    compiled = call()
    if isinstance(compiled, OutputCode) or compiling.calls(graph):
        return compiled

    # torch returns a graph that calls nothing as it is, such as a backward that returns its tangent
    is_own = _is_own_compile()
    devices = {value.device.type for value in inputs if isinstance(value, torch.Tensor)}

    @functools.wraps(compiled)  # with the mark that it takes a list
    def counted(*args: object) -> object:
        seen = _watch.seen
        seen.counted += is_own
        seen.count(devices, is_own=is_own)
        return seen.run(compiled, *args)

    return counted


def _recording_stage(stage: str, call: Call) -> object:
    """Record the graph after the passes of a stage."""
    if (
        stage not in _watch.asked
        or getattr(_in_thread, "is_in_passes", False)
        or not _is_own_compile()
    ):
        return call()
    _in_thread.is_in_passes = True
    try:
        new_graph = call()
    finally:
        _in_thread.is_in_passes = False
    _record_graph(stage, call.args[0] if new_graph is None else new_graph)
    return new_graph


_PRINTED = {"print_output": False, "include_stride": True, "include_device": True, "colored": False}


def _record_graph(stage: str, graph: torch.fx.GraphModule) -> None:
    """Record a graph. What prevents that is recorded too: it must not end the compile."""
    graphs = _watch.seen.stages.setdefault(stage, [])
    ops, text, problem = dict[str, int](), "", ""
    if len(graphs) >= _MOST_GRAPHS:
        problem = f"more than {_MOST_GRAPHS} graphs"
    else:
        try:
            ops, text = compiling.operators(graph), str(graph.print_readable(**_PRINTED))
        except Exception as error:
            # printing calls code of every operator and constant of the graph
            problem = f"the graph cannot be read: {exception_text(error)}"[:_MOST_OF_EVENT]
    room = _MOST_TEXT - sum(len(recorded["text"]) for recorded in graphs)
    graphs.append({"ops": ops, "text": text[:room], "cut": len(text) > room, "problem": problem})


def _noting_wrappers(call: Call) -> object:
    wrapper = call()
    if "kernels" in _watch.asked:
        compiling.note_wrapper(wrapper)
    return wrapper


def _noting_graph(call: Call) -> object:
    """Note the graph and the kernels of the code that Inductor generates next."""
    graph, generated = call.args[0], call()
    _in_thread.graph = compiling.graph_of_code(graph)
    if "kernels" in _watch.asked and _is_own_compile():
        try:
            _watch.seen.generated |= compiling.generated_kernels(graph, generated)
        except ValueError as error:
            _watch.seen.ungenerated.append(str(error)[:_MOST_OF_EVENT])
    return generated


def _recording_code(code: str) -> None:
    """Record a piece of code that inductor generates, right after the code of its graph is made, or
    loads from a cache.
    """
    _watch.seen.code.append(code)
    _watch.seen.code_graphs[code] = getattr(_in_thread, "graph", {})
    _in_thread.graph = {}


def _recording_graphs(call: Call) -> object:
    """Record the devices of a compiled graph, and whether it is the case's own."""
    graph: CompiledFxGraph = call.args[0]
    _watch.seen.graphs.append(sorted(graph.device_types))
    if _is_own_compile():
        _watch.own[id(graph)] = weakref.ref(graph)
    return call()


def _recording_ahead(call: Call) -> object:
    """Record the code of a package that is compiled ahead of time, also where its build fails."""
    _, graph, wrapper_code, kernel_code, *_ = call.args
    # the sources of a GPU's kernels, which the wrapper only calls, are in Python that compiles and
    # times them
    sources = graph.wrapper_code.kernel_autotune_defs.getvalue()
    _watch.seen.code.extend(
        filter(None, (sources if " = async_compile." in sources else "", wrapper_code, kernel_code))
    )
    returned = call()
    _watch.seen.graphs.append(sorted(graph.device_types))
    return returned


# -- calls -----------------------------------------------------------------------------------------

_CPP = "a compiled graph has a C++ wrapper, whose kernel calls are not seen"
_NOT_PYTHON = (
    "a compiled graph ran without its Python wrapper (a replayed CUDA graph): its kernel "
    "calls are not seen"
)
_REPLACED = (
    "code that a compiled graph calls has replaced the profile function: the kernel calls "
    "after that are not seen"
)
_PACKAGE = "a package that was compiled ahead of time ran: its kernel calls are not seen"


def _counting_calls(call: Call) -> object:
    """Count a call of a compiled graph, and the kernels that it calls."""
    graph, inputs = call.args
    seen = _watch.seen
    is_own = (own := _watch.own.get(id(graph))) is not None and own() is graph
    seen.count(graph.device_types, is_own=is_own)
    if not is_own or "kernels" not in _watch.asked:
        return seen.run(call.original, graph, inputs)
    seen.counted += 1
    with compiling.counted() as census:
        returned = seen.run(call.original, graph, inputs)
    if not census.to_the_end:
        seen.uncounted.append(_REPLACED)
    elif census.in_cpp:
        seen.uncounted.append(_CPP)
    elif not census.in_python:
        seen.uncounted.append(_NOT_PYTHON)
    seen.kernels.extend(census.calls)
    return returned


def _counting_ahead(call: Call) -> object:
    package = call.args[0]
    _watch.seen.count([package.get_metadata()["AOTI_DEVICE_KEY"]], is_own=False)
    _watch.seen.uncounted.append(_PACKAGE)
    return call()
