"""Nothing waits for ever: every wait for a process or a thread has a bound, in the program, its tests and its benchmarks.

What this cannot see, a read from a pipe, is bounded by the ``timeout`` of every test (pyproject.toml).
"""

import ast
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes import ROOT

METHODS = {"wait": 1, "communicate": 2, "join": 1}
"""What waits, and which of its arguments is the bound when it stands by its place."""

RUNS = ("run", "call", "check_call", "check_output", "getoutput", "getstatusoutput")

BOUND_ELSEWHERE = {
    ("runner/execute/services/__init__.py", "self.process.wait()"): "after SIGKILL",
    ("runner/execute/local/workers.py", "self.process.wait()"): "it has ended: its descriptor is readable",
    ("runner/execute/ray/link.py", "self._process.wait()"): "after SIGKILL",
    ("runner/execute/ray/relay.py", "process.wait()"): "after SIGKILL",
    ("runner/execute/ray/relay.py", "self._pipe().wait()"): "its output is at an end",
    ("runner/run/fleet/joining.py", "process.wait()"): "a node stays until it is stopped; after SIGTERM 'ray start' ends by itself",
    ("runner/system/doctor/findings.py", "child.wait()"): "its process group was killed, or it has ended",
    ("runner/vocabulary/steps/actions.py", "child.join()"): "by the deadline of the case",
    ("runner/vocabulary/steps/actions.py", "child.wait()"): "by the deadline of the case",
}
"""Waits of the program without a bound of their own, and what ends them."""


MAY_WAIT = re.compile(rb"\bsubprocess\b|\.\s*(wait|communicate)\b|\.\s*join\s*\(\s*(\)|#|\*|\w+\s*=)")
"""What a file says that waits without a bound: no other is parsed, for most say ``", ".join(words)`` alone."""


def unbounded(file: Path) -> Iterator[tuple[int, str]]:
    text = file.read_bytes()
    for node in ast.walk(ast.parse(text)) if MAY_WAIT.search(text) else ():
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        name = node.func.attr
        if name not in METHODS and name not in RUNS:
            continue
        owner = ast.unparse(node.func.value)
        is_bounded = any(word.arg in ("timeout", None) for word in node.keywords)
        waits = name in METHODS and len(node.args) < METHODS[name] and not isinstance(node.func.value, ast.Constant)
        if not is_bounded and (waits or (owner == "subprocess" and name in RUNS)):
            yield node.lineno, ast.unparse(node)


FILES = [file for folder in ("runner", "tests", "tools") for file in sorted((ROOT / folder).rglob("*.py"))]


def test_every_wait_has_a_bound() -> None:
    found = [(str(file.relative_to(ROOT)), line, text) for file in FILES for line, text in unbounded(file)]
    allowed = [(file, text) for file, _, text in found if (file, text) in BOUND_ELSEWHERE]
    assert [f"{file}:{line}: {text}" for file, line, text in found if (file, text) not in BOUND_ELSEWHERE] == []
    assert set(allowed) == set(BOUND_ELSEWHERE), "take out what is not there any more"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("process.wait()", 1),
        ("process.wait(5)", 0),
        ("process.wait(timeout=5)", 0),
        ("process.communicate('words')", 1),
        ("process.communicate('words', 5)", 0),
        ("thread.join()", 1),
        ("','.join()", 0),
        ("', '.join(words)", 0),
        ("os.path.join(a, b)", 0),
        ("subprocess.run(command, check=True)", 1),
        ("subprocess.run(command, timeout=5)", 0),
        ("subprocess.run(command, **options)", 0),
        ("subprocess.check_output(command)", 1),
    ],
)
def test_a_wait_without_a_bound_is_seen(text: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(text, encoding="ascii")
    assert len(list(unbounded(tmp_path / "one.py"))) == count


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
