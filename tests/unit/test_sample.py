"""The recorded run in ``reports/sample``: today's readers take it, and it names nothing of the machine that made it."""

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest

from runner.cli.parser import main
from runner.core.outcomes import Outcome
from runner.record.evidence import alterations
from runner.record.journal import read_run
from tests.fakes import ROOT
from tests.sample import SAMPLE, shortened

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
    kept = {str(path.relative_to(SAMPLE)) for path in (SAMPLE / "cases").rglob("*") if path.is_file()}
    assert kept == {f"{result.folder}/{name}" for result in run.results for name in result.evidence}


def test_merge_takes_it(tmp_path: Path) -> None:
    run = read_run(SAMPLE / "run.jsonl")
    assert run.footer is not None
    assert main(["merge", "reports/sample", "--out", str(tmp_path / "merged")]) == run.footer.exit_code
    merged = read_run(tmp_path / "merged" / "run.jsonl")
    assert {one.case_id: one.outcome for one in merged.results} == {one.case_id: one.outcome for one in run.results}


def test_audit_takes_it_while_its_specs_are_as_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    specs = {file: digest for file, digest in read_run(SAMPLE / "run.jsonl").header.specs.items() if Path(file).name != "waivers.yaml"}
    changed = [file for file, digest in specs.items() if not Path(file).is_file() or sha256(Path(file).read_bytes()).hexdigest() != digest]
    code = main(["audit", "reports/sample"])
    told = capsys.readouterr()
    if changed:
        assert code == 2
        assert any(file in told.err for file in changed), told.err
    else:
        assert code in (0, 1), told.err
        assert "score" in told.out


def test_it_names_no_folder_of_a_machine() -> None:
    own = re.compile(r"(?<![\w.])/(?:work|root|home|Users|opt|mnt|data|tmp|var)/[\w.]")
    for path in SAMPLE.rglob("*"):
        if path.is_file():
            found = [
                line[max(0, match.start() - 60) : match.end() + 60] for line in path.read_text().splitlines() if (match := own.search(line))
            ]
            assert found == [], path
    header = json.loads((SAMPLE / "run.jsonl").read_text().split("\n", 1)[0])
    assert header["command"][0] == "runner/__main__.py"
    assert not header.keys() & {"host", "hostname", "user"}


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (f"{ROOT}/specs/a.yaml:1", "specs/a.yaml:1"),
        ("/a/runs/specs/a.yaml", "specs/a.yaml"),
        (f"{Path(pytest.__file__).parents[1]}/torch/a.py", ".../site-packages/torch/a.py"),
        (f"{json.__file__}", ".../python/json/__init__.py"),
        ('value="Linux-6.1.4-abc-v5-x86_64-with-glibc2.36"', 'value="Linux-6.1.4-x86_64-with-glibc2.36"'),
        ("Linux-6.1.4-x86_64-with-glibc2.36", "Linux-6.1.4-x86_64-with-glibc2.36"),
        ("'/tmp/torch-conformance-9ug5kckh/00018/cache'", "'.../scratch/00018/cache'"),
    ],
)
def test_paths_are_cut(text: str, short: str) -> None:
    assert shortened(text, Path("/a/runs")) == short
