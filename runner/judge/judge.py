"""Folds facts into one outcome. Pure: a recorded observation can be judged again.

What the process did comes first, then whether there are facts at all, then what they say:

| process              | observation     | expectations | proof  | outcome   |
|----------------------|-----------------|--------------|--------|-----------|
| outlived its time    | any             | any          | any    | TIMEOUT   |
| died                 | any             | any          | any    | CRASH     |
| ended                | cannot be believed | any       | any    | ERROR     |
| ended                | none            | any          | any    | CRASH     |
| ended                | with an error   | any          | any    | ERROR     |
| ended                | facts           | one cannot be judged, or none applies | any | ERROR |
| ended                | facts           | one failed   | any    | FAIL      |
| ended                | facts           | all hold     | fails  | FELL_BACK |
| ended                | facts           | all hold     | holds  | PASS      |
"""

import functools
import posixpath
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.core.conditions import Surroundings
from runner.core.diagnostics import Position
from runner.core.folding import fold
from runner.core.matching.filecheck import EmptyText, run
from runner.core.matching.generated_code import code_of, joined
from runner.core.matching.patterns import search
from runner.core.matching.time_limit import PatternTooSlow
from runner.core.model import AppliedWaiver, Case, Ending, Expected, Json, ServiceReport, Status, Step, Verdict
from runner.core.outcomes import Outcome
from runner.core.protocol import decode
from runner.judge import traffic
from runner.judge.hang_stacks import Frame, Stack, folded, frames_of, last_stack
from runner.language.backends import Backend
from runner.plan.worker_plan import expects_raise, needs_eager, step_names
from runner.vocabulary.expectations import Raised, StepFacts, side_effects
from runner.vocabulary.expectations.base import Judgement

COMPILING = ("trace", "lower", "codegen", "kernel build", "autotune")
"""Phases in which an expected exception means that no compiled graph could run."""

_OWN_WORDS = ("runner.worker.case.session.NotCarriedOut", "runner.worker.process.seal.Broken")
"""Exceptions that the worker itself raises: their text needs neither type nor traceback."""

STACK = "Python stack when the time was up (most recent call first):"
LAST_STACK = "the last Python stack that it printed (most recent call first):"
NO_STACK = "no Python stack could be had: the process was stopped, has its signals blocked, or its stderr is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The outcome of a case with its verdicts; ``reason`` is empty only for PASS."""

    outcome: Outcome
    reason: str
    failure_type: str
    verdicts: tuple[Verdict, ...]
    position: Position
    waivers: tuple[AppliedWaiver, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is judged: how the process ended, what it sent, and the code it left."""

    ending: Ending
    observation: Json
    code: Callable[[int, int], str]
    """(step, index) to the piece's text; raises OSError where there is none."""
    note: str = ""
    """What a person should know of its process."""
    problem: str = ""
    """How the worker broke the protocol; empty for one that may be believed."""
    services: Sequence[ServiceReport] = ()
    """What the services that it asked for saw of it."""
    stderr: str = ""
    """The end of what the worker printed; asked only where its time was up or it died, for the stack that it printed then."""


def judge(case: Case, backend: Backend, here: Surroundings, evidence: Evidence) -> Judged:
    """Judge one case."""
    ended = _by_ending(case, evidence)
    if ended is not None:
        return ended
    for service in evidence.services:
        if service.problem:
            return _error(case, f"{service.name}: {service.problem}", case.position)
    observation = evidence.observation
    problem = _misfit(case, observation)
    if problem:
        return _error(case, f"the worker's observation makes no sense: {problem}", case.position)
    asked = _asked_to_end(case, here, observation)
    if asked is not None:
        return asked
    if observation["error"] is not None:
        error = observation["error"]
        if error["type"] in _OWN_WORDS:  # the runner's own words, and no exception of the spec's code
            return _error(case, f"{error['phase']}: {_first_line(error['message'])}", case.position)
        reason = f"{error['phase']}: {error['type']}: {_first_line(error['message'])}"
        return _error(case, reason, _place_of_error(case, observation), folded(error["traceback"]))
    try:
        facts = [step_facts(index, step, evidence.code) for index, step in enumerate(observation["steps"])]
    except OSError as error:
        return _error(case, f"generated code is missing: {error}", case.position)
    verdicts = _verdicts(case, here, observation, facts)
    verdicts.extend(_unused_services(case, evidence, verdicts, observation["steps"]))
    if backend.compiles:
        verdicts.append(_proof(case, backend, here, observation, facts))
    return _fold(case, verdicts)


# -- the process ----------------------------------------------------------------------------------------------------


def _by_ending(case: Case, evidence: Evidence) -> Judged | None:
    ending = evidence.ending
    where = _in_phase(case, ending.phase, ending.step)
    note = evidence.problem or evidence.note
    if ending.timed_out:
        return _timed_out(case, where, note, last_stack(evidence.stderr))
    if ending.signal is not None:
        return _died(case, evidence, f"killed by {_signal_name(ending.signal)} {where}")
    if ending.exit_code != 0:
        return _died(case, evidence, f"exit code {ending.exit_code} {where}")
    if evidence.problem:
        return _error(case, evidence.problem, case.position)
    if evidence.observation is None:
        return _died(case, evidence, f"ended without an answer {where}")
    return None


def _in_phase(case: Case, phase: str, index: int | None) -> str:
    """Say the phase, and which of several steps it was of."""
    several = index is not None and len(case.steps) > 1 and 0 <= index < len(case.steps)
    return f"while in phase '{phase}'" + (f" of step {index + 1} ({case.steps[index].kind})" if several and index is not None else "")


def _died(case: Case, evidence: Evidence, reason: str) -> Judged:
    """Say where the case stood: the line of the spec that the stack passes through where there is one, else its step."""
    note = evidence.problem or evidence.note
    # no process can print anything when it is killed
    stack = last_stack(evidence.stderr) if evidence.ending.signal != signal.SIGKILL else None
    frame = stack.within(_python_files(case)) if stack is not None else None
    detail = f"{LAST_STACK}\n{folded(stack.text)}" if stack is not None else ""
    reason += f" ({note})" if note else ""
    if frame is None:
        return _ended(case, Outcome.CRASH, reason, "", detail=detail, position=_place_of_step(case, evidence.ending.step))
    return _ended(case, Outcome.CRASH, f"{reason}{_in_spec(frame)}", "", detail=detail, position=Position(file=case.spec, line=frame.line))


ENDS_PYTHON = ("builtins.SystemExit", "builtins.KeyboardInterrupt")
"""Exceptions that ask for the end of the process: it would have ended, had the worker not gone on to tell of them."""


def _asked_to_end(case: Case, here: Surroundings, observation: Json) -> Judged | None:
    """Return the outcome of a case whose code asked for the end of the process where its spec expects no such thing."""
    done = len(observation["steps"])
    found = [(index, step["raised"]) for index, step in enumerate(observation["steps"]) if not expects_raise(case.steps[index], here)]
    failed = [(done, observation["error"]), *found]
    for index, error in failed:
        if error is not None and error["type"] in ENDS_PYTHON:
            name = error["type"].rpartition(".")[2]
            what = f"{_first_line(error['message'])} ({name})" if name == "SystemExit" else name
            # before the first step, too, none is done
            step = index if index > 0 or error["phase"] not in ("inputs", "import") else None
            place = _place_in_spec(case, error["traceback"])
            reason = f"{what} {_in_phase(case, error['phase'], step)}{_in_spec(place) if place else ''}"
            position = Position(file=case.spec, line=place.line) if place else _place_of_step(case, step)
            return _ended(case, Outcome.CRASH, reason, "", detail=folded(error["traceback"]), position=position)
    return None


def _in_spec(frame: Frame) -> str:
    return f", in {_first_line(frame.function)} at line {frame.line} of the spec"


def _place_of_error(case: Case, observation: Json) -> Position:
    """Return the innermost line of the spec that a traceback passes through; else the step after those that were carried out."""
    if frame := _place_in_spec(case, observation["error"]["traceback"]):
        return Position(file=case.spec, line=frame.line)
    return _place_of_step(case, len(observation["steps"]) or None)


def _place_in_spec(case: Case, traceback: str) -> Frame | None:
    return Stack("", tuple(reversed(frames_of(traceback)))).within(_python_files(case))


def _place_of_step(case: Case, index: int | None) -> Position:
    return case.steps[index].position if index is not None and 0 <= index < len(case.steps) else case.position


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _timed_out(case: Case, where: str, note: str, stack: Stack | None) -> Judged:
    """Say where the case stood: its phase, its Python stack, and the line of the spec that the stack passes through."""
    reason = f"outlived its deadline {where}"
    if stack is None:
        return _ended(case, Outcome.TIMEOUT, reason, note, detail=NO_STACK)
    detail = f"{STACK}\n{folded(stack.text)}"
    frame = stack.within(_python_files(case))
    if frame is None:
        return _ended(case, Outcome.TIMEOUT, reason, note, detail=detail)
    position = Position(file=case.spec, line=frame.line)
    return _ended(case, Outcome.TIMEOUT, f"{reason}{_in_spec(frame)}", note, detail=detail, position=position)


def _python_files(case: Case) -> set[str]:
    """Return the spec's own file as its Python names it: not as people see it, and not those of its folder's defaults."""
    functions = [function["block"] for function in case.body.get("functions", {}).values() if "block" in function]
    scripts = [step.arguments["code"] for step in case.steps if step.kind == "script"]
    blocks = [*case.body.get("preludes", ()), *functions, *scripts]
    return {block["file"] for block in blocks if posixpath.basename(block["file"]) == posixpath.basename(case.spec)}


def _ended(case: Case, outcome: Outcome, reason: str, note: str, *, detail: str = "", position: Position | None = None) -> Judged:
    text = reason + (f" ({note})" if note else "")
    kind = outcome.label.lower()
    place = position or case.position
    verdict = Verdict(kind=kind, status=Status.ERROR, position=place, expected="an answer", observed=text, detail=detail)
    return Judged(outcome=outcome, reason=text, failure_type=kind, verdicts=(verdict,), position=place)


def _error(case: Case, reason: str, position: Position, detail: str = "") -> Judged:
    verdict = Verdict(kind="error", status=Status.ERROR, position=position, observed=reason, detail=detail)
    return Judged(outcome=Outcome.ERROR, reason=reason, failure_type="error", verdicts=(verdict,), position=position)


# -- the facts ------------------------------------------------------------------------------------------------------


@functools.cache
def _observation_schema() -> Any:
    from runner.language.read.schema import validator

    return validator("observation")


def _misfit(case: Case, observation: Json) -> str:
    """Return what is wrong with an observation; a worker may send anything."""
    error = next(iter(_observation_schema().iter_errors(observation)), None)
    if error is not None:
        return f"{error.json_path}: {error.message[:200]}"
    if observation["id"] != case.id:
        return "it is another case's"
    return "it has too many steps" if len(observation["steps"]) > len(case.steps) else ""


def step_facts(index: int, step: Mapping[str, Any], code: Callable[[int, int], str]) -> StepFacts:
    """Return what every expectation of a step may know; raise ``OSError`` where its code is missing."""
    raised = step["raised"]
    return StepFacts(
        raised=None if raised is None else Raised(**{**raised, "ancestors": tuple(raised["ancestors"])}),
        counters=step["counters"],
        metrics=step["metrics"],
        remote=step.get("remote"),
        code=tuple(code(index, piece) for piece in range(step["code"])),
        calls=step.get("calls", {}),
        exit=step.get("exit"),
    )


def _verdicts(case: Case, here: Surroundings, observation: Json, facts: Sequence[StepFacts]) -> list[Verdict]:
    verdicts: list[Verdict] = []
    effects: list[Verdict] = []
    for index, step in enumerate(case.steps):
        if index >= len(facts):
            missing = Verdict(kind="error", status=Status.ERROR, position=step.position, observed=f"step {index + 1} was not carried out")
            return [*verdicts, missing]
        known = facts[index]
        if known.raised is not None and not expects_raise(step, here):
            return [*verdicts, *effects, _unexpected(step, known.raised)]
        verdicts.extend(_step_verdicts(step, here, observation["steps"][index], known))
        effects.extend(_effects_verdicts(case, step, here, observation["steps"][index], known))
    if not any(verdict.status is not Status.NOT_APPLICABLE for verdict in verdicts):
        vacuous = Verdict(
            kind="error", status=Status.ERROR, position=case.position, observed="no expectation applies here: the case claims nothing"
        )
        return [*verdicts, *effects, vacuous]
    return [*verdicts, *effects]


def _effects_verdicts(case: Case, step: Step, here: Surroundings, recorded: Mapping[str, Any], known: StepFacts) -> list[Verdict]:
    """Judge what a call changed beside its result; of one that raised nothing is asked."""
    wanted = side_effects.of_step(step, case.steps, here) if needs_eager(case) and known.raised is None else None
    if wanted is None:
        return []
    try:
        judgement = wanted.judge(recorded.get("effects"))
    except ANOTHER_FORM as error:
        judgement = _nonsense(error)
    return [
        Verdict(
            kind=side_effects.KIND,
            status=judgement.status,
            position=step.position,
            expected=judgement.expected,
            observed=judgement.observed,
            detail=judgement.detail,
        )
    ]


def _unexpected(step: Step, raised: Raised) -> Verdict:
    observed = f"{raised.type} in phase '{raised.phase}': {_first_line(raised.message)}".rstrip(": ")
    return Verdict(
        kind="raised",
        status=Status.FAILED,
        position=step.position,
        expected="no exception",
        observed=observed,
        detail=folded(raised.traceback),
    )


def _step_verdicts(step: Step, here: Surroundings, recorded: Mapping[str, Any], facts: StepFacts) -> list[Verdict]:
    verdicts = []
    for index, expected in enumerate(step.expectations):
        measured = recorded["measured"].get(str(index))
        why_not = recorded["unmeasured"].get(str(index))
        for judgement in _judged(expected, facts, measured, here, why_not):
            verdicts.append(_verdict(expected, judgement))
    return verdicts


ANOTHER_FORM = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What reading a measurement raises when it has another form than was asked for."""


def judge_expectation(expected: Expected, facts: StepFacts, here: Surroundings) -> list[Judgement]:
    """Judge one expectation by the facts of its step and its own measurement, whatever these are."""
    try:
        return list(expected.check.judge(facts, here))
    except ANOTHER_FORM as error:
        return [_nonsense(error)]


def _nonsense(error: Exception) -> Judgement:
    return Judgement.error(f"the measurement makes no sense: {type(error).__name__}: {error}")


def _judged(expected: Expected, facts: StepFacts, measured: Json, here: Surroundings, why_not: str | None) -> list[Judgement]:
    try:
        known = replace(facts, measured=decode(measured))
    except ANOTHER_FORM as error:
        return [_nonsense(error)]
    judgements = judge_expectation(expected, known, here)
    if why_not is None:
        return judgements
    return [Judgement.error(why_not, expected=one.expected, leaf=one.leaf) if one.status is Status.ERROR else one for one in judgements]


def _verdict(expected: Expected, judgement: Judgement) -> Verdict:
    return Verdict(
        kind=expected.kind,
        status=judgement.status,
        position=expected.place(judgement.leaf),
        expected=judgement.expected,
        observed=judgement.observed,
        detail=judgement.detail,
    )


def _unused_services(case: Case, evidence: Evidence, verdicts: Sequence[Verdict], steps: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Return an error for each service without traffic of torch's: it goes on in silence, and then nothing is claimed."""
    if any(verdict.kind == "raised" for verdict in verdicts):
        return []  # the exception is the reason, and says more
    problems = [(service, traffic.problem(service, case.steps, steps)) for service in evidence.services]
    return [
        Verdict(
            kind="service",
            status=Status.ERROR,
            position=case.position,
            expected=f"traffic of the case with {service.name}",
            observed=why,
        )
        for service, why in problems
        if why
    ]


# -- the proof ------------------------------------------------------------------------------------------------------


def _proof(case: Case, backend: Backend, here: Surroundings, observation: Json, facts: Sequence[StepFacts]) -> Verdict:
    """Judge what shows that the backend ran; a FAILED proof beside right answers is FELL_BACK."""
    count = sum(step.kind != "bench" for step in case.steps)  # the last steps: they show how long, and nothing else
    steps, facts = observation["steps"][:count], facts[:count]
    if any(_refused_to_compile(step, known, here) for step, known in zip(case.steps, facts, strict=False)):
        # an exception of dynamo, or of the function itself, comes before inductor: then another step shows the backend
        entered = sum(step["entered"] for step in steps)
        expected = "inductor was entered before the exception, or in another step"
        failed = _steps_proof(case, backend, steps, facts)
        status = Status.HELD if entered else Status.FAILED
        return failed or _proof_verdict(backend, status, expected, f"inductor was entered {entered} times")
    for check in (_graphs_proof, functools.partial(_steps_proof, case), _code_proof, _choices_proof):
        failed = check(backend, steps, facts)
        if failed is not None:
            return failed
    return _proof_verdict(backend, Status.HELD, f"backend {backend.name} ran", "shown")


def _unproven(backend: Backend, expected: str, observed: str, detail: str = "") -> Verdict:
    return _proof_verdict(backend, Status.FAILED, expected, observed, detail)


def _proof_verdict(backend: Backend, status: Status, expected: str, observed: str, detail: str = "") -> Verdict:
    return Verdict(kind="proof", status=status, position=backend.position, expected=expected, observed=observed, detail=detail)


def _refused_to_compile(step: Step, known: StepFacts, here: Surroundings) -> bool:
    return known.raised is not None and known.raised.phase in COMPILING and expects_raise(step, here)


_COMPILED = ("call", "aot", "backward")
"""Steps that run what was compiled."""


def _steps_proof(case: Case, backend: Backend, steps: Sequence[Mapping[str, Any]], facts: Sequence[StepFacts]) -> Verdict | None:
    """Judge each step by itself: one that ran eagerly is not excused by another that did not."""
    wants_none = backend.proof.graphs is not None and backend.proof.graphs.most == 0
    kind = backend.device.split(":")[0]
    for number, (step, recorded, known) in enumerate(zip(case.steps, steps, facts, strict=False), start=1):
        if known.raised is not None:
            continue
        where = f"step {number} ({step.kind}, line {step.position.line})"
        if recorded["abandoned"]:  # of any step: dynamo asks no more about a frame that it has given up
            expected = f"{where} runs as it was compiled"
            return _unproven(backend, expected, f"dynamo gave up a frame, which ran eagerly: {_first_line(recorded['abandoned'][0])}")
        if not wants_none and _must_run_graphs(step) and not _executed(step, recorded, kind):
            of = "" if step.kind == "aot" else " that was compiled of its function"
            return _unproven(backend, f"{where} runs a graph for {kind}{of}", _ran(recorded))
    return None


def _must_run_graphs(step: Step) -> bool:
    """Whether a step calls what was compiled: a script does when ``compiled`` is one of its parameters."""
    if step.kind == "script":
        return "compiled" in step_names(step)
    return step.kind in _COMPILED and not step.arguments.get("eager")


def _executed(step: Step, recorded: Mapping[str, Any], kind: str) -> int:
    """Return how many graphs for a device a step ran that were compiled of its function, which a helper's are not. Packages count apart."""
    own = int(recorded["executed"].get(kind, 0))
    return own + int(recorded["executed_others"].get(kind, 0)) if step.kind == "aot" else own


def _ran(recorded: Mapping[str, Any]) -> str:
    own, others = recorded["executed"], recorded["executed_others"]
    counts = [f"{count} for {device}" for device, count in own.items()]
    counts += [f"{count} for {device} that other code compiled" for device, count in others.items()]
    return f"it ran {', '.join(counts)}" if counts else "it ran none: the call was eager"


def _graphs_proof(backend: Backend, steps: Sequence[Mapping[str, Any]], facts: Sequence[StepFacts]) -> Verdict | None:
    wanted = backend.proof.graphs
    if wanted is None:
        return None
    kind = backend.device.split(":")[0]
    none_wanted = wanted.most == 0
    graphs = sum(none_wanted or kind in devices for step in steps for devices in step["graphs"])
    calls = sum(step[which].get(kind, 0) for step in steps for which in ("executed", "executed_others"))
    if wanted.holds(graphs) and (none_wanted or calls > 0):
        return None
    expected = f"{wanted} inductor graphs" + ("" if none_wanted else f" for {kind}, compiled or from a cache, and called")
    return _unproven(backend, expected, f"{graphs} graphs, {calls} calls")


def _code_proof(backend: Backend, steps: Sequence[Mapping[str, Any]], facts: Sequence[StepFacts]) -> Verdict | None:
    if backend.proof.code is None:
        return None
    try:
        code = joined([code_of(piece, strings=False) for known in facts for piece in known.code])
        outcome = run(backend.proof.code, code.text, numbers=code.numbers)
    except EmptyText:
        return _unproven(backend, "generated code that shows the backend", "no code was generated")
    except PatternTooSlow:
        return _proof_verdict(backend, Status.ERROR, "generated code that shows the backend", "pattern too slow")
    if outcome.passed:
        return None
    return _unproven(backend, f"in the generated code: {outcome.directive}", outcome.reason, outcome.excerpt)


def _choices_proof(backend: Backend, steps: Sequence[Mapping[str, Any]], facts: Sequence[StepFacts]) -> Verdict | None:
    wanted = backend.proof.choices
    if wanted is None:
        return None
    found = [choice for step in steps for choices in step["choices"] for choice in choices]
    try:
        named = [choice for choice in found if search(wanted.match, choice["name"])]
        matching = [choice for choice in named if not wanted.of_class or search(wanted.of_class, choice["class"])]
    except PatternTooSlow:
        return _proof_verdict(backend, Status.ERROR, str(wanted), "pattern too slow")
    if len(matching) >= wanted.least:
        return None
    strangers = "".join(f", {one['name']} is of {one['class'] or 'an unknown class'}" for one in named[:3] if one not in matching)
    return _unproven(backend, str(wanted), f"{len(matching)} of {len(found)}{strangers}")


# -- one outcome ----------------------------------------------------------------------------------------------------


def _fold(case: Case, verdicts: Sequence[Verdict]) -> Judged:
    folded = fold(verdicts)
    first = folded.first
    if first is None:
        return Judged(outcome=Outcome.PASS, reason="", failure_type="", verdicts=tuple(verdicts), position=case.position)
    position = case.position if folded.outcome is Outcome.FELL_BACK else first.position
    return Judged(
        outcome=folded.outcome,
        reason=_first_line(first.message),
        failure_type=folded.failure_type,
        verdicts=tuple(verdicts),
        position=position,
    )


def _first_line(text: str) -> str:
    return re.sub(r"\s+", " ", text.strip().split("\n")[0])[:500]
