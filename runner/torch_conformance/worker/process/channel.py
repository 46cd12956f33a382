"""What a worker sends of a case over its private pipe: phases, facts, and exceptions as data.

Imports no torch.
"""

import contextlib
import json
import os
import resource
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from torch_conformance.model import protocol
from torch_conformance.vocabulary.steps.step_base import NotCarriedOut

Plan = Mapping[str, Any]
"""The plan of a case, or a part of it: a step, a request for a measurement, arguments, options."""

Observed = dict[str, Any]
"""What was observed of a case, or a part of it, as plain data."""

_MAX_TRACEBACK = 20_000
_MAX_MESSAGE = 200_000
_MAX_CAUSES = 20
_MAX_CAUSE = 20_000


class Channel:
    """The private pipe to the runner."""

    def __init__(self, descriptor: int, word: str) -> None:
        self._word = word
        self._descriptor = descriptor

    def observation(self, facts: Observed) -> None:
        """Send the facts. Called once."""
        self.send({"observation": protocol.encode(facts), "word": self._word})

    def send(self, message: Observed) -> None:
        """Send a message: the ``phase`` or the ``step`` that begins, for the case that the worker
        dies in it.
        """
        data = protocol.dumps(message)
        while data:
            data = data[os.write(self._descriptor, data) :]


class Phases:
    """A stack of phases.

    Time counts for the innermost phase, in seconds. Each change is announced.
    """

    def __init__(self, announce: Callable[[str], None] = lambda phase: None) -> None:
        self.seconds: dict[str, float] = {}
        self.before: dict[str, Callable[[], None]] = {}
        """What is called when a phase is entered."""
        self._announce = announce
        self._stack: list[str] = []
        self._since = 0.0

    @property
    def current(self) -> str:
        """The innermost phase."""
        return self._stack[-1] if self._stack else ""

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Enter a phase.

        An exception that leaves it carries its name; one with slots has no room for it: then the
        step's kind is used.
        """
        self._change([*self._stack, phase])
        try:
            self.before.get(phase, bool)()
            yield
        except BaseException as error:
            if not hasattr(error, "_conformance_phase"):
                with contextlib.suppress(AttributeError):
                    error._conformance_phase = phase  # type: ignore[attr-defined]  # BaseException declares no such attribute
            raise
        finally:
            self._change(self._stack[:-1])

    def _change(self, stack: list[str]) -> None:
        now = time.perf_counter()
        if self._stack:
            self.seconds[self.current] = self.seconds.get(self.current, 0.0) + now - self._since
        self._stack, self._since = stack, now
        if stack:
            self._announce(self.current)


RunSteps = Callable[[Plan, Phases, Channel, Observed], None]
"""Runs the steps of a plan, and adds what was observed to the facts."""


def carry_out(plan_file: str, descriptor: int, word: str, run_steps: RunSteps) -> None:
    """Run the case of a plan, and send its observation, also after an exception of any kind.

    The observation carries ``word``, a token that only this worker received.
    """
    channel = Channel(descriptor, word)
    phases = Phases(lambda phase: channel.send({"phase": phase}))
    plan = json.loads(Path(plan_file).read_bytes())
    facts: Observed = {
        "format": 2,
        "id": plan["id"],
        "digest": plan["digest"],
        "steps": [],
        "error": None,
    }
    with phases("inputs"):
        try:
            run_steps(protocol.decode(plan), phases, channel, facts)
        except BaseException as error:
            # the worker's boundary: code of a spec may raise anything, SystemExit too
            cause = error.__cause__ if isinstance(error, NotCarriedOut) else None
            facts["error"] = exception(
                cause or error, getattr(error, "_conformance_phase", "inputs")
            )
    facts["phases"] = phases.seconds
    facts["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    channel.observation(facts)


def keep_code(folder: str, step: int, texts: Sequence[str]) -> Observed:
    """Write a step's pieces of generated code; return their number and digests as facts: code of a
    later step may change the files.
    """
    pieces = [text.encode("utf-8", "surrogatepass") for text in texts]
    for number, piece in enumerate(pieces):
        Path(folder, f"code-{step}-{number}.txt").write_bytes(piece)
    return {"code": len(pieces), "code_digests": [sha256(piece).hexdigest() for piece in pieces]}


def exception(error: BaseException, phase: str) -> Observed:
    """Return an exception as an observation has it.

    A context is a cause also below ``from None``, which dynamo writes.
    """
    text = "".join(traceback.format_exception(error))
    if len(text) > _MAX_TRACEBACK:
        text = (
            f"... the first {len(text) - _MAX_TRACEBACK} characters are left out "
            f"...\n{text[-_MAX_TRACEBACK:]}"
        )
    causes: list[Observed] = []
    seen, cause = {id(error)}, error.__cause__ or error.__context__
    while cause is not None and id(cause) not in seen and len(causes) < _MAX_CAUSES:
        causes.append(_described(cause, _MAX_CAUSE))
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return {**_described(error, _MAX_MESSAGE), "traceback": text, "phase": phase, "causes": causes}


def exception_text(error: BaseException) -> str:
    """Return class and text of an exception; it may be of a spec, and raise anything from its
    ``__str__``.
    """
    try:
        return f"{type(error).__name__}: {error}"
    except Exception as other:
        # a spec's exception class may raise anything from its __str__, and its text is only shown
        return f"{type(error).__name__}: <no text: {type(other).__name__}>"


def _described(error: BaseException, most: int) -> Observed:
    try:
        message = str(error)
        if isinstance(error, SystemExit):  # for a text, Python prints it and exits with 1
            code = error.code
            message = (
                f"exit code {int(code or 0)}"
                if code is None or isinstance(code, int)
                else f"exit code 1: {code}"
            )
    except Exception as other:  # likewise, also from its code
        message = f"<no text: {type(other).__name__}>"
    path, *ancestors = (f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__)
    return {"type": path, "ancestors": [path, *ancestors], "message": message[:most]}
