"""The messages of one case: lines over its own pipe, bounded; only the first observation counts."""

import os
from typing import Any

from runner.core.protocol import MAX_MESSAGE, loads


class Inbox:
    """The runner's end of a case's pipe. Its messages are untrusted."""

    def __init__(self, descriptor: int, word: str) -> None:
        os.set_blocking(descriptor, False)
        self._word = word
        self.descriptor = descriptor
        self.phase = "import"
        self.step: int | None = None
        """The step that it began last, from 0."""
        self.observation: Any = None
        self.has_answer = False
        self.problem = ""
        """How the worker broke the protocol; no further message is read then."""
        self.is_flooded = False
        self.is_at_end = False
        """Whether the stream has ended. The descriptor stays open, so that its number is not reused while the engine watches it."""
        self._is_closed = False
        self._buffer = bytearray()
        self._received = 0

    @property
    def is_cut_off(self) -> bool:
        """Whether the last message is incomplete."""
        return bool(self._buffer)

    def read(self) -> bool:
        """Read available data; return whether there was any. At the end of the stream ``is_at_end`` is set."""
        if self.is_at_end:
            return False
        try:
            data = os.read(self.descriptor, 1 << 20)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.is_at_end = True
            return False
        self._received += len(data)
        if self._received > MAX_MESSAGE:
            self.is_flooded = True
            if not self.has_answer:
                self.problem = f"the worker sent more than {MAX_MESSAGE >> 20} MiB"
        if not self.problem:
            self._take(data)
        return True

    def drain(self) -> None:
        """Read all available data, up to the limit: a child of a shared worker may still write."""
        while not self.is_at_end and not self.is_flooded and self.read():
            pass

    def close(self) -> None:
        """Close the pipe, which the engine no longer watches."""
        self.is_at_end = True
        if not self._is_closed:
            self._is_closed = True
            os.close(self.descriptor)

    def _take(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._take_message(bytes(self._buffer) + line)
            self._buffer.clear()
            if self.problem:
                return
        self._buffer += rest

    def _take_message(self, line: bytes) -> None:
        try:
            message = loads(line)
        except ValueError as error:
            if self.has_answer:
                return  # a child with the pipe may write until it is killed, so later bytes are ignored: reading them would be a race
            self.problem = f"the worker sent a message that is {error}"
            return
        if not isinstance(message, dict):
            self.problem = "the worker sent a message that is no map"
        elif "phase" in message:
            self.phase = str(message["phase"])[:100]
        elif "step" in message:
            self.step = message["step"] if isinstance(message["step"], int) else None
        elif "observation" in message:
            if self.has_answer:
                self.problem = "the worker answered twice"
                return
            if message.get("word") != self._word:
                self.problem = "an observation came without the word that its worker was given: code of the case sent it"
                return
            self.has_answer = True
            self.observation = message["observation"]
