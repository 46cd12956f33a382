"""What GitHub Actions reads: annotations and the summary of a job, made of text that tries to be
commands, Markdown and HTML.
"""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tests.fakes import ROOT
from tests.hostile import HOSTILE
from tests.readers import Command, Elements, github_commands
from tests.recorded import footer_of
from tests.unit.report.test_junit import COUNTER, HEADER, result, several
from torch_conformance.cli.parser import main
from torch_conformance.machine import output
from torch_conformance.model.case import CaseId
from torch_conformance.model.diagnostics import Position
from torch_conformance.model.events import RunAbandoned
from torch_conformance.model.expectation import Status
from torch_conformance.model.header import ProfileLevel, ProfileRecord, ReportedRun
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.model.results import WEAK, CaseResult
from torch_conformance.optional.options import RunOptions
from torch_conformance.record.conclusion import conclusion_of
from torch_conformance.record.run_folder import RunFolder
from torch_conformance.report import ReportSetup
from torch_conformance.report.github import (
    SUMMARY_LIMIT,
    GitHubReporter,
    annotations,
    summary,
)

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable("table")
OURS = {
    "h2",
    "p",
    "ul",
    "li",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "code",
    "details",
    "summary",
    "pre",
}
"""The elements of a summary."""


TEXTS = [
    field.name
    for field in fields(CaseResult)
    if field.type is str and field.name not in ("target", "level")
]
"""The fields of a case that hold any text."""

FOLDER = Path("/somewhere/run")


def run(*results: CaseResult, header: Any = HEADER, **changes: Any) -> ReportedRun:
    """Return a run that ended, with these results."""
    header = replace(header, selected=len(results))
    footer = footer_of(results, lets_flaky_pass=header.lets_flaky_pass, **changes)
    return ReportedRun(header=header, results=results, footer=footer)


PASSES = result(0, Outcome.PASS)


def profile_of(report: ReportedRun, *lost: str) -> ReportedRun:
    """Return the run of a profile that requires its results, and cases that it has no result of."""
    level = ProfileLevel(
        name="P0", required=(*(result.case_id for result in report.results), *lost)
    )
    record = ProfileRecord(
        name="inductor-cpu",
        version="1.1",
        file="p.yaml",
        digest="d" * 64,
        torch=">=2.11",
        levels=(level,),
    )
    header = replace(report.header, profile=(record,))
    assert report.footer is not None
    return replace(
        report,
        header=header,
        footer=replace(report.footer, exit_code=int(conclusion_of(header, report.results)[0])),
    )


NOT_GREEN = {
    "truncated": replace(run(PASSES), footer=None),
    "truncated at its begin": replace(run(), footer=None),
    "interrupted": run(PASSES, interrupted=True),
    "nothing selected": run(),
    "nothing executed": run(
        result(0, Outcome.UNAVAILABLE),
        result(1, Outcome.OFFLINE_PASS, target="hip:gfx942", level="O3"),
    ),
    "fewer than --min-executed": run(
        PASSES, header=replace(HEADER, options={"min-executed": "7"}), least=7
    ),
    "a name of --require": replace(
        run(PASSES, header=replace(HEADER, options={"require": "cuda"})),
        footer=replace(footer_of([PASSES]), exit_code=int(ExitCode.NOTHING)),
    ),
    "an exit code without a reason": replace(
        run(PASSES), footer=replace(footer_of([PASSES]), exit_code=int(ExitCode.FAILED))
    ),
    "INCOMPLETE": profile_of(run(PASSES), "lost"),
    "NOT CONFORMANT": profile_of(run(PASSES, result(1, Outcome.FAIL))),
    **{outcome.label: run(PASSES, result(1, outcome)) for outcome in Outcome if outcome.is_failure},
}
"""A run for each reason why it is no success."""


def read(report: ReportedRun) -> list[Command]:
    """Return the commands that GitHub finds in a log with the annotations of a run."""
    return list(github_commands("\n".join(annotations(report))))


def hostile(text: str) -> CaseResult:
    verdict = replace(COUNTER, expected=text, observed=text, detail=text)
    weak = replace(COUNTER, kind=WEAK, status=Status.HELD, observed=text)
    changes = {name: text for name in TEXTS if name not in ("case_id", "spec", "reason")}
    made = result(
        1, verdicts=(verdict, weak), reason=text, options=(text,), notes=(text,), **changes
    )
    return replace(
        made, case_id=CaseId(text), spec=text, position=Position(file=text, line=3, column=5)
    )


def hostile_run(text: str) -> ReportedRun:
    facts = {"torch": text, "device": text, "arch": text}
    unavailable = result(2, Outcome.UNAVAILABLE, reason=text)
    return run(
        hostile(text),
        unavailable,
        header=replace(HEADER, run_id=text, environment=facts, specs={text: "0" * 64}),
    )


# annotations


def test_an_annotation_says_what_and_where() -> None:
    (found,) = read(run(PASSES, result()))
    assert found.name == "error"
    assert found.properties == {
        "file": "specs/area/sub/one.yaml",
        "line": "12",
        "col": "9",
        "title": "FAIL one: counter",
    }
    assert found.data.splitlines() == [
        "it did not hold",
        "expected: hit 1",
        "observed: hit 0",
        "area/sub/one[backend=cpu,n=0]",
        "repro: torch-conformance repro 'area/sub/one[backend=cpu,n=0]'",
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_a_command(text: str) -> None:
    """Each line is one command of ours, and no other."""
    lines = annotations(hostile_run(text))
    assert all("\n" not in line and "\r" not in line and line.isprintable() for line in lines)
    found = list(github_commands("\n".join(lines)))
    assert [(one.name, set(one.properties)) for one in found] == [
        ("error", {"file", "line", "col", "title"})
    ]
    assert (found[0].properties["line"], found[0].properties["col"]) == ("3", "5")
    for line in found[0].data.split("\n"):  # what GitHub shows is shown in logs again
        assert list(github_commands(line)) == []


def test_a_flaky_case_that_may_pass_is_a_warning() -> None:
    flaky = several(Outcome.FLAKY, Outcome.FAIL, Outcome.PASS)
    assert [
        found.name
        for found in read(
            run(PASSES, flaky, header=replace(HEADER, options={**HEADER.options, "flaky": "pass"}))
        )
    ] == ["warning"]


def test_a_command_is_one_line() -> None:
    for text in ("::error::a\nb", "::error::a\rb", "::error::a\x1b[0m", "::error::a\u2028b"):
        with pytest.raises(ValueError, match="characters"):
            output.command(text)


# the summary


def shown(report: ReportedRun, room: int = SUMMARY_LIMIT) -> Elements:
    return Elements(MARKDOWN.render(summary(report, FOLDER, room)))


def test_the_summary_says_how_the_run_ended_with_what_a_terminal_shows() -> None:
    weak = replace(COUNTER, kind=WEAK, status=Status.HELD, observed="the reason of its author")
    unavailable = [result(number, Outcome.UNAVAILABLE, reason="no GPU") for number in (2, 3)]
    report = run(replace(PASSES, verdicts=(weak,)), result(1), *unavailable)
    text = " ".join(shown(report).text.split())
    assert "torch-conformance: 1 failed, 2 executed" in text
    for words in (
        "1 PASS 1 FAIL",
        "2 UNAVAILABLE",
        "2 no GPU",
        "FAIL 'area/sub/one[backend=cpu,n=1]'",
        "expected: hit 1",
    ):
        assert words in text
    assert "/somewhere/run" in text
    assert "the reason of its author" in text


def test_a_summary_fits_into_what_is_left() -> None:
    report = run(*(result(number, reason="<&>" * 100) for number in range(50)))
    for room in (2_000, 10_000):
        assert len(summary(report, FOLDER, room).encode("utf-8")) <= room


@pytest.mark.parametrize("report", NOT_GREEN.values(), ids=NOT_GREEN)
def test_the_summary_of_no_success_never_says_passed(report: ReportedRun) -> None:
    assert "passed" not in summary(report, FOLDER).split("\n")[0]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_becomes_markup(text: str) -> None:
    page = shown(hostile_run(text))
    plain = shown(hostile_run("word"))
    assert {tag for tag, _ in page.tags} <= OURS
    assert not any(attributes for _, attributes in page.tags)
    assert [tag for tag, _ in page.tags] == [
        tag for tag, _ in plain.tags
    ]  # the same page with other words


# the file of the summary


def test_an_abandoned_run_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "summary.md"
    path.write_text("# of another program")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    reporter = GitHubReporter(
        ReportSetup(folder=RunFolder(path=tmp_path / "run", run_id="r1"), options=RunOptions())
    )
    reporter.on_event(RunAbandoned(header=HEADER, results=(PASSES,), why="the journal was altered"))
    (command,) = github_commands(capsys.readouterr().err)
    assert (command.name, command.data) == ("error", "truncated: the journal was altered")
    assert path.read_text("utf-8").startswith(
        "# of another program\n## torch-conformance: no success, 1 executed\n"
    )


# when annotations and a summary are written


def test_merge_tells_github_by_itself(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The recorded sample is a run of one shard."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    assert main(["merge", str(ROOT / "reports/sample"), "--out", "merged"]) == ExitCode.OK
    said = capfd.readouterr()
    assert list(github_commands(said.out + said.err)) == []
    assert (
        Path("summary.md")
        .read_text("utf-8")
        .startswith("\n## torch-conformance: passed, 3 executed\n")
    )
