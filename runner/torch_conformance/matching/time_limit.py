"""A time limit for code in the main thread, such as a regular expression."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
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

    Raises ``RuntimeError`` outside of the main thread, because Python runs signal handlers only
    there. ``re`` checks for signals while it matches. The former handler and timer are restored at
    the end. An outer limit that ends earlier fires first.
    """
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise ValueError(f"a time limit is a positive number of seconds, not {seconds}")
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a time limit can be set only in the main thread")
    is_armed = True
    now = time.monotonic()
    deadline = now + seconds
    outer_left, outer_interval = signal.getitimer(signal.ITIMER_REAL)
    outer_due = now + outer_left if outer_left else None

    def on_signal(signum: int, frame: FrameType | None) -> None:
        nonlocal outer_due
        if not is_armed:
            return
        if time.monotonic() >= deadline - _EARLY:
            raise PatternTooSlow(seconds)
        # the replaced timer is due: its handler gets the signal, as if this limit did not exist
        outer_due = time.monotonic() + outer_interval if outer_interval else None
        _set_timer(deadline if outer_due is None else min(deadline, outer_due))
        if callable(former):
            former(signum, frame)
        elif former == signal.SIG_DFL:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGALRM)

    former = signal.getsignal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, on_signal)
    _set_timer(deadline if outer_due is None else min(deadline, outer_due))
    try:
        try:
            yield
        finally:
            # From here on the alarm is ignored. If it fires just before this line, the outer
            # finally still cleans up.
            is_armed = False
    finally:
        is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        if former is not None:
            signal.signal(signal.SIGALRM, former)
        if outer_due is not None:
            _set_timer(outer_due, outer_interval)


def _set_timer(due: float, interval: float = 0.0) -> None:
    """Let SIGALRM come at a time of the monotonic clock."""
    signal.setitimer(signal.ITIMER_REAL, max(due - time.monotonic(), 1e-6), interval)
