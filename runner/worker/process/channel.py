"""What a worker sends of a case: messages over the private pipe, and exceptions as data. Imports no torch."""

import os
import traceback
from collections.abc import Mapping
from typing import Any

from runner.model import protocol

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
    """Return an exception as an observation has it. A context is a cause also below ``from None``, which dynamo writes."""
    text = "".join(traceback.format_exception(error))
    if len(text) > _MAX_TRACEBACK:
        text = f"... the first {len(text) - _MAX_TRACEBACK} characters are left out ...\n{text[-_MAX_TRACEBACK:]}"
    causes: list[dict[str, Any]] = []
    seen, cause = {id(error)}, error.__cause__ or error.__context__
    while cause is not None and id(cause) not in seen and len(causes) < _MAX_CAUSES:
        causes.append(_described(cause, _MAX_CAUSE))
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return {**_described(error, _MAX_MESSAGE), "traceback": text, "phase": phase, "causes": causes}


def _described(error: BaseException, most: int) -> dict[str, Any]:
    try:
        message = str(error)
        if isinstance(error, SystemExit):  # for a text, Python prints it and exits with 1
            code = error.code
            message = f"exit code {int(code or 0)}" if code is None or isinstance(code, int) else f"exit code 1: {code}"
    except Exception as other:  # an exception of a spec may raise anything from its __str__
        message = f"<no text: {type(other).__name__}>"
    path, *ancestors = (f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__)
    return {"type": path, "ancestors": [path, *ancestors], "message": message[:most]}
