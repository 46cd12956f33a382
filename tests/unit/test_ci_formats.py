"""CTRF, SARIF, GitLab's code quality and the badge: valid, complete, and never green for a run that did not succeed."""

import json
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from runner.core.case import CaseId
from runner.core.conformance import Conformance, LevelStatement, ProfileRecord, Statement
from runner.core.exit_codes import ExitCode
from runner.core.header import RunFooter
from runner.core.options import OPTIONS, REPORT_FILES, ReportFiles
from runner.core.outcomes import JUnitTag, Outcome
from runner.core.results import CaseResult
from runner.report import formats, sarif
from runner.report.formats import FORMATS, text_of, write
from runner.report.run_report import RunReport, milliseconds
from tests.hostile import HOSTILE
from tests.results import footer_of
from tests.unit.test_junit import COUNTER, HEADER, result, several

DATA = Path(__file__).parents[1] / "data"
CODE_QUALITY = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "additionalProperties": False,
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "additionalProperties": False,
                "properties": {
                    "path": {"type": "string", "pattern": "^(?![.]/).+"},
                    "lines": {"type": "object", "required": ["begin"], "properties": {"begin": {"type": "integer", "minimum": 1}}},
                },
            },
        },
    },
}
BADGE = {
    "type": "object",
    "required": ["schemaVersion", "label", "message"],
    "additionalProperties": False,
    "properties": {
        "schemaVersion": {"const": 1},
        "label": {"type": "string", "minLength": 1},
        "message": {"type": "string", "minLength": 1},
        "color": {"enum": ["brightgreen", "yellow", "red", "lightgrey", "blue"]},
        "isError": {"type": "boolean"},
        "cacheSeconds": {"type": "integer", "minimum": 300},
    },
}
"""What GitLab and shields.io document of their formats, closed."""

SCHEMAS = {
    "ctrf": json.loads((DATA / "ctrf.schema.json").read_text("utf-8")),
    "sarif": json.loads((DATA / "sarif.schema.json").read_text("utf-8")),
    "code_quality": CODE_QUALITY,
    "badge": BADGE,
}


def run(*results: CaseResult, header: Any = HEADER, **changes: Any) -> RunReport:
    """Return a run that ended, with these results."""
    header = replace(header, selected=len(results))
    footer = footer_of(results, lets_flaky_pass=header.lets_flaky_pass, **changes)
    return RunReport(header=header, results=results, footer=footer, folder=Path("/somewhere/run"))


def document(name: str, report: RunReport) -> Any:
    """Return a report as a reader finds it, checked against its schema."""
    found = json.loads(text_of(FORMATS[name], report))
    errors = [error.message for error in Draft202012Validator(SCHEMAS[name]).iter_errors(found)]
    assert errors == []
    return found


def is_green(name: str, found: Any) -> bool:
    """Whether a reader of a format would show success."""
    match name:
        case "ctrf":
            summary, environment = found["results"]["summary"], found["results"]["environment"]
            return summary["failed"] == 0 or environment["healthy"]
        case "sarif":
            (one,) = found["runs"]
            return not one["results"] or (one["invocations"][0]["executionSuccessful"] and not one["results"])
        case "badge":
            return found["color"] in ("brightgreen", "yellow")
        case _:
            return not found


PASSES = result(0, Outcome.PASS)


def profile_of(report: RunReport, conformance: Conformance) -> RunReport:
    """Return the run of a profile with this statement."""
    record = ProfileRecord(name="inductor-cpu", version="1.1", file="p.yaml", digest="d" * 64, torch=">=2.11", levels=())
    level = LevelStatement(level="core", conformance=conformance, required=2, executed=1, passed=1, waived=0)
    statement = Statement(
        profile="inductor-cpu", version="1.1", digest="d" * 64, conformance=conformance, required=2, executed=1, levels=(level,)
    )
    assert report.footer is not None
    footer = replace(report.footer, statement=(statement,), exit_code=int(conformance.exit_code))
    return replace(report, header=replace(report.header, profile=(record,)), footer=footer)


# a run that is no success is green in no format

NOT_GREEN = {
    "truncated": replace(run(PASSES), footer=None),
    "truncated at its begin": replace(run(), footer=None),
    "interrupted": run(PASSES, interrupted=True),
    "nothing selected": run(),
    "nothing executed": run(result(0, Outcome.UNAVAILABLE), result(1, Outcome.OFFLINE_PASS, target="hip:gfx942", level="O3")),
    "fewer than --min-executed": run(PASSES, header=replace(HEADER, options={"min-executed": "7"}), least=7),
    "a name of --require": replace(
        run(PASSES, header=replace(HEADER, options={"require": "cuda"})),
        footer=replace(footer_of([PASSES]), exit_code=int(ExitCode.NOTHING)),
    ),
    "an exit code without a reason": replace(run(PASSES), footer=replace(footer_of([PASSES]), exit_code=int(ExitCode.FAILED))),
    "INCOMPLETE": profile_of(run(PASSES), Conformance.INCOMPLETE),
    "NOT CONFORMANT": profile_of(run(PASSES), Conformance.NOT_CONFORMANT),
    **{outcome.label: run(PASSES, result(1, outcome)) for outcome in Outcome if outcome.is_failure},
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("report", NOT_GREEN.values(), ids=NOT_GREEN)
def test_no_format_shows_a_run_that_is_no_success_as_one(name: str, report: RunReport) -> None:
    assert not is_green(name, document(name, report))
    assert not report.is_success


def test_each_run_that_is_no_success_has_its_problem() -> None:
    kinds = {name: [problem.kind for problem in report.problems] for name, report in NOT_GREEN.items()}
    assert {name: found for name, found in kinds.items() if found} == {
        "truncated": ["truncated"],
        "truncated at its begin": ["truncated"],
        "interrupted": ["interrupted"],
        "nothing selected": ["nothing-executed"],
        "nothing executed": ["nothing-executed"],
        "fewer than --min-executed": ["too-few-executed"],
        "a name of --require": ["too-few-executed"],
        "an exit code without a reason": ["exit-code"],
        "INCOMPLETE": ["incomplete"],
        "NOT CONFORMANT": ["not-conformant"],
    }
    assert NOT_GREEN["a name of --require"].problems[0].text == "no executed case uses what --require names: cuda"


@pytest.mark.parametrize("name", FORMATS)
def test_a_success_is_green(name: str) -> None:
    """Otherwise the test above would hold for anything."""
    assert is_green(name, document(name, run(PASSES, result(1, Outcome.UNAVAILABLE), result(2, Outcome.XFAIL))))


@pytest.mark.parametrize("name", FORMATS)
def test_each_problem_of_a_run_is_named(name: str) -> None:
    for report in NOT_GREEN.values():
        shown = json.dumps(document(name, report)).lower()
        for problem in report.problems:
            if name == "badge":
                assert "incomplete" in shown or "not conformant" in shown
            else:
                assert problem.kind in shown


def test_why_a_run_is_truncated_is_said() -> None:
    report = replace(NOT_GREEN["truncated"], why="the journal was altered")
    for name in set(FORMATS) - {"badge"}:
        assert "the journal was altered" in json.dumps(document(name, report))


# every outcome


def test_ctrf_has_each_case_with_the_word_of_its_outcome() -> None:
    results = [result(number, outcome) for number, outcome in enumerate(Outcome)]
    found = document("ctrf", run(*results))["results"]
    tests = {test["rawStatus"]: test for test in found["tests"]}
    assert len(tests) == len(Outcome)
    for outcome in Outcome:
        passes, skips = outcome is Outcome.PASS, outcome.junit is JUnitTag.SKIPPED
        expected = "other" if outcome is Outcome.OFFLINE_PASS else "passed" if passes else "skipped" if skips else "failed"
        assert tests[outcome.label]["status"] == expected
    counts = Counter(test["status"] for test in found["tests"])
    summary = found["summary"]
    assert summary["tests"] == sum(counts.values())
    assert {word: summary[word] for word in ("passed", "failed", "skipped", "other", "pending")} == {**counts, "pending": 0}


def test_ctrf_says_what_happened() -> None:
    made = result(
        summary="the claim", options=("config.freezing: true",), folder="cases/00001", code=("code-0-0.txt",), stdout="a\nb", covers=("up",)
    )
    (test,) = document("ctrf", run(made))["results"]["tests"]
    assert test["message"] == "it did not hold"
    assert "specs/area/sub/one.yaml:12:9: counter failed" in test["trace"]
    assert (test["filePath"], test["line"], test["suite"]) == ("specs/area/sub/one.yaml", 12, ["area", "sub", "one"])
    assert test["stdout"] == ["a", "b"]
    assert test["attachments"] == [{"name": "code-0-0.txt", "contentType": "text/plain", "path": "/somewhere/run/cases/00001/code-0-0.txt"}]
    assert test["extra"]["claim"] == "the claim"
    assert test["extra"]["options"] == ["config.freezing: true"]


def test_ctrf_of_a_flaky_case() -> None:
    """The format calls a test flaky only if it passed in the end."""
    flaky = several(Outcome.FLAKY, Outcome.FAIL, Outcome.PASS)
    (red,) = document("ctrf", run(flaky))["results"]["tests"]
    assert (red["status"], red.get("flaky"), red["retries"]) == ("failed", None, 1)
    assert [attempt["status"] for attempt in red["retryAttempts"]] == ["failed", "passed"]
    (let,) = document("ctrf", run(flaky, header=replace(HEADER, flaky="pass")))["results"]["tests"]
    assert (let["status"], let["flaky"]) == ("passed", True)


@pytest.mark.parametrize("outcome", Outcome)
def test_sarif_and_code_quality_have_red_cases_alone(outcome: Outcome) -> None:
    report = run(PASSES, result(1, outcome))
    results = document("sarif", report)["runs"][0]["results"]
    issues = document("code_quality", report)
    assert len(results) == len(issues) == (1 if outcome.is_failure else 0)
    for found, issue in zip(results, issues, strict=True):
        assert found["ruleId"] == issue["check_name"].removeprefix("torch-conformance/")
        place = found["locations"][0]["physicalLocation"]
        assert place == {"artifactLocation": {"uri": "specs/area/sub/one.yaml"}, "region": {"startLine": 12, "startColumn": 9}}
        assert issue["location"] == {"path": "specs/area/sub/one.yaml", "lines": {"begin": 12}}
        assert "it did not hold" in found["message"]["text"]
        assert "it did not hold" in issue["description"]


def test_each_result_of_sarif_has_its_rule() -> None:
    results = [
        result(number, outcome, failure_type=kind)
        for number, (outcome, kind) in enumerate(
            [
                (Outcome.FAIL, "close"),
                (Outcome.FAIL, "filecheck"),
                (Outcome.FAIL, "close"),
                (Outcome.CRASH, "crash"),
                (Outcome.FAIL, "novel"),
            ]
        )
    ]
    (one,) = document("sarif", run(*results))["runs"]
    rules = one["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["close", "filecheck", "crash", "novel"]
    assert [rules[found["ruleIndex"]]["id"] for found in one["results"]] == [found["ruleId"] for found in one["results"]]


def test_sarif_keeps_below_the_limit_of_github_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sarif, "MOST_RESULTS", 3)
    (one,) = document("sarif", run(*map(result, range(5))))["runs"]
    assert len(one["results"]) == 3
    assert "2 more cases failed" in one["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


@pytest.mark.parametrize(
    ("file", "uri"), [("a b/ü%.yaml", "a%20b/%C3%BC%25.yaml"), ("/x/a.yaml", "file:///x/a.yaml"), ("./a#b?.yaml", "a%23b%3F.yaml")]
)
def test_a_location_is_a_uri(file: str, uri: str) -> None:
    made = result(position=replace(result().position, file=file))
    place = document("sarif", run(made))["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == uri


def test_fingerprints_are_unique_and_outlive_an_edit() -> None:
    """GitLab shows the first of several issues with one fingerprint, and an issue with a new one as new."""
    results = [result(number) for number in range(20)]
    before = [issue["fingerprint"] for issue in document("code_quality", run(*results))]
    moved = [replace(made, position=replace(made.position, line=99), reason="other words") for made in results]
    assert before == [issue["fingerprint"] for issue in document("code_quality", run(*moved))]
    assert len(set(before)) == 20


# the badge


GREEN = "brightgreen"
LETS_PASS = replace(HEADER, flaky="pass")


@pytest.mark.parametrize(
    ("report", "message", "color"),
    [
        (run(PASSES, result(1, Outcome.PASS)), "2 passed", "brightgreen"),
        (
            run(PASSES, result(1, Outcome.XFAIL), result(2, Outcome.UNAVAILABLE)),
            "1 passed, 1 expected failures, 1 unavailable",
            "brightgreen",
        ),
        (run(result(0, Outcome.XFAIL)), "0 passed, 1 expected failures", "yellow"),
        (run(PASSES, result(1)), "1 failed of 2", "red"),
        (
            run(PASSES, several(Outcome.FLAKY, Outcome.FAIL, Outcome.PASS), header=replace(HEADER, flaky="pass")),
            "1 passed, 1 flaky",
            "yellow",
        ),
        (run(PASSES, header=replace(HEADER, shard="1/2")), "shard 1/2: 1 passed", "blue"),
        (run(PASSES, header=replace(HEADER, shard="1/1")), "1 passed", "brightgreen"),
        (profile_of(run(PASSES), Conformance.CONFORMANT), "CONFORMANT, 1 passed", "brightgreen"),
        (profile_of(run(PASSES), Conformance.INCOMPLETE), "INCOMPLETE", "lightgrey"),
        (profile_of(run(PASSES, result(1)), Conformance.NOT_CONFORMANT), "NOT CONFORMANT: 1 failed of 2", "red"),
        (replace(run(PASSES), footer=None), "incomplete: the run did not end", "lightgrey"),
        (replace(run(PASSES, result(1)), footer=None), "1 failed; incomplete: the run did not end", "red"),
        (run(PASSES, interrupted=True), "incomplete: interrupted", "lightgrey"),
        (run(), "incomplete: nothing was executed", "lightgrey"),
    ],
)
def test_a_badge(report: RunReport, message: str, color: str) -> None:
    found = document("badge", report)
    assert (found["message"], found["color"], found["isError"]) == (message, color, color == "red")
    assert found["label"] == "torch-conformance" + (" inductor-cpu 1.1" if report.header.profile else "")


# hostile text

TEXTS = [field.name for field in fields(CaseResult) if field.type is str and field.name not in ("target", "level")]


def hostile_case(text: str) -> CaseResult:
    """Return a failed case in which every text is this one."""
    verdict = replace(COUNTER, expected=text, observed=text, detail=text)
    changes: dict[str, Any] = {field: text for field in TEXTS if field not in ("case_id", "spec", "reason")}
    made = result(1, verdicts=(verdict,), **changes, reason=text, options=(text,), code=(text,), attachments=(text,), notes=(text,))
    return replace(made, case_id=CaseId(text), spec=text, position=replace(made.position, file=text))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_breaks_a_format(name: str, text: str) -> None:
    hostile = hostile_case(text)
    header = replace(HEADER, run_id=text, version=text, command=(text,), environment={text: text, "torch": text}, specs={text: "0" * 64})
    data = text_of(FORMATS[name], run(PASSES, hostile, header=header))
    assert data.isascii()
    assert not any(byte < 32 and byte != 10 for byte in data)
    assert b"##" not in data or (b"##[" not in data and b"##vso" not in data)  # a log in which somebody prints the file
    found = document(name, run(PASSES, hostile, header=header))
    shown = [value for value in strings(found) if value != text]
    assert all(char.isprintable() or char in "\n\t" for value in shown for char in value)


def strings(value: object) -> list[str]:
    """Return all text of a JSON value, its keys too."""
    if isinstance(value, dict):
        return [*value, *(text for item in value.values() for text in strings(item))]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


# sizes, files, table


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_keeps_below_the_limit_and_no_case_goes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = [result(number, stdout="word " * 4_000, summary="claim " * 1_000) for number in range(40)]
    monkeypatch.setattr(formats, "FILE_LIMIT", 200_000)
    data = text_of(FORMATS[name], run(*results))
    assert len(data) <= 200_000
    found = json.loads(data)
    kept = {"ctrf": ("results", "tests"), "sarif": ("runs", 0, "results"), "code_quality": ()}
    if name in kept:
        for key in kept[name]:
            found = found[key]
        assert len(found) == 40


def test_a_former_file_stays_whole_until_the_new_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "badge.json"
    write(path, FORMATS["badge"], run(PASSES))
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(path, FORMATS["badge"], run(result()))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["badge.json"]


def test_the_table_has_the_files_of_the_options() -> None:
    assert tuple(FORMATS) == REPORT_FILES
    assert {field.name for field in fields(ReportFiles)} == {"junit", "junit_flavour", *REPORT_FILES}
    for command in ("run", "merge", "export"):
        assert "files" in {field.name for field in fields(OPTIONS[command])}


@pytest.mark.parametrize(
    ("moment", "expected"),
    [("2026-10-07T12:00:00Z", 1791374400000), ("1970-01-01T00:00:01", 1000), ("soon", 0), ("1900-01-01", 0)],
)
def test_moments(moment: str, expected: int) -> None:
    assert milliseconds(moment) == expected


def test_the_end_of_a_run_is_not_before_its_begin() -> None:
    late = replace(HEADER, started="2027-01-01T00:00:00Z")
    summary = document("ctrf", run(PASSES, header=late))["results"]["summary"]
    assert summary["stop"] >= summary["start"]
    assert isinstance(run(PASSES).footer, RunFooter)
