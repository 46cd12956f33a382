"""What is seen while a run goes: lines, heartbeats, and the status on a terminal."""

import io
import re
from dataclasses import replace
from typing import Any

import pytest

from runner.model.case import CaseId
from runner.model.events import Activity, RunningCase
from runner.model.outcomes import Outcome
from runner.model.results import CaseResult
from runner.report import columns
from runner.report.terminal import FIRST_HEARTBEAT, Progress
from tests.unit.test_console import Terminal, result

SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(autouse=True)
def usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Shown:
    """A progress, its clock, and what it wrote."""

    def __init__(self, *, live: bool = False, color: bool = False, total: int = 3, **more: Any) -> None:
        self.stream = Terminal() if live else io.StringIO()
        self.clock = Clock()
        self.progress = Progress(self.stream, color=color, live=live, clock=self.clock)
        self.progress.start(total, **more)

    def after(self, seconds: float, activity: Activity) -> list[str]:
        """Let time go by; return the lines that were written at its end."""
        before = len(self.stream.getvalue())
        self.activity = activity
        self.clock.now += seconds
        self.progress.show(activity)
        return self.stream.getvalue()[before:].splitlines()

    @property
    def drawn(self) -> str:
        """Return the status."""
        self.clock.now += 1
        begin = len(self.stream.getvalue())
        self.progress.show(self.activity)
        return SEQUENCE.sub("", self.stream.getvalue()[begin:]).replace("\r", "")


def running(*names: str, since: float = 1000.0, phase: str = "trace", **more: Any) -> Activity:
    return Activity(running=tuple(RunningCase(name=name, since=since + number, phase=phase) for number, name in enumerate(names)), **more)


# -- lines ----------------------------------------------------------------------------------------------------------


def lines_of(*results: CaseResult, total: int, color: bool = False) -> list[str]:
    shown = Shown(total=total, color=color)
    for each in results:
        shown.progress.case_finished(each)
    shown.progress.close()
    return shown.stream.getvalue().splitlines()


def test_without_a_terminal_there_is_one_line_for_each_finished_case() -> None:
    assert lines_of(result(1, Outcome.PASS), result(2), result(3, Outcome.UNAVAILABLE), total=40) == [
        "PASS   1/40  1.3s  'area/one[backend=cpu,n=1]'",
        "FAIL   2/40  1.3s  'area/one[backend=cpu,n=2]': it did not hold",
        "UNAVAILABLE   3/40  1.3s  'area/one[backend=cpu,n=3]'",
    ]


# -- heartbeats -----------------------------------------------------------------------------------------------------


def test_a_stream_that_is_no_terminal_hears_what_a_silent_run_waits_for() -> None:
    shown = Shown()
    assert shown.after(FIRST_HEARTBEAT - 1, Activity(starting=1000.0)) == []
    assert shown.after(1, Activity(starting=1000.0)) == ["0/3 ended; starting torch (30 s)"]
    assert shown.after(1, running("a[n=1]", "b")) == []
    assert shown.after(59, running("a[n=1]", "b")) == ["0/3 ended; running 'a[n=1]' (90 s, trace), b (89 s, trace)"]


# -- a terminal -----------------------------------------------------------------------------------------------------


def test_the_status_says_what_runs_since_when() -> None:
    shown = Shown(live=True)
    shown.after(0, running("long", "short", since=960.0, starting=990.0))
    shown.progress.case_finished(result(0, Outcome.PASS))
    said = "starting torch (11 s); running long (41 s, trace), short (40 s, trace)"
    assert shown.drawn == f"{'=' * 8}{'-' * 16} 1/3  1 PASS  {said}"


def test_only_failures_leave_a_line_above_the_status() -> None:
    shown = Shown(live=True)
    shown.progress.case_finished(result(1, Outcome.PASS))
    assert "n=1" not in shown.stream.getvalue()
    shown.progress.case_finished(result(2))
    shown.progress.note("interrupted: finishing 2 running cases")
    text = SEQUENCE.sub("", shown.stream.getvalue())
    assert "FAIL  2/3  1.3s  'area/one[backend=cpu,n=2]': it did not hold\n" in text
    assert "interrupted: finishing 2 running cases\n" in text


@pytest.mark.parametrize(("lets_pass", "painted"), [(True, "\x1b[33mFLAKY"), (False, "\x1b[31mFLAKY")])
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
    assert columns(shown.drawn) < width


def test_a_terminal_that_knows_ascii_alone_gets_no_more() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    one = Progress(stream, color=False, live=True)
    one.start(3)
    one.show(running("x" * 300))
    one.case_finished(replace(result(), reason="plain"))
    one.close()


def test_names_drive_no_terminal() -> None:
    shown = Shown(live=True)
    shown.after(1, running("a\x1b[2J\x07", phase="\x1b]0;x\x07"))
    shown.progress.case_finished(result(case_id=CaseId("b\x1b[2J"), reason="\x07"))
    text = shown.stream.getvalue()
    assert "\x1b[2J" not in text
    assert "\x07" not in text
