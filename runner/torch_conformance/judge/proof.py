"""The proof that the backend of a case ran, by step."""

import ast
import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partialmethod

from torch_conformance.judge.evidence import CarriedOut, first_line
from torch_conformance.matching.filecheck import EmptyText, passes
from torch_conformance.matching.filecheck import run as check_text
from torch_conformance.matching.generated_code import code_of, joined
from torch_conformance.matching.patterns import search
from torch_conformance.matching.time_limit import PatternTooSlow, time_limit
from torch_conformance.model.case import Case
from torch_conformance.model.case_facts import StepFacts
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.devices import kind_of
from torch_conformance.model.expectation import Reading, Status, Verdict
from torch_conformance.model.protocol import decode
from torch_conformance.model.results import NOT_MEASURED, PROOF, Judged, OperatorCalls
from torch_conformance.vocabulary.backend import INDUCTOR, Backend, Serves
from torch_conformance.vocabulary.expectations.served import calls_of, replaced_by
from torch_conformance.vocabulary.steps import calls_compiler, expects_raise, parsed, traits_of
from torch_conformance.vocabulary.steps.call import Call

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
    """Return the names that the Python of a case defines.

    Code that is not Python, which a worker will report, defines none.
    """
    names: set[str] = set()
    for block in case.body.blocks:
        try:
            tree = ast.parse(block.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            # what Python raises for texts that it cannot parse
            continue
        for node in ast.walk(tree):
            match node:
                case (
                    ast.FunctionDef(name=name)
                    | ast.AsyncFunctionDef(name=name)
                    | ast.ClassDef(name=name)
                    | ast.arg(arg=name)
                ):
                    names.add(name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                    names.add(name)
                case ast.alias(name=name, asname=str() as other) if (
                    other != name.rpartition(".")[2]
                ):
                    names.add(other)
                case ast.Constant(value=str() as text) if schema := _SCHEMA.match(text):
                    names.update(_WORD.findall(schema[0].partition("(")[0]))
                case ast.Call(
                    func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments
                ) if name in _REGISTERING:
                    for argument in arguments:
                        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                            names.update(_WORD.findall(argument.value.partition("(")[0]))
    return frozenset(names)


def without(text: str, names: frozenset[str]) -> str:
    """Return generated code in which these names, also where a suffix follows, are blanks of the
    same length.
    """
    if not names:
        return text
    alternatives = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    return re.sub(rf"(?<!\w)(?:{alternatives})(?![^\W_])", lambda match: " " * len(match[0]), text)


_SECONDS = 5.0

_LIBRARY: dict[str, str] = {
    "gemm": r"(?:b?addb?mm|b?mm|_int_mm|_scaled_mm(?:_v2)?|_?(?:scaled_)?grouped_mm|_linear_pointwise|_weight_int\w+_mm\w*|addmv|mv|dot)",  # noqa: E501 - a pattern, whole
    "convolution": r"(?:_?convolution\w*|cudnn_convolution\w*|miopen_convolution\w*|conv[123]d)",
    "attention": r"(?:_?scaled_dot_product_\w*attention\w*|_flash_attention\w*|_efficient_attention\w*)",  # noqa: E501 - a pattern, whole
}
"""The functions of libraries and of ATen that compute an operation of a group."""

_CALL = (
    r"(?<![\w.])(?:extern_kernels\.{name}\(|aoti_torch_\w*?_(?:mkldnn_)?{name}(?:_out)?\(|at::(?:native::)?{name}(?:_out)?\("
    r"|(?:torch\.)?ops\.\w+\.{name}[.(])"
)


def unserved(serves: Serves, steps: Sequence[CarriedOut]) -> str:
    """Return why the steps do not show that the backends served each operation of the group; empty
    if they do.

    A library kernel in the generated code is one that runs, whoever selected it. A graph that was
    served from a cache has no selection: its code must show the same kernels, which is what the
    ``code`` of a proof is for. Raise ``PatternTooSlow``.
    """
    selected = [tuning for known in steps for tuning in known.facts.tunings.of([serves.group])]
    if any(known.facts.tunings.count > len(known.facts.tunings.found) for known in steps):
        return "more operations were selected for than are recorded"
    if other := next((tuning for tuning in selected if tuning.won_by not in serves.by), None):
        reasons = [
            f"{other.op} was served by {other.won_by}"
            if other.won_by
            else f"what serves {other.op} is not known"
        ]
        for backend in serves.by:  # what became of the candidates that should have won
            tally = other.tally(backend)
            if not tally.rendered:
                reasons.append(f"{backend} had no candidate")
            elif tally.failed == tally.rendered:
                reasons.append(
                    f"all {tally.failed} candidates of {backend} failed"
                    + (f": {tally.error}" if tally.error else "")
                )
            else:
                reasons.append(f"{backend} had {tally.rendered} candidates, {tally.timed} timed")
        return "; ".join(reasons)
    library = re.compile(_CALL.replace("{name}", _LIBRARY[serves.group]))
    for piece in (piece for known in steps for piece in known.facts.code):
        text = code_of(piece, strings=False).text
        with time_limit(_SECONDS):
            call = library.search(text)
        if call is not None:
            return f"the generated code calls the library: {call[0].rstrip('(.')}"
    return "" if selected else f"inductor selected no kernel for any {serves.group}"


COMPILING = ("trace", "lower", "codegen", "kernel build", "autotune")
"""Phases in which an expected exception means that no compiled graph could run."""

_MOST_CENSUS = 4000


@dataclass(frozen=True)
class _Proving:
    """What the rules of a proof read; ``own`` are the names that the spec gives to things of its
    own, which are no proof where generated code repeats them.
    """

    backend: Backend
    surroundings: Surroundings
    steps: Sequence[CarriedOut]
    own: frozenset[str]

    @cached_property
    def kind(self) -> str:
        """The kind of device whose graphs count."""
        return kind_of(self.backend.device)

    @cached_property
    def is_measured(self) -> bool:
        """Whether operators or calls of a runtime show who computed, as graphs do."""
        return self.backend.proof.served is not None or self.backend.proof.calls is not None

    @cached_property
    def wants_none(self) -> bool:
        """Whether no graph of Inductor is wanted: they show nothing of another compiler, whose
        steps must call what Dynamo captured.
        """
        wanted = self.backend.proof.graphs
        is_of_another = self.is_measured and self.backend.compiler != INDUCTOR
        return is_of_another or (wanted is not None and wanted.most == 0)

    @cached_property
    def is_refused(self) -> bool:
        """Whether an exception that the spec expects came before a compiled graph could run."""
        return not self.wants_none and any(
            done.facts.raised is not None
            and done.facts.raised.phase in COMPILING
            and expects_raise(done.step, self.surroundings)
            for done in self.steps
        )

    @cached_property
    def has_nothing(self) -> bool:
        """Whether no step had anything to compile."""
        may_have = not self.is_refused and not self.wants_none and bool(self.steps)
        return may_have and all(map(_had_nothing_to_compile, self.steps))

    @cached_property
    def placed(self) -> Sequence[tuple[str, int, CarriedOut]]:
        """The steps that returned, with their place in words and their number."""
        return [
            (f"step {number} ({done.step.kind}, line {done.step.position.line})", number, done)
            for number, done in enumerate(self.steps, start=1)
            if done.facts.raised is None
        ]

    def says(self, status: Status, expected: str, observed: str, detail: str = "") -> Verdict:
        return Verdict(
            kind="proof",
            status=status,
            position=self.backend.position,
            expected=expected,
            observed=observed,
            detail=detail,
        )

    failed = partialmethod(says, Status.FAILED)
    held = partialmethod(says, Status.HELD)
    unjudged = partialmethod(says, Status.ERROR)


def _of_no_operation(run: _Proving) -> Verdict | None:
    if not run.has_nothing or run.is_measured:
        return None
    why = "dynamo traced every call whole and found nothing to compute"
    return run.held(f"backend {run.backend.name} ran", why)


def _of_graphs(run: _Proving) -> Verdict | None:
    """Inductor's graphs are as many as the backend wants, and called."""
    wanted = run.backend.proof.graphs
    if wanted is None or run.is_refused or run.has_nothing:
        return None
    graphs = sum(
        run.wants_none or run.kind in devices for done in run.steps for devices in done.facts.graphs
    )
    calls = sum(done.facts.executed_for(run.kind) for done in run.steps)
    if wanted.holds(graphs) and (run.wants_none or calls > 0):
        return None
    called = "" if run.wants_none else f" for {run.kind}, compiled or from a cache, and called"
    breaks = [reason for done in run.steps for reason in done.facts.counters.get("graph_break", {})]
    why = f"; dynamo broke the graph: {first_line(breaks[0])}" if breaks else ""
    return run.failed(f"{wanted} inductor graphs{called}", f"{graphs} graphs, {calls} calls{why}")


def _of_each_step(run: _Proving) -> Verdict | None:
    """Each step ran compiled: one that ran eagerly fails, even if another one ran compiled."""
    for where, number, (step, observed) in () if run.has_nothing else run.placed:
        if observed.abandoned:  # for any step: dynamo does not compile an abandoned frame again
            why = f"dynamo gave up a frame, which ran eagerly: {first_line(observed.abandoned[0])}"
            return run.failed(f"{where} runs as it was compiled", why)
        if observed.uncompiled:
            more = len(observed.uncompiled) - 1
            why = f"it ran eagerly: {first_line(observed.uncompiled[0])}" + (
                f" (and {more} or more other samples)" if more else ""
            )
            return run.failed(f"every sample of {where} runs compiled", why)
        if run.backend.proof.served is None and (why := _why_not_compiled(observed, run.steps)):
            of = f"of the operators that the answer of {where} comes from"
            return run.failed(f"most {of} are compiled", why)
        if run.wants_none:
            if why := _why_not_captured(run.steps[:number]):
                return run.failed(f"{where} runs a graph that dynamo captured", why)
            continue
        # graphs of helpers count only without needs_own_graphs
        needs_own = traits_of(step).needs_own_graphs
        if parsed(step).runs_graphs and not (
            observed.executed.get(run.kind, 0) if needs_own else observed.executed_for(run.kind)
        ):
            counts = [f"{count} for {device}" for device, count in observed.executed.items()]
            counts += [
                f"{count} for {device} that other code compiled"
                for device, count in observed.executed_others.items()
            ]
            why = f"it ran {', '.join(counts)}" if counts else "it ran none: the call was eager"
            of = " that was compiled of its function" if needs_own else ""
            return run.failed(f"{where} runs a graph for {run.kind}{of}", why)
    return None


def _of_capture(run: _Proving) -> Verdict | None:
    """Dynamo captured something, where no graph of Inductor is wanted."""
    if not run.wants_none or not run.steps or any(map(_shows_dynamo, run.steps)):
        return None
    why = "it captured none and traced no function of the case"
    return run.failed("dynamo captures a graph that is called", why)


def _of_refusal(run: _Proving) -> Verdict | None:
    """What is refused reached Inductor, or was refused by Dynamo as the spec claims.

    Dynamo and the function itself raise before Inductor is entered: then another step must prove
    the backend.
    """
    if not run.is_refused:
        return None
    expected = "Inductor is called before the exception, or in another step"
    if entered := sum(done.facts.entered for done in run.steps):
        return run.held(expected, f"Inductor was called {entered} times")
    raising = [done for done in run.steps if done.facts.raised is not None]
    refused = [done for done in raising if parsed(done.step).runs_graphs]
    if refused and all(_is_refused_as_claimed(done, run) for done in refused):
        why = "dynamo traced the function and raised before that"
        return run.held(f"backend {run.backend.name} gets no graph", why)
    place = next(
        claim.position
        for done in raising
        for claim in done.step.expectations
        if claim.check.expects_exception
    )
    why = (
        "it raised before Inductor was called; if that is the claim, add before: backend to raises "
        f"(line {place.line})"
    )
    return replace(run.failed(expected, why), position=place)


def _of_operators(run: _Proving) -> Verdict | None:
    """The runtime of the backend was called in each step, and its operators were served."""
    for where, _, (step, observed) in run.placed if run.is_measured else ():
        if not calls_compiler(step) or expects_raise(step, run.surroundings):
            continue
        is_idle = traits_of(step).gives_gradients and (
            observed.dynamo is not None and observed.dynamo.is_backward_idle
        )
        calls = observed.runtime_calls or 0
        runtime = run.backend.proof.calls
        if runtime is not None and not is_idle and calls < runtime.least:
            return run.failed(f"{where}: {runtime}", f"a compiled call with {calls}")
        if (served := run.backend.proof.served) is None:
            continue
        if (measured := decode(observed.measurements.get(PROOF))) is None:
            why = observed.unmeasured.get(PROOF, "its operators were not measured")
            return run.unjudged(f"{where}: {served.expected}", why)
        if measured.get("done") and not measured["eager"] and not measured["residue"]:
            continue  # the call only moves data: there is nothing to compute
        (judged,) = served.judge(Reading.of(observed, measured, run.surroundings))
        if judged.status is not Status.HELD:
            status = Status.FAILED if judged.status is Status.FAILED else Status.ERROR
            expected = f"{where}: {judged.expected}"
            return run.says(status, expected, judged.observed, judged.detail)
    return None


def _of_code(run: _Proving) -> Verdict | None:
    """The generated code shows the backend, also without the names that the spec defines."""
    if not run.backend.proof.code:
        return None
    directives = run.backend.proof.checks
    expected = "generated code that shows the backend"
    try:
        code = joined(
            [code_of(piece, strings=False) for done in run.steps for piece in done.facts.code]
        )
        outcome = check_text(directives, code.text, numbers=code.numbers)
        shown = outcome.passed and passes(directives, without(code.text, run.own))
    except EmptyText:
        return run.failed(expected, "no code was generated")
    except PatternTooSlow:
        return run.unjudged(expected, _TOO_SLOW)
    if not outcome.passed:
        expected = f"in the generated code: {outcome.directive}"
        return run.failed(expected, outcome.reason, outcome.excerpt)
    if shown:
        return None
    repeated = ", ".join(
        sorted(name for name in run.own if without(code.text, frozenset([name])) != code.text)
    )
    why = f"the proof matches only with {repeated}, which the spec defines"
    return run.failed(f"{expected} without the names that the spec defines", why)


def _of_choices(run: _Proving) -> Verdict | None:
    """Autotuning timed enough candidates of the backend."""
    if (choices := run.backend.proof.choices) is None:
        return None
    timed = [choice for done in run.steps for tuning in done.facts.choices for choice in tuning]
    try:
        named = [choice for choice in timed if search(choices.match, choice.name)]
        matching = [
            choice
            for choice in named
            if not choices.of_class or search(choices.of_class, choice.of_class)
        ]
    except PatternTooSlow:
        return run.unjudged(str(choices), _TOO_SLOW)
    if len(matching) >= choices.least:
        return None
    strangers = [choice for choice in named[:3] if choice not in matching]
    why = "".join(
        f", {choice.name} is of {choice.of_class or 'an unknown class'}" for choice in strangers
    )
    return run.failed(str(choices), f"{len(matching)} of {len(timed)}{why}")


def _of_kernels(run: _Proving) -> Verdict | None:
    """The kernels that were selected are those of the backend."""
    for serves in run.backend.proof.serves:
        try:
            problem = unserved(serves, run.steps)
        except PatternTooSlow:
            return run.unjudged(str(serves), _TOO_SLOW)
        if problem:
            census = "\n".join(
                str(tuning) for done in run.steps for tuning in done.facts.tunings.found
            )
            return run.failed(str(serves), problem, census[:_MOST_CENSUS])
    return None


_TOO_SLOW = "pattern too slow"

_RULES = (
    _of_no_operation,
    _of_graphs,
    _of_each_step,
    _of_capture,
    _of_refusal,
    _of_operators,
    _of_code,
    _of_choices,
    _of_kernels,
)
"""What a proof consists of, in the order in which it is judged: the first verdict is that of the
proof, and a rule without an objection returns None.
"""


def proof(
    backend: Backend,
    surroundings: Surroundings,
    steps: Sequence[CarriedOut],
    own: frozenset[str] = frozenset(),
) -> Verdict:
    """Judge the proof that the backend ran; a FAILED proof with passed expectations is FELL_BACK.

    ``own`` are the names that the spec gives to things of its own.
    """
    # bench steps only measure times
    proving = [
        done for done in steps if traits_of(done.step).is_proof and done.step.runs(surroundings)
    ]
    run = _Proving(backend, surroundings, proving, own)
    verdicts = (rule(run) for rule in _RULES)
    ran = run.held(f"backend {backend.name} ran", "shown")
    return next((verdict for verdict in verdicts if verdict is not None), ran)


def operators_of(result: Judged, steps: Sequence[CarriedOut]) -> Judged:
    """Return a result with the operators that eager runs in the calls that a proof measured, and
    in place of how many of them each of ATen's in the compiled ones may have run.
    """
    eager, by_aten, operators = NOT_MEASURED, Counter[str](), list[OperatorCalls]()
    for known in steps:
        facts = known.facts.measurements.get(PROOF)
        if isinstance(facts, Mapping) and "eager" in facts:
            eager = max(eager, 0) + len(facts["eager"])
            by_aten.update(replaced_by(facts, facts["residue"]))
            position = known.step.position
            of_step = f"{posixpath.basename(position.file)}:{position.line}"
            operators += [replace(calls, place=calls.place or of_step) for calls in calls_of(facts)]
    return replace(result, eager_operators=eager, by_aten=by_aten, operators=tuple(operators))


_LIBRARIES_OF_ATEN = ("aten", "mkldnn", "mkl")
_OPERATOR_CALL = re.compile(
    r"\b(?:extern_kernels|torch\.ops\.(\w+)|(aten|mkldnn|mkl))\.(\w+)[\w.]*\("
    r"|\baoti_torch_(?:cpu|cuda|xpu|mps)_(\w+)\(|\"aten::(\w+)\""
)
_OTHER_KERNELS = re.compile(
    r"\basync_compile\.(?!wait\b)\w+\("
    r"|(?:findSchemaOrThrow|aoti_torch_call_dispatcher)\(\"(?!aten::)|proxy_executor|custom_op_wrapper"
)


def with_who_computed(result: Judged, steps: Sequence[CarriedOut]) -> Judged:
    """Return the result of a case for which Inductor generated no kernel, with the operators that
    its code calls, where it calls nothing else: as ATen's, or in a note where some are not ATen's.
    """
    called = _operators_called(steps)
    if all(name.partition(".")[0] in _LIBRARIES_OF_ATEN for name in called):
        return replace(result, by_aten=called)
    note = f"Inductor computed nothing: it generated no kernel, and called {', '.join(called)}"
    return replace(result, notes=(*result.notes, note))


def _operators_called(steps: Sequence[CarriedOut]) -> Mapping[str, int]:
    """Return the operators that generated code calls; none where it may call something else."""
    try:
        code = "\n".join(
            # a wrapper in C++ is a string
            code_of(piece, strings=True).text
            for known in steps
            for piece in known.facts.code
        )
    except PatternTooSlow:
        return {}
    called = (
        f"{call[1] or call[2] or 'aten'}.{call[3] or call[4] or call[5]}"
        for call in _OPERATOR_CALL.finditer(code)
    )
    return {} if _OTHER_KERNELS.search(code) else Counter(called)


def _is_refused_as_claimed(refused: CarriedOut, run: _Proving) -> bool:
    """Whether dynamo itself raised in a step, and the spec says so: ``before``, ``as: eager``, or
    an eager call that raises the same.
    """
    if (traced := refused.facts.dynamo) is None or traced.graphs or not traced.frames:
        return False
    claims = (expected.check for expected in refused.step.expectations)
    checks = [check for check in claims if check.expects_exception]
    if any(check.claims_refusal and check.applies(run.surroundings) for check in checks):
        return True
    eager = (
        other
        for other in run.steps
        if isinstance(call := parsed(other.step), Call)
        and call.eager
        and other.facts.raised is not None
    )
    above = [expected.check for other in eager for expected in other.step.expectations]
    return bool(checks) and all(check in above for check in checks)


_WHERE_CLAIMED = "(where that is the claim, expect graph_breaks or the counter stats.unique_graphs)"


def _claims_capture(done: CarriedOut) -> bool:
    return any(expected.check.claims_capture for expected in done.step.expectations)


def _why_not_compiled(observed: StepFacts, steps: Sequence[CarriedOut]) -> str:
    """Return why eager computed the answer of a step rather than the compiler: it ran half of the
    operators or more; empty where it did not, or where a step claims what dynamo captured.
    """
    origins = observed.origins
    if not origins or 2 * len(origins.outside) < max(1, len(origins.eager)):
        return ""
    if any(map(_claims_capture, steps)):
        return ""
    broken = (reason for done in steps if done.facts.dynamo for reason in done.facts.dynamo.broken)
    names = ", ".join(dict.fromkeys(origins.outside))
    return (
        f"{len(origins.outside)} of {len(origins.eager)} ran outside of compiled graphs: {names}; "
        f"dynamo broke the graph: {first_line(next(broken, ''))} {_WHERE_CLAIMED}"
    )


def _why_not_captured(steps: Sequence[CarriedOut]) -> str:
    """Return why the last of these steps shows nothing of dynamo; empty where it called a captured
    graph, or nothing could be captured.

    A backward without inductor is autograd's, of what a call before it captured. A function that
    was traced whole without a graph has no operation of tensors. That nothing is captured may also
    be what the spec claims.
    """
    *before, last = steps
    if (
        not parsed(last.step).runs_graphs
        or traits_of(last.step).gives_gradients
        or (traced := last.facts.dynamo) is None
    ):
        return ""
    if traced.calls or _claims_capture(last):
        return ""
    known = [step.facts.dynamo for step in steps if step.facts.dynamo]
    if (
        broken := next((reason for step in reversed(known) for reason in step.broken), None)
    ) is not None:
        return f"it ran eagerly: {first_line(broken)} {_WHERE_CLAIMED}"
    earlier = sum(
        step.facts.dynamo.frames
        for step in before
        if step.facts.dynamo and not step.facts.dynamo.calls
    )
    if traced.frames or (earlier and not any(step.calls for step in known)):
        return ""
    return "it ran eagerly: dynamo traced no frame, and no graph that it had captured was called"


def _shows_dynamo(known: CarriedOut) -> bool:
    """Whether a step called a captured graph or had a function of the case traced; of a run of
    before that was recorded, always.
    """
    traced = known.facts.dynamo
    return traced is None or bool(traced.calls or traced.calls_others or traced.frames)


def _had_nothing_to_compile(known: CarriedOut) -> bool:
    """Whether dynamo traced all frames of a step without a graph break and made no graph for a
    device.

    Then what was called has no operation, or its results have no elements: inductor's graph runs on
    no device.
    """
    observed = known.facts
    if (
        not traits_of(known.step).may_have_no_graph
        or observed.raised is not None
        or observed.abandoned
        or any(observed.graphs)
    ):
        return False
    frames = observed.counters.get("frames", {})
    return 0 < frames.get("total", 0) == frames.get("ok", 0) and not observed.counters.get(
        "graph_break"
    )
