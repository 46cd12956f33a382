"""Parses a worker's message: JSON that matches the schema becomes an ``Observation``; later stages do not use the JSON."""

from collections.abc import Mapping
from typing import Any

from runner.core.observation import (
    Bench,
    Cause,
    ChildExit,
    Choice,
    Effects,
    Generator,
    Misfit,
    Mode,
    Observation,
    ObservedStep,
    Raised,
    Repetition,
    SpyCalls,
    Timing,
)
from runner.core.tuning import Tally, Tuning, Tunings


class NoObservation(ValueError):
    """A recorded observation is invalid."""


def read_observation(sent: object) -> Observation | Misfit | None:
    """Return the observation of a worker's message, which is untrusted; None if there is no message."""
    if sent is None:
        return None
    from runner.language.read.schema import misfit  # reads the schemas

    problem = misfit(sent, "observation")
    if problem is not None:
        return Misfit(problem=problem)
    assert isinstance(sent, dict), "the schema lets nothing else through"
    return _observation(sent)


def recorded_observation(sent: object) -> Observation:
    """Return a recorded observation; raise ``NoObservation`` if it is invalid."""
    found = read_observation(sent)
    if isinstance(found, Observation):
        return found
    raise NoObservation(found.problem if found is not None else "it is null")


def _observation(sent: Mapping[str, Any]) -> Observation:
    return Observation(
        case_id=sent["id"],
        steps=tuple(_step(step) for step in sent["steps"]),
        error=_raised(sent["error"]),
        phases=sent["phases"],
    )


def _step(sent: Mapping[str, Any]) -> ObservedStep:
    return ObservedStep(
        raised=_raised(sent["raised"]),
        counters=sent["counters"],
        metrics=sent["metrics"],
        remote=sent.get("remote"),
        entered=sent["entered"],
        graphs=tuple(tuple(devices) for devices in sent["graphs"]),
        executed=sent["executed"],
        executed_others=sent["executed_others"],
        abandoned=tuple(sent["abandoned"]),
        uncompiled=tuple(sent.get("uncompiled", ())),  # a run of before it was recorded has none
        choices=tuple(Choice(name=one["name"], of_class=one["class"]) for timed in sent["choices"] for one in timed),
        tunings=_tunings(sent.get("tunings")),
        code_pieces=sent["code"],
        facts=sent["measured"],
        repetitions={key: tuple(Repetition(**one) for one in found) for key, found in sent.get("repetitions", {}).items()},
        unmeasured=sent["unmeasured"],
        effects=_effects(sent.get("effects")),
        calls={name: SpyCalls(count=seen["count"], entries=tuple(seen["entries"])) for name, seen in sent.get("calls", {}).items()},
        exit=ChildExit(**sent["exit"]) if "exit" in sent else None,
        bench=_bench(sent.get("bench")),
    )


def _tunings(sent: Mapping[str, Any] | None) -> Tunings:
    if sent is None:  # recorded before there was a census
        return Tunings()
    return Tunings(count=sent["count"], found=tuple(_tuning(one) for one in sent["found"]))


def _tuning(sent: Mapping[str, Any]) -> Tuning:
    tallies = {name: Tally(**tally) for name, tally in sent["backends"].items()}
    return Tuning(op=sent["op"], how=sent["how"], winner=sent["winner"], won_by=sent["won_by"], by_backend=tallies)


def _raised(sent: Mapping[str, Any] | None) -> Raised | None:
    if sent is None:
        return None
    causes = tuple(Cause(**{**cause, "ancestors": tuple(cause["ancestors"])}) for cause in sent.get("causes", []))
    return Raised(**{**sent, "ancestors": tuple(sent["ancestors"]), "causes": causes})


def _effects(sent: Mapping[str, Any] | None) -> Effects | None:
    if sent is None:
        return None
    generators = tuple(Generator(**one) for one in sent.get("generators", ()))
    modes = tuple(Mode(**one) for one in sent.get("modes", ()))
    return Effects(compared=sent["compared"], apart=tuple(sent["apart"]), leaves=tuple(sent["leaves"]), generators=generators, modes=modes)


def _bench(sent: Mapping[str, Any] | None) -> Bench | None:
    if sent is None:
        return None
    timings = tuple(Timing(**timing) for timing in sent["timings"])
    return Bench(timings=timings, attachments=tuple(sent["attachments"]), notes=tuple(sent["notes"]))
