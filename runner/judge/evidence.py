"""The evidence by which a case is judged."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from runner.core.case import Case, Step
from runner.core.expectation import StepFacts
from runner.core.observation import Ending, Misfit, Observation, ObservedStep, ServiceReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence of a case: the ending of its process, its observation, and its generated code."""

    ending: Ending
    observation: Observation | Misfit | None
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
            exit=observed.exit,
        )
        yield CarriedOut(step=step, observed=observed, facts=facts)


def first_line(text: str) -> str:
    """Return the first line of a text, with white space folded, at most 500 characters."""
    return re.sub(r"\s+", " ", text.strip().split("\n")[0])[:500]


def headline(text: str) -> str:
    """Return the first line of a message, with the next one where the first only announces it, as in "backend='inductor' raised:"."""
    first, _, rest = text.strip().partition("\n")
    return first_line(f"{first} {rest.strip()}" if first.rstrip().endswith(":") else first)
