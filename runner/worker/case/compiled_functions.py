"""What hooks record of the compiles of a case's own functions: graphs, guards, recompiles, graph breaks, kernel calls.

A hook records only what an expectation of the case asks for, and only for functions that the case compiles with its own ``torch.compile``.
"""

import functools
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.vocabulary.expectations import compilation
from runner.worker.case import compiler_hooks
from runner.worker.torch_compat import compiling, observed_compiles

MOST_GRAPHS = 50
"""The maximum number of graphs of a stage that are recorded in a step."""

MOST_TEXT = 2 << 20
"""The maximum number of characters of all graphs of a stage in a step; the rest is cut off."""

MOST_EVENTS = 200
MOST_REASON = 4000
"""The maximum number of recompiles or graph breaks that are recorded in a step, and of characters of a reason."""

MOST_GUARDS = 5000
"""The maximum number of guards whose text is recorded in a step."""


@dataclass
class Compilation:
    """What was recorded in one step."""

    graphs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """For each stage its graphs in order: ``ops``, ``text``, and whether the text was ``cut``."""
    frames: int = 0
    """How many frames dynamo converted, or began to."""
    reused: int = 0
    """How many calls found code that was compiled before, by its guards."""
    guards: list[str] = field(default_factory=list)
    unread: str = ""
    """Why guards could not be read."""
    guarded: int = 0
    """How many frames got guards."""
    recompiles: list[dict[str, str]] = field(default_factory=list)
    graph_breaks: list[dict[str, str]] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    """The kind and the name of each kernel call."""
    ran: int = 0
    """How many calls of compiled graphs were counted."""
    uncounted: list[str] = field(default_factory=list)
    """Why kernel calls could not be counted."""
    compiled: set[str] = field(default_factory=set)
    uncompiled: list[str] = field(default_factory=list)
    """Why kernels that were compiled could not be counted."""

    def facts(self) -> dict[str, Any]:
        """Return the facts by the kind of expectation that asks for them; ``graph`` has a function beside the graphs of each stage."""

        def is_available(stage: str) -> bool:
            return stage not in observed_compiles.PASSES or observed_compiles.is_available(stage)

        events = {"recompiles": self.recompiles, "graph_breaks": self.graph_breaks}
        return {
            "kernels": {
                "launched": {kind: sum(called == kind for called, _ in self.calls) for kind in compilation.KINDS},
                "names": [f"{kind} {name}" for kind, name in self.calls[:MOST_EVENTS]],
                "recorded": bool(_installed),
                "ran": self.ran,
                "uncounted": list(dict.fromkeys(self.uncounted)),
                "compiled": len(self.compiled),
                "uncompiled": list(dict.fromkeys(self.uncompiled)),
            },
            "graph": {"stages": self.graphs, "is_available": is_available, "is_known": observed_compiles.is_known},
            "guards": {"frames": self.guarded, "problem": self.unread, "count": len(self.guards), "texts": self.guards[:MOST_GUARDS]},
            **{
                kind: {
                    "recorded": bool(_installed),
                    "frames": self.frames,
                    "reused": self.reused,
                    "count": len(of_kind),
                    "events": of_kind[:MOST_EVENTS],
                }
                for kind, of_kind in events.items()
            },
        }


@dataclass
class _Recording:
    """The record of the running case. The hooks are installed once per process."""

    wanted: frozenset[str] = frozenset()
    """Kinds of expectations that the case has, and stages of graphs."""
    has_converted: bool = False
    """Whether dynamo converted a frame of the case's own functions: before that, the compiled code that it finds is of others."""
    compilation: Compilation = field(default_factory=Compilation)


_recording = _Recording()
_installed: list[bool] = []
_within = threading.local()
"""``stage``: whether this thread is within the passes of a stage; passes call themselves for graphs within a graph."""

KINDS = ("kernels", "graph", "guards", "recompiles", "graph_breaks")
"""The kinds of expectations that need these records."""


def watch(kinds: Collection[str]) -> None:
    """Record for a new case from now on."""
    _recording.wanted, _recording.compilation, _recording.has_converted = frozenset(kinds), Compilation(), False
    observed_compiles.forget_wrappers()


def wanted_by(plan: Mapping[str, Any]) -> set[str]:
    """Return the kinds of expectations of a plan that need these records, and the stages of graphs."""
    measures = [request for step in plan["steps"] for request in step["measure"] if request["kind"] in KINDS]
    stages = {request["arguments"]["stage"] for request in measures if request["kind"] == "graph"}
    return {request["kind"] for request in measures} | stages


def take() -> Compilation:
    """Return the record since the last call, and start a new one."""
    taken, _recording.compilation = _recording.compilation, Compilation()
    return taken


def install() -> None:
    """Install the hooks for the rest of the process; later calls do nothing."""
    if _installed:
        return
    _installed.append(True)
    for module, name in compiling.backend_calls():
        compiling.hook(module, name, _recording_dynamo_graphs)
    for stage, (module, name) in observed_compiles.PASSES.items():
        if observed_compiles.is_available(stage):
            compiling.hook(module, name, functools.partial(_recording_stage, stage))
    for (module, name), call in (
        (("torch._dynamo.convert_frame", "ConvertFrameAssert.__call__"), _recording_frames),
        (("torch._dynamo.guards", "CheckFunctionManager.__init__"), _recording_guards),
        (("torch._inductor.codecache", "PyCodeCache.load_by_key_path"), _noting_wrappers),
        (("torch._inductor.graph", "GraphLowering.codegen"), _recording_kernels),
        (("torch._inductor.output_code", "CompiledFxGraph.__call__"), _counting_kernels),
        (("torch.export.pt2_archive._package", "AOTICompiledModel.__call__"), _noticing_packages),
    ):
        compiling.hook(module, name, call)

    def count_reuse(is_found: bool) -> None:
        _recording.compilation.reused += is_found and _recording.has_converted

    observed_compiles.on_lookup(count_reuse)


# -- graphs ---------------------------------------------------------------------------------------------------------


def _record_graph(stage: str, graph: Any) -> None:
    """Record a graph. What prevents that is recorded too: it must not end the compile."""
    graphs = _recording.compilation.graphs.setdefault(stage, [])
    ops, text, problem = {}, "", f"more than {MOST_GRAPHS} graphs" if len(graphs) >= MOST_GRAPHS else ""
    if not problem:
        try:
            ops, text = observed_compiles.operators(graph), observed_compiles.text_of(graph)
        except Exception as error:  # printing calls code of every operator and constant of the graph
            problem = f"the graph cannot be read: {type(error).__name__}: {error}"[:MOST_REASON]
    room = MOST_TEXT - sum(len(known["text"]) for known in graphs)
    graphs.append({"ops": ops, "text": text[:room], "cut": len(text) > room, "problem": problem})


def _recording_dynamo_graphs(original: Callable[..., Any], backend: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
    if "dynamo" in _recording.wanted and compiler_hooks.is_claimed(backend):
        _record_graph("dynamo", graph)
    return original(backend, graph, *args, **kwargs)


def _recording_stage(stage: str, original: Callable[..., Any], graph: Any, *args: Any, **kwargs: Any) -> Any:
    if stage not in _recording.wanted or getattr(_within, "stage", False) or not compiler_hooks.is_own_compile():
        return original(graph, *args, **kwargs)
    _within.stage = True
    try:
        new_graph = original(graph, *args, **kwargs)
    finally:
        _within.stage = False
    _record_graph(stage, graph if new_graph is None else new_graph)
    return new_graph


# -- frames ---------------------------------------------------------------------------------------------------------


def _recording_frames(original: Callable[..., Any], convert: Any, frame: Any, entry: Any, *args: Any, **kwargs: Any) -> Any:
    asked = not _recording.wanted.isdisjoint(("recompiles", "graph_breaks"))
    if not asked or not any(map(compiler_hooks.is_claimed, observed_compiles.backends_of(convert))):
        return original(convert, frame, entry, *args, **kwargs)
    record, name = _recording.compilation, str(frame.f_code.co_name)
    record.frames += 1
    _recording.has_converted = True
    known, failed = len(observed_compiles.break_reasons()), observed_compiles.guard_failures()
    try:
        converted = original(convert, frame, entry, *args, **kwargs)
    except Exception as error:  # converting a frame can raise any error: it is recorded for the step and raised again
        if compiling.is_graph_break(error) and (why := observed_compiles.why_skipped(error)):
            record.graph_breaks.append({"frame": name, "reason": why[:MOST_REASON]})
        raise
    else:
        if entry is not None:
            # the guards that failed since: one for each compiled code of the frame that did not fit
            now = observed_compiles.guard_failures()
            again = (reason for code, reasons in now.items() for reason in reasons[len(failed.get(code, ())) :])
            record.recompiles.append({"frame": name, "reason": "\n".join(again)[:MOST_REASON]})
        return converted
    finally:
        for reason in observed_compiles.break_reasons()[known:]:
            record.graph_breaks.append({"frame": name, "reason": reason[:MOST_REASON]})


def _recording_guards(original: Callable[..., Any], manager: Any, *args: Any, **kwargs: Any) -> None:
    original(manager, *args, **kwargs)
    if "guards" in _recording.wanted and compiler_hooks.is_own_compile():
        record = _recording.compilation
        record.guarded += 1
        try:
            record.guards.extend(observed_compiles.guards_of(manager))
        except Exception as error:  # the text of a guard is made of any value: that must not end the compile
            record.unread = f"guards cannot be read: {type(error).__name__}: {error}"[:MOST_REASON]


# -- kernels --------------------------------------------------------------------------------------------------------

_CPP = "a compiled graph has a C++ wrapper, whose kernel calls are not seen"
_NOT_PYTHON = "a compiled graph ran without its Python wrapper (a replayed CUDA graph): its kernel calls are not seen"
_REPLACED = "code that a compiled graph calls has replaced the profile function: the kernel calls after that are not seen"
_PACKAGE = "a package that was compiled ahead of time ran: its kernel calls are not seen"


def _asks_kernels() -> bool:
    return "kernels" in _recording.wanted


def _noting_wrappers(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    wrapper = original(*args, **kwargs)
    if _asks_kernels():
        observed_compiles.note_wrapper(wrapper)
    return wrapper


def _recording_kernels(original: Callable[..., Any], graph: Any, *args: Any, **kwargs: Any) -> Any:
    generated = original(graph, *args, **kwargs)
    if _asks_kernels() and compiler_hooks.is_own_compile():
        try:
            _recording.compilation.compiled |= observed_compiles.generated_kernels(graph, generated)
        except ValueError as error:
            _recording.compilation.uncompiled.append(str(error)[:MOST_REASON])
    return generated


def _counting_kernels(original: Callable[..., Any], graph: Any, *args: Any, **kwargs: Any) -> Any:
    if not _asks_kernels() or not compiler_hooks.is_own_graph(graph):
        return original(graph, *args, **kwargs)
    record = _recording.compilation
    record.ran += 1
    with observed_compiles.counted() as census:
        returned = original(graph, *args, **kwargs)
    if not census.to_the_end:
        record.uncounted.append(_REPLACED)
    elif census.in_cpp:
        record.uncounted.append(_CPP)
    elif not census.in_python:
        record.uncounted.append(_NOT_PYTHON)
    record.calls.extend(census.calls)
    return returned


def _noticing_packages(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if _asks_kernels():
        _recording.compilation.uncounted.append(_PACKAGE)
    return original(*args, **kwargs)
