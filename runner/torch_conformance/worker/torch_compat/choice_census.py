"""The census of autotuning: for each operation that Inductor selects a kernel for, what became of
each candidate.

Inductor passes every GEMM, convolution and attention through one selector, also where
``max_autotune`` is off: then ATen is the only candidate. The hooks see the candidates at its entry,
the exceptions of those that could not be compiled or timed, the times, and which candidate's node
was put into the graph. A selection that ``benchmark_epilogue_fusion`` defers ends later, in the
scheduler.
"""

import contextlib
import functools
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch_conformance.model.case_facts import TALLIED
from torch_conformance.worker.process.channel import exception_text
from torch_conformance.worker.torch_compat import compiling

MOST_TUNINGS = 200
"""The maximum number of operations that are recorded in a step; of more only the number is known.
"""

_MOST_TEXT = 300

_SELECTOR = "torch._inductor.select_algorithm"

BACKENDS: tuple[tuple[str, str], ...] = (
    ("torch._inductor.codegen.rocm.ck_tile_", "CKTILE"),
    ("torch._inductor.codegen.rocm.ck_", "CK"),
    ("torch._inductor.codegen.cutlass.", "CUTLASS"),
    ("torch._inductor.codegen.cuda.", "CUTLASS"),
    ("torch._inductor.codegen.cutedsl.", "CUTEDSL"),
    ("torch._inductor.codegen.nv_universal_gemm.", "NVGEMM"),
    ("torch._inductor.codegen.cpp_", "CPP"),
    ("torch._inductor.codegen.subgraph.", "SUBGRAPH"),
    (f"{_SELECTOR}.Triton", "TRITON"),
    (f"{_SELECTOR}.ExternKernelCaller", "ATEN"),
)
"""The beginning of the path of a candidate's class, and the word of ``max_autotune_gemm_backends``
for it.
"""

_REFUSED = "Error in function: "
"""How the exception begins of a candidate of Composable Kernel that the library refuses to run for
these sizes: torch lets some through that the library's own check refuses.

Its kernels for GEMMs and convolutions then return a number, of which torch makes this message; what
they throw ends the process. A tile kernel throws, so that it cannot be distinguished from one that
crashed.
"""

OTHER = "OTHER"
"""A candidate whose class is not of torch."""


@dataclass
class Tuning:
    """One selection, as ``Tuning`` of ``model/case_facts`` describes it."""

    op: str
    how: str
    tallies: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By backend, how many of its candidates came how far, and the first exception (``error``) of
    one that failed.
    """
    winner: str = ""
    won_by: str = ""

    def add(self, choice: object) -> str:
        """Add a candidate; return its backend."""
        backend = backend_of(choice)
        self.tallies.setdefault(backend, {**dict.fromkeys(TALLIED, 0), "error": ""})[
            "rendered"
        ] += 1
        return backend

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "op": self.op[:_MOST_TEXT],
            "how": self.how,
            "winner": self.winner[:_MOST_TEXT],
            "won_by": self.won_by,
            "backends": dict(sorted(self.tallies.items())),
        }


@dataclass
class _Candidate:
    """A candidate of a selection.

    It is known by its ``id``, and does not keep torch's object alive.
    """

    of: weakref.ref[Any]
    tuning: Tuning
    backend: str
    name: str
    reached: set[str] = field(default_factory=set)
    """Those of ``compiled``, ``failed``, ``refused`` and ``timed`` that are counted."""


@dataclass
class _State:
    save: Callable[[Tuning], None] | None = None
    """Receives each selection when it begins; None before the hooks are installed."""
    is_asked: Callable[[], bool] = bool
    """Whether to record."""
    candidates: dict[int, _Candidate] = field(default_factory=dict)
    classes: set[type] = field(default_factory=set)
    """Classes of candidates whose ``output_node`` is watched."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Candidates are compiled in threads."""


_state = _State()
_benchmarking = threading.local()
"""``choice``: what this thread times in a child process."""


def class_of_choice(choice: object) -> str:
    """Return the dotted path of the class of a choice's template, or of the choice; empty where the
    module does not have the class.

    The name of a choice can be set by any user. The name of a class is verified by a lookup in its
    module.
    """
    # a wrapper that converts arguments and results holds the choice
    choice = vars(choice).get("_wrapped", choice)
    maker = type(vars(choice).get("template") or choice)
    value: Any = sys.modules.get(maker.__module__)
    for part in maker.__qualname__.split("."):
        value = getattr(value, part, None)
    return f"{maker.__module__}.{maker.__qualname__}" if value is maker else ""


def backend_of(choice: object) -> str:
    """Return the word of ``max_autotune_gemm_backends`` for a candidate, by its verified class."""
    path = class_of_choice(choice)
    return next((word for start, word in BACKENDS if path.startswith(start)), OTHER)


def install(save: Callable[[Tuning], None], is_asked: Callable[[], bool]) -> None:
    """Install the hooks for the rest of the process."""
    if _state.save is not None:
        return
    _state.save, _state.is_asked = save, is_asked
    from torch._inductor import ir, select_algorithm

    # in a case, this would change a class of torch for the next case in its worker
    kinds = [ir.ChoiceCaller]
    for kind in kinds:
        kinds += kind.__subclasses__()
    for kind in kinds[1:]:
        _watch_node(kind)
    compiling.hook(_SELECTOR, "AlgorithmSelectorCache.__call__", _record_selection)
    compiling.hook(_SELECTOR, "AlgorithmSelectorCache.benchmark_choice", _record_error)
    for module, name, on_call in (
        (_SELECTOR, "_log_autotune_exceptions", _record_compile_errors),
        ("torch._inductor.autotune_process", "TuningProcessPool.target", _name_benchmarked),
        ("torch._inductor.autotune_process", "TuningProcess.get", _record_error),
        ("torch._inductor.ir", "MultiTemplateBuffer.finalize_as_triton_caller", _record_deferred),
        ("torch._inductor.ir", "MultiTemplateBuffer.finalize_as_triton_callers", _record_deferred),
    ):
        # these say why and when; without one of them the counts of the selection itself remain
        # right
        with contextlib.suppress(AttributeError, ImportError):
            compiling.hook(module, name, on_call)
    select_algorithm.add_feedback_saver(_record_times)


def forget() -> None:
    """Forget the candidates of the case before."""
    _state.candidates.clear()


def _find(choice: object) -> _Candidate | None:
    candidate = _state.candidates.get(id(choice))
    return candidate if candidate is not None and candidate.of() is choice else None


# -- a selection -----------------------------------------------------------------------------------


def _record_selection(call: compiling.Call) -> object:
    """Record the candidates of a selection before it begins."""
    if _state.save is not None and _state.is_asked():
        arguments = call.arguments  # torch calls it with keywords, too
        choices = arguments["choices"]
        tuning = Tuning(op=str(arguments["name"]), how="only" if len(choices) == 1 else "untimed")
        for choice in choices:
            _state.candidates[id(choice)] = _Candidate(
                weakref.ref(choice), tuning, tuning.add(choice), str(getattr(choice, "name", ""))
            )
            _watch_node(type(choice))  # of a module that was imported since ``install``
        _state.save(tuning)
    return call()


def _watch_node(kind: type) -> None:
    """Watch the method of a class of candidates that puts the selected one into the graph."""
    owner = next((base for base in kind.__mro__ if "output_node" in vars(base)), None)
    if owner is None or owner in _state.classes:
        return
    _state.classes.add(owner)
    original = vars(owner)["output_node"]

    @functools.wraps(original)
    def output_node(choice: object) -> object:
        _won(choice)
        return original(choice)

    owner.output_node = output_node  # type: ignore[attr-defined]  # the class was found by this attribute


def _won(choice: object) -> None:
    """Record that a candidate's node was put into the graph."""
    if (candidate := _find(choice)) is None:
        return
    tuning = candidate.tuning
    if tuning.won_by:  # a selection can be revised: the last node is the one that is in the graph
        tuning.tallies[tuning.won_by]["won"] = 0
    tuning.winner, tuning.won_by = candidate.name, candidate.backend
    tuning.tallies[candidate.backend]["won"] = 1


def _record_deferred(call: compiling.Call) -> object:
    """Record a selection that ends in the scheduler: of one candidate, or of one by each hint of
    sizes.
    """
    callers = call.args[1]
    for caller in callers.values() if isinstance(callers, Mapping) else [callers]:
        _won(caller)
    return call()


# -- compiled, timed, failed -----------------------------------------------------------------------


def _record_times(
    timings: Mapping[Any, float], _op: str, _inputs: object, choices: Iterable[Any], *rest: object
) -> None:
    """Count what a selection timed: torch calls this after each, with times in milliseconds,
    infinity for what could not be timed.
    """
    # after the function that times again: by candidate, how long it took to compile it
    precompiled = rest[1] if len(rest) > 1 and isinstance(rest[1], Mapping) else {}
    for choice in precompiled:
        _mark(choice, "compiled")
    for choice, time in timings.items():
        _mark(choice, *(("compiled", "timed") if math.isfinite(time) else ("failed",)))


def _mark(choice: object, *reached: str, error: BaseException | None = None) -> None:
    """Count how far a candidate came, each state once, and keep the first exception of its
    backend.
    """
    if (candidate := _find(choice)) is None:
        return
    with _state.lock:
        tally = candidate.tuning.tallies[candidate.backend]
        if "failed" in reached and _is_refused(candidate, error):
            reached, error = ("compiled", "refused"), None
        for state in reached:
            if state not in candidate.reached:
                candidate.reached.add(state)
                tally[state] += 1
        if "timed" in reached:
            candidate.tuning.how = "timed"
        if error is not None and not tally["error"]:
            tally["error"] = " ".join(exception_text(error).split())[:_MOST_TEXT]


def _is_refused(candidate: _Candidate, error: BaseException | None) -> bool:
    """Whether its library refused to run a candidate, by this exception or by an earlier one."""
    return "refused" in candidate.reached or (
        candidate.backend == "CK" and str(error).startswith(_REFUSED)
    )


def _record_compile_errors(call: compiling.Call) -> object:
    for choice, error in call.args[0]:
        _mark(choice, "failed", error=error)
    return call()


def _record_error(call: compiling.Call) -> object:
    """Record why a candidate could not be compiled or run: here, or in the child process whose
    answer is read.
    """
    try:
        return call()
    except Exception as error:
        # candidates and child processes may raise anything: it is recorded and raised again
        # a class method has the selector before the candidate
        for choice in (*call.args[:2], getattr(_benchmarking, "choice", None)):
            _mark(choice, "failed", error=error)
        raise


def _name_benchmarked(call: compiling.Call) -> object:
    """Remember which candidate this thread times in a child process."""
    _benchmarking.choice = call.args[1]
    try:
        return call()
    finally:
        _benchmarking.choice = None
