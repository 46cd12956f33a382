"""Watches torch while a case runs: the phase it is in, the graphs it compiles and calls, the code it writes, the choices it times."""

import contextlib
import functools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.worker import compat


class Phases:
    """A stack of phases. Each second counts for the innermost one; entering tells the runner, in case nothing more comes."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self.seconds: dict[str, float] = {}
        self._announce = announce
        self._stack: list[str] = []
        self._since = time.perf_counter()

    @property
    def current(self) -> str:
        """The innermost phase."""
        return self._stack[-1] if self._stack else ""

    def enter(self, phase: str) -> None:
        """Begin a phase inside the current one."""
        self._settle()
        self._stack.append(phase)
        self._announce(phase)

    def leave(self) -> None:
        """End the innermost phase."""
        self._settle()
        self._stack.pop()
        if self._stack:
            self._announce(self._stack[-1])

    def _settle(self) -> None:
        now = time.perf_counter()
        if self._stack:
            self.seconds[self._stack[-1]] = self.seconds.get(self._stack[-1], 0.0) + now - self._since
        self._since = now

    def __call__(self, phase: str) -> "_Phase":
        """Return a context manager for a phase."""
        return _Phase(self, phase)


@dataclass(frozen=True, slots=True)
class _Phase:
    phases: Phases
    name: str

    def __enter__(self) -> None:
        self.phases.enter(self.name)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and not hasattr(error, "_conformance_phase"):
            with contextlib.suppress(AttributeError):  # an exception with slots: its phase is the step's
                error._conformance_phase = self.name  # type: ignore[attr-defined]  # a note on a stranger's exception
        self.phases.leave()


@dataclass
class Witness:
    """What was seen since the last ``take``."""

    entered: int = 0
    """Calls of inductor's entry."""
    graphs: list[list[str]] = field(default_factory=list)
    """For each graph compiled or served from a cache, the devices that it runs on."""
    executed: dict[str, int] = field(default_factory=dict)
    """Calls of compiled graphs, by device."""
    code: list[str] = field(default_factory=list)
    choices: list[dict[tuple[str, str], float]] = field(default_factory=list)
    """For each autotuning the time of each choice, by its name and class."""

    def take(self) -> "Witness":
        """Return what was seen, and start anew."""
        seen = Witness(self.entered, self.graphs, self.executed, list(dict.fromkeys(self.code)), self.choices)
        self.entered, self.graphs, self.executed, self.code, self.choices = 0, [], {}, [], []
        return seen


@dataclass
class Watch:
    """Who watches: the phases and the witness of the case that runs. A worker of several cases has the hooks once."""

    phases: Phases
    witness: Witness


_watch = Watch(Phases(lambda _: None), Witness())
_installed: list[bool] = []


def watch(phases: Phases, witness: Witness) -> None:
    """Let a case see what happens from here on."""
    _watch.phases, _watch.witness = phases, witness


def install() -> None:
    """Put the hooks into torch, for the rest of the process; once."""
    if _installed:
        return
    _installed.append(True)
    for module, name, phase in compat.PHASES:
        compat.wrap(module, name, functools.partial(_in_phase, phase))
    for module, name, around in (
        ("torch._inductor.compile_fx", "compile_fx", _counting_entries),
        ("torch._inductor.output_code", "CompiledFxGraph.post_compile", _recording_graphs),
        ("torch._inductor.output_code", "CompiledFxGraph.__call__", _counting_calls),
        ("torch._inductor.codecache", "AotCodeCompiler.compile", _recording_ahead),
        ("torch.export.pt2_archive._package", "AOTICompiledModel.__call__", _counting_ahead),
    ):
        compat.wrap(module, name, around)
    compat.on_output_code(lambda code: _watch.witness.code.append(code))
    compat.on_timed_choices(lambda timings: _watch.witness.choices.append(dict(timings)))


def _in_phase(phase: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if _watch.phases.current == phase:
            return original(*args, **kwargs)
        with _watch.phases(phase):
            return original(*args, **kwargs)

    return wrapper


def _counting_entries(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        _watch.witness.entered += 1
        return original(*args, **kwargs)

    return wrapper


def _recording_graphs(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(graph: Any, *args: Any, **kwargs: Any) -> Any:
        _watch.witness.graphs.append(sorted(graph.device_types))
        return original(graph, *args, **kwargs)

    return wrapper


def _counting_calls(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(graph: Any, inputs: Any) -> Any:
        executed = _watch.witness.executed
        for device in graph.device_types:
            executed[device] = executed.get(device, 0) + 1
        return original(graph, inputs)

    return wrapper


def _recording_ahead(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(cls: Any, graph: Any, wrapper_code: str, kernel_code: str, *args: Any, **kwargs: Any) -> Any:
        witness = _watch.witness
        witness.code.extend(code for code in (wrapper_code, kernel_code) if code)
        made = original(cls, graph, wrapper_code, kernel_code, *args, **kwargs)
        witness.graphs.append(sorted(graph.device_types))
        return made

    return wrapper


def _counting_ahead(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(package: Any, *args: Any, **kwargs: Any) -> Any:
        device = package.get_metadata()["AOTI_DEVICE_KEY"]
        executed = _watch.witness.executed
        executed[device] = executed.get(device, 0) + 1
        return original(package, *args, **kwargs)

    return wrapper


def as_facts(seen: Witness) -> Mapping[str, Any]:
    """Return what was seen as plain data, but for the code, which goes to files. A choice that could not be timed counts as infinity."""
    choices = [[{"name": n, "class": c} for (n, c), time in sorted(timed.items()) if math.isfinite(time)] for timed in seen.choices]
    return {"entered": seen.entered, "graphs": seen.graphs, "executed": seen.executed, "choices": choices}
