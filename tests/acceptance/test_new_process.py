"""A spec that asks for a new process gets one, and sees what torch does once a process."""

import pytest

from runner.core.outcomes import Outcome
from runner.record.journal import read_run
from tests.conftest import GOOD
from tests.fakes import program

SPEC = GOOD.replace("expect: [{close: {to: eager}}]\n", "expect: [{close: {to: eager}}, {calls: {of: seen, count: COUNT}}]\n") + (
    "prelude: |\n  def note(*args, **kwargs): return {}\nspies: {seen: {function: torch.backends.mkldnn.is_available, record: note}}\n"
)


@pytest.mark.nightly(reason="imports torch twice; test_run tests a case in a new process")
@pytest.mark.torch
def test_a_spy_sees_what_is_done_once(tmp_path):
    (tmp_path / "fork.yaml").write_text(SPEC.replace("COUNT", "0"))
    (tmp_path / "process.yaml").write_text(SPEC.replace("COUNT", "{min: 1}") + "isolation: process\n")
    done = program("run", tmp_path, "--out", tmp_path / "out")
    results = {result.name: result for result in read_run(tmp_path / "out" / "run.jsonl").results}
    assert {name: result.outcome for name, result in results.items()} == dict.fromkeys(["fork", "process"], Outcome.PASS), done.stdout
    assert results["process"].isolation == "process"
    assert results["fork"].isolation == "fork"
