"""What a person or a system asks of a run with signals: to begin nothing more, or to stop now.

Nothing is done within a signal's handler but to count: whoever waits is woken by a pipe and looks at the count where that is safe, so
that no line of a journal is torn and no report is left out. Imports nothing of this program.
"""

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any, Self

BEGIN_NOTHING = 1
STOP_NOW = 2

_AT_ONCE = (signal.SIGTERM, signal.SIGHUP)
"""A system that asks waits for seconds only; a terminal that was closed shows nothing any more."""


class Interrupts:
    """Counts what was asked while it is entered; ``wake`` becomes readable with each signal.

    Ctrl-C asks once to begin nothing, twice to stop now, and a third time ends the program where it stands. A signal that the
    program was started to ignore (``nohup``, a job in the background) stays ignored.
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
        self._is_set = threading.current_thread() is threading.main_thread()  # Python lets no other thread set handlers
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

    def forget_wake(self) -> None:
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
