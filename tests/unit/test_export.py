"""The reports that ``run`` and ``export`` write to files: from the first second, at the end, and again from a journal."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runner.cli.parser import main
from runner.core.case import Case
from runner.core.exit_codes import ExitCode
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.record.journal import read_run
from tests.conftest import GOOD
from tests.fakes import ROOT
from tests.readers import XSD
from tests.unit.test_ci_formats import is_green
from tests.unit.test_events import Go, Runner, go
from tests.unit.test_junit import etree

FILES = {"ctrf": "c.json", "sarif": "s.sarif", "code_quality": "q.json", "badge": "b.json"}
OPTIONS = ["--junit", "j.xml", "--ctrf", "c.json", "--sarif", "s.sarif", "--code-quality", "q.json", "--badge", "b.json"]
SAMPLE = ROOT / "reports" / "sample"

__all__ = ["go"]  # a fixture of test_events


def colours() -> dict[str, bool]:
    """Return whether each file is green."""
    return {name: is_green(name, json.loads(Path(file).read_text())) for name, file in FILES.items()}


def all_are(green: bool) -> bool:
    return set(colours().values()) == {green}


def done(runner: Runner, case: Case, outcome: Outcome) -> CaseResult:
    """Return a result with the file that it was judged by."""
    made = runner.result(case, outcome)
    path = runner.folder / made.folder / "observation.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    return replace(made, evidence={path.name: hashlib.sha256(b"{}").hexdigest()})


def fails(runner: Runner, case: Case) -> Iterator[CaseResult]:
    yield done(runner, case, Outcome.FAIL if case.name == "two" else Outcome.PASS)


def test_a_run_writes_each_file_and_from_the_first_second_one_that_is_red(go: Go) -> None:
    seen: list[dict[str, bool]] = []

    def play(runner: Runner, case: Case) -> Iterator[CaseResult]:
        seen.append(colours())
        assert "truncated" in Path("c.json").read_text()
        yield runner.result(case, Outcome.PASS)

    assert go(play, *OPTIONS) == ExitCode.OK
    assert [set(one.values()) for one in seen] == [{False}, {False}]
    assert all_are(True)
    assert len(json.loads(Path("c.json").read_text())["results"]["tests"]) == 2
    assert sorted(os.listdir()) == sorted(["out", "specs", "j.xml", *FILES.values()])  # no temporary file, no lock


def test_an_interrupted_run_is_green_in_no_file(go: Go) -> None:
    def play(runner: Runner, case: Case) -> Iterator[CaseResult]:
        if case.name == "two":
            raise KeyboardInterrupt
        yield runner.result(case, Outcome.PASS)

    assert go(play, *OPTIONS) == ExitCode.INTERRUPTED
    assert all_are(False)
    assert json.loads(Path("b.json").read_text())["message"] == "1 failed; incomplete: interrupted"


def test_a_run_whose_journal_was_altered_is_green_in_no_file(go: Go) -> None:
    def play(runner: Runner, case: Case) -> Iterator[CaseResult]:
        with Path("out/run.jsonl").open("a") as stream:
            stream.write("{}\n")
        yield runner.result(case, Outcome.PASS)

    assert go(play, *OPTIONS) == ExitCode.FAILED
    assert all_are(False)


def test_a_red_run_is_red_in_each_file_and_export_makes_them_again(go: Go, capsys: pytest.CaptureFixture[str]) -> None:
    strict = [*OPTIONS, "--junit-flavour", "strict"]
    assert go(fails, *strict) == ExitCode.FAILED
    assert all_are(False)
    for name in ("j.xml", "out/junit.xml"):
        assert XSD.validate(etree.parse(name)), XSD.error_log
    before = {name: Path(name).read_text() for name in ("j.xml", *FILES.values())}
    for name in before:
        Path(name).unlink()
    capsys.readouterr()
    assert main(["export", "out", *strict]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines()[0] == "junit: j.xml"
    for name, then in before.items():
        now = Path(name).read_text()
        if name == "c.json":  # it has the end of the run, and the journal's is later by the time that the files took
            now, then = (json.dumps({**json.loads(text)["results"], "summary": 0}) for text in (now, then))
        assert now == then, name
    export_of_a_journal_that_was_changed(Path("out/run.jsonl"), capsys)


def export_of_a_journal_that_was_changed(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a run that was killed, the files say so; a journal that contradicts itself is refused."""
    text = journal.read_text()
    journal.write_text(text.replace('"outcome": "FAIL"', '"outcome": "PASS"'))
    assert main(["export", "out", "--badge", "new.json"]) == ExitCode.USAGE
    assert "out/run.jsonl:" in capsys.readouterr().err
    assert not Path("new.json").exists()
    lines = text.splitlines(keepends=True)
    journal.write_text("".join(line for line in lines[:-1] if '"FAIL"' not in line))
    assert read_run(journal).truncated
    assert main(["export", "out", *OPTIONS]) == ExitCode.OK
    assert all_are(False)
    assert 'type="truncated"' in Path("j.xml").read_text()
    assert "truncated: the run did not reach its end" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["export", "RUN"], "add one of --junit, --ctrf, --sarif, --code-quality, --badge"),
        (["export", "none", "--badge", "b"], "no run 'none'"),
        (["export", "RUN", "--badge", "x", "--sarif", "./x"], "--sarif and --badge: both name"),
        (["export", "RUN", "--badge", "specs"], "--badge specs: this is a folder; name a file"),
        (["export", "RUN", "--ctrf", "old/run.jsonl"], "--ctrf old/run.jsonl: run.jsonl is the name of journals; name another file"),
        (["run", "specs", "--out", "new", "--code-quality", "specs"], "--code-quality specs: this is a folder; name a file"),
        (["run", "specs", "--out", "new", "--junit", "x", "--sarif", "x"], "--junit and --sarif: both name x; name two files"),
        (["run", "specs", "--out", "new", "--github", "maybe"], "invalid choice: 'maybe'"),
        (["run", "specs", "--out", "new", "--junit-flavour", "loose"], "invalid choice: 'loose'"),
    ],
)
def test_a_mistake_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("specs").mkdir()
    Path("specs/one.yaml").write_text(GOOD)
    assert main([str(SAMPLE) if word == "RUN" else word for word in words]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
    assert {name for name in os.listdir() if name != "old"} == {"specs"}


def test_the_recorded_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a real run: 43 PASS and one waived failure."""
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(SAMPLE), *OPTIONS]) == ExitCode.OK
    assert all_are(True)
    assert json.loads(Path("b.json").read_text())["message"] == "43 passed, 1 expected failures"
    assert json.loads(Path("c.json").read_text())["results"]["summary"]["passed"] == 43
