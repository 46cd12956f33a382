"""What is judged of a case: the observation that a worker sent, read and checked, and what goes with each of its steps."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.model.case import Case, Expected, Step
from runner.model.conditions import Surroundings
from runner.model.expectation import Judgement, StepFacts
from runner.model.observation import (
    Bench,
    Cause,
    ChildExit,
    Choice,
    Effects,
    Ending,
    Generator,
    Mode,
    Observation,
    ObservedStep,
    Raised,
    Repetition,
    ServiceReport,
    SpyCalls,
    Tally,
    Timing,
    Traced,
    Tuning,
    Tunings,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence of a case: the ending of its process, its observation, and its generated code."""

    ending: Ending
    observation: Observation | str | None
    """The worker's message as ``reading`` parsed it; None if there was no message."""
    code: Callable[[int, int], str]
    """(step, index) to the piece's text; raises OSError where there is none."""
    note: str = ""
    """A note about its process for the user."""
    problem: str = ""
    """How the worker broke the protocol; empty if it did not."""
    services: Sequence[ServiceReport] = ()
    """The reports of the services that the case uses."""
    stderr: str = ""
    """The end of the worker's standard error, with its stack; used only after a timeout or a crash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOut:
    """A step that the worker carried out."""

    step: Step
    observed: ObservedStep
    facts: StepFacts
    """The facts for every expectation of the step."""


def carried_out(case: Case, observation: Observation, code: Callable[[int, int], str]) -> Iterator[CarriedOut]:
    """Yield the steps that were carried out; raise ``OSError`` where generated code is missing."""
    for index, (step, observed) in enumerate(zip(case.steps, observation.steps, strict=False)):
        facts = StepFacts(
            raised=observed.raised,
            counters=observed.counters,
            metrics=observed.metrics,
            remote=observed.remote,
            code=tuple(code(index, piece) for piece in range(observed.code_pieces)),
            calls=observed.calls,
            tunings=observed.tunings,
            dynamo=observed.dynamo,
            exit=observed.exit,
            changes=observed.effects.changes if observed.effects else 0,
        )
        yield CarriedOut(step=step, observed=observed, facts=facts)


def first_line(text: str) -> str:
    """Return the first line of a text, with white space folded, at most 500 characters."""
    return re.sub(r"\s+", " ", text.strip().split("\n")[0])[:500]


def headline(text: str) -> str:
    """Return the first line of a message, with the next one where the first only announces it, as in "backend='inductor' raised:"."""
    first, _, rest = text.strip().partition("\n")
    return first_line(f"{first} {rest.strip()}" if first.rstrip().endswith(":") else first)


class NoObservation(ValueError):
    """A recorded observation is invalid."""


def read_observation(sent: object) -> Observation | str | None:
    """Return the observation of a worker's message, which is untrusted, or why it is none; None if there is no message."""
    if sent is None:
        return None
    from runner.language.read.spec_schema import misfit  # reads the schemas

    problem = misfit(sent, "observation")
    if problem is not None:
        return problem
    assert isinstance(sent, dict), "the schema lets nothing else through"
    return Observation(case_id=sent["id"], steps=tuple(map(_step, sent["steps"])), error=_raised(sent["error"]), phases=sent["phases"])


def recorded_observation(sent: object) -> Observation:
    """Return a recorded observation; raise ``NoObservation`` if it is invalid."""
    observation = read_observation(sent)
    if isinstance(observation, Observation):
        return observation
    raise NoObservation(observation or "it is null")


def _step(sent: Mapping[str, Any]) -> ObservedStep:
    census, effects, bench, traced = (sent.get(word) for word in ("tunings", "effects", "bench", "dynamo"))
    return ObservedStep(
        raised=_raised(sent["raised"]),
        counters=sent["counters"],
        metrics=sent["metrics"],
        remote=sent.get("remote"),
        entered=sent["entered"],
        graphs=tuple(tuple(devices) for devices in sent["graphs"]),
        executed=sent["executed"],
        executed_others=sent["executed_others"],
        dynamo=Traced(**{**traced, "broken": tuple(traced["broken"])}) if traced else None,
        abandoned=tuple(sent["abandoned"]),
        uncompiled=tuple(sent.get("uncompiled", ())),  # a run of before it was recorded has none
        choices=tuple(Choice(name=choice["name"], of_class=choice["class"]) for timed in sent["choices"] for choice in timed),
        tunings=Tunings(  # recorded before there was a census: an empty one
            count=census["count"] if census else 0,
            found=tuple(
                Tuning(
                    **{word: tuning[word] for word in ("op", "how", "winner", "won_by")},
                    by_backend={name: Tally(**tally) for name, tally in tuning["backends"].items()},
                )
                for tuning in (census["found"] if census else ())
            ),
        ),
        code_pieces=sent["code"],
        code_digests=tuple(sent.get("code_digests", ())),
        facts=sent["measured"],
        repetitions={key: tuple(Repetition(**entry) for entry in entries) for key, entries in sent.get("repetitions", {}).items()},
        unmeasured=sent["unmeasured"],
        effects=None
        if effects is None
        else Effects(
            compared=effects["compared"],
            apart=tuple(effects["apart"]),
            leaves=tuple(effects["leaves"]),
            generators=tuple(Generator(**generator) for generator in effects.get("generators", ())),
            modes=tuple(Mode(**mode) for mode in effects.get("modes", ())),
            changes=effects.get("changes", 0),
        ),
        calls={name: SpyCalls(count=seen["count"], entries=tuple(seen["entries"])) for name, seen in sent.get("calls", {}).items()},
        exit=ChildExit(**sent["exit"]) if "exit" in sent else None,
        bench=None
        if bench is None
        else Bench(
            timings=tuple(Timing(**timing) for timing in bench["timings"]),
            attachments=tuple(bench["attachments"]),
            notes=tuple(bench["notes"]),
        ),
    )


def _raised(sent: Mapping[str, Any] | None) -> Raised | None:
    if sent is None:
        return None
    causes = tuple(Cause(**{**cause, "ancestors": tuple(cause["ancestors"])}) for cause in sent.get("causes", []))
    return Raised(**{**sent, "ancestors": tuple(sent["ancestors"]), "causes": causes})


ANOTHER_FORM = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions while reading a measurement of an unexpected form."""


def judge_expectation(expected: Expected, facts: StepFacts, surroundings: Surroundings) -> list[Judgement]:
    """Judge one expectation by the facts of its step and its own measurement, which is untrusted."""
    try:
        return list(expected.check.judge(facts, surroundings))
    except ANOTHER_FORM as error:
        return [nonsense(error)]


def nonsense(error: Exception) -> Judgement:
    """Return the judgement of a measurement that cannot be read."""
    return Judgement.error(f"the measurement makes no sense: {type(error).__name__}: {error}")
