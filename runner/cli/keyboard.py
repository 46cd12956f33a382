"""Keys that a user types while a program waits: single keys on a terminal, lines elsewhere."""

import contextlib
import os
import select
import sys
import termios
import tty
from typing import Any, Self

from runner.run.watching.loop import Key
from runner.system.signals import Interrupts

_KEYS = {key.value: key for key in Key} | {"\r": Key.AGAIN}


class TypedKeys:
    """Reads keys; a context manager that gives the terminal its settings back."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._input: int | None = None
        self._settings: list[Any] | None = None
        self._text = ""

    def __enter__(self) -> Self:
        with contextlib.suppress(AttributeError, ValueError, OSError):  # a program can be started without standard input
            self._input = sys.stdin.fileno()
            # a background job that changes the terminal is stopped by the system
            if os.isatty(self._input) and os.tcgetpgrp(self._input) == os.getpgrp():
                self._settings = termios.tcgetattr(self._input)
                tty.setcbreak(self._input)  # Ctrl-C still sends its signal
        return self

    def __exit__(self, *_: object) -> None:
        if self._settings is not None and self._input is not None:
            with contextlib.suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(self._input, termios.TCSADRAIN, self._settings)

    def wait(self, seconds: float) -> Key | None:
        """Return the next key, or None after this time; raise ``KeyboardInterrupt`` for a signal."""
        if key := self._next():
            return key
        watched = [self._interrupts.wake, *([] if self._input is None else [self._input])]
        ready, _, _ = select.select(watched, [], [], seconds)
        self._interrupts.clear_wake()
        if self._interrupts.asked:
            raise KeyboardInterrupt
        if self._input in ready:
            self._read(self._input)
        return self._next()

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, 1 << 12)
        except OSError:
            data = b""
        if not data:  # closed: the watch goes on without keys
            self._input = None
        self._text += data.decode("utf-8", "replace")

    def _next(self) -> Key | None:
        """Return the first key that was typed; without a terminal, the first of a line."""
        while self._text:
            if self._settings is not None:
                typed, self._text = self._text[0], self._text[1:]
            else:
                line, end, rest = self._text.partition("\n")
                if not end:
                    return None
                typed, self._text = line.strip()[:1] or "\n", rest
            if found := _KEYS.get(typed):
                return found
        return None
