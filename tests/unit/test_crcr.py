"""The callbacks of PyTorch's CI relay: what they say of a run, that they are the same each time, and what stays out above the limits."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.cli.parser import main
from runner.core.conformance import ProfileLevel, ProfileRecord
from runner.core.exit_codes import ExitCode
from runner.core.header import RunFooter, RunHeader
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.record.submission import crcr
from tests.fakes import COUNTED, case, observation, seen, step, verdict_of
from tests.results import as_outcome
from tests.submissions import a_run

WORKFLOW = crcr.Workflow(name="CI", url="https://x/1", job_name="npu", run_id="1", run_attempt="2", check_run_id="3")
DISPATCH = crcr.Dispatch(event_type="pull_request", delivery_id="d-1", payload={"pull_request": {"number": 7, "head": {"sha": "abc"}}})
HEADER = RunHeader(
    run_id="r-1",
    started="2026-12-01T10:00:00Z",
    version="1",
    command=(),
    environment={"torch": "2.13.0", "torch_git": "c0ffee", "device": "A GPU"},
    variables={},
    specs={},
    selected=2,
)
FOOTER = RunFooter(ended="2026-12-01T10:05:00Z", seconds=300.0, totals={}, exit_code=0)
PASSED = verdict_of(case(step(COUNTED)), observation(seen()))


def result(name: str, outcome: Outcome = Outcome.PASS, **changes: Any) -> CaseResult:
    made = as_outcome(replace(PASSED, folder="cases/00001", isolation="fork"), outcome)
    return replace(made, **{"case_id": name, "phase": "run", **changes})


def profile(*required: str) -> tuple[ProfileRecord, ...]:
    level = ProfileLevel(name="P0", required=required)
    return (ProfileRecord(name="ours", version="1.0", file="ours.yaml", digest="d" * 64, torch=">=2.11,<2.14", levels=(level,)),)


def bodies(*results: CaseResult, exit_code: int = 0, dispatch: crcr.Dispatch = DISPATCH, **of_header: Any) -> dict[str, dict[str, Any]]:
    header, footer = replace(HEADER, **of_header), replace(FOOTER, exit_code=exit_code)
    made = crcr.callbacks(header, results, footer, dispatch=dispatch, workflow=WORKFLOW, artifact_url="https://x/a")
    again = crcr.callbacks(header, results, footer, dispatch=dispatch, workflow=WORKFLOW, artifact_url="https://x/a")
    assert made == again
    assert all(len(body) <= crcr.MOST_BYTES for body in made.values())
    return {status: json.loads(body) for status, body in made.items()}


def completed(*results: CaseResult, **given: Any) -> dict[str, Any]:
    return dict(bodies(*results, **given)[crcr.COMPLETED]["workflow"])


def failed_tests(*results: CaseResult, **given: Any) -> list[dict[str, Any]]:
    return list(json.loads(completed(*results, **given).get("failed_tests_json", "[]")))


def test_both_callbacks_carry_the_dispatch_and_the_job() -> None:
    found = bodies(result("a"))
    assert list(found) == ["in_progress", "completed"]
    for status, body in found.items():
        assert (body["event_type"], body["delivery_id"], body["payload"]) == ("pull_request", "d-1", DISPATCH.payload)
        assert (body["workflow"]["status"], body["workflow"]["check_run_id"]) == (status, "3")
    first, last = (found[status]["workflow"] for status in ("in_progress", "completed"))
    assert (first["started_at"], first["completed_at"], first["conclusion"]) == (HEADER.started, None, None)
    assert (last["started_at"], last["completed_at"], last["conclusion"]) == (None, FOOTER.ended, "success")
    assert "test_results" not in first
    assert last["artifact_url"] == "https://x/a"


def test_a_run_that_nobody_dispatched_has_no_first_callback() -> None:
    (found,) = bodies(result("a"), dispatch=crcr.nightly("c0ffee")).values()
    assert (found["event_type"], found["delivery_id"], found["payload"]["head_sha"]) == ("nightly", "c0ffee", "c0ffee")


@pytest.mark.parametrize("outcome", Outcome)
def test_each_outcome_is_counted_once_and_only_a_pass_passes(outcome: Outcome) -> None:
    counts = completed(result("a", outcome), result("b"))["test_results"]
    assert counts["passed"] + counts["failed"] + counts["skipped"] == counts["total"] == 2
    assert counts["passed"] == 1 + (outcome is Outcome.PASS)
    assert counts["failed"] == outcome.is_failure
    assert counts["executed"] == 1 + outcome.is_executed
    assert counts["unavailable"] == (outcome is Outcome.UNAVAILABLE)
    assert len(failed_tests(result("a", outcome), result("b"))) == outcome.is_failure


@pytest.mark.parametrize(
    ("exit_code", "interrupted", "word"), [(0, False, "success"), (1, False, "failure"), (4, False, "failure"), (0, True, "failure")]
)
def test_the_conclusion_is_that_of_the_run(exit_code: int, interrupted: bool, word: str) -> None:
    assert crcr.conclusion(replace(FOOTER, exit_code=exit_code, interrupted=interrupted), None) == word


def test_an_incomplete_profile_is_no_success_and_names_what_was_not_executed() -> None:
    """The footer is not believed: a profile of which everything is unavailable is no success, whatever the exit code says."""
    results = [result("a"), result("b", Outcome.UNAVAILABLE, reason="no GPU")]
    found = completed(*results, profile=profile("a", "b", "lost"), exit_code=0)
    assert found["conclusion"] == "failure"
    counts = found["test_results"]
    assert (counts["failed"], counts["required"], counts["required_executed"], counts["unavailable"]) == (0, 3, 1, 1)
    environment = json.loads(found["environment"])
    assert environment["statement"] == environment["statement_P0"] == "INCOMPLETE: 1 executed of 3 required"
    assert (environment["executed"], environment["device"]) == ("1 of 2 selected", "A GPU")
    entries = json.loads(found["failed_tests_json"])
    assert [(one["name"], one["classname"]) for one in entries] == [(name, "required, not executed") for name in ("b", "lost")]
    assert all("not counted as failed" in one["message"] for one in entries)


def test_a_conformant_profile_is_a_success() -> None:
    assert completed(result("a"), profile=profile("a"))["conclusion"] == "success"
    assert completed(result("a", Outcome.FAIL), profile=profile("a"))["conclusion"] == "failure"


def test_a_flaky_case_that_may_pass_is_skipped_and_not_failed() -> None:
    counts = completed(result("a", Outcome.FLAKY), flaky="pass")["test_results"]
    assert (counts["passed"], counts["failed"], counts["skipped"]) == (0, 0, 1)


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [999, 1_000, 1_001, 1_500])
def test_at_most_a_thousand_entries(count: int) -> None:
    results = [result(f"c{number}", Outcome.FAIL) for number in range(count)]
    entries = failed_tests(*results, exit_code=1)
    assert len(entries) == min(count, 1_000)
    left_out = count - 999 if count > 1_000 else 0
    assert (entries[-1]["name"] == "truncated") == bool(left_out)
    assert not left_out or entries[-1]["message"].startswith(f"{left_out} of {count} entries are left out")
    assert completed(*results, exit_code=1)["test_results"]["failed"] == count


def test_above_two_megabytes_entries_are_left_out_and_counted() -> None:
    results = [result("x" * 3_000 + str(number), Outcome.FAIL, reason="\x01é" * 2_000) for number in range(900)]
    entries = failed_tests(*results, exit_code=1)
    assert 100 < len(entries) < 900
    assert entries[-1]["message"].startswith(f"{900 - len(entries) + 1} of 900 entries are left out")
    body = crcr.callbacks(HEADER, results, FOOTER, dispatch=DISPATCH, workflow=WORKFLOW)[crcr.COMPLETED]
    assert crcr.MOST_BYTES - 20_000 < len(body) <= crcr.MOST_BYTES
    assert all(len(entry["message"].encode()) <= crcr.MOST_MESSAGE for entry in entries)


def test_a_dispatch_above_the_limit_is_refused() -> None:
    huge = replace(DISPATCH, payload={"x": "y" * crcr.MOST_BYTES})
    with pytest.raises(crcr.Oversized):
        crcr.callbacks(HEADER, [result("a")], FOOTER, dispatch=huge, workflow=WORKFLOW)


# -- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("run")
    with a_run(folder):
        yield folder


def test_the_command_writes_both_files(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"GITHUB_RUN_ID": "77", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "ours/npu"}.items():
        monkeypatch.setenv(name, value)
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"client_payload": {"event_type": "push", "delivery_id": "d-9", "payload": {"ref": "main"}}}))
    arguments = [
        "submit",
        "out",
        "--format",
        "crcr",
        "--dispatch",
        str(event),
        "--out",
        str(tmp_path / "sent"),
        "--artifact-url",
        "https://x",
    ]
    assert main(arguments) == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "sent" / name) for name in ("in_progress.json", "completed.json")]
    found = json.loads((tmp_path / "sent" / "completed.json").read_text())
    assert found["workflow"]["url"] == "https://github.com/ours/npu/actions/runs/77"
    assert found["workflow"]["conclusion"] == "success"
    assert found["workflow"]["test_results"]["known_failures"] == 1
    assert main(arguments) == ExitCode.USAGE
    assert "exists there already" in capsys.readouterr().err
    assert main([*arguments, "--replace"]) == ExitCode.OK


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "crcr", "--key", "key.pem"], "--format crcr takes no --key"),
        (["--artifact-url", "https://x"], "--artifact-url goes with --format crcr alone"),
        (["--dispatch", "ours.yaml"], "--dispatch goes with --format crcr alone"),
        (["--format", "crcr", "--dispatch", "ours.yaml"], "--dispatch ours.yaml: "),
        (["--format", "crcr", "--dispatch", "gone.json"], "--dispatch gone.json: "),
        (["--format", "crcr", "--dispatch", "half.json"], "this is no dispatch of the relay"),
        (["--format", "crrc"], "invalid choice"),
    ],
)
def test_what_does_not_fit_is_refused(
    place: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    (place / "half.json").write_text('{"event_type": "push", "delivery_id": 3, "payload": {}}')
    assert main(["submit", "out", *arguments]) == ExitCode.USAGE
    assert says in capsys.readouterr().err
    assert not list(place.glob("crcr-*"))
