"""``reset``: clears compiled code and caches of torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from runner.core.protocol import Json
from runner.vocabulary.steps.base import StepKind
from runner.vocabulary.steps.session import Session

GENERATORS = "rng"
"""The word that sets the random generators to the case's seed again; the other words are caches of torch."""


def run(session: Session, arguments: "Reset") -> None:
    """Reset in the order of the words."""
    for word in arguments.items:
        if word == GENERATORS:
            session.reseed()
        else:
            session.torch.RESETS[word]()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset(StepKind):
    """``reset: [dynamo, inductor]``."""

    kind: ClassVar[str] = "reset"
    runs = staticmethod(run)
    items: list[str]

    @classmethod
    def parse(cls, body: Json) -> Self:
        """Read the list of a spec, or the map of a plan."""
        return cls(items=body["items"] if isinstance(body, Mapping) else body)
