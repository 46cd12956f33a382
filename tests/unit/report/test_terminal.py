"""What a person sees while a run goes and at its end: nothing that a case printed drives the
terminal, lines fit, the last line is true.
"""

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.report.test_junit import COUNTER, HEADER, result
from torch_conformance.machine import output
from torch_conformance.model.case import CaseId
from torch_conformance.model.diagnostics import Position
from torch_conformance.model.events import Activity, RunningCase
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.header import ReportedRun
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.report import Excerpts, columns, excerpt
from torch_conformance.report.causes import causes, shared_by_failures
from torch_conformance.report.terminal import (
    FIRST_HEARTBEAT,
    Progress,
    report_of,
    wants_bar,
    wants_color,
)

COLOUR = re.compile(r"\x1b\[(?:31|32|33|0)m")
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
EVIL = "a\x1b[2J\x1b]0;owned\x07\x1b[31m\x9b31m\x07\x08\r\x00\ud800\u202eb\x1bc"
EVERY = [result(number, outcome) for number, outcome in enumerate(Outcome)]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def reported(*results: CaseResult, selected: int = 1, color: bool = False) -> str:
    stream = io.StringIO()
    output.paint(
        stream,
        report_of(
            ReportedRun(header=replace(HEADER, selected=selected), results=results),
            junit="reports/latest/junit.xml",
            color=color,
        ),
    )
    return stream.getvalue()


# -- the report ------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.PASS])
def test_no_outcome_but_pass_goes_unsaid(outcome: Outcome) -> None:
    text = reported(result(outcome=outcome))
    assert outcome.label in text
    assert "it did not hold" in text
    assert ("area/sub/one[" in text) != (outcome in (Outcome.UNAVAILABLE, Outcome.NOT_RUN)), (
        "these two are grouped by reason"
    )


def test_the_last_line_counts_what_was_executed() -> None:
    executed = sum(outcome.is_executed for outcome in Outcome)
    last = reported(*EVERY, selected=120).splitlines()[-1]
    assert (
        last == f"executed {executed} of 120 selected, 1 unavailable, 1 passed offline; "
        "report: reports/latest/junit.xml"
    )


def test_colour_is_in_no_text_but_where_it_is_wanted() -> None:
    coloured, bare = reported(*EVERY, color=True), reported(*EVERY)
    assert COLOUR.sub("", coloured) == bare != coloured
    assert "\x1b" not in bare


@pytest.mark.parametrize(
    "field",
    ["case_id", "reason", "repro", "stderr", "kind", "expected", "observed", "detail", "file"],
)
def test_nothing_of_a_case_drives_the_terminal(field: str) -> None:
    changes: dict[str, Any] = {field: EVIL}
    if field == "file":
        changes = {"position": Position(file=EVIL), "verdicts": ()}
    elif field in ("kind", "expected", "observed", "detail"):
        changes = {"verdicts": (replace(COUNTER, **changes),)}
    for outcome in Outcome:
        text = COLOUR.sub("", reported(result(outcome=outcome, **changes), color=True))
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
def test_a_terminal_is_used_as_its_user_says(
    environ: Mapping[str, str], color: bool, bar: bool
) -> None:
    assert (wants_color(Terminal(), environ), wants_bar(Terminal(), environ)) == (color, bar)
    assert not wants_color(io.StringIO(), environ)
    assert not wants_bar(io.StringIO(), environ)


def test_the_stack_of_a_crash_is_shown_once() -> None:
    stack = (
        'Current thread 0x1 (most recent call first):\n  File "a.yaml", line 3 in f\n  File '
        '"/x/torch/y.py", line 4 in g'
    )
    detail = (
        'stack (most recent call first):\n  File "a.yaml", line 3 in f\n  ... 1 frame of torch ...'
    )
    stderr = f"Fatal Python error\n\n{stack}\n\nExtension modules: a (total: 1)\n"
    text = reported(
        result(
            outcome=Outcome.CRASH,
            verdicts=(replace(COUNTER, kind="crash", detail=detail),),
            stderr=stderr,
            stdout="before the crash\n",
        )
    )
    assert text.count("line 3 in f") == 1
    assert "stdout ends:\n    before the crash\n" in text
    assert "line 4 in g" not in text
    assert "stderr ends:\n    Fatal Python error\n" in text


def test_the_failing_line_is_shown_with_a_caret_and_drives_no_terminal() -> None:
    lines = ["summary: x", "expect:", "  - close: {to: eager}", "  - counter: {a.b: 2}"]
    assert excerpt(lines, 4, 15) == [
        "    3 |   - close: {to: eager}",
        "    4 |   - counter: {a.b: 2}",
        "      |               ^",
    ]
    assert excerpt(lines, 1, 1) == ["    1 | summary: x", "      | ^"]
    hostile = "  - \x1b[31mred\x07: {a\u202e: Q}"
    above, shown, caret = excerpt(["::error::planted", hostile], 2, hostile.index("Q") + 1)
    assert shown.isprintable()
    assert len(caret) - 1 == shown.index("Q")
    assert "::error::" not in above


def test_only_the_file_that_the_run_read_is_shown(tmp_path: Path) -> None:
    spec = tmp_path / "one.yaml"
    spec.write_text("summary: x\nexpect: []\n")
    at = Position(file=str(spec), line=2, column=9)
    source = Excerpts({str(spec): hashlib.sha256(spec.read_bytes()).hexdigest()})
    assert source(at)[1] == "    2 | expect: []"
    assert not source(replace(at, line=1, column=1))  # the spec as a whole
    assert not source(replace(at, line=99))
    assert not Excerpts({})(at)
    assert not Excerpts({str(spec): "0" * 64})(at)


# -- progress --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


class Shown:
    """A progress, its clock, and what it wrote."""

    def __init__(
        self, *, live: bool = False, color: bool = False, total: int = 3, **more: Any
    ) -> None:
        self.stream = Terminal() if live else io.StringIO()
        self.now = 1000.0
        self.progress = Progress(self.stream, color=color, live=live, clock=lambda: self.now)
        self.progress.start(total, **more)

    def after(self, seconds: float, activity: Activity) -> list[str]:
        """Let time go by; return the lines that were written at its end."""
        before = len(self.stream.getvalue())
        self.now += seconds
        self.progress.show(activity)
        return self.stream.getvalue()[before:].splitlines()

    @property
    def text(self) -> str:
        """All that was written, without colours and cursor moves."""
        return SEQUENCE.sub("", self.stream.getvalue()).replace("\r", "")


def running(*names: str, since: float = 1000.0, phase: str = "trace", **more: Any) -> Activity:
    return Activity(
        running=tuple(
            RunningCase(name=name, since=since + number, phase=phase)
            for number, name in enumerate(names)
        ),
        **more,
    )


def test_without_a_terminal_there_is_one_line_for_each_finished_case() -> None:
    shown = Shown(total=40)
    for number, outcome in enumerate((Outcome.PASS, Outcome.FAIL, Outcome.UNAVAILABLE)):
        shown.progress.case_finished(result(number, outcome))
    shown.progress.close()
    assert shown.stream.getvalue().splitlines() == [
        "PASS   1/40  1.5s  'area/sub/one[backend=cpu,n=0]'",
        "FAIL   2/40  1.5s  'area/sub/one[backend=cpu,n=1]': it did not hold",
        "UNAVAILABLE   3/40  1.5s  'area/sub/one[backend=cpu,n=2]'",
    ]


def test_a_stream_that_is_no_terminal_hears_what_a_silent_run_waits_for() -> None:
    shown = Shown()
    assert shown.after(FIRST_HEARTBEAT - 1, Activity(starting=1000.0)) == []
    assert shown.after(1, Activity(starting=1000.0)) == ["0/3 ended; starting torch (30 s)"]
    assert shown.after(1, running("a[n=1]", "b")) == []
    assert shown.after(59, running("a[n=1]", "b")) == [
        "0/3 ended; running 'a[n=1]' (90 s, trace), b (89 s, trace)"
    ]


def test_a_terminal_has_a_status_and_a_line_for_failures_alone() -> None:
    shown = Shown(live=True)
    shown.progress.case_finished(result(1, Outcome.PASS))
    assert not shown.text
    shown.after(1, running("long", "short", since=960.0, starting=990.0))
    said = "starting torch (11 s); running long (41 s, trace), short (40 s, trace)"
    assert shown.text == f"{'=' * 8}{'-' * 16} 1/3  1 PASS  {said}"
    shown.progress.case_finished(result(2))
    shown.progress.note("interrupted: finishing 2 running cases")
    assert (
        "FAIL  2/3  1.5s  'area/sub/one[backend=cpu,n=2]': it did not hold\ninterrupted: "
        "finishing 2 running cases\n" in shown.text
    )


@pytest.mark.parametrize(
    ("lets_pass", "painted"), [(True, "\x1b[33mFLAKY"), (False, "\x1b[31mFLAKY")]
)
def test_a_flaky_case_is_painted_as_it_counts(lets_pass: bool, painted: str) -> None:
    shown = Shown(live=True, color=True, lets_flaky_pass=lets_pass)
    shown.progress.case_finished(result(0, Outcome.FLAKY))
    shown.after(1, Activity())
    assert painted in shown.stream.getvalue().rpartition("\r")[2]


@pytest.mark.parametrize("width", [1, 10, 40, 80])
@pytest.mark.parametrize("name", ["x" * 300, "漢字" * 60, "\U0001f600" * 90])
def test_the_status_never_wraps(monkeypatch: pytest.MonkeyPatch, width: int, name: str) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = Shown(live=True)
    shown.after(1, running(name))
    assert columns(shown.text) < width


def test_a_terminal_that_knows_ascii_alone_gets_no_more() -> None:
    progress = Progress(
        io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict"), color=False, live=True
    )
    progress.start(3)
    progress.show(running("漢" * 300))
    progress.case_finished(result(reason="漢"))
    progress.close()


def test_names_drive_no_terminal() -> None:
    shown = Shown(live=True)
    shown.after(1, running("a\x1b[2J\x07", phase="\x1b]0;x\x07"))
    shown.progress.case_finished(result(case_id=CaseId("b\x1b[2J"), reason="\x07"))
    assert not set(shown.text) & {"\x1b", "\x07"}


def test_the_status_has_the_time_that_is_left_and_the_end_of_a_long_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = Shown(live=True, total=20)
    for number in range(5):
        shown.progress.case_finished(result(number, Outcome.PASS))
    name = f"{'area/' * 12}spec[backend=cpu,dtype=float16]"
    waits = tuple(RunningCase(name=name, phase="trace", since=1007.0) for _ in range(2))
    status = SEQUENCE.sub("", shown.after(10, Activity(running=waits))[-1])
    assert "  30 s left  ..." in status
    assert status.endswith("=float16]' (3 s, trace) and 1 more")
    assert columns(status) < 80


def test_what_failures_share_is_said_where_no_pass_has_it() -> None:
    def of(outcome: Outcome, **values: object) -> CaseResult:
        point = ",".join(f"{key}={value}" for key, value in values.items())
        return result(0, outcome, case_id=CaseId(f"area/spec[backend=cpu,{point}]"))

    cases = [
        of(
            Outcome.FAIL if dtype == "float16" and dynamic == "true" else Outcome.PASS,
            n=n,
            dtype=dtype,
            dynamic=dynamic,
        )
        for n in (1, 2)
        for dtype in ("float16", "float32")
        for dynamic in ("true", "false")
    ]
    sentence = "all 2 failures of area/spec have dtype float16 and dynamic true, and no pass"
    assert list(shared_by_failures(cases)) == [("area/spec", sentence, ["dtype", "dynamic"])]
    assert sentence in reported(*cases).splitlines()
    one_of_each = [of(Outcome.FAIL, n=1), of(Outcome.FAIL, n=2), of(Outcome.PASS, n=1)]
    assert not list(shared_by_failures(one_of_each))
    assert not list(shared_by_failures(cases[:1] + cases[1:2]))


def test_crashes_of_one_cause_are_told_once_also_of_two_specs() -> None:
    def crash(spec: str, line: int, inner: str) -> CaseResult:
        stack = f'  File "/x/torch/a.py", line {line} in {inner}\n  File "{spec}", line 3 in fn'
        observed = f"killed by SIGSEGV while in phase 'call', in fn at line {line} of the spec"
        verdict = Verdict(kind="crash", status=Status.ERROR, observed=observed, detail=stack)
        return result(line, Outcome.CRASH, spec=spec, verdicts=(verdict,))

    found = causes(
        [crash("a.yaml", 1, "op"), crash("b.yaml", 2, "op"), crash("a.yaml", 1, "other")]
    )
    assert [len(group) for group in found] == [2, 1]


def test_assertions_of_one_function_have_one_cause_whatever_nodes_they_name() -> None:
    def raised(line: int, text: str, function: str) -> CaseResult:
        stack = (
            f'  File "/x/torch/_inductor/fx.py", line 1 in compile\n'
            f'  File "/x/torch/_functorch/graphs.py", line {line} in {function}'
        )
        verdict = Verdict(kind="raised", status=Status.FAILED, observed=text, detail=stack)
        return result(line, Outcome.FAIL, verdicts=(verdict,))

    found = causes(
        [
            raised(1, "AssertionError: n=copy_, args={empty}", "functional"),
            raised(2, "AssertionError: n=copy__1, args={permute_1, x}", "functional"),
            raised(3, "AssertionError: n=copy_, args={empty}", "dense"),
            raised(4, "RuntimeError: empty", "functional"),
            raised(5, "RuntimeError: permute", "dense"),
        ]
    )
    assert [len(group) for group in found] == [2, 1, 1, 1]
