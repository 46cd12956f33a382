"""Tests and the children that they start have the signals that they need, whatever started them."""

import os
import signal
import subprocess
import sys

import pytest

from tests.fakes import ROOT

IGNORED = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGUSR1])
os.execv(sys.executable, [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *sys.argv[1:]])
"""


@pytest.mark.skipif("CONFORMANCE_NESTED" in os.environ, reason="this is the test that it starts")
def test_tests_that_a_script_starts_in_the_background_set_the_signals_that_they_need() -> None:
    """There SIGINT is ignored, under nohup SIGHUP, and some parents ignore or block more."""
    tests = ["tests/unit/test_waits.py::test_children_get_the_usual_signals", "tests/unit/test_interrupt.py", "tests/unit/test_orphans.py"]
    variables = {**os.environ, "CONFORMANCE_NESTED": "1"}
    done = subprocess.run(
        [sys.executable, "-c", IGNORED, *tests], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_children_get_the_usual_signals() -> None:
    code = (
        "import signal; print([signal.getsignal(n).name for n in (1, 15, 17)], signal.getsignal(2).__name__, signal.pthread_sigmask(0, []))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "['SIG_DFL', 'SIG_DFL', 'SIG_DFL'] default_int_handler set()\n"
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=60) == -signal.SIGTERM
