"""Whether the facts that a worker sent of a case agree with each other: code, counters, census and kernels. Pure.

A verdict looks at the facts that its expectation asks for. A worker that lies must also get the others right: each rule holds for
every case that torch really compiled and ran.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from runner.judge.evidence import CarriedOut
from runner.language.backends import Backend
from runner.model.case_facts import Facts, Tuning
from runner.model.devices import kind_of
from runner.model.matching.generated_code import code_of

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


def disagreements(backend: Backend, environment: Mapping[str, str], facts: Facts, steps: Sequence[CarriedOut]) -> Iterator[str]:
    """Yield each way in which the facts of one case contradict each other; none for a backend that claims no compilation."""
    if not backend.compiles:
        return
    kinds: set[str] = set()
    kernels = lookups = 0.0
    for number, known in enumerate(steps, start=1):
        kinds |= {kind_of(device) for devices in known.facts.graphs for device in devices}
        counters, metrics = known.facts.counters.get("inductor", {}), known.facts.metrics
        kernels_before, kernels = kernels, metrics.get("generated_kernel_count", 0)
        lookups_before, lookups = lookups, sum(counters.get(name, 0) for name in _CACHE)
        problems = _of_step(known, kinds, _grown(kernels_before, kernels), _grown(lookups_before, lookups))
        yield from (f"step {number} {problem}" for problem in problems)
        yield from (f"the code of step {number} {problem}" for problem in _of_devices(known.facts.code, environment))
        for tuning in known.facts.tunings.found:
            yield from (f"the census of step {number}: {tuning.op}: {problem}" for problem in _of_tuning(tuning))
    yield from _of_case(facts, steps)


def _grown(before: float, count: float) -> float:
    """Return how much a counter grew; what it counts where it was reset."""
    return count - before if count >= before else count


def _of_step(known: CarriedOut, kinds: Collection[str], kernels: float, lookups: float) -> Iterator[str]:
    """Yield what contradicts itself in a step that generated so many ``kernels`` and looked up so many graphs in inductor's cache.

    ``kinds`` are those of the devices for which it, or a step before it, compiled or loaded a graph.
    """
    observed, code, census = known.facts, known.facts.code, known.facts.tunings
    graphs = len(observed.graphs)
    calls = [*observed.executed.items(), *observed.executed_others.items()]
    for device, count in calls:
        if count > 0 and kind_of(device) not in kinds:
            yield f"ran {count} graphs for {device}, and no step until then compiled or loaded one"
    if min((observed.entered, *(count for _, count in calls))) < 0:
        yield "has a count below zero"
    if kernels > 0 and any(observed.graphs) and code and not any(map(_WRITTEN.search, code)):
        yield "generated kernels, and its code holds none"
    if len(census.found) > census.count:
        yield f"selected kernels for {census.count} operations, and lists {len(census.found)}"
    if observed.raised is not None:
        return
    if bool(graphs) != bool(observed.code_pieces):
        yield f"compiled or loaded {graphs} graphs, and left {'some' if observed.code_pieces else 'no'} generated code"
    if (kernels > 0 or census.count) and not graphs and not observed.entered:
        yield f"generated {kernels:g} kernels and selected {census.count}, and compiled no graph"
    if known.step.kind in _FREE:
        return
    if lookups > 0 and lookups != graphs:  # each graph is one miss, hit or bypass, or none where the cache is off
        yield f"looked up {lookups:g} graphs by its counters, and compiled or loaded {graphs}"
    # a user's own kernels of Triton are not counted
    written = sum(len(_CPU_KERNEL.findall(code_of(piece, strings=False).text)) for piece in code)
    if written > kernels:
        yield f"defines {written} kernels for the CPU in its code, and {kernels:g} were generated"


def _of_devices(code: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    arch = environment.get("arch", "")
    for piece in code:
        for kind, name, digits in set(_PROPERTIES.findall(piece)):
            target = name.partition(":")[0] or f"sm_{digits}"
            if kind in ("cuda", "hip") and arch and target not in arch:
                yield f"is for {target}, and the machine's GPU is {arch}"
            if kind in ("cuda", "hip") and environment.get("gpus") == "0":
                yield "is for a GPU, and the machine had none"


def _of_tuning(tuning: Tuning) -> Iterator[str]:
    whole = tuning.tally("")
    if whole.won != bool(tuning.won_by) or (tuning.won_by and tuning.tally(tuning.won_by).won != 1):
        yield f"the winner is {tuning.won_by or 'no candidate'}, but the counts of candidates show another"
    if tuning.how == "timed" and not whole.timed:
        yield "it was timed, and no candidate was"
    for name, tally in tuning.by_backend.items():
        counts = (tally.compiled, tally.failed, tally.timed, tally.won)
        if max(counts) > tally.rendered or min(counts) < 0:
            yield f"{name} has more candidates than were written, or fewer than none"


def _of_case(facts: Facts, steps: Sequence[CarriedOut]) -> Iterator[str]:
    # Python of the spec may call what lies behind the entry, or load a graph that was saved
    compiled = any(known.facts.graphs and known.step.kind not in _FREE for known in steps)
    if compiled and not any(known.facts.entered > 0 for known in steps):
        yield "graphs were compiled or loaded, and inductor was never entered"
    pieces = [code_of(piece, strings=True).text for known in steps for piece in known.facts.code]
    winners = {tuning.won_by for known in steps for tuning in known.facts.tunings.found}
    for name in sorted(winners & _FAMILIES.keys()):
        if pieces and not any(map(_FAMILIES[name].search, pieces)):
            yield f"the census says that {name} won, and the generated code has no kernel of it"
    if any(not 0 <= seconds < _LONGEST for seconds in facts.phases.values()):
        yield "a phase took less than no time"
    if any(known.facts.graphs for known in steps) and not any(facts.phases.get(name, 0) > 0 for name in _OF_COMPILING):
        yield "graphs were compiled or loaded, and no phase of a compilation took time"
