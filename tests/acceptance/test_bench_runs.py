"""Bench steps as a person meets them: left out and counted, run when asked for, never mixed in one run."""

import json
from pathlib import Path

import pytest

from runner.record.journal import read_run
from tests.fakes import prestarted_program

pytestmark = pytest.mark.torch

TIMED = """\
summary: Twice a vector
backends: [cpu]
function: "def fn(x): return x * 2"
inputs: [{ones: [4]}]
steps:
  - call: {}
    expect: [{close: {to: eager}}]
  - bench: {repeat: 1}
  - bench: {repeat: 1, eager: true}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("benches")
    (place / "timed.yaml").write_text(TIMED, encoding="ascii")
    return place


@pytest.mark.nightly(reason="times kernels; tests/unit/test_bench.py tests the step, and that it is left out")
def test_bench_steps_run_only_when_they_are_asked_for(place: Path) -> None:
    done = prestarted_program("run", place / "timed.yaml", "--out", place / "without")
    assert done.returncode == 0, done.stderr
    assert "2 bench steps of 1 case left out: nothing was timed (run --bench times them)" in done.stdout
    run = read_run(place / "without" / "run.jsonl")
    (result,) = run.results
    assert (result.timings, result.benches_left_out, run.header.options["bench"]) == ((), 2, "")
    assert "--bench" not in result.repro
    plan = json.loads((place / "without" / result.folder / "plan.json").read_bytes())
    assert [step["kind"] for step in plan["steps"]] == ["call"]

    timed = prestarted_program("run", place / "timed.yaml", "--bench", "--out", place / "with")
    assert timed.returncode == 0, timed.stderr
    assert "left out" not in timed.stdout
    run = read_run(place / "with" / "run.jsonl")
    (other,) = run.results
    assert ([timing.form for timing in other.timings], other.benches_left_out) == (["compiled", "compiled", "eager"], 0)
    assert run.header.options["bench"] == "True"
    assert "--bench" in other.repro
    assert other.digest == result.digest

    for name in ("without", "with"):
        audited = prestarted_program("audit", place / name)
        assert "of 1 cases" in audited.stdout, audited.stderr


@pytest.mark.nightly(reason="times kernels; tests/unit/test_bench.py tests the step, and that it is left out")
def test_a_run_is_resumed_with_the_same_choice(place: Path) -> None:
    journal = place / "with" / "run.jsonl"
    cut = place / "cut"
    cut.mkdir()
    (cut / "run.jsonl").write_text(journal.read_text().splitlines()[0] + "\n", encoding="ascii")
    done = prestarted_program("run", place / "timed.yaml", "--resume", cut)
    assert done.returncode == 2
    assert "--bench is none now, 'True' then" in done.stderr


def test_explain_says_that_a_bench_must_be_asked_for(place: Path) -> None:
    text = prestarted_program("explain", "timed*", place / "timed.yaml").stdout
    assert "nothing runs beside it under --bench" in text
    assert text.count("  # with run --bench only") == 2
