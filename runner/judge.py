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

from runner.conditions import Surroundings
from runner.diagnostics import Position
from runner.expectations import Raised, StepFacts
from runner.expectations.base import Judgement
from runner.filecheck import EmptyText, run
from runner.folding import fold
from runner.language.backends import Backend
from runner.model import AppliedWaiver, Case, Ending, Expected, Json, ServiceReport, Status, Step, Verdict
from runner.outcomes import Outcome
from runner.patterns import PatternTooSlow, search
from runner.plan import expects_raise
from runner.protocol import decode
from runner.stacks import Stack, last_stack

COMPILING = ("trace", "lower", "codegen", "kernel build", "autotune")
"""Phases in which an expected exception means that no compiled graph could run."""

STACK = "Python stack when the time was up (most recent call first):"
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
    """The end of what the worker printed; asked only where its time was up, for the stack that it printed then."""


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
    if observation["error"] is not None:
        error = observation["error"]
        return _error(case, f"{error['phase']}: {error['type']}: {_first_line(error['message'])}", case.position, error["traceback"])
    try:
        facts = [step_facts(index, step, evidence.code) for index, step in enumerate(observation["steps"])]
    except OSError as error:
        return _error(case, f"generated code is missing: {error}", case.position)
    verdicts = _verdicts(case, here, observation, facts)
    verdicts.extend(_unused_services(case, evidence, verdicts))
    if backend.compiles:
        verdicts.append(_proof(case, backend, here, observation, facts))
    return _fold(case, verdicts)


# -- the process ----------------------------------------------------------------------------------------------------


def _by_ending(case: Case, evidence: Evidence) -> Judged | None:
    ending = evidence.ending
    where = f"while in phase '{ending.phase}'"
    note = evidence.problem or evidence.note
    if ending.timed_out:
        return _timed_out(case, where, note, last_stack(evidence.stderr))
    if ending.signal is not None:
        return _ended(case, Outcome.CRASH, f"killed by {_signal_name(ending.signal)} {where}", note)
    if ending.exit_code != 0:
        return _ended(case, Outcome.CRASH, f"exit code {ending.exit_code} {where}", note)
    if evidence.problem:
        return _error(case, evidence.problem, case.position)
    if evidence.observation is None:
        return _ended(case, Outcome.CRASH, f"ended without an answer {where}", note)
    return None


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
    detail = f"{STACK}\n{stack.text}"
    frame = stack.within(_python_files(case))
    if frame is None:
        return _ended(case, Outcome.TIMEOUT, reason, note, detail=detail)
    position = Position(file=case.spec, line=frame.line)
    reason = f"{reason}, in {_first_line(frame.function)} at line {frame.line} of the spec"
    return _ended(case, Outcome.TIMEOUT, reason, note, detail=detail, position=position)


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
    from runner.language.schema import validator

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
    for index, step in enumerate(case.steps):
        if index >= len(facts):
            missing = Verdict(kind="error", status=Status.ERROR, position=step.position, observed=f"step {index + 1} was not carried out")
            return [*verdicts, missing]
        known = facts[index]
        if known.raised is not None and not expects_raise(step, here):
            return [*verdicts, _unexpected(step, known.raised)]
        verdicts.extend(_step_verdicts(step, here, observation["steps"][index], known))
    if not any(verdict.status is not Status.NOT_APPLICABLE for verdict in verdicts):
        vacuous = Verdict(
            kind="error", status=Status.ERROR, position=case.position, observed="no expectation applies here: the case claims nothing"
        )
        return [*verdicts, vacuous]
    return verdicts


def _unexpected(step: Step, raised: Raised) -> Verdict:
    observed = f"{raised.type} in phase '{raised.phase}': {_first_line(raised.message)}"
    return Verdict(
        kind="raised", status=Status.FAILED, position=step.position, expected="no exception", observed=observed, detail=raised.traceback
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


def _unused_services(case: Case, evidence: Evidence, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return an error for each service without traffic: torch goes on in silence when it reaches none, and then nothing is claimed."""
    if any(verdict.kind == "raised" for verdict in verdicts):
        return []  # the exception is the reason, and says more
    unused = [service for service in evidence.services if not any(service.answered.values())]
    return [
        Verdict(
            kind="service",
            status=Status.ERROR,
            position=case.position,
            expected=f"traffic of the case with {service.name}",
            observed=f"the case asked for {service.name} and torch never spoke to it",
        )
        for service in unused
    ]


# -- the proof ------------------------------------------------------------------------------------------------------


def _proof(case: Case, backend: Backend, here: Surroundings, observation: Json, facts: Sequence[StepFacts]) -> Verdict:
    """Judge what shows that the backend ran; a FAILED proof beside right answers is FELL_BACK."""
    count = sum(step.kind != "bench" for step in case.steps)  # the last steps: they show how long, and nothing else
    steps, facts = observation["steps"][:count], facts[:count]
    if any(
        known.raised is not None and known.raised.phase in COMPILING and expects_raise(step, here)
        for step, known in zip(case.steps, facts, strict=False)
    ):
        entered = sum(step["entered"] for step in steps)
        status = Status.HELD if entered > 0 else Status.FAILED
        return _proof_verdict(backend, status, "inductor was entered before the exception", f"inductor was entered {entered} times")
    checks = (_graphs_proof, _code_proof, _choices_proof)
    for check in checks:
        failed = check(backend, steps, facts)
        if failed is not None:
            return failed
    return _proof_verdict(backend, Status.HELD, f"backend {backend.name} ran", "shown")


def _unproven(backend: Backend, expected: str, observed: str, detail: str = "") -> Verdict:
    return _proof_verdict(backend, Status.FAILED, expected, observed, detail)


def _proof_verdict(backend: Backend, status: Status, expected: str, observed: str, detail: str = "") -> Verdict:
    return Verdict(kind="proof", status=status, position=backend.position, expected=expected, observed=observed, detail=detail)


def _graphs_proof(backend: Backend, steps: Sequence[Mapping[str, Any]], facts: Sequence[StepFacts]) -> Verdict | None:
    wanted = backend.proof.graphs
    if wanted is None:
        return None
    kind = backend.device.split(":")[0]
    none_wanted = wanted.most == 0
    graphs = sum(none_wanted or kind in devices for step in steps for devices in step["graphs"])
    calls = sum(step["executed"].get(kind, 0) for step in steps)
    if wanted.holds(graphs) and (none_wanted or calls > 0):
        return None
    expected = f"{wanted} inductor graphs" + ("" if none_wanted else f" for {kind}, compiled or from a cache, and called")
    return _unproven(backend, expected, f"{graphs} graphs, {calls} calls")


def _code_proof(backend: Backend, steps: Sequence[Mapping[str, Any]], facts: Sequence[StepFacts]) -> Verdict | None:
    if backend.proof.code is None:
        return None
    text = "\n".join(piece for known in facts for piece in known.code)
    try:
        outcome = run(backend.proof.code, text)
    except EmptyText:
        return _unproven(backend, "generated code that shows the backend", "no code was generated")
    except PatternTooSlow:
        return _proof_verdict(backend, Status.ERROR, "generated code that shows the backend", "pattern too slow")
    if outcome.held:
        return None
    return _unproven(backend, f"in the generated code: {outcome.directive}", outcome.reason, outcome.excerpt)


def _choices_proof(backend: Backend, steps: Sequence[Mapping[str, Any]], facts: Sequence[StepFacts]) -> Verdict | None:
    wanted = backend.proof.choices
    if wanted is None:
        return None
    names = [name for step in steps for choices in step["choices"] for name in choices]
    expected = f"at least {wanted.least} timed choices matching /{wanted.match}/"
    try:
        matching = sum(search(wanted.match, name) is not None for name in names)
    except PatternTooSlow:
        return _proof_verdict(backend, Status.ERROR, expected, "pattern too slow")
    return None if matching >= wanted.least else _unproven(backend, expected, f"{matching} of {len(names)}")


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
