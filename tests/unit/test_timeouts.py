"""The time limit of a test: it is held for each test, by one thread."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.fakes import ROOT
from tests.timeouts import WATCHDOG, Watchdog

INTERVAL = 0.01


def test_this_test_has_a_limit(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("timeout") is not None or request.config.getoption("timeout_method") is not None:
        pytest.skip("the command line has another limit, or none")
    assert WATCHDOG._limit is not None
    assert WATCHDOG._thread is not None
    assert WATCHDOG._thread.is_alive()


def test_what_takes_too_long_is_ended_and_the_next_has_its_own_limit() -> None:
    watchdog, first, second = Watchdog(INTERVAL), threading.Event(), threading.Event()
    watchdog.watch(2 * INTERVAL, first.set)
    assert first.wait(60)
    thread = watchdog._thread
    watchdog.watch(2 * INTERVAL, second.set)
    assert second.wait(60)
    assert watchdog._thread is thread


def test_what_ends_in_time_is_released() -> None:
    watchdog, first, second = Watchdog(INTERVAL), threading.Event(), threading.Event()
    watchdog.watch(5 * INTERVAL, first.set)
    watchdog.release()
    watchdog.watch(20 * INTERVAL, second.set)
    assert second.wait(60)
    assert not first.is_set()


@pytest.mark.nightly(reason="it starts pytest; the tests above call the thread that ends it")
def test_a_test_that_hangs_ends_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_hang.py").write_text("import time\ndef test_hang():\n    time.sleep(600)\n")
    words = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.timeouts",
        "-o",
        "timeout=2",
        "-o",
        "timeout_method=thread",
        "--rootdir",
        tmp_path,
        tmp_path,
    ]
    done = subprocess.run([sys.executable, *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "Timeout" in done.stdout
    assert "time.sleep(600)" in done.stdout
