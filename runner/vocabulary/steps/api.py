"""``api``: a library function, or one of the prelude, is called."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from runner.core.protocol import Json
from runner.vocabulary.steps.base import Callee, StepKind
from runner.vocabulary.steps.session import Session, callable_of, values_of
from runner.vocabulary.steps.traits import Traits


def run(session: Session, arguments: "Api") -> None:
    """Call it."""
    function = callable_of(session, arguments.call)
    args, kwargs = values_of(session, arguments.args, arguments.kwargs)
    with session.phases("api"):
        session.output = function(*args, **kwargs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api(StepKind):
    """``api: {call: NAME, args: [...], kwargs: {...}, as: NAME}``."""

    kind: ClassVar[str] = "api"
    traits: ClassVar[Traits] = Traits(has_result=True, claims=True)
    runs = staticmethod(run)
    call: Json
    args: Json = None
    kwargs: Json = None
    as_: str | None = None

    @property
    def callees(self) -> Iterator[Callee]:
        """The function."""
        yield Callee(call=self.call, args=self.args, kwargs=self.kwargs)
