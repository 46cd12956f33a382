"""The proof that the backend of a case ran, by step."""

import ast
import functools
import re
from collections.abc import Iterator, Sequence

from runner.core.case import Case
from runner.core.conditions import Surroundings
from runner.core.devices import kind_of
from runner.core.expectation import Status
from runner.core.matching.filecheck import EmptyText, passes, run
from runner.core.matching.generated_code import code_of, joined
from runner.core.matching.patterns import search
from runner.core.matching.time_limit import PatternTooSlow, time_limit
from runner.core.observation import ObservedStep
from runner.core.results import Verdict
from runner.core.tuning import Tuning
from runner.judge.evidence import CarriedOut, first_line
from runner.language.backends import Backend, Serves
from runner.plan.worker_plan import expects_raise
from runner.vocabulary.steps import parsed, traits_of

_REGISTERING = frozenset(
    (
        *("Library", "custom_op", "define", "impl", "triton_op"),
        *("add_module", "register_buffer", "register_module", "register_parameter", "setattr"),
    )
)
"""Functions whose arguments name an operator or an attribute."""

_SCHEMA = re.compile(r"[\w.]+::[\w.]+|[\w.]+\(.*\)\s*->", re.DOTALL)
"""How a text begins that names an operator: with its namespace, or as a schema."""

_WORD = re.compile(r"[^\W\d]\w*")


def own_names(case: Case) -> frozenset[str]:
    """Return the names that the Python of a case defines. Code that is no Python, which a worker will report, defines none."""
    found: set[str] = set()
    for block in case.body.blocks:
        try:
            tree = ast.parse(block.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # what Python raises for texts that it cannot parse
            continue
        for node in ast.walk(tree):
            found.update(_defined(node))
    return frozenset(found)


def without(text: str, names: frozenset[str]) -> str:
    """Return generated code in which these names, also where a suffix follows, are blanks of the same length."""
    if not names:
        return text
    alternatives = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    return re.sub(rf"(?<!\w)(?:{alternatives})(?![^\W_])", lambda match: " " * len(match[0]), text)


def _defined(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.alias(name=name, asname=str() as other) if other != name.rpartition(".")[2]:
            yield other
        case ast.Constant(value=str() as text) if found := _SCHEMA.match(text):
            yield from _WORD.findall(found[0].partition("(")[0])
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments) if name in _REGISTERING:
            for argument in arguments:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield from _WORD.findall(argument.value.partition("(")[0])


_SECONDS = 5.0

_LIBRARY: dict[str, str] = {
    "gemm": r"(?:b?addb?mm|b?mm|_int_mm|_scaled_mm(?:_v2)?|_?(?:scaled_)?grouped_mm|_linear_pointwise|_weight_int\w+_mm\w*|addmv|mv|dot)",
    "convolution": r"(?:_?convolution\w*|cudnn_convolution\w*|miopen_convolution\w*|conv[123]d)",
    "attention": r"(?:_?scaled_dot_product_\w*attention\w*|_flash_attention\w*|_efficient_attention\w*)",
}
"""The functions of libraries and of ATen that compute an operation of a group."""

_CALL = (
    r"(?<![\w.])(?:extern_kernels\.{name}\(|aoti_torch_\w*?_(?:mkldnn_)?{name}(?:_out)?\(|at::(?:native::)?{name}(?:_out)?\("
    r"|(?:torch\.)?ops\.\w+\.{name}[.(])"
)


def unserved(wanted: Serves, steps: Sequence[CarriedOut]) -> str:
    """Return why the steps do not show that the backends served each operation of the group; empty if they do.

    A library kernel in the generated code is one that runs, whoever selected it. A graph that was served from a cache has no selection:
    its code must show the same kernels, which is what the ``code`` of a proof is for.
    """
    selected = [one for known in steps for one in known.facts.tunings.of([wanted.group])]
    if any(known.facts.tunings.count > len(known.facts.tunings.found) for known in steps):
        return "more operations were selected for than are recorded"
    others = [one for one in selected if one.won_by not in wanted.by]
    if others:
        return f"{_of(others[0])}{_why(others[0], wanted)}"
    for call in _library_calls(wanted.group, steps):
        return f"the generated code calls the library: {call}"
    if not selected:
        return f"inductor selected no kernel for any {wanted.group}"
    return ""


def _of(tuning: Tuning) -> str:
    return f"{tuning.op} was served by {tuning.won_by}" if tuning.won_by else f"what serves {tuning.op} is not known"


def _why(tuning: Tuning, wanted: Serves) -> str:
    """Explain what became of the candidates that should have won."""
    found = []
    for backend in wanted.by:
        tally = tuning.tally(backend)
        if not tally.rendered:
            found.append(f"{backend} had no candidate")
        elif tally.failed == tally.rendered:
            error = f": {tally.error}" if tally.error else ""
            found.append(f"all {tally.failed} candidates of {backend} failed{error}")
        else:
            found.append(f"{backend} had {tally.rendered} candidates, {tally.timed} timed")
    return "; " + "; ".join(found)


def _library_calls(group: str, steps: Sequence[CarriedOut]) -> Iterator[str]:
    pattern = re.compile(_CALL.replace("{name}", _LIBRARY[group]))
    for known in steps:
        for piece in known.facts.code:
            text = code_of(piece, strings=False).text
            with time_limit(_SECONDS):
                match = pattern.search(text)
            if match is not None:
                yield match[0].rstrip("(.")


COMPILING = ("trace", "lower", "codegen", "kernel build", "autotune")
"""Phases in which an expected exception means that no compiled graph could run."""

_MOST_CENSUS = 4000


def proof(backend: Backend, here: Surroundings, steps: Sequence[CarriedOut], own: frozenset[str] = frozenset()) -> Verdict:
    """Judge the proof that the backend ran; a FAILED proof with passed expectations is FELL_BACK.

    ``own`` are the names that the spec gives to things of its own, which are no proof where generated code repeats them.
    """
    # bench steps only measure times
    steps = [known for known in steps if traits_of(known.step).is_proof and known.step.runs(here)]
    if not wants_no_graphs(backend) and any(_refused_to_compile(known, here) for known in steps):
        # dynamo and the function itself raise before inductor is entered: then another step must prove the backend
        entered = sum(known.observed.entered for known in steps)
        expected = "inductor was entered before the exception, or in another step"
        status = Status.HELD if entered else Status.FAILED
        return _steps_proof(backend, steps) or _verdict(backend, status, expected, f"inductor was entered {entered} times")
    if steps and not wants_no_graphs(backend) and all(_had_nothing_to_compile(known) for known in steps):
        return _verdict(backend, Status.HELD, f"backend {backend.name} ran", "dynamo traced every call whole and found nothing to compute")
    code_proof = functools.partial(_code_proof, own=own)
    for check in (_graphs_proof, _steps_proof, code_proof, _choices_proof, _serves_proof):
        failed = check(backend, steps)
        if failed is not None:
            return failed
    return _verdict(backend, Status.HELD, f"backend {backend.name} ran", "shown")


def _unproven(backend: Backend, expected: str, observed: str, detail: str = "") -> Verdict:
    return _verdict(backend, Status.FAILED, expected, observed, detail)


def _verdict(backend: Backend, status: Status, expected: str, observed: str, detail: str = "") -> Verdict:
    return Verdict(kind="proof", status=status, position=backend.position, expected=expected, observed=observed, detail=detail)


def _refused_to_compile(known: CarriedOut, here: Surroundings) -> bool:
    raised = known.facts.raised
    return raised is not None and raised.phase in COMPILING and expects_raise(known.step, here)


def _kind(backend: Backend) -> str:
    return kind_of(backend.device)


def _steps_proof(backend: Backend, steps: Sequence[CarriedOut]) -> Verdict | None:
    """Judge each step separately: a step that ran eagerly fails the proof, even if another step ran compiled."""
    wants_none = wants_no_graphs(backend)
    kind = _kind(backend)
    for number, known in enumerate(steps, start=1):
        step, observed = known.step, known.observed
        if observed.raised is not None:
            continue
        where = f"step {number} ({step.kind}, line {step.position.line})"
        if observed.abandoned:  # for any step: dynamo does not compile an abandoned frame again
            expected = f"{where} runs as it was compiled"
            return _unproven(backend, expected, f"dynamo gave up a frame, which ran eagerly: {first_line(observed.abandoned[0])}")
        if observed.uncompiled and not wants_none:
            more = len(observed.uncompiled) - 1
            others = f" (and {more} or more other samples)" if more else ""
            return _unproven(
                backend, f"every sample of {where} runs compiled", f"it ran eagerly: {first_line(observed.uncompiled[0])}{others}"
            )
        if not wants_none and parsed(step).runs_graphs and not _executed(known, kind):
            of = " that was compiled of its function" if traits_of(step).needs_own_graphs else ""
            return _unproven(backend, f"{where} runs a graph for {kind}{of}", _ran(observed))
    return None


def wants_no_graphs(backend: Backend) -> bool:
    """Whether the proof of a backend is that nothing was compiled."""
    return backend.proof.graphs is not None and backend.proof.graphs.most == 0


def _had_nothing_to_compile(known: CarriedOut) -> bool:
    """Whether dynamo traced all frames of a step without a graph break and made no graph for a device.

    Then what was called has no operation, or its results have no elements: inductor's graph runs on no device.
    """
    observed = known.observed
    if not traits_of(known.step).may_have_no_graph or observed.raised is not None or observed.abandoned or any(observed.graphs):
        return False
    frames = observed.counters.get("frames", {})
    return 0 < frames.get("total", 0) == frames.get("ok", 0) and not observed.counters.get("graph_break")


def _executed(known: CarriedOut, kind: str) -> int:
    """Return how many graphs of its own function a step ran on a device. Graphs of helpers count only without ``needs_own_graphs``."""
    observed = known.observed
    return observed.executed.get(kind, 0) if traits_of(known.step).needs_own_graphs else observed.executed_for(kind)


def _ran(observed: ObservedStep) -> str:
    counts = [f"{count} for {device}" for device, count in observed.executed.items()]
    counts += [f"{count} for {device} that other code compiled" for device, count in observed.executed_others.items()]
    return f"it ran {', '.join(counts)}" if counts else "it ran none: the call was eager"


def _graphs_proof(backend: Backend, steps: Sequence[CarriedOut]) -> Verdict | None:
    wanted = backend.proof.graphs
    if wanted is None:
        return None
    kind = _kind(backend)
    none_wanted = wanted.most == 0
    graphs = sum(none_wanted or kind in devices for known in steps for devices in known.observed.graphs)
    calls = sum(known.observed.executed_for(kind) for known in steps)
    if wanted.holds(graphs) and (none_wanted or calls > 0):
        return None
    expected = f"{wanted} inductor graphs" + ("" if none_wanted else f" for {kind}, compiled or from a cache, and called")
    return _unproven(backend, expected, f"{graphs} graphs, {calls} calls{_graph_breaks(steps)}")


def _graph_breaks(steps: Sequence[CarriedOut]) -> str:
    """Return the first reason of a graph break, which often explains why there is no graph; empty where there was none."""
    found = [reason for known in steps for reason in known.observed.counters.get("graph_break", {})]
    return f"; dynamo broke the graph: {first_line(found[0])}" if found else ""


def _code_proof(backend: Backend, steps: Sequence[CarriedOut], own: frozenset[str]) -> Verdict | None:
    if backend.proof.code is None:
        return None
    try:
        code = joined([code_of(piece, strings=False) for known in steps for piece in known.facts.code])
        outcome = run(backend.proof.code, code.text, numbers=code.numbers)
        shown = outcome.passed and passes(backend.proof.code, without(code.text, own))
    except EmptyText:
        return _unproven(backend, "generated code that shows the backend", "no code was generated")
    except PatternTooSlow:
        return _verdict(backend, Status.ERROR, "generated code that shows the backend", "pattern too slow")
    if shown:
        return None
    if outcome.passed:
        expected = "generated code that shows the backend without the names that the spec defines"
        repeated = sorted(name for name in own if without(code.text, frozenset([name])) != code.text)
        return _unproven(backend, expected, f"the proof matches only with {', '.join(repeated)}, which the spec defines")
    return _unproven(backend, f"in the generated code: {outcome.directive}", outcome.reason, outcome.excerpt)


def _choices_proof(backend: Backend, steps: Sequence[CarriedOut]) -> Verdict | None:
    wanted = backend.proof.choices
    if wanted is None:
        return None
    found = [choice for known in steps for choice in known.observed.choices]
    try:
        named = [choice for choice in found if search(wanted.match, choice.name)]
        matching = [choice for choice in named if not wanted.of_class or search(wanted.of_class, choice.of_class)]
    except PatternTooSlow:
        return _verdict(backend, Status.ERROR, str(wanted), "pattern too slow")
    if len(matching) >= wanted.least:
        return None
    strangers = "".join(f", {one.name} is of {one.of_class or 'an unknown class'}" for one in named[:3] if one not in matching)
    return _unproven(backend, str(wanted), f"{len(matching)} of {len(found)}{strangers}")


def _serves_proof(backend: Backend, steps: Sequence[CarriedOut]) -> Verdict | None:
    """Judge which inductor backends served the operations that the backend claims."""
    for wanted in backend.proof.serves:
        try:
            problem = unserved(wanted, steps)
        except PatternTooSlow:
            return _verdict(backend, Status.ERROR, str(wanted), "pattern too slow")
        if problem:
            census = "\n".join(str(one) for known in steps for one in known.facts.tunings.found)
            return _unproven(backend, str(wanted), problem, census[:_MOST_CENSUS])
    return None
