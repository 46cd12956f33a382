"""A time limit for code in the main thread, such as a regular expression."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_EARLY = 1e-3
"""In seconds. A timer that fires this much before its deadline is on time, because clocks round."""


class PatternTooSlow(Exception):
    """A pattern exceeded its time limit; nothing is known about the text."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"pattern too slow: no answer within {seconds:g} s")
        self.seconds = seconds


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``PatternTooSlow`` in the body if it runs longer than ``seconds``.

    Raises ``RuntimeError`` outside of the main thread, because Python runs signal handlers only there. ``re`` checks for signals while it
    matches. The former handler and timer are restored at the end. An outer limit that ends earlier fires first.
    """
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise ValueError(f"a time limit is a positive number of seconds, not {seconds}")
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a time limit can be set only in the main thread")
    alarm = _Alarm.set(seconds)
    try:
        try:
            yield
        finally:
            # From here on the alarm is ignored. If it fires just before this line, the outer finally still cleans up.
            alarm.armed = False
    finally:
        alarm.restore()


_Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None


@dataclass(slots=True, kw_only=True)
class _Alarm:
    """A running time limit, with the timer and handler that it replaced."""

    seconds: float
    deadline: float
    outer_due: float | None
    """The due time of the replaced timer; None if there is none."""
    outer_interval: float
    former: _Handler = None
    armed: bool = True

    @classmethod
    def set(cls, seconds: float) -> "_Alarm":
        now = time.monotonic()
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        alarm = cls(seconds=seconds, deadline=now + seconds, outer_due=now + left if left else None, outer_interval=interval)
        alarm.former = signal.signal(signal.SIGALRM, alarm.on_signal)
        alarm.start_timer()
        return alarm

    def start_timer(self) -> None:
        """Start the timer for the limit that ends first."""
        due = self.deadline if self.outer_due is None else min(self.deadline, self.outer_due)
        signal.setitimer(signal.ITIMER_REAL, max(due - time.monotonic(), 1e-6))

    def on_signal(self, signum: int, frame: FrameType | None) -> None:
        if not self.armed:
            return
        if time.monotonic() < self.deadline - _EARLY:
            self.forward(signum, frame)
            return
        raise PatternTooSlow(self.seconds)

    def forward(self, signum: int, frame: FrameType | None) -> None:
        """Forward the signal to the replaced handler, as if this limit did not exist."""
        self.outer_due = time.monotonic() + self.outer_interval if self.outer_interval else None
        self.start_timer()
        if callable(self.former):
            self.former(signum, frame)
        elif self.former == signal.SIG_DFL:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGALRM)

    def restore(self) -> None:
        self.armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self.former is not None:
            signal.signal(signal.SIGALRM, self.former)
        if self.outer_due is not None:
            signal.setitimer(signal.ITIMER_REAL, max(self.outer_due - time.monotonic(), 1e-6), self.outer_interval)
