"""Hooks in torch that record a case: its phase, compiled and called graphs, generated code, candidates of autotuning."""

import contextlib
import functools
import math
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runner.worker.case.phases import Phases
from runner.worker.torch_compat import choice_census, compiling, observed_compiles

_MOST_REASONS = 20
_MOST_REASON = 500
"""The maximum number of reasons for abandoned frames that are sent, and of characters of each."""


@dataclass
class Seen:
    """What the hooks recorded in one step."""

    entered: int = 0
    """Calls of inductor's entry, and calls of what lies behind it by code of the spec."""
    graphs: list[list[str]] = field(default_factory=list)
    """For each graph compiled or served from a cache, the devices that it runs on."""
    executed: dict[str, int] = field(default_factory=dict)
    """Calls of graphs that the case's own ``torch.compile`` compiled, by device: forward, and backward whenever it was compiled."""
    executed_others: dict[str, int] = field(default_factory=dict)
    """Calls of all other compiled graphs, by device: ahead-of-time packages, and graphs that code of the spec compiled itself."""
    frames: int = 0
    """Frames of the case's own functions that dynamo converted, or began to."""
    broken: list[str] = field(default_factory=list)
    """Why dynamo did not convert some of them as a whole."""
    handed: int = 0
    """Graphs that dynamo captured of these functions and handed to their backend."""
    captured: int = 0
    """Calls of graphs that dynamo captured of the case's own functions and that a backend other than inductor got."""
    captured_others: int = 0
    """The same of other functions."""
    abandoned: list[str] = field(default_factory=list)
    """The reasons of frames that dynamo gave up, after an error or at its recompile limit. They run eagerly, without an exception."""
    uncompiled: list[str] = field(default_factory=list)
    """Samples of an operator whose compiled call ran eagerly, each with the reason."""
    code: list[str] = field(default_factory=list)
    choices: list[dict[tuple[str, str], float]] = field(default_factory=list)
    """For each autotuning the time of each choice in milliseconds, by its name and class."""
    tunings: list[choice_census.Tuning] = field(default_factory=list)
    """For each operation of the case's own functions that inductor selects a kernel for, what became of its candidates."""

    @property
    def own_calls(self) -> int:
        """Calls of graphs of the case's own functions, whichever backend compiled them."""
        return sum(self.executed.values()) + self.captured


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
        kept, self.seen = self.seen, Seen()
        try:
            yield self.seen
        finally:
            self.seen = kept


@dataclass
class Watch:
    """The state of the hooks for the running case. The hooks themselves are installed once per process."""

    phases: Phases
    witness: Witness
    backends: list[Any] = field(default_factory=list)
    """Dynamo's backend objects of the case's functions."""
    depth: int = 0
    """The number of calls of these backends on the stack."""
    within: int = 0
    """The number of calls of inductor's entry on the stack."""
    own: dict[int, weakref.ref[Any]] = field(default_factory=dict)
    """The graphs that these backends compiled, by ``id``."""
    contexts: dict[int, Any] = field(default_factory=dict)
    """Torch's contexts of these compiles, by ``id``. A backward that is compiled at its first run is compiled in its forward's context."""

    @property
    def seen(self) -> Seen:
        """The record that hooks write to."""
        return self.witness.seen


_watch = Watch(Phases(lambda _: None), Witness())
_installed: list[bool] = []


def watch(phases: Phases, witness: Witness) -> None:
    """Record for a new case from now on."""
    _watch.phases, _watch.witness = phases, witness
    _watch.backends, _watch.depth, _watch.within, _watch.own, _watch.contexts = [], 0, 0, {}, {}
    choice_census.forget()


def claim(backend: Any) -> None:
    """Count the graphs that this backend object compiles as the case's own."""
    _watch.backends.append(backend)


def is_claimed(backend: Any) -> bool:
    """Whether a backend object compiles the case's own functions."""
    return any(backend is claimed for claimed in _watch.backends)


def is_own_compile() -> bool:
    """Whether the current compile is of the case's own functions."""
    context = compiling.compile_context()
    return _watch.depth > 0 or (context is not None and _watch.contexts.get(id(context)) is context)


def is_own_graph(graph: Any) -> bool:
    """Whether a compiled graph is of the case's own functions."""
    return (known := _watch.own.get(id(graph))) is not None and known() is graph


def install() -> None:
    """Install the hooks in torch for the rest of the process; later calls do nothing."""
    if _installed:
        return
    _installed.append(True)
    for module, name, phase in compiling.PHASES:
        compiling.hook(module, name, functools.partial(_in_phase, phase))
    calls: tuple[tuple[str, str, Callable[..., Any]], ...] = (
        *((module, name, _compiling_own) for module, name in compiling.backend_calls()),
        ("torch._dynamo.convert_frame", "ConvertFrame.__call__", _noticing_abandoned),
        ("torch._dynamo.convert_frame", "ConvertFrameAssert.__call__", _watching_frames),
        ("torch._dynamo.output_graph", "OutputGraph.call_user_compiler", _watching_captured),
        ("torch._inductor.compile_fx", "compile_fx", _counting_entries),
        ("torch._inductor.compile_fx", "_compile_fx_inner", _counting_direct_entries),
        ("torch._inductor.output_code", "CompiledFxGraph.post_compile", _recording_graphs),
        ("torch._inductor.output_code", "CompiledFxGraph.__call__", _counting_calls),
        ("torch._inductor.codecache", "AotCodeCompiler.compile", _recording_ahead),
        ("torch.export.pt2_archive._package", "AOTICompiledModel.__call__", _counting_ahead),
    )
    for module, name, call in calls:
        compiling.hook(module, name, call)
    compiling.on_output_code(lambda code: _watch.seen.code.append(code))
    compiling.on_timed_choices(lambda timings: _watch.seen.choices.append(dict(timings)))
    choice_census.install(lambda tuning: _watch.seen.tunings.append(tuning), is_own_compile)


def _in_phase(phase: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if _watch.phases.current == phase:
        return original(*args, **kwargs)
    with _watch.phases(phase):
        return original(*args, **kwargs)


def _counting_entries(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    _watch.seen.entered += 1
    _watch.within += 1
    try:
        return original(*args, **kwargs)
    except Exception as error:  # torch may raise anything here: it is recorded and raised again
        # dynamo may treat it as a graph break and continue eagerly; otherwise the step raises
        reason = _reason(error)
        if not compiling.is_restart(error) and reason not in _watch.seen.abandoned:
            _watch.seen.abandoned.append(reason)
        raise
    finally:
        _watch.within -= 1


def _counting_direct_entries(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    # called by code of the spec, not by torch in a compile of a frame or of a backward
    _watch.seen.entered += not _watch.within and compiling.compile_context() is None
    return original(*args, **kwargs)


def _compiling_own(original: Callable[..., Any], backend: Any, *args: Any, **kwargs: Any) -> Any:
    is_own = is_claimed(backend)
    _watch.depth += is_own
    if is_own:
        context = compiling.compile_context()
        _watch.contexts[id(context)] = context
    try:
        return original(backend, *args, **kwargs)
    finally:
        _watch.depth -= is_own


_errors = threading.local()
"""``last``: the latest exception from the conversion of a frame in this thread."""


def _watching_frames(original: Callable[..., Any], convert: Any, *args: Any, **kwargs: Any) -> Any:
    is_own = any(map(is_claimed, observed_compiles.backends_of(convert)))
    seen, known = _watch.seen, len(observed_compiles.break_reasons())
    seen.frames += is_own
    why = ""
    try:
        converted = original(convert, *args, **kwargs)
    except Exception as error:  # converting a frame can raise any error: it is recorded for the step and raised again
        _errors.last = error
        why = _reason(error)
        raise
    else:
        if getattr(converted, "guarded_code", converted) is None:
            why = str(getattr(converted, "skip_reason", None) or "dynamo skipped the frame")
        return converted
    finally:
        if is_own:
            seen.broken += [reason[:_MOST_REASON] for reason in [*observed_compiles.break_reasons()[known:], why] if reason]


def _watching_captured(original: Callable[..., Any], output: Any, *args: Any, **kwargs: Any) -> Any:
    is_own = any(map(is_claimed, [output.compiler_fn, *observed_compiles.backends_of(output.compiler_fn)]))
    entered = _watch.seen.entered
    _watch.seen.handed += is_own
    compiled = original(output, *args, **kwargs)

    def count() -> None:
        _watch.seen.captured += is_own
        _watch.seen.captured_others += not is_own

    if _watch.seen.entered > entered:  # calls of inductor's graphs are counted where they happen
        return compiled
    if getattr(output, "package", None) is not None:  # torch stores what the backend returned, and must get that
        count()
        return compiled

    # a graph module has attributes that are no function's
    @functools.wraps(compiled, updated=("__dict__",) if isinstance(compiled, types.FunctionType | types.MethodType) else ())
    def counted(*inputs: Any, **named: Any) -> Any:
        count()
        return compiled(*inputs, **named)

    return counted


def _noticing_abandoned(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    _errors.last = None
    try:
        returned = original(*args, **kwargs)
        error = _errors.last
        if error is not None and not compiling.is_graph_break(error):
            _watch.seen.abandoned.append(_reason(error))
        return returned
    finally:
        _errors.last = None  # its traceback keeps the frames' values alive


def _reason(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:_MOST_REASON]
    except Exception as other:  # __str__ of an exception of a spec may raise anything
        return f"{type(error).__name__}: <no text: {type(other).__name__}>"


def _recording_graphs(original: Callable[..., Any], graph: Any, *args: Any, **kwargs: Any) -> Any:
    _watch.seen.graphs.append(sorted(graph.device_types))
    if is_own_compile():
        _watch.own[id(graph)] = weakref.ref(graph)
    return original(graph, *args, **kwargs)


def _counting_calls(original: Callable[..., Any], graph: Any, inputs: Any) -> Any:
    _count(_watch.seen.executed if is_own_graph(graph) else _watch.seen.executed_others, graph.device_types)
    return original(graph, inputs)


def _count(counts: dict[str, int], devices: Iterable[str]) -> None:
    for device in devices:
        counts[device] = counts.get(device, 0) + 1


def _recording_ahead(
    original: Callable[..., Any], cls: Any, graph: Any, wrapper_code: str, kernel_code: str, *args: Any, **kwargs: Any
) -> Any:
    seen = _watch.seen
    seen.code.extend(code for code in (wrapper_code, kernel_code) if code)
    returned = original(cls, graph, wrapper_code, kernel_code, *args, **kwargs)
    seen.graphs.append(sorted(graph.device_types))
    return returned


def _counting_ahead(original: Callable[..., Any], package: Any, *args: Any, **kwargs: Any) -> Any:
    _count(_watch.seen.executed_others, [package.get_metadata()["AOTI_DEVICE_KEY"]])
    return original(package, *args, **kwargs)


def as_facts(seen: Seen) -> Mapping[str, Any]:
    """Return the record as plain data, without the code, which goes to files. A choice that could not be timed (infinity) is left out."""
    choices = [[{"name": n, "class": c} for (n, c), time in sorted(timed.items()) if math.isfinite(time)] for timed in seen.choices]
    return {
        "entered": seen.entered,
        "graphs": seen.graphs,
        "executed": seen.executed,
        "executed_others": seen.executed_others,
        "dynamo": {
            "frames": seen.frames,
            "broken": seen.broken[:_MOST_REASONS],
            "graphs": seen.handed,
            "calls": seen.captured,
            "calls_others": seen.captured_others,
        },
        "abandoned": seen.abandoned[:_MOST_REASONS],
        "uncompiled": [reason[:_MOST_REASON] for reason in seen.uncompiled[:_MOST_REASONS]],
        "choices": choices,
        "tunings": {"count": len(seen.tunings), "found": [tuning.to_json() for tuning in seen.tunings[: choice_census.MOST_TUNINGS]]},
    }
