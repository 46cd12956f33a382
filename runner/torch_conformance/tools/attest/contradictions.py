"""Whether the facts that a worker sent of a case agree with each other: code, counters, census and
kernels.

Pure.

A verdict looks at the facts that its expectation asks for. A worker that lies must also get the
others right: each rule holds for every case that torch really compiled and ran.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from torch_conformance.judge.evidence import CarriedOut
from torch_conformance.matching.generated_code import code_of
from torch_conformance.model.case import Case, WrittenFunction
from torch_conformance.model.case_facts import Facts, GraphOfCode, StepFacts, StepWithCode, Tuning
from torch_conformance.model.devices import kind_of
from torch_conformance.model.protocol import decode
from torch_conformance.record.case_files import digest
from torch_conformance.vocabulary.backend import Backend

_CACHE = ("fxgraph_cache_miss", "fxgraph_cache_hit", "fxgraph_cache_bypass")
"""Counters of which each compiled graph that inductor looks up adds one."""

_HITS = (("inductor", "fxgraph_cache_hit"), ("aot_autograd", "autograd_cache_hit"))
"""Counters that grow where code is loaded from a cache."""

_OF_COMPILING = ("trace", "lower", "codegen", "kernel build", "run")
"""Phases of which one takes time wherever a graph is compiled or loaded."""

_FREE = ("script", "api")
"""Kinds of step whose Python may set counters itself, and call any part of inductor."""

_CPU_KERNEL = re.compile(r"async_compile\.cpp_pybinding\(")

_FAMILIES: Mapping[str, re.Pattern[str]] = {
    "TRITON": re.compile(
        r"\btriton_\w|async_compile\.triton\(|@triton\.jit|async_compile\.multi_kernel\("
    ),
    "CPP": re.compile(r"async_compile\.cpp|cpp_fused|cpp_\w*gemm|extern \"C\""),
    "CK": re.compile(r"async_compile\.rocm\(|ck::|\bck_"),
    "CKTILE": re.compile(r"async_compile\.rocm\(|ck_tile"),
    "CUTLASS": re.compile(r"async_compile\.cuda\(|async_compile\.xpu\(|cutlass"),
}
"""What the code holds where a candidate of an inductor backend was selected.

ATen and decompositions leave too many forms.
"""

_PROPERTIES = re.compile(
    r"DeviceProperties\(type='(\w+)'(?:, index=(\d+))?(?:, "
    r"multi_processor_count=(\d+))?[^)]*?\bcc=(?:'([\w:+-]+)'|(\d+))"
)
"""The GPU for which Triton's code was generated."""

_MADE = {
    "rand": "float32",
    "randn": "float32",
    "zeros": "float32",
    "ones": "float32",
    "randint": "int64",
}
"""Kinds of inputs whose shape is written, with the dtype that they have where none is."""

_CALL_OF_OPERATOR = re.compile(r"torch\.ops\.\w+\.\w[\w.]*\(|AtenTensorHandle")
"""Calls of ATen operators, and wrappers in C++: neither writes the shape of its result into the
code.
"""


def disagreements(
    case: Case,
    backend: Backend,
    environment: Mapping[str, str],
    facts: Facts,
    steps: Sequence[CarriedOut],
) -> Iterator[str]:
    """Yield each way in which the facts of one case contradict each other, or its inputs."""
    # no option changes that kernels have the names of their operators
    is_named = not any(
        name.endswith("descriptive_names") for options in case.options.values() for name in options
    )
    texts: list[str] = []
    kinds: set[str] = set()
    kernels = lookups = hits = 0.0
    yield from _of_inputs(case, steps)
    for number, carried in enumerate(steps, start=1):
        observed = carried.facts
        texts += (code_of(code, strings=True).text for code in observed.code)
        problems = [
            *_of_numbers(observed),
            *_of_launches(observed, "\n".join(texts)),
            *_of_results(carried, steps[:number]),
        ]
        hits_before = hits
        hits = sum(observed.counters.get(group, {}).get(name, 0) for group, name in _HITS)
        is_loaded = _grown(hits_before, hits) > 0
        for piece, code in enumerate(observed.code):
            of_code = _of_code(observed, piece, code, is_named=is_named, is_loaded=is_loaded)
            problems += (f"piece {piece} of its code {problem}" for problem in of_code)
        if backend.compiles:  # else it claims no compilation
            kinds |= {kind_of(device) for devices in observed.graphs for device in devices}
            counters = observed.counters.get("inductor", {})
            kernels_before, kernels = kernels, observed.metrics.get("generated_kernel_count", 0)
            lookups_before, lookups = lookups, sum(counters.get(name, 0) for name in _CACHE)
            problems += _of_step(
                carried, kinds, _grown(kernels_before, kernels), _grown(lookups_before, lookups)
            )
            of_devices = _of_devices(observed.code, environment)
            problems += (f"its code {problem}" for problem in of_devices)
            problems += (
                f"the census of {tuning.op}: {problem}"
                for tuning in observed.tunings.found
                for problem in _of_tuning(tuning)
            )
        yield from (f"step {number}: {problem}" for problem in problems)
    if backend.compiles:
        yield from _of_case(facts, steps)


def _grown(before: float, count: float) -> float:
    """Return how much a counter grew; what it counts where it was reset."""
    return count - before if count >= before else count


def _of_step(
    step: CarriedOut, kinds: Collection[str], kernels: float, lookups: float
) -> Iterator[str]:
    """Yield what contradicts itself in a step that generated so many ``kernels`` and looked up so
    many graphs in inductor's cache.

    ``kinds`` are those of the devices for which it, or a step before it, compiled or loaded a
    graph.
    """
    observed, code, census = step.facts, step.facts.code, step.facts.tunings
    graphs = len(observed.graphs)
    calls = [*observed.executed.items(), *observed.executed_others.items()]
    for device, count in calls:
        if count > 0 and kind_of(device) not in kinds:
            yield f"ran {count} graphs for {device}, and no step until then compiled or loaded one"
    if len(census.found) > census.count:
        yield f"selected kernels for {census.count} operations, and lists {len(census.found)}"
    if observed.raised is not None:
        return
    if bool(graphs) != bool(observed.code_pieces):
        yield (
            f"compiled or loaded {graphs} graphs, and left "
            f"{'some' if observed.code_pieces else 'no'} generated code"
        )
    if (kernels > 0 or census.count) and not graphs and not observed.entered:
        yield f"generated {kernels:g} kernels and selected {census.count}, and compiled no graph"
    if step.step.kind in _FREE:
        return
    frames = observed.counters.get("frames", {})
    captured = observed.counters.get("stats", {}).get("unique_graphs", math.inf)
    if frames.get("ok", 0) > frames.get("total", math.inf) or (
        observed.dynamo is not None and observed.dynamo.graphs > captured
    ):
        yield "captured more graphs, or converted more frames, than its counters say"
    if lookups > 0 and lookups != graphs:
        # each graph is one miss, hit or bypass, or none where the cache is off
        yield f"looked up {lookups:g} graphs by its counters, and compiled or loaded {graphs}"
    # a user's own kernels of Triton are not counted
    written = sum(len(_CPU_KERNEL.findall(code_of(piece, strings=False).text)) for piece in code)
    if written > kernels:
        yield f"defines {written} kernels for the CPU in its code, and {kernels:g} were generated"


_CALL = re.compile(
    r"^ *def call\((?:self, )?args\):\n(?: +(?P<names>\w+(?:, \w+)*),? = args\n)?", re.MULTILINE
)
"""The function of a wrapper in Python, and the names of its arguments; the source of a kernel of
Triton may have such a function too.
"""

_ARGUMENT = re.compile(
    r"^ +(\w+) = rand_strided\(\((.*?),? ?\), \((.*?),? ?\), device='[^']*', dtype=torch\.(\w+)\)$",
    re.MULTILINE,
)
"""An argument, as the benchmark at the end of the code makes it."""

_ORIGINAL = re.compile(r"Original ATen: \[([^\]\n]+)\]")
_NAMED = re.compile(r"\b(?:cpp|triton_[a-z]+)_fused_(\w+?)_[0-9]+\b")


def _of_code(
    facts: StepFacts, piece: int, code: str, *, is_named: bool, is_loaded: bool
) -> Iterator[str]:
    """Yield how a piece of code is not the one that the worker wrote, or not that of its graph;
    ``is_loaded``: a cache may have had it.
    """
    if digest(code.encode("utf-8", "surrogateescape")) != "".join(
        facts.code_digests[piece : piece + 1]
    ):
        yield "is not the text that the worker wrote"
    graph = facts.code_graphs[piece] if piece < len(facts.code_graphs) else GraphOfCode()
    wrapper = next(reversed([*_CALL.finditer(code)]), None)
    if graph.arguments is None:
        if wrapper is not None and not is_loaded:
            yield "belongs to no graph"
        return
    if "AtenTensorHandle" not in code:  # wrappers in C++ have no such function
        names = re.findall(r"\w+", wrapper["names"] or "") if wrapper is not None else []
        benchmarked = {
            name: f"{dtype}[{shape}][{strides}]"
            for name, shape, strides, dtype in _ARGUMENT.findall(code)
        }
        if len(names) != len(graph.arguments):
            yield f"takes {len(names)} arguments, and its graph {len(graph.arguments)}"
        for name, argument in zip(names, graph.arguments, strict=False):
            pattern = ".*" if argument == "?" else re.escape(argument).replace(r"\?", r"[^,\]]+")
            if not re.fullmatch(pattern, benchmarked.get(name, argument)):
                yield f"takes {benchmarked[name]} as {name}, and its graph {argument}"
    operators = {operator for text in _ORIGINAL.findall(code) for operator in text.split(", ")}
    words = {
        operator.split(".")[1] if "." in operator else operator for operator in graph.operators
    }
    kernels = {
        kernel for kernel in _NAMED.findall(code) if is_named and not _consists_of(kernel, words)
    }
    if other := sorted([*operators - set(graph.operators), *kernels]):
        yield f"names {other[0]}, and its graph has no such operator"


def _consists_of(name: str, words: Collection[str]) -> bool:
    """Whether words that are joined by an underscore give a name."""
    ends = {0}
    for start in range(len(name)):
        if start in ends:
            ends |= {
                start + len(word) + 1 for word in words if f"{name}_".startswith(f"{word}_", start)
            }
    return len(name) + 1 in ends


def _of_inputs(case: Case, steps: Sequence[CarriedOut]) -> Iterator[str]:
    """Yield how the first graph does not take the inputs, where all are tensors that the spec
    writes.

    Where the spec gives the function no other tensors, each argument is one of them; else one
    argument is.
    """
    inputs, body = list[str](), case.body
    for entry in body.inputs:
        if not isinstance(entry, Mapping):
            return
        kind = next(filter(entry.__contains__, _MADE), "")
        if not isinstance(sizes := entry.get(kind), list | tuple):
            return
        inputs.append(f"{entry.get('dtype', _MADE[kind])}[{', '.join(map(str, sizes))}]")
    if not inputs or not steps or "dtype" in f"{body.settings.torch}{body.context}":
        return
    step, observed = steps[0]
    if step.kind != "call" or "inputs" in step.arguments or _is_broken(observed):
        return
    strange, arguments = list[str](), list[str]()
    for argument in (observed.code_graphs[0].arguments or ()) if observed.code_graphs else ():
        # a number of Python is a tensor without dimensions where shapes are dynamic
        if argument != "?" and not argument.startswith("float64[]["):
            arguments.append(argument)
            form = re.escape(argument.partition("][")[0].removesuffix("]") + "]")
            if not any(re.fullmatch(form.replace(r"\?", "[0-9]+"), text) for text in inputs):
                strange.append(argument)
    has_other_tensors = any((body.preludes, body.let, body.context)) or not all(
        isinstance(code, WrittenFunction)
        and not re.search(r"^\w+ *=", code.block.text, re.MULTILINE)
        for code in body.functions.values()
    )
    if strange and (len(strange) == len(arguments) or not has_other_tensors):
        yield f"its first graph takes {strange[0]}, and its inputs are {', '.join(inputs)}"


def _is_broken(observed: StepFacts) -> bool:
    return bool(observed.counters.get("graph_break")) or (
        observed.dynamo is not None and bool(observed.dynamo.broken)
    )


def _of_results(carried_out: CarriedOut, steps: Sequence[CarriedOut]) -> Iterator[str]:
    """Yield which result has a shape that the code of ``steps`` has nowhere.

    Dynamic shapes and Python between graphs may give others.
    """
    observed = carried_out.facts
    graphs = [graph for step in steps for graph in step.facts.code_graphs]
    arguments = [argument for graph in graphs for argument in graph.arguments or "?"]
    code = "\n".join(piece for step in steps for piece in step.facts.code)
    is_whole = observed.graphs and code and observed.raised is None and not _is_broken(observed)
    if (
        not is_whole
        or carried_out.step.kind in _FREE
        or "?" in "".join(arguments)
        or _CALL_OF_OPERATOR.search(code)
    ):
        return
    shapes = {
        re.sub(r"[^0-9,]|,\W*$", "", shape)
        for shape in re.findall(r"[(\[]([0-9, ]*)[)\]]", "\n".join([code, *arguments]))
    }
    for measured in decode([*observed.measurements.values()]):
        for leaf in measured.get("leaves", ()) if isinstance(measured, dict) else ():
            if leaf.get("numel") and ",".join(map(str, leaf["shape"])) not in shapes:
                yield f"has a result of the shape {leaf['shape']}, and no code with that shape"


def _of_numbers(facts: StepFacts) -> Iterator[str]:
    """Yield how a value that was compared, and its reference, do not give the difference that was
    measured.
    """
    compared = [
        measured
        for measured in decode([*facts.measurements.values()])
        if isinstance(measured, dict)
    ]
    compared += [
        tried.get("measured", {}) for measured in compared for tried in measured.get("tried", ())
    ]
    leaves: list[Any] = [leaf for measured in compared for leaf in measured.get("leaves", ())]
    leaves += decode([*facts.effects.leaves]) if facts.effects else []
    for leaf in leaves:
        if not leaf.get("numel") or "excess" not in leaf:
            continue
        place, value, reference = leaf["worst_index"], leaf["worst_value"], leaf["worst_reference"]
        shape, strides = leaf["shape"], leaf.get("strides")
        if len(place) != len(shape) or not all(
            0 <= at < size for at, size in zip(place, shape, strict=True)
        ):
            yield f"a value of the shape {shape} has no element {place}"
        if leaf["numel"] != math.prod(shape) or len(strides or shape) != len(shape):
            yield (
                f"a value of the shape {shape} has {leaf['numel']} elements and the strides "
                f"{strides}"
            )
        if isinstance(value, int | float) and isinstance(reference, int | float):
            is_finite = math.isfinite(value) and math.isfinite(reference)
            difference = abs(value - reference) if is_finite else 0.0
            excess = max(difference - leaf["rtol"] * abs(reference), 0.0) if is_finite else 0.0
            if leaf.get("max_abs", math.inf) < difference * (1 - 1e-6):
                yield (
                    f"{value} and {reference} at {place} differ by more than {leaf['max_abs']:g}, "
                    "the greatest difference of its elements"
                )
            if not math.isclose(leaf["excess"], excess, rel_tol=1e-6):
                yield (
                    f"{value} and {reference} at {place} differ by {excess:g} more than rtol "
                    f"allows, and {leaf['excess']:g} was measured"
                )


def _of_launches(facts: StepWithCode, code: str) -> Iterator[str]:
    """Yield how the calls of kernels that were counted are not those of the code of the steps so
    far, which is without comments.
    """
    for measured in facts.measurements.values():
        if isinstance(measured, dict) and isinstance(launched := measured.get("launched"), dict):
            counts = Counter(name.partition(" ")[0] for name in measured["names"])
            if sum(launched.values()) == counts.total() and any(
                count != counts[kind] for kind, count in launched.items()
            ):
                yield f"counts the calls of kernels {launched}, and names {dict(counts)}"
            for name in measured["names"]:
                kernel = name.partition(" ")[2].removesuffix(".default").rpartition(".")[2]
                if not re.search(rf"\b{re.escape(kernel)}\b(?:\.\w+)*\(", code):
                    yield f"calls the kernel {kernel}, which its code does not call"
            if (
                facts.code
                and measured["ran"] >= len(facts.code)
                and not launched["fused"]
                and _NAMED.search(code)
            ):
                yield "calls no generated kernel, and its code has some"


_NAMES_OF_ARCH = (
    "sm_70 V100",
    "sm_75 T4",
    "sm_80 A100",
    "sm_89 L4 L40S",
    "sm_90 H100 H200 GH200",
    "sm_100 B200 GB200",
    "sm_103 B300 GB300",
    "gfx90a MI210 MI250X",
    "gfx942 MI300X MI325X",
    "gfx950 MI355X",
)
"""NVIDIA, CUDA GPUs; AMD, accelerator and GPU hardware specifications."""


def of_machine(facts: Mapping[str, str], day: str) -> Iterator[str]:
    """Yield how the facts of a machine contradict each other, or the ``day`` of its run."""
    version, _, build = facts.get("torch", "").partition("+")
    name, arch = facts.get("device", ""), facts.get("arch", "").partition(":")[0]
    built = {word: number for word in ("cuda", "hip", "xpu") if (number := facts.get(word))}
    if (arch or facts.get("gpus", "0") != "0") and not built:
        yield f"it is {name or 'a GPU'}, and its torch {version} is built for no GPU"
    number = built.get("cuda", "").replace(".", "")
    if build.startswith(("cpu", "cu")) and build != (f"cu{number}" if number else "cpu"):
        yield f"its torch is built as {build}, and for {built or 'no GPU'}"
    for word, kind in (("sm_", "cuda"), ("gfx", "hip"), ("xpu_", "xpu")):
        if arch.startswith(word) and built and kind not in built:
            yield f"its GPU is {arch}, and its torch is built for {' '.join(built)}"
    for family, *names in map(str.split, _NAMES_OF_ARCH):
        if arch not in ("", family) and not set(names).isdisjoint(name.split()):
            yield f"its GPU is {name}, and {arch}"
    date = re.search(r"\.dev(\d{4})(\d\d)(\d\d)", version)
    if date and day < (before := "-".join(date.groups())):
        yield f"the run began on {day}, and torch {version} was not made before {before}"


def _of_devices(code: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    arch, gpus, units = (environment.get(name, "") for name in ("arch", "gpus", "sms"))
    for piece in code:
        for kind, index, count, name, digits in set(_PROPERTIES.findall(piece)):
            target = name.partition(":")[0] or f"sm_{digits}"
            if kind in ("cuda", "hip") and not environment.get(kind):
                yield f"is for {kind}, and the machine's torch is not built for it"
            if index == "0" and units and count not in ("", units):
                yield f"is for a GPU of {count} multiprocessors, and the machine's has {units}"
            if kind in ("cuda", "hip") and index and gpus.isdecimal() and int(index) >= int(gpus):
                yield f"is for GPU {index}, and the machine had {gpus}"
            if kind in ("cuda", "hip") and arch and target not in arch:
                yield f"is for {target}, and the machine's GPU is {arch}"


def _of_tuning(tuning: Tuning) -> Iterator[str]:
    whole = tuning.tally("")
    if whole.won != bool(tuning.won_by) or (tuning.won_by and tuning.tally(tuning.won_by).won != 1):
        yield (
            f"the winner is {tuning.won_by or 'no candidate'}, but the counts of candidates show "
            "another"
        )
    if tuning.how == "timed" and not whole.timed:
        yield "it was timed, and no candidate was"
    if tuning.how == "only" and whole.rendered > 1:
        yield f"it had one candidate, and {whole.rendered} were written"
    for name, tally in tuning.by_backend.items():
        ended = tally.failed, tally.refused, tally.timed
        counts = sum(ended), *ended, tally.compiled, tally.won
        if max(counts) > tally.rendered or min(counts) < 0:
            yield f"{name} has more candidates than were written, or fewer than none"


def _of_case(facts: Facts, steps: Sequence[CarriedOut]) -> Iterator[str]:
    # Python of the spec may call what lies behind the entry, or load a graph that was saved
    compiled = any(step.facts.graphs and step.step.kind not in _FREE for step in steps)
    if compiled and not any(step.facts.entered > 0 for step in steps):
        yield "graphs were compiled or loaded, and inductor was never entered"
    pieces = [code_of(piece, strings=True).text for step in steps for piece in step.facts.code]
    winners = {tuning.won_by for step in steps for tuning in step.facts.tunings.found}
    for name in sorted(winners & _FAMILIES.keys()):
        if pieces and not any(map(_FAMILIES[name].search, pieces)):
            yield f"the census says that {name} won, and the generated code has no kernel of it"
    if any(step.facts.graphs for step in steps) and not any(
        facts.phases.get(name, 0) > 0 for name in _OF_COMPILING
    ):
        yield "graphs were compiled or loaded, and no phase of a compilation took time"
