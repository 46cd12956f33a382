"""What a person sees: nothing that a case printed drives the terminal, lines fit, and the last line tells the truth."""

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.model.case import CaseId
from runner.model.diagnostics import Position
from runner.model.expectation import Status, Verdict
from runner.model.outcomes import Outcome
from runner.model.results import CaseResult
from runner.report import Excerpts, excerpt
from runner.report.terminal import print_report, wants_bar, wants_color

AT = Position(file="specs/area/one.yaml", line=12, column=9)
COUNTER = Verdict(kind="counter", status=Status.FAILED, position=AT, expected="hit 1", observed="hit 0", detail="def call(args):\n    pass")
COLOUR = re.compile(r"\x1b\[(?:31|32|33|0)m")


def result(number: int = 0, outcome: Outcome = Outcome.FAIL, **changes: Any) -> CaseResult:
    passed = outcome is Outcome.PASS
    made = CaseResult(
        case_id=CaseId(f"area/one[backend=cpu,n={number}]"),
        spec="specs/area/one.yaml",
        area="area",
        name="one",
        backend="cpu",
        outcome=outcome,
        reason="" if passed else "it did not hold",
        failure_type="",
        verdicts=() if passed else (COUNTER,),
        position=AT,
        seconds=1.26,
        repro=f"torch-conformance repro 'area/one[backend=cpu,n={number}]'",
        stderr="last words",
    )
    return replace(made, **changes)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def reported(*results: CaseResult, selected: int | None = None, color: bool = False, **more: Any) -> str:
    stream = io.StringIO()
    print_report(stream, results, len(results) if selected is None else selected, Path("reports/latest/junit.xml"), color=color, **more)
    return stream.getvalue()


# The report.


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.PASS])
def test_no_outcome_but_pass_goes_unsaid(outcome: Outcome) -> None:
    text = reported(result(outcome=outcome))
    assert outcome.label in text
    assert "it did not hold" in text
    grouped = outcome in (Outcome.UNAVAILABLE, Outcome.NOT_RUN)
    assert ("area/one[" in text) != grouped


def test_the_last_line_counts_what_was_executed() -> None:
    results = [result(number, outcome) for number, outcome in enumerate(Outcome)]
    last = reported(*results, selected=120).splitlines()[-1]
    executed = sum(outcome.is_executed for outcome in Outcome)
    assert last == f"executed {executed} of 120 selected, 1 unavailable; report: reports/latest/junit.xml"


def test_colour_is_in_no_text_but_where_it_is_wanted() -> None:
    results = [result(number, outcome) for number, outcome in enumerate(Outcome)]
    coloured, bare = reported(*results, color=True), reported(*results)
    assert COLOUR.sub("", coloured) == bare
    assert coloured != bare
    assert "\x1b" not in bare


@pytest.mark.parametrize("field", ["case_id", "reason", "repro", "stderr", "kind", "expected", "observed", "detail", "file"])
@pytest.mark.parametrize("color", [False, True])
def test_nothing_of_a_case_drives_the_terminal(field: str, color: bool) -> None:
    evil = "a\x1b[2J\x1b]0;owned\x07\x1b[31m\x9b31m\x07\x08\r\x00\ud800\u202eb\x1bc"
    changes: dict[str, Any] = {field: evil}
    if field == "file":
        changes = {"position": Position(file=evil), "verdicts": ()}
    elif field in ("kind", "expected", "observed", "detail"):
        changes = {"verdicts": (replace(COUNTER, **changes),)}
    for outcome in Outcome:
        text = COLOUR.sub("", reported(result(outcome=outcome, **changes), color=color))
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", text), outcome
        assert "owned" not in text


@pytest.mark.parametrize(
    ("environ", "color", "bar"),
    [
        ({}, True, True),
        ({"NO_COLOR": "1"}, False, True),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": "unknown"}, False, False),
        ({"CI": "true"}, True, False),
    ],
)
def test_a_terminal_is_used_as_its_user_says(environ: Mapping[str, str], color: bool, bar: bool) -> None:
    assert (wants_color(Terminal(), environ), wants_bar(Terminal(), environ)) == (color, bar)
    assert not wants_color(io.StringIO(), environ)
    assert not wants_bar(io.StringIO(), environ)


# Where to look further.


def test_the_stack_of_a_crash_is_shown_once() -> None:
    stack = 'Current thread 0x1 (most recent call first):\n  File "a.yaml", line 3 in f\n  File "/x/torch/y.py", line 4 in g'
    verdict = replace(
        COUNTER, kind="crash", detail='stack (most recent call first):\n  File "a.yaml", line 3 in f\n  ... 1 frame of torch ...'
    )
    text = reported(
        result(outcome=Outcome.CRASH, verdicts=(verdict,), stderr=f"Fatal Python error\n\n{stack}\n\nExtension modules: a (total: 1)\n")
    )
    assert text.count("line 3 in f") == 1
    assert "line 4 in g" not in text
    assert "stderr ends:\n    Fatal Python error\n" in text


# The lines of the spec.


def test_the_failing_line_is_shown_with_a_caret() -> None:
    lines = ["summary: x", "expect:", "  - close: {to: eager}", "  - counter: {a.b: 2}"]
    assert excerpt(lines, 4, 15) == ["    3 |   - close: {to: eager}", "    4 |   - counter: {a.b: 2}", "      |               ^"]
    assert excerpt(lines, 1, 1) == ["    1 | summary: x", "      | ^"]


def test_an_excerpt_drives_no_terminal() -> None:
    hostile = "  - \x1b[31mred\x07: {a\u202e: Q}"
    _, shown, caret = excerpt(["::error::planted", hostile], 2, hostile.index("Q") + 1)
    assert shown.isprintable()
    assert len(caret) - 1 == shown.index("Q")
    assert "::error::" not in excerpt(["::error::planted", hostile], 2, 3)[0]


def test_only_the_file_that_the_run_read_is_shown(tmp_path: Path) -> None:
    spec = tmp_path / "one.yaml"
    spec.write_text("summary: x\nexpect: []\n")
    at = Position(file=str(spec), line=2, column=9)
    source = Excerpts({str(spec): hashlib.sha256(spec.read_bytes()).hexdigest()})
    assert source(at)[1] == "    2 | expect: []"
    assert not source(replace(at, line=1, column=1))  # the spec as a whole
    assert not source(replace(at, line=99))
    assert not Excerpts({})(at)
    spec.write_text("summary: x\nexpect: [saved since]\n")
    assert not Excerpts({str(spec): "0" * 64})(at)
