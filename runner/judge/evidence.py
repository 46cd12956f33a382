"""What a case is judged by."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from runner.core.case import Case, Step
from runner.core.expectation import StepFacts
from runner.core.observation import Ending, Misfit, Observation, ObservedStep, ServiceReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is judged: how the process ended, what it sent, and the code it left."""

    ending: Ending
    observation: Observation | Misfit | None
    """As ``reading`` made it of what the worker sent; None when that was nothing."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOut:
    """A step of a case that its worker carried out."""

    step: Step
    observed: ObservedStep
    facts: StepFacts
    """What every expectation of the step may know."""


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
            exit=observed.exit,
        )
        yield CarriedOut(step=step, observed=observed, facts=facts)


def first_line(text: str) -> str:
    """Return the first line of a text, its blanks folded and its end left out when it is long."""
    return re.sub(r"\s+", " ", text.strip().split("\n")[0])[:500]
