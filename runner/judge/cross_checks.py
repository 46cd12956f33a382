"""Whether the facts that a worker sent of a case agree with each other: code, counters, census and kernels. Pure.

A verdict looks at the facts that its expectation asks for. A worker that lies must also get the others right: each entry of ``CHECKS`` is a
rule that holds for every case that torch really compiled and ran.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from runner.core.devices import CPU, WITHOUT_MODULE, kind_of
from runner.core.matching.generated_code import code_of
from runner.core.observation import Observation
from runner.core.results import CaseResult
from runner.core.tuning import Tuning
from runner.judge.evidence import CarriedOut
from runner.language.backends import Backend

_CACHE = ("fxgraph_cache_miss", "fxgraph_cache_hit", "fxgraph_cache_bypass")
"""Counters of which each compiled graph that inductor looks up adds one."""

_LONGEST = 1e7
"""Seconds: no phase takes longer."""

_OF_COMPILING = ("trace", "lower", "codegen", "kernel build", "run")
"""Phases of which one takes time wherever a graph is compiled or loaded."""

_FREE = ("script", "api")
"""Kinds of step whose Python may set counters itself, and call any part of inductor."""

_WRITTEN = re.compile(
    r"(?<![\w.])(?:async_compile\.\w+\(|@triton\.jit|@triton_heuristics\.|extern_kernels\.|torch\.ops\.|aten\.|aoti_torch_|cpp_fused)"
)
"""What code that inductor generated calls or defines where it computes anything."""

_CPU_KERNEL = re.compile(r"async_compile\.cpp_pybinding\(")

_FAMILIES: Mapping[str, re.Pattern[str]] = {
    "TRITON": re.compile(r"\btriton_\w|async_compile\.triton\(|@triton\.jit|async_compile\.multi_kernel\("),
    "CPP": re.compile(r"async_compile\.cpp|cpp_fused|cpp_\w*gemm|extern \"C\""),
    "CK": re.compile(r"async_compile\.rocm\(|ck::|\bck_"),
    "CKTILE": re.compile(r"async_compile\.rocm\(|ck_tile"),
    "CUTLASS": re.compile(r"async_compile\.cuda\(|async_compile\.xpu\(|cutlass"),
}
"""What the code holds where a candidate of an inductor backend was selected. ATen and decompositions leave too many forms."""

_PROPERTIES = re.compile(r"DeviceProperties\(type='(\w+)'[^)]*?\bcc=(?:'([\w:+-]+)'|(\d+))")
"""The GPU for which Triton's code was generated."""


def disagreements(backend: Backend, environment: Mapping[str, str], observation: Observation, steps: Sequence[CarriedOut]) -> Iterator[str]:
    """Yield each way in which the facts of one case contradict each other; none for a backend that claims no compilation."""
    for check in CHECKS if backend.compiles else ():
        yield from check(backend, environment, observation, steps)


def _graphs_have_code(_: Backend, __: Mapping[str, str], ___: Observation, steps: Sequence[CarriedOut]) -> Iterator[str]:
    for number, known in enumerate(steps, start=1):
        graphs, pieces = len(known.observed.graphs), known.observed.code_pieces
        if graphs and not pieces and known.observed.raised is None:
            yield f"step {number} compiled {graphs} graphs and left no generated code"
        if pieces and not graphs and known.observed.raised is None:
            yield f"step {number} left generated code, and compiled or loaded no graph"


def _code_is_code(_: Backend, __: Mapping[str, str], ___: Observation, steps: Sequence[CarriedOut]) -> Iterator[str]:
    for number, known in enumerate(steps, start=1):
        kinds = {kind for devices in known.observed.graphs for kind in devices}
        if kinds and known.facts.code and not any(map(_WRITTEN.search, known.facts.code)) and _made(steps, number - 1) > 0:
            yield f"step {number} generated kernels, and its code holds none"


def _calls_have_graphs(_: Backend, __: Mapping[str, str], ___: Observation, steps: Sequence[CarriedOut]) -> Iterator[str]:
    kinds: set[str] = set()
    for number, known in enumerate(steps, start=1):
        kinds |= {kind_of(device) for devices in known.observed.graphs for device in devices}
        for device, count in (*known.observed.executed.items(), *known.observed.executed_others.items()):
            if count > 0 and kind_of(device) not in kinds:
                yield f"step {number} ran {count} graphs for {device}, and no step until then compiled or loaded one"


def _kernels_have_graphs(_: Backend, __: Mapping[str, str], ___: Observation, steps: Sequence[CarriedOut]) -> Iterator[str]:
    for number, known in enumerate(steps, start=1):
        if _made(steps, number - 1) > 0 and not known.observed.graphs and known.observed.raised is None and not known.observed.entered:
            yield f"step {number} generated kernels, and compiled no graph"


def _kernels_were_generated(_: Backend, __: Mapping[str, str], ___: Observation, steps: Sequence[CarriedOut]) -> Iterator[str]:
    """Each kernel for the CPU in the code was counted when it was generated. A user's own kernels of Triton are not counted."""
    for number, known in enumerate(steps, start=1):
        written = sum(len(_CPU_KERNEL.findall(code_of(piece, strings=False).text)) for piece in known.facts.code)
        if written > (made := _made(steps, number - 1)) and known.observed.raised is None and known.step.kind not in _FREE:
            yield f"the code of step {number} defines {written} kernels for the CPU, and {made:g} were generated"


def _graphs_have_entries(_: Backend, __: Mapping[str, str], ___: Observation, steps: Sequence[CarriedOut]) -> Iterator[str]:
    # Python of the spec may call what lies behind the entry, or load a graph that was saved
    compiled = any(known.observed.graphs and known.step.kind not in _FREE for known in steps)
    if compiled and not any(known.observed.entered > 0 for known in steps):
        yield "graphs were compiled or loaded, and inductor was never entered"
    counts = [count for known in steps for count in (known.observed.entered, *known.observed.executed.values())]
    counts += [count for known in steps for count in known.observed.executed_others.values()]
    if any(count < 0 for count in counts):
        yield "a count is below zero"


def _made(steps: Sequence[CarriedOut], index: int) -> float:
    """Return how many kernels a step generated: its count less that of the step before, unless it was reset."""
    count = steps[index].observed.metrics.get("generated_kernel_count", 0)
    before = steps[index - 1].observed.metrics.get("generated_kernel_count", 0) if index else 0
    return count - before if count >= before else count


def _cache_counts_are_graphs(_: Backend, __: Mapping[str, str], ___: Observation, steps: Sequence[CarriedOut]) -> Iterator[str]:
    """Each graph is one miss, hit or bypass of inductor's cache, or none where the cache is off."""
    before = 0
    for number, known in enumerate(steps, start=1):
        counters = known.observed.counters.get("inductor", {})
        count = sum(counters.get(name, 0) for name in _CACHE)
        grown = count - before if count >= before else count
        before = count
        if grown > 0 and grown != len(known.observed.graphs) and known.observed.raised is None and known.step.kind not in _FREE:
            graphs = len(known.observed.graphs)
            yield f"the counters of step {number} say that {grown} graphs were looked up, and it compiled or loaded {graphs}"


def _census_adds_up(_: Backend, __: Mapping[str, str], ___: Observation, steps: Sequence[CarriedOut]) -> Iterator[str]:
    for number, known in enumerate(steps, start=1):
        census = known.facts.tunings
        if len(census.found) > census.count:
            yield f"the census of step {number} counts {census.count} operations and lists {len(census.found)}"
        if census.count and not known.observed.graphs and known.observed.raised is None and not known.observed.entered:
            yield f"step {number} selected kernels for {census.count} operations, and compiled no graph"
        for one in census.found:
            yield from (f"the census of step {number}: {one.op}: {problem}" for problem in _problems(one))


def _problems(one: Tuning) -> Iterator[str]:
    whole = one.tally("")
    if whole.won != bool(one.won_by) or (one.won_by and one.tally(one.won_by).won != 1):
        yield f"the winner is {one.won_by or 'no candidate'}, but the counts of candidates show another"
    if one.how == "timed" and not whole.timed:
        yield "it was timed, and no candidate was"
    for name, tally in one.by_backend.items():
        if max(tally.compiled, tally.failed, tally.timed, tally.won) > tally.rendered:
            yield f"{name} has more candidates than were written"
        if min(tally.rendered, tally.compiled, tally.failed, tally.timed, tally.won) < 0:
            yield f"{name} has a count below zero"


def _winners_are_in_the_code(_: Backend, __: Mapping[str, str], ___: Observation, steps: Sequence[CarriedOut]) -> Iterator[str]:
    pieces = [code_of(piece, strings=True).text for known in steps for piece in known.facts.code]
    winners = {one.won_by for known in steps for one in known.facts.tunings.found}
    for name in sorted(winners & _FAMILIES.keys()):
        if pieces and not any(map(_FAMILIES[name].search, pieces)):
            yield f"the census says that {name} won, and the generated code has no kernel of it"


def _code_is_for_the_device(_: Backend, environment: Mapping[str, str], ___: Observation, steps: Sequence[CarriedOut]) -> Iterator[str]:
    arch = environment.get("arch", "")
    for number, known in enumerate(steps, start=1):
        for piece in known.facts.code:
            for kind, name, digits in set(_PROPERTIES.findall(piece)):
                found = name.partition(":")[0] or f"sm_{digits}"
                if kind in ("cuda", "hip") and arch and found not in arch:
                    yield f"the code of step {number} is for {found}, and the machine's GPU is {arch}"
                if kind in ("cuda", "hip") and environment.get("gpus") == "0":
                    yield f"the code of step {number} is for a GPU, and the machine had none"


def _phases_are_times(_: Backend, __: Mapping[str, str], observation: Observation, steps: Sequence[CarriedOut]) -> Iterator[str]:
    if any(not 0 <= seconds < _LONGEST for seconds in observation.phases.values()):
        yield "a phase took less than no time"
    if any(known.observed.graphs for known in steps) and not any(observation.phases.get(name, 0) > 0 for name in _OF_COMPILING):
        yield "graphs were compiled or loaded, and no phase of a compilation took time"


def impossible_on_machine(results: Sequence[CaseResult], environment: Mapping[str, str], devices: Mapping[str, str]) -> str:
    """Return which case a machine without a GPU cannot have executed; empty for none. ``devices`` are the devices of backends by name.

    The machine is the node that a result names, or that of the header with this ``environment``.
    """
    for result in results:
        if (result.node or environment).get("gpus") != "0":
            continue
        device = kind_of(devices.get(result.backend, CPU))
        # whether there was a device of a vendor's module is not recorded
        if device in WITHOUT_MODULE and device != CPU and result.folder:
            return f"{result.case_id!r}: {result.outcome.label} on {device}, and the machine had no GPU"
    return ""


Check: TypeAlias = Callable[[Backend, Mapping[str, str], Observation, Sequence[CarriedOut]], Iterator[str]]

CHECKS: tuple[Check, ...] = (
    _graphs_have_code,
    _code_is_code,
    _calls_have_graphs,
    _kernels_have_graphs,
    _kernels_were_generated,
    _graphs_have_entries,
    _cache_counts_are_graphs,
    _census_adds_up,
    _winners_are_in_the_code,
    _code_is_for_the_device,
    _phases_are_times,
)
"""Every rule."""
