"""A worker that has answered and does not end holds up nothing, keeps its outcome, and is named."""

import pytest

from tests.fakes import prestarted_program
from torch_conformance.model.outcomes import Outcome
from torch_conformance.record.journal import read_run

SPEC = """\
summary: A library call on the host gives what Python gives, whatever its process does afterwards
backends: [host]
exclusive: true
matrix: {way: [ends, sleeps, stopped, parent, ends-too]}
prelude: |
  import os, signal, subprocess, sys, time

  class Last:
      # standard output is flushed last after the answer was sent, and before the process ends

      def __init__(self, act): self.act = act

      def write(self, text): return len(text)

      def flush(self): self.act()

  def stay(way):
      if way == "sleeps":
          sys.stdout = Last(lambda: time.sleep(600))
      if way == "stopped":
          sys.stdout = Last(lambda: os.kill(os.getpid(), signal.SIGSTOP))
      if way == "parent":
          # the template is stopped when the answer has been sent
          sys.stdout = Last(lambda: (os.kill(os.getppid(), signal.SIGSTOP), time.sleep(600)))
      subprocess.Popen(["sleep", "600"], start_new_session=True)
      return 3
steps:
  - api: {call: stay, args: ["{{ way }}"], as: three}
    expect: [{equals: {three: 3}}]
"""


NEW_ZYGOTE = pytest.mark.nightly(
    reason="starts a second zygote; test_hostile_workers stops the zygote in every run of the tests"
)
SLOW = pytest.mark.nightly(reason="each of four cases imports torch; the same is tested with forks")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("more", "stops_zygote"),
    [
        ("", False),
        pytest.param("", True, marks=NEW_ZYGOTE),
        pytest.param("isolation: process\n", False, marks=SLOW),
    ],
)
def test_it_delays_no_other_case_and_is_named(tmp_path, more, stops_zygote):
    spec = SPEC if stops_zygote else SPEC.replace("parent, ", "")
    (tmp_path / "stay.yaml").write_text(spec + more)
    done = prestarted_program("run", tmp_path / "stay.yaml", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    results = {
        result.case_id.partition("way=")[2].rstrip("]"): result
        for result in read_run(tmp_path / "out" / "run.jsonl").results
    }
    assert {result.outcome for result in results.values()} == {Outcome.PASS}
    for way, result in results.items():
        assert result.seconds < 60  # it sleeps for 600
        if way.startswith("ends"):
            assert result.notes == ()
        else:
            assert any("had answered and did not end" in note for note in result.notes), way
            assert f"way={way}] (" in done.stderr
