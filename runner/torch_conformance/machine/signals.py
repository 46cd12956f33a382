"""Signals as requests to a run: start no more cases, or stop now.

The signal handler only counts. A pipe wakes the waiting code, which reads the count at a safe
point. So no journal line is torn and every report is written. This module imports nothing of this
program.
"""

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any, Self

START_NO_MORE = 1
STOP_NOW = 2

_AT_ONCE = (signal.SIGTERM, signal.SIGHUP)
"""These signals mean "stop now": SIGTERM leaves only seconds, and after SIGHUP the terminal shows
nothing.
"""


class Interrupts:
    """Count the requests while the context is entered; ``wake`` becomes readable with each signal.

    The first Ctrl-C means "start no more cases", the second "stop now", and the third raises
    ``KeyboardInterrupt`` at once. A signal that was ignored when the program started (``nohup``, a
    background job) stays ignored.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.wake, self._write = os.pipe()
        for descriptor in (self.wake, self._write):
            os.set_blocking(descriptor, False)
        self._former: dict[int, Any] = {}
        self._former_wakeup = -1
        self._is_set = False

    def __enter__(self) -> Self:
        self._is_set = (
            threading.current_thread() is threading.main_thread()
        )  # only the main thread can set handlers
        if self._is_set:
            self._former_wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            for number in (signal.SIGINT, *_AT_ONCE):
                if (former := signal.getsignal(number)) not in (signal.SIG_IGN, None):
                    self._former[number] = former
                    signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)
        if self._is_set:
            signal.set_wakeup_fd(self._former_wakeup)
        self._former.clear()
        for descriptor in (self.wake, self._write):
            os.close(descriptor)

    def clear_wake(self) -> None:
        """Make ``wake`` unreadable until the next signal."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake, 1 << 12)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if number in _AT_ONCE:
            self.asked = STOP_NOW
        elif self.asked < STOP_NOW:
            self.asked += 1
        else:
            raise KeyboardInterrupt
