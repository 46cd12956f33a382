"""A case that outlives its deadline says where it stood, wherever it hangs."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from junitparser import JUnitXml

from tests.fakes import ROOT, prestarted_program
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import read_run

pytestmark = pytest.mark.torch

SPEC = ROOT / "tests" / "specs" / "hangs" / "hang.yaml"
LINES = SPEC.read_text().splitlines()


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hangs") / "out"
    done = prestarted_program("run", SPEC, "--out", folder)
    assert done.returncode == 1, done.stderr
    return folder


@pytest.fixture(scope="module")
def results(out: Path) -> Mapping[str, CaseResult]:
    return {
        str(result.case_id).partition("way=")[2].rstrip("]"): result
        for result in read_run(out / "run.jsonl").results
    }


STANDS = {
    "python": ("wait_in_python", "time.sleep(0.1)"),
    "c": ("wait_in_c", "library.pause()"),
    "gil": ("wait_in_c", "library.pause()"),
    "thread": ("act", "thread.join()"),
    "loud": ("wait_in_python", "time.sleep(0.1)"),
}


@pytest.mark.parametrize("way", STANDS)
def test_the_line_of_the_spec_is_named(results, way):
    function, text = STANDS[way]
    result = results[way]
    assert result.outcome is Outcome.TIMEOUT
    assert result.reason.startswith(
        f"outlived its deadline while in phase 'api', in {function} at line "
    )
    assert text in LINES[result.position.line - 1]
    (verdict,) = result.failed
    assert verdict.position == result.position
    assert f'hang.yaml", line {result.position.line} in {function}' in verdict.detail
    assert verdict.detail.startswith(
        "Python stack when the time was up (most recent call first):\nCurrent thread "
    )


def test_the_other_threads_are_shown_too(results):
    assert results["thread"].verdicts[0].detail.count("(most recent call first):\n") == 3
    assert "in wait_in_python" in results["thread"].verdicts[0].detail


@pytest.mark.parametrize("way", ["blocked", "stale"])
def test_where_no_stack_can_be_had_that_is_said(results, way):
    """Also where the case printed one itself before its time was up."""
    result = results[way]
    assert (result.outcome, result.reason) == (
        Outcome.TIMEOUT,
        "outlived its deadline while in phase 'api'",
    )
    assert result.verdicts[0].detail.startswith("no Python stack could be had")


def test_the_reports_show_the_stack(out, results):
    cases = {
        case.name: case for suite in JUnitXml.fromfile(str(out / "junit.xml")) for case in suite
    }
    (error,) = cases[str(results["c"].case_id)].result
    assert error.type == "timeout"
    assert "Python stack when the time was up" in error.text
    assert "in wait_in_c" in error.text
    assert int(cases[str(results["c"].case_id)]._elem.get("line")) == results["c"].position.line
    assert "\x1b" not in (out / "junit.xml").read_text()
