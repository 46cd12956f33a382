"""What ``report RUN`` writes again from a journal: the same JUnit as the run wrote, and never a
green one of a run that was cut off.
"""

import json
import os
from pathlib import Path

import jsonschema
import pytest

from tests.conftest import GOOD
from tests.fakes import ROOT, write_specs
from tests.readers import XSD, jenkins_junit
from tests.unit.report.test_events import Go, execution, go
from tests.unit.report.test_junit import etree
from torch_conformance.cli.parser import main
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.record.journal import read_run

SAMPLE = ROOT / "reports" / "sample"

__all__ = ["go"]  # a fixture of test_events


@pytest.mark.parametrize("flavour", ["default", "strict"])
def test_a_red_run_is_written_again_as_it_was(
    go: Go, flavour: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(job):
        return execution(job, Outcome.FAIL if "two[" in job.plan["id"] else Outcome.PASS)

    assert go(fails, "--junit", "j.xml", "--junit-flavour", flavour) == ExitCode.FAILED
    then = Path("j.xml").read_text()
    assert (XSD.validate(etree.parse("j.xml")), XSD.validate(etree.parse("out/junit.xml"))) == (
        (flavour == "strict"),
    ) * 2
    Path("j.xml").unlink()
    capsys.readouterr()
    assert main(["report", "out", "--junit", "j.xml", "--junit-flavour", flavour]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == ["out/index.html", "written: j.xml"]
    assert Path("j.xml").read_text() == then
    journal = Path("out/run.jsonl")
    text = journal.read_text()
    journal.write_text(text.replace('"outcome": "FAIL"', '"outcome": "PASS"'))
    assert main(["report", "out", "--junit", "new.xml"]) == ExitCode.USAGE
    assert "out/run.jsonl:" in capsys.readouterr().err
    assert not Path("new.xml").exists()
    journal.write_text(
        "".join(line for line in text.splitlines(keepends=True)[:-1] if '"FAIL"' not in line)
    )
    assert read_run(journal).footer is None
    assert main(["report", "out", "--junit", "j.xml"]) == ExitCode.OK
    assert 'type="truncated"' in Path("j.xml").read_text()
    assert "truncated: the run did not reach its end" in capsys.readouterr().err


RELAY: dict[str, object] = {
    "type": "object",
    "required": ["conclusion", "test-results", "failed-tests-detail"],
    "additionalProperties": False,
    "properties": {
        "conclusion": {"enum": ["success", "failure"]},
        "test-results": {
            "required": ["passed", "failed", "skipped"],
            "additionalProperties": {"type": "integer", "minimum": 0},
        },
        "failed-tests-detail": {
            "maxItems": 1000,
            "items": {
                "required": ["name", "classname", "message", "stacktrace", "duration"],
                "properties": {
                    "name": {"minLength": 1},
                    "classname": {"minLength": 1},
                    "message": {"maxLength": 1024},
                    "stacktrace": {"maxLength": 4096},
                    "duration": {"type": "number", "minimum": 0},
                },
                "additionalProperties": False,
            },
        },
    },
}
"""The inputs of PyTorch's action, as its text describes them."""


@pytest.mark.parametrize("bad", [Outcome.FAIL, Outcome.CRASH, None])
def test_the_relay_of_pytorch_gets_counts_and_failures(go: Go, bad: Outcome | None) -> None:
    def answer(job):
        is_bad = bad is not None and "two[" in job.plan["id"]
        return execution(job, bad if is_bad else Outcome.PASS)

    code = go(answer)
    assert main(["report", "out", "--hud", "hud.json"]) == ExitCode.OK
    sent = json.loads(Path("hud.json").read_text())
    jsonschema.validate(sent, RELAY)
    ids = {result.case_id: result.outcome for result in read_run(Path("out/run.jsonl")).results}
    failed = [case_id for case_id, outcome in ids.items() if outcome.is_failure]
    assert bool(failed) is (bad is not None)
    assert sent["conclusion"] == ("failure" if code else "success")
    assert sent["test-results"] == {
        "passed": len(ids) - len(failed),
        "failed": len(failed),
        "skipped": 0,
    }
    assert [detail["name"] for detail in sent["failed-tests-detail"]] == failed
    journal = Path("out/run.jsonl")
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
    main(["report", "out", "--hud", "hud.json"])
    assert json.loads(Path("hud.json").read_text())["conclusion"] == "failure"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "none", "--junit", "b"], "no run 'none'"),
        (["report", "RUN", "--junit", "specs"], "--junit specs: this is a folder; name a file"),
        (
            ["report", "RUN", "--junit", "old/run.jsonl"],
            "--junit old/run.jsonl: run.jsonl is the name of journals; name another file",
        ),
        (
            ["run", "specs", "--out", "new", "--junit", "specs"],
            "--junit specs: this is a folder; name a file",
        ),
        (["run", "specs", "--out", "new", "--github", "maybe"], "invalid choice: 'maybe'"),
        (["run", "specs", "--out", "new", "--junit-flavour", "loose"], "invalid choice: 'loose'"),
    ],
)
def test_a_mistake_is_refused_before_anything_is_written(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    write_specs(Path(), {"one": GOOD})
    assert main([str(SAMPLE) if word == "RUN" else word for word in words]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
    assert {name for name in os.listdir() if name != "old"} == {"specs"}


def test_the_recorded_sample(here: Path) -> None:
    """Of a real run, copied: a report is written into the folder of its run."""
    Path("sample").mkdir()
    Path("sample/run.jsonl").write_bytes((SAMPLE / "run.jsonl").read_bytes())
    assert main(["report", "sample", "--junit", "j.xml"]) == ExitCode.OK
    assert {one.status for one in jenkins_junit(Path("j.xml").read_bytes())} == {"passed"}
