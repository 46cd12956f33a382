"""Questions that the checks of a spec ask about files outside of the specs: installed packages, their modules, the source of torch.

A question is a function of one text with an answer of plain data. While ``recorded`` runs a function, the questions that it asks are noted
with their answers, so that a later process can ask them again (``ask``) and see whether a result that depends on them still holds.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from runner.core.protocol import Json

Questions = Mapping[tuple[str, str], Json]
"""The answers by the name of the question and its text."""

Answer = TypeVar("Answer")

_NOTED: ContextVar[dict[tuple[str, str], Json] | None] = ContextVar("_NOTED", default=None)
_ASK: dict[str, Callable[[str], object]] = {}


def question(name: str) -> Callable[[Callable[[str], Answer]], Callable[[str], Answer]]:
    """Return a decorator that notes the calls of a function of one text. The answer is plain data, or tuples of it."""

    def decorate(function: Callable[[str], Answer]) -> Callable[[str], Answer]:
        _ASK[name] = function

        @functools.wraps(function)
        def asked(text: str) -> Answer:
            answer = function(text)
            noted = _NOTED.get()
            if noted is not None:
                noted[name, text] = plain(answer)
            return answer

        return asked

    return decorate


@contextmanager
def recorded() -> Iterator[dict[tuple[str, str], Json]]:
    """Note the questions that are asked in this block. They are noted for an enclosing block too."""
    noted: dict[tuple[str, str], Json] = {}
    outer = _NOTED.get()
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)
        if outer is not None:
            outer.update(noted)


def repeat(questions: Questions) -> None:
    """Note questions whose answer was cached in this process, so that the function that asked was not called again."""
    noted = _NOTED.get()
    if noted is not None:
        noted.update(questions)


def ask(name: str, text: str) -> Json:
    """Ask a question again; raise ``KeyError`` for one that is not known."""
    return plain(_ASK[name](text))


def plain(answer: object) -> Json:
    """Return an answer as JSON gives it back."""
    match answer:
        case None | bool() | int() | float() | str():
            return answer
        case tuple() | list():
            return [plain(part) for part in answer]
    raise TypeError(f"an answer is plain data, not {type(answer).__name__}")
