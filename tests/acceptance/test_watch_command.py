"""``watch`` as a person runs it, without a terminal: real workers that pass, fail, crash, hang,
flood, and kill their zygote.
"""

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import prestart
from tests.fakes import prestarted

pytestmark = pytest.mark.torch

SPEC = """\
summary: A call returns what it returns
backends: [host]
prelude: |
  import os, signal, sys, time
  def value():
      BODY
      return 1
steps: [{api: {call: value, as: found}, expect: [{equals: {found: 1}}]}]
"""


class Session:
    """A running ``watch``."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.spec = folder / "one.yaml"
        self.save("pass")
        command = [
            sys.executable,
            "-m",
            "torch_conformance",
            "watch",
            str(folder),
            "--timeout",
            "1",
            *arguments,
        ]
        environment = prestarted(PYTHONUNBUFFERED="1")
        self.process = subprocess.Popen(
            command,
            cwd=folder.parent,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def save(self, body: str) -> None:
        self.spec.write_text(SPEC.replace("BODY", body))

    def key(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def until(self, words: str = "waiting for a change", seconds: float = 300) -> str:
        """Return the output up to a line with these words."""
        assert self.process.stdout is not None
        bound = threading.Timer(seconds, self.process.kill)
        bound.start()
        lines: list[str] = []
        try:
            while not lines or words not in lines[-1]:
                lines.append(self.process.stdout.readline())
                assert lines[-1], (
                    f"it ended, or {seconds} s went by, without '{words}':\n{''.join(lines)}"
                )
        finally:
            bound.cancel()
        return "".join(lines)

    def tries(self, body: str) -> str:
        self.save(body)
        return self.until()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    folder = tmp_path / "specs"
    folder.mkdir()
    made = Session(folder)
    yield made
    made.process.kill()
    made.process.communicate(timeout=60)


def zygotes() -> int:
    """Return how many zygotes the runs of this process have started."""
    return len(re.findall(r"^(?:forked|refused):", prestart.log(), re.MULTILINE))


@pytest.mark.nightly(
    reason="test_watch tests the loop, and test_executor an executor that is used again"
)
def test_each_try_has_the_outcome_that_a_run_has(session: Session) -> None:
    assert "1  PASS" in session.until()
    before = zygotes()
    assert before
    assert "FAIL  'one[backend=host]'" in session.tries("return 2")
    assert "fixed: one[backend=host]" in session.tries("pass")
    assert "CRASH" in session.tries("os.abort()")
    assert "TIMEOUT" in session.tries("time.sleep(100)")
    assert "1  PASS" in session.tries("sys.stdout.write('x' * (20 << 20))")
    session.key("")
    assert "1  PASS" in session.until()
    assert zygotes() == before  # every try was a fork of the same process
    assert "CRASH" in session.tries("os.kill(os.getppid(), signal.SIGKILL)")
    assert "1  PASS" in session.tries("pass")
    assert zygotes() > before
    session.process.send_signal(signal.SIGINT)
    assert session.process.wait(timeout=60) == 130
