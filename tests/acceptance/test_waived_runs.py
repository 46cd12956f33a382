"""Waivers in real runs: what is known to fail, what passes all the same, and what is over."""

from pathlib import Path

import pytest
from junitparser import Failure, JUnitXml, Skipped

from tests.fakes import ROOT, prestarted
from tests.ran import called
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import WaiverEffect
from torch_conformance.record.journal import Run, read_run

pytestmark = pytest.mark.torch

JUDGED = ROOT / "tests" / "specs" / "judged"
CRASHES = "host-crash[backend=host,way=segv]"
FAILS = "host-fail[backend=host,value=a%20b]"
PASSES = "host-pass[backend=host,value=1]"

WAIVERS = """\
waivers:
  - cases: host-fail*
    when: {torch: ">=2.0"}
    failure: {type: equals, match: "a b"}
    reason: A library call answers too loud
    issue: https://example.org/issues/1
    until: 2999-12-31
  - cases: host-crash[backend=host,way=segv]
    failure: {type: crash, match: SIGSEGV}
    reason: A library call dies
    issue: https://example.org/issues/2
    until: 2999-12-31
"""
OF_A_PASS = """\
waivers:
  - cases: host-pass*value=1]
    failure: {type: equals, match: "1"}
    reason: What was mended since
    issue: https://example.org/issues/3
    until: 2999-12-31
  - cases: host-past*
    failure: {type: equals, match: "1"}
    reason: What stands in no suite
    issue: https://example.org/issues/4
    until: 2999-12-31
"""


def ran(tmp_path: Path, text: str, *names: str) -> tuple[int, str, str, Run]:
    (tmp_path / "known.yaml").write_text(text)
    select = [word for name in names for word in ("--select", name)]
    out = tmp_path / "out"
    done = called(
        "run",
        JUDGED,
        *select,
        "--waivers",
        tmp_path / "known.yaml",
        "--jobs",
        "1",
        "--out",
        out,
        env=prestarted(),
    )
    return done.returncode, done.stdout, done.stderr, read_run(out / "run.jsonl")


def junit_of(tmp_path: Path) -> dict[str, list[object]]:
    return {
        case.name: case.result
        for suite in JUnitXml.fromfile(str(tmp_path / "out" / "junit.xml"))
        for case in suite
    }


def test_known_failures_beside_a_pass_are_a_success(tmp_path: Path) -> None:
    code, stdout, stderr, run = ran(tmp_path, WAIVERS, FAILS, CRASHES, PASSES)
    assert (code, "warning" in stderr) == (0, False), stderr
    results = {str(result.case_id): result for result in run.results}
    assert {name: result.outcome for name, result in results.items()} == {
        FAILS: Outcome.XFAIL,
        CRASHES: Outcome.XFAIL,
        PASSES: Outcome.PASS,
    }
    assert results[FAILS].reason == "A library call answers too loud (https://example.org/issues/1)"
    assert [verdict.kind for verdict in results[FAILS].failed] == ["equals"]
    assert [(note.effect, note.position.line) for note in results[CRASHES].waivers] == [
        (WaiverEffect.MATCHED, 8)
    ]
    assert results[PASSES].waivers == ()
    assert str(tmp_path / "known.yaml") in run.header.specs
    assert (
        f"XFAIL  '{CRASHES}': A library call dies (https://example.org/issues/2)"
        in stdout.splitlines()
    )
    assert "      2  XFAIL" in stdout.splitlines()
    junit = junit_of(tmp_path)
    (skipped,) = junit[FAILS]
    assert isinstance(skipped, Skipped)
    assert (skipped.type, skipped.message) == ("equals", f"xfail: {results[FAILS].reason}")
    assert junit[PASSES] == []


def test_a_pass_that_is_waived_fails_the_run_and_says_what_to_remove(tmp_path: Path) -> None:
    code, stdout, stderr, run = ran(tmp_path, OF_A_PASS, "host-pass*")
    assert code == 1
    known = tmp_path / "known.yaml"
    assert f"warning: {known}:7:5: the waiver of 'host-past*' is for none of the" in stderr
    found = {str(result.case_id): result for result in run.results}
    assert sorted(result.outcome.label for result in found.values()) == ["PASS", "PASS", "XPASS"]
    reason = (
        f"passed, though waived: remove the waiver at {known}:2:5 (https://example.org/issues/3), "
        "or narrow the glob"
    )
    assert found[PASSES].reason == reason
    assert reason in stdout
    assert f"--waivers {known}" in found[PASSES].repro
    (failure,) = junit_of(tmp_path)[PASSES]
    assert isinstance(failure, Failure)
    assert (failure.type, failure.message) == ("xpass", reason)
