"""``reset``: what was compiled is forgotten."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from runner.core.model import Json
from runner.vocabulary.steps.base import StepKind
from runner.vocabulary.steps.session import Session

GENERATORS = "rng"
"""The word that is no cache of torch's: the generators get the case's seed again."""


def run(session: Session, arguments: "Reset") -> None:
    """Forget, in the order of the words."""
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
        """A spec has a list; a plan has a map of it."""
        return cls(items=body["items"] if isinstance(body, Mapping) else body)
