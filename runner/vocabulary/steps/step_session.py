"""What steps and the worker that runs them share. Nothing here imports torch."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from runner.model.protocol import Json


class NotCarriedOut(Exception):
    """The preparation of a step failed: its arguments, or the eager reference. The case is an ERROR."""


@contextlib.contextmanager
def needed(what: str) -> Iterator[None]:
    """Convert an exception to ``NotCarriedOut``: it comes from the preparation, not from compiled code."""
    try:
        yield
    except Exception as error:  # code of a spec may raise anything: the case is an ERROR
        raise NotCarriedOut(f"{what} raised {type(error).__name__}: {error}") from error


Session = Any
"""A case in the worker, which runs the steps: ``worker/case/case_session.py`` defines it. Vocabulary imports nothing of the worker."""

Side = Any
"""One of the two sides of a case, compiled or eager: ``worker/case/sides.py`` defines it."""


def values_of(session: Session, args: Json, kwargs: Json) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call, made like inputs."""
    with needed("the arguments"):
        return session.value([] if args is None else args), session.value({} if kwargs is None else kwargs)


def callable_of(session: Session, call: Json) -> Callable[..., Any]:
    """Return the function that a step calls by name."""
    with needed("the name of what is called"):
        function: Callable[..., Any] = session.scope.callable(call)
        return function
