"""The form of a journal: what is written is read back, what is torn reads as truncated, what is malformed is refused with its line.

Whether its lines can all be true is asked in ``test_contradictions``.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from runner.model.case import CaseId
from runner.model.case_facts import Timing
from runner.model.diagnostics import Position
from runner.model.expectation import Status, Verdict
from runner.model.header import RunFooter, RunHeader
from runner.model.outcomes import Outcome
from runner.model.results import AppliedWaiver, Attempt, CaseResult, WaiverEffect
from runner.record.journal import JournalError, JournalWriter, Run, read_run

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "schemas" / "journal.schema.json"
AT = Position(file="specs/a/one.yaml", line=7, column=5)
HEADER = RunHeader(
    run_id="r1",
    started="2026-10-07T12:00:00Z",
    version="0.1.0",
    command=("torch-conformance", "run"),
    environment={"torch": "2.13.0", "hip": ""},
    variables={"OMP_NUM_THREADS": "2"},
    specs={"specs/a/one.yaml": "0" * 64},
    selected=2,
    selected_whole=9,
    selection="a" * 64,
    options={"backend": "cpu", "timeout": "300.0", "shard": "1/4", "retries": "2", "flaky": "pass"},
    merged=("r0",),
)
FOOTER = RunFooter(ended="2026-10-07T12:00:09Z", seconds=9.5, exit_code=1, interrupted=True)
ENDED = replace(FOOTER, interrupted=False)
FULL = CaseResult(
    case_id=CaseId("a/one[backend=cpu]"),
    spec="specs/a/one.yaml",
    area="a",
    name="one",
    backend="cpu",
    outcome=Outcome.FAIL,
    reason="counter: expected 1, observed 0",
    failure_type="counter",
    verdicts=(
        Verdict(kind="counter", status=Status.FAILED, position=AT, expected="1", observed="NaN, inf", detail="a\nb\r\n\u2028c"),
        Verdict(kind="close", status=Status.NOT_APPLICABLE, position=AT),
    ),
    position=AT,
    seconds=1.25,
    phases={"eager": 0.5, "run": 1e-9},
    isolation="fork",
    begun="2026-01-01T00:00:00.250+00:00",
    worker=2,
    gpus=(0, 1),
    warmup_begun="2026-10-07T12:00:00.250+00:00",
    warmup=1.25,
    node={"name": "epyc", "image": "torch-2.13"},
    folder="cases/0001",
    evidence={"observation.json": "e" * 64},
    repro="torch-conformance repro 'a/one[backend=cpu]'",
    summary="A claim",
    options=("config.freezing: true",),
    code=("code-0-0.txt",),
    stdout="lone \ud800 and \udcff, NUL \x00, \x1b[31m, \U0001f600",
    stderr="é\x85\u2029",
    digest="f" * 64,
    phase="codegen",
    covers=("test_a.py::A::test_one[{{ x }}]",),
    tags=("cache",),
    requires=("redis", "triton"),
    waivers=(
        AppliedWaiver(
            effect=WaiverEffect.OTHER_FAILURE,
            cases="a/*",
            position=AT,
            reason="It counts a miss too few",
            issue="https://example.org/issues/7",
            until="2027-03-01",
        ),
    ),
    timings=(Timing(name="fn", form="compiled", median_ms=1.25, least_ms=1.0, most_ms=2.5, count=10),),
    attachments=("trace-1.json",),
    notes=("trace-2.json was left out",),
    target="hip:gfx942",
    level="O3",
    benches_left_out=2,
    attempts=(
        Attempt(
            outcome=Outcome.CRASH,
            reason="killed by SIGSEGV while in phase 'run'",
            failure_type="crash",
            seconds=0.5,
            isolation="fork",
            folder="cases/0001",
            evidence={"observation.json": "e" * 64},
            verdicts=(Verdict(kind="crash", status=Status.ERROR, position=AT),),
            stdout="\ud800",
            stderr="\x00",
        ),
        Attempt(outcome=Outcome.PASS, reason="", failure_type="", seconds=0.75, isolation="process", folder="cases/0007"),
    ),
)
PASSED = CaseResult(
    case_id=CaseId("one[backend=cpu]"),
    spec="one.yaml",
    area="",
    name="one",
    backend="cpu",
    outcome=Outcome.PASS,
    reason="",
    failure_type="",
    verdicts=(),
    position=Position(file="one.yaml"),
    seconds=0.0,
)


def written(path: Path, *results: CaseResult, footer: RunFooter | None = FOOTER) -> Path:
    with JournalWriter(path) as journal:
        journal.write_header(HEADER)
        for result in results:
            journal.write_case(result)
        if footer:
            journal.write_footer(footer)
    return path


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def test_every_field_comes_back(journal: Path) -> None:
    assert read_run(written(journal, FULL, PASSED), checks=False) == Run(header=HEADER, results=(FULL, PASSED), footer=FOOTER)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_json_cannot_say_is_refused_and_leaves_no_half_line(journal: Path, number: float) -> None:
    with JournalWriter(journal) as writer:
        writer.write_header(HEADER)
        with pytest.raises(ValueError, match="JSON compliant"):
            writer.write_case(replace(FULL, seconds=number))
    assert read_run(journal, checks=False).results == ()


def test_each_line_is_on_disk_before_the_next(journal: Path) -> None:
    writer = JournalWriter(journal)
    writer.write_header(HEADER)
    assert read_run(journal, checks=False).results == ()
    writer.write_case(FULL)
    assert read_run(journal, checks=False).results == (FULL,)
    writer.close()


def test_wherever_the_last_line_is_torn_the_rest_stands(journal: Path) -> None:
    data = written(journal, PASSED, FULL, footer=None).read_bytes()
    start = data[:-1].rfind(b"\n") + 1
    for end in range(start, len(data) - 1, 7):
        journal.write_bytes(data[:end])
        run = read_run(journal, checks=False)
        assert run.footer is None
        assert run.results == (PASSED,)


# -- cases that are run several times ---------------------------------------------------------------------------------


def attempted(path: Path, *results: CaseResult) -> Path:
    """Write a truncated journal with a line for each attempt."""
    with JournalWriter(path) as journal:
        journal.write_header(HEADER)
        for result in results:
            journal.write_attempt(result)
    return path


def test_attempts_are_kept_until_their_case_has_ended(journal: Path) -> None:
    again = replace(FULL, seconds=9.0)
    other = replace(PASSED, seconds=1.0)
    run = read_run(attempted(journal, FULL, other, again), checks=False)
    assert run.results == ()
    assert run.attempts == {FULL.case_id: (FULL, again), PASSED.case_id: (other,)}
    with JournalWriter(journal) as writer:
        writer.write_case(again)
    run = read_run(journal, checks=False)
    assert (run.results, run.attempts) == ((again,), {PASSED.case_id: (other,)})


def test_an_attempt_of_a_case_that_has_ended_is_refused(journal: Path) -> None:
    lines = attempted(journal, FULL).read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], lines[1].replace(b'"attempt"', b'"case"', 1), lines[1]]))
    with pytest.raises(JournalError, match="an attempt of a case that had ended") as caught:
        read_run(journal, checks=False)
    assert caught.value.line == 3


def test_attempts_stand_when_their_run_goes_on(journal: Path) -> None:
    unrun = replace(FULL, outcome=Outcome.NOT_RUN, reason="interrupted after 1 of at most 3 attempts")
    with JournalWriter(attempted(journal, FULL)) as writer:
        writer.write_case(unrun)
        writer.write_footer(FOOTER)
    with JournalWriter(journal) as writer:
        writer.write_attempt(FULL)
    run = read_run(journal, checks=False)
    assert (run.results, run.footer, run.attempts) == ((), None, {FULL.case_id: (FULL, FULL)})


@pytest.mark.parametrize("torn", [b"", b'{"kind": "case", "ca'])
def test_a_truncated_journal_is_continued(journal: Path, torn: bytes) -> None:
    with written(journal, FULL, footer=None).open("ab") as stream:
        stream.write(torn)
    with JournalWriter(journal) as writer:
        writer.write_case(PASSED)
        writer.write_footer(FOOTER)
    assert read_run(journal, checks=False) == Run(header=HEADER, results=(FULL, PASSED), footer=FOOTER)


UNRUN = replace(PASSED, case_id=CaseId("two[backend=cpu]"), outcome=Outcome.NOT_RUN, reason="interrupted")


@pytest.mark.parametrize("footer", [FOOTER, None], ids=["with its footer", "killed before its footer"])
@pytest.mark.parametrize("torn", [b"", b'{"kind": "case", "ca'])
def test_what_was_not_run_stands_for_nothing_once_the_run_goes_on(journal: Path, footer: RunFooter | None, torn: bytes) -> None:
    written(journal, FULL, PASSED, UNRUN, footer=footer)
    if footer is None:
        journal.write_bytes(journal.read_bytes() + torn)
    before = journal.read_bytes()
    with JournalWriter(journal) as writer:
        assert journal.read_bytes() == before, "until there is something to write, nothing is touched"
        assert read_run(journal, checks=False).finished == (FULL, PASSED)
        writer.write_case(replace(UNRUN, outcome=Outcome.PASS, reason=""))
        writer.write_footer(ENDED)
    assert read_run(journal, checks=False) == Run(
        header=HEADER, results=(FULL, PASSED, replace(UNRUN, outcome=Outcome.PASS, reason="")), footer=ENDED
    )
    assert [path.name for path in journal.parent.iterdir()] == [journal.name]


def test_a_run_that_finished_nothing_begins_anew(journal: Path) -> None:
    written(journal, UNRUN)
    with JournalWriter(journal) as writer:
        writer.write_header(replace(HEADER, started="2026-10-08T00:00:00Z"))
        writer.write_case(PASSED)
    assert read_run(journal, checks=False) == Run(header=replace(HEADER, started="2026-10-08T00:00:00Z"), results=(PASSED,), footer=None)


def test_a_case_has_one_line(journal: Path) -> None:
    with pytest.raises(JournalError, match=r"line 3: 'a/one\[backend=cpu\]': a second line for the case"):
        read_run(written(journal, FULL, FULL), checks=False)


def test_a_link_or_a_pipe_is_no_journal(journal: Path) -> None:
    written(journal, FULL)
    link, pipe = journal.parent / "link", journal.parent / "pipe"
    link.symlink_to(journal)
    os.mkfifo(pipe)
    for path, words in ((link, "this is a link"), (pipe, "this is no file"), (journal.parent, "this is no file")):
        with pytest.raises(JournalError, match=words):
            read_run(path, checks=False)


def line_of(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def changed(journal: Path, number: int, change: Callable[[dict[str, Any]], object]) -> None:
    """Edit one line of a whole journal."""
    lines = written(journal, FULL).read_bytes().splitlines(keepends=True)
    record = json.loads(lines[number - 1])
    change(record)
    lines[number - 1] = line_of(record)
    journal.write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    ("number", "change", "reason"),
    [
        (1, lambda record: record.pop("format"), "format None; this program reads 1"),
        (1, lambda record: record.update(format=2), "format 2"),
        (1, lambda record: record.update(format="1"), "format '1'"),
        (1, lambda record: record.pop("specs"), "header lacks 'specs'"),
        (1, lambda record: record.update(environment={"torch": 2}), "header.environment.torch is not"),
        (1, lambda record: record.update(command="run"), "header.command is not"),
        (1, lambda record: record.update(selected=True), "header.selected is not"),
        (1, lambda record: record.update(selected=1.5), "header.selected is not"),
        (2, lambda record: record.pop("kind"), "unknown kind None"),
        (2, lambda record: record.update(kind="cases"), "unknown kind 'cases'"),
        (2, lambda record: record.update(kind=["case"]), "unknown kind"),
        (2, lambda record: record.update(outcome="PASSED"), "case.outcome: unknown word 'PASSED'"),
        (2, lambda record: record.update(seconds="1"), "case.seconds is not a finite number"),
        (2, lambda record: record.update(seconds=False), "case.seconds is not a finite number"),
        (2, lambda record: record.update(extra=1), "case has an unknown key 'extra'"),
        (2, lambda record: record["verdicts"][0].update(status="lost"), r"case.verdicts\[0\].status: unknown word"),
        (2, lambda record: record["verdicts"][1].pop("kind"), r"verdicts\[1\] lacks 'kind'"),
        (2, lambda record: record.update(position=None), "case.position is not"),
        (2, lambda record: record.update(kind="footer"), "footer has an unknown key"),
        (2, lambda record: record["attempts"][1].pop("folder"), r"case.attempts\[1\] lacks 'folder'"),
        (2, lambda record: record.update(kind="attempt", seconds="1"), "attempt.seconds is not a finite number"),
        (3, lambda record: record.update(interrupted=0), "footer.interrupted is not"),
        (3, lambda record: record.update(totals={}), "footer has an unknown key 'totals'"),
        (3, lambda record: record.update(statement=[]), "footer has an unknown key 'statement'"),
    ],
)
def test_a_malformed_line_is_refused_with_its_number(
    journal: Path, number: int, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    changed(journal, number, change)
    with pytest.raises(JournalError, match=reason) as caught:
        read_run(journal, checks=False)
    assert caught.value.line == number
    assert str(caught.value).startswith(f"line {number}: ")


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"garbage\n",
        b"[]\n",
        b"1\n",
        b"{\n",
        b'{"kind": "case"}\n',
        b"\xff\xfe\n",
        b'{"seconds": NaN}\n',
        b'{"seconds": -Infinity}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_bad_line_in_the_middle_is_refused(journal: Path, line: bytes) -> None:
    lines = written(journal, FULL).read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], line, *lines[1:]]))
    with pytest.raises(JournalError) as caught:
        read_run(journal, checks=False)
    assert caught.value.line == 2


@pytest.mark.parametrize(("order", "line"), [((0, 0), 2), ((1,), 1), ((2,), 1), ((0, 2, 1), 3), ((0, 2, 2), 3)])
def test_lines_in_a_wrong_order_are_refused(journal: Path, order: tuple[int, ...], line: int) -> None:
    lines = written(journal, FULL).read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[i] for i in order))
    with pytest.raises(JournalError) as caught:
        read_run(journal, checks=False)
    assert caught.value.line == line


def schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(SCHEMA.read_text())
    return loaded


@pytest.mark.parametrize("outcome", Outcome)
def test_each_written_line_validates(journal: Path, outcome: Outcome) -> None:
    validator = Draft202012Validator(schema())
    passed = replace(PASSED, outcome=outcome, reason="" if outcome is Outcome.PASS else "because")
    for line in written(journal, FULL, passed).read_text().splitlines():
        validator.validate(json.loads(line))
