"""The recorded run in ``reports/sample``: today's readers take it, and it names nothing of the
machine that made it.
"""

import json
import re
from pathlib import Path

import pytest

from tests.fakes import ROOT
from tools.sample import SAMPLE
from torch_conformance.cli.parser import main
from torch_conformance.model.outcomes import Outcome
from torch_conformance.record.case_files import alterations
from torch_conformance.record.journal import read_run

ALLOWED = {Outcome.PASS, Outcome.XFAIL, Outcome.UNAVAILABLE}


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_the_sample_is_a_whole_run_with_all_that_it_was_judged_by() -> None:
    run = read_run(SAMPLE / "run.jsonl")
    assert run.has_come_to_its_end
    assert len(run.results) == run.header.selected
    assert {result.outcome for result in run.results} <= ALLOWED
    assert [problem for result in run.results for problem in alterations(SAMPLE, result)] == []
    kept = {
        str(path.relative_to(SAMPLE)) for path in (SAMPLE / "cases").rglob("*") if path.is_file()
    }
    assert kept == {f"{result.folder}/{name}" for result in run.results for name in result.evidence}


def test_merge_takes_it(tmp_path: Path) -> None:
    run = read_run(SAMPLE / "run.jsonl")
    assert run.footer is not None
    assert (
        main(["merge", "reports/sample", "--out", str(tmp_path / "merged")]) == run.footer.exit_code
    )
    merged = read_run(tmp_path / "merged" / "run.jsonl")
    assert {one.case_id: one.outcome for one in merged.results} == {
        one.case_id: one.outcome for one in run.results
    }


def test_it_names_no_folder_of_a_machine() -> None:
    own = re.compile(r"(?<![\w.])/(?:work|root|home|Users|opt|mnt|data|tmp|var)/[\w.]")
    for path in SAMPLE.rglob("*"):
        if path.is_file():
            found = [
                line[max(0, match.start() - 60) : match.end() + 60]
                for line in path.read_text().splitlines()
                if (match := own.search(line))
            ]
            assert found == [], path
    header = json.loads((SAMPLE / "run.jsonl").read_text().split("\n", 1)[0])
    assert header["command"][0] == "runner/torch_conformance/__main__.py"
    assert not header.keys() & {"host", "hostname", "user"}
