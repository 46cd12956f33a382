"""One thread that holds the time limit of every test of a process.

pytest-timeout starts and ends a thread for each test, which takes a millisecond of a core, and
there are 13,000 tests. These hooks of it replace the timer alone: what happens when the time is up,
and the limit of each test, remain its own.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest


class Watchdog:
    """Calls what a test gave it, once its time is up."""

    def __init__(self, interval: float = 1.0) -> None:
        self._interval = interval
        self._limit: tuple[float, Callable[[], None]] | None = None
        self._thread: threading.Thread | None = None

    def watch(self, seconds: float, end: Callable[[], None]) -> None:
        """Call ``end`` after so many seconds, and at most one interval later, unless ``release`` is
        called before.
        """
        self._limit = time.monotonic() + seconds, end
        if self._thread is None or not self._thread.is_alive():  # not alive in a fork
            self._thread = threading.Thread(
                target=self._look, name="time limit of tests", daemon=True
            )
            self._thread.start()

    def release(self) -> None:
        self._limit = None

    def _look(self) -> None:
        while True:
            time.sleep(self._interval)
            limit = self._limit
            if limit is not None and time.monotonic() >= limit[0]:
                self._limit = None
                limit[1]()


WATCHDOG = Watchdog()


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: Any, settings: Any) -> bool | None:
    """Watch a test whose limit a thread holds; None where a signal was asked for, for which
    pytest-timeout has its own way.
    """
    import pytest_timeout

    if settings.method != "thread":
        return None
    WATCHDOG.watch(settings.timeout, lambda: pytest_timeout.timeout_timer(item, settings))
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer() -> None:
    """Release the test; pytest-timeout then cancels a timer of its own, if it set one."""
    WATCHDOG.release()
