"""Where a fork would not be safe, cases get new processes, the journal says so, and a person is warned."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.core.outcomes import Outcome
from runner.record.journal import read_run

ROOT = Path(__file__).resolve().parents[2]

SPEC = """\
summary: A library call on the host gives what Python gives
backends: [host]
steps:
  - api: {call: operator.add, args: [1, 2], as: three}
    expect: [{equals: {three: 3}}]
"""

THREAD_AT_START = """\
import sys, threading, time
if "runner.worker.process.zygote" in sys.orig_argv:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
"""


@pytest.mark.nightly(
    reason="imports torch twice; test_engine tests the zygote that has a thread, the refusal, the new processes and the warning one by one"
)
def test_a_template_with_a_thread_is_not_forked(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(THREAD_AT_START, encoding="ascii")
    (tmp_path / "add.yaml").write_text(SPEC, encoding="ascii")
    command = [sys.executable, "-m", "runner", "run", str(tmp_path / "add.yaml"), "--out", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    (result,) = read_run(tmp_path / "out" / "run.jsonl").results
    assert result.outcome is Outcome.PASS
    assert result.isolation == "process"
    assert "warning: cases got a new process each instead of a fork, which is slow: the zygote has 2 threads" in done.stderr
