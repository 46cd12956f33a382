"""What a worker sends of a case: messages over the private pipe, and exceptions as data. Imports no torch."""

import itertools
import os
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from runner.core import protocol

_MAX_TRACEBACK = 20_000
_MAX_MESSAGE = 200_000
_MAX_CAUSES = 20
_MAX_CAUSE = 20_000


class Channel:
    """The private pipe to the runner."""

    def __init__(self, descriptor: int, word: str) -> None:
        self._word = word
        self._descriptor = descriptor

    def phase(self, name: str) -> None:
        """Send the name of the phase that begins."""
        self._send({"phase": name})

    def step(self, index: int) -> None:
        """Send the index of the step that begins."""
        self._send({"step": index})

    def observation(self, facts: Mapping[str, Any]) -> None:
        """Send the facts. Called once."""
        self._send({"observation": protocol.encode(facts), "word": self._word})

    def _send(self, message: Mapping[str, Any]) -> None:
        data = protocol.dumps(message)
        while data:
            data = data[os.write(self._descriptor, data) :]


def exception(error: BaseException, phase: str) -> dict[str, Any]:
    """Return an exception as an observation has it."""
    text = "".join(traceback.format_exception(error))
    return {
        "type": _path(type(error)),
        "ancestors": [_path(kind) for kind in type(error).__mro__],
        "message": _message(error),
        "traceback": _end_of(text, _MAX_TRACEBACK),
        "phase": phase,
        "causes": [_described(cause) for cause in itertools.islice(_chain(error), _MAX_CAUSES)],
    }


def _described(error: BaseException) -> dict[str, Any]:
    return {"type": _path(type(error)), "ancestors": [_path(kind) for kind in type(error).__mro__], "message": _message(error)[:_MAX_CAUSE]}


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the causes of an exception, the nearest first. A context counts also below ``from None``, which dynamo writes."""
    seen = {id(error)}
    cause = error.__cause__ or error.__context__
    while cause is not None and id(cause) not in seen:
        yield cause
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__


def _end_of(text: str, most: int) -> str:
    return text if len(text) <= most else f"... the first {len(text) - most} characters are left out ...\n{text[-most:]}"


def _message(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return _exit_code(error.code)
    try:
        return str(error)[:_MAX_MESSAGE]
    except Exception as other:  # an exception of a spec may raise anything from its __str__
        return f"<no text: {type(other).__name__}>"


def _exit_code(code: Any) -> str:
    """Describe the exit of Python with this code: for a text, Python prints it and exits with 1."""
    if code is None or isinstance(code, int):
        return f"exit code {int(code or 0)}"
    return f"exit code 1: {str(code)[:_MAX_MESSAGE]}"


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
