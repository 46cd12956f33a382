"""A journal whose outcomes do not follow from its facts is refused with file and line, whichever field was changed."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.language.backends import load_backends
from runner.model.case import CaseId
from runner.model.diagnostics import Position
from runner.model.header import RunHeader
from runner.model.outcomes import Outcome
from runner.model.results import CaseResult, Policy, WaiverEffect
from runner.record.journal import JournalError, JournalWriter, digest_of_selection, read_run
from runner.run.rejudge import impossible_on_machine
from tests import fakes
from tests.results import as_outcome, footer_of, waiver_of

AT = Position(file="specs/a/one.yaml", line=7, column=5)


def case(number: int, outcome: Outcome = Outcome.PASS, **changes: Any) -> CaseResult:
    made = CaseResult(
        case_id=CaseId(f"a/one[backend=cpu,n={number}]"),
        spec=AT.file,
        area="a",
        name="one",
        backend="cpu",
        outcome=outcome,
        reason="",
        failure_type="",
        verdicts=(),
        position=AT,
        seconds=1.0,
        digest=f"{number:064x}",
        folder=f"cases/{number:05d}",
    )
    return as_outcome(made, outcome, **changes)


def header(*results: CaseResult, **changes: Any) -> RunHeader:
    made = RunHeader(
        run_id="r1",
        started="2026-01-01T00:00:00+00:00",
        version="0",
        command=(),
        environment={"torch": "2.13.0", "gpus": "0"},
        variables={},
        specs={},
        selected=len(results),
        selected_whole=len(results),
        selection=digest_of_selection({result.case_id: result.digest for result in results}),
        options={"min-executed": "1", "retries": "2", "repeat": "1", "flaky": "fail", "fail-fast": ""},
    )
    return replace(made, **changes)


def written(path: Path, *results: CaseResult, attempts: tuple[CaseResult, ...] = (), **of_header: Any) -> Path:
    with JournalWriter(path) as journal:
        journal.write_header(header(*results, **of_header))
        for attempt in attempts:
            journal.write_attempt(attempt)
        for result in results:
            journal.write_case(result)
        journal.write_footer(footer_of(results))
    return path


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


RETRIED = (case(1, Outcome.CRASH), case(1, Outcome.PASS, folder="cases/00009"))
FLAKY = Policy(retries=2).fold(RETRIED)
WHOLE = [case(number, outcome) for number, outcome in enumerate(Outcome, start=1) if outcome not in (Outcome.FLAKY, Outcome.NOT_RUN)]


def test_what_a_run_writes_is_read(journal: Path) -> None:
    assert len(read_run(written(journal, *WHOLE)).results) == len(WHOLE)


def test_attempts_and_their_case_are_read(journal: Path) -> None:
    assert read_run(written(journal, FLAKY, attempts=RETRIED)).results == (FLAKY,)


def test_a_pass_of_some_samples_keeps_its_waiver(journal: Path) -> None:
    kept = case(1, Outcome.PASS)
    kept = replace(kept, waivers=(waiver_of(WaiverEffect.PART_PASSED, "r", kept.position),))
    assert read_run(written(journal, kept)).results == (kept,)


Change = Callable[[list[dict[str, Any]]], object]


def line(number: int, **changes: Any) -> Change:
    return lambda lines: lines[number].update(changes)


def verdict(**changes: Any) -> Change:
    return lambda lines: lines[1]["verdicts"][0].update(changes)


POSITION = {"file": AT.file, "line": 99, "column": 1}
WAIVER = {"effect": "matched", "cases": "*", "position": POSITION, "reason": "r", "issue": "i", "until": "2027-01-01"}

LIES: list[tuple[Outcome, Change, str]] = [
    (Outcome.FAIL, line(1, outcome="PASS", reason="", failure_type=""), "PASS (), though its verdicts and waivers give FAIL (counter)"),
    (Outcome.FELL_BACK, line(1, outcome="PASS", reason="", failure_type=""), "give FELL_BACK (fell-back)"),
    (Outcome.CRASH, line(1, outcome="PASS", reason="", failure_type=""), "give CRASH (crash)"),
    (Outcome.TIMEOUT, line(1, outcome="FAIL"), "give TIMEOUT (timeout)"),
    (Outcome.FAIL, line(1, outcome="PASS", reason="", failure_type="", verdicts=[]), "PASS without a verdict"),
    (Outcome.FAIL, verdict(status="held"), "give PASS ()"),
    (Outcome.PASS, verdict(status="not-applicable"), "PASS without a verdict"),
    (Outcome.FAIL, line(1, failure_type="close"), "FAIL (close), though its verdicts and waivers give FAIL (counter)"),
    (Outcome.FAIL, line(1, outcome="XFAIL"), "give FAIL (counter)"),
    (Outcome.FAIL, line(1, waivers=[WAIVER]), "give XFAIL (counter)"),
    (Outcome.XFAIL, line(1, waivers=[{**WAIVER, "effect": "part-passed"}]), "give FAIL (counter)"),
    (Outcome.ERROR, line(1, outcome="XFAIL", waivers=[WAIVER]), "give ERROR (error)"),
    (Outcome.XPASS, line(1, outcome="PASS", reason="", failure_type=""), "give XPASS (xpass)"),
    (Outcome.PASS, line(1, outcome="UNAVAILABLE", reason="no GPU", failure_type="unavailable"), "though it was executed"),
    (Outcome.PASS, line(1, outcome="UNAVAILABLE", reason="no", failure_type="unavailable", verdicts=[]), "though it was executed"),
    (Outcome.UNAVAILABLE, line(1, outcome="PASS", reason="", failure_type=""), "PASS without a verdict"),
    (Outcome.PASS, line(1, outcome="NOT_RUN", reason="x", failure_type="not-run", verdicts=[]), "NOT_RUN, though it was executed"),
    (Outcome.PASS, line(1, outcome="FLAKY", reason="x", failure_type="flaky"), "give PASS ()"),
    (Outcome.PASS, line(1, case_id="a/other[backend=cpu,n=1]"), "its id is not of area 'a', name 'one'"),
    (Outcome.PASS, line(1, backend="cuda"), "and backend 'cuda'"),
    (Outcome.PASS, line(1, folder=""), "without the folder"),
    (Outcome.PASS, line(1, folder="../elsewhere"), "'../elsewhere' is no folder of a case"),
    (Outcome.PASS, line(1, folder="cases/00002"), "cases/00002 is the folder of"),
    (Outcome.PASS, line(1, evidence={}), "the digest of what it was judged by"),
    (Outcome.PASS, line(1, evidence={"../x": "e" * 64}), "is no file of a case"),
    (Outcome.PASS, line(1, attachments=["../x"]), "'../x' is no file of a case"),
    (Outcome.PASS, line(1, digest="f" * 64), "its cases are not those that were selected"),
    (Outcome.PASS, line(2, case_id="a/one[backend=cpu,n=1]"), "a second line for the case"),
    (Outcome.PASS, line(0, selected=1), "it holds 2 of its 1 cases"),
    (Outcome.PASS, line(0, selected=3), "3 cases are selected of 2"),
    (Outcome.FAIL, line(3, exit_code=0), "its exit code is 0, but its cases give 1"),
    (Outcome.PASS, line(3, exit_code=4), "its exit code is 4, but its cases give 0"),
    (Outcome.PASS, line(3, interrupted=True), "its exit code is 0, but its cases give 130"),
    (Outcome.NOT_RUN, line(3), "a case was not run, though nothing stopped the run"),
]


@pytest.mark.parametrize(("outcome", "change", "words"), LIES, ids=[f"{outcome.label}-{words[:40]}" for outcome, _, words in LIES])
def test_a_line_that_contradicts_another_field_is_refused(journal: Path, outcome: Outcome, change: Change, words: str) -> None:
    lines = [json.loads(text) for text in written(journal, case(1, outcome), case(2)).read_text().splitlines()]
    change(lines)
    journal.write_text("".join(json.dumps(record) + "\n" for record in lines))
    with pytest.raises(JournalError, match=r"^line [1-4]: ") as caught:
        read_run(journal)
    assert words in str(caught.value)


OF_ATTEMPTS: list[tuple[Change, str]] = [
    (line(3, outcome="PASS", reason="", failure_type=""), "PASS, though its attempts give FLAKY"),
    (lambda lines: lines[3]["attempts"].pop(), "its 1 attempts are not the 2"),
    (lambda lines: lines.pop(1), "its 2 attempts are not the 1"),
    (lambda lines: lines[3]["attempts"][0].update(outcome="FAIL"), "its 2 attempts are not the 2"),
    (lambda lines: lines[1].update(outcome="PASS", reason="", failure_type=""), "give CRASH (crash)"),
]


@pytest.mark.parametrize(("change", "words"), OF_ATTEMPTS, ids=[words for _, words in OF_ATTEMPTS])
def test_a_case_that_contradicts_its_attempts_is_refused(journal: Path, change: Change, words: str) -> None:
    lines = [json.loads(text) for text in written(journal, FLAKY, attempts=RETRIED).read_text().splitlines()]
    change(lines)
    journal.write_text("".join(json.dumps(record) + "\n" for record in lines))
    with pytest.raises(JournalError) as caught:
        read_run(journal)
    assert words in str(caught.value)


def test_more_attempts_than_the_run_makes_are_refused(journal: Path) -> None:
    made = tuple(case(1, Outcome.FAIL, folder=f"cases/{number:05d}") for number in range(1, 5))
    with pytest.raises(JournalError, match="4 attempts, where at most 3 are made"):
        read_run(written(journal, Policy(retries=3).fold(made), attempts=made))


def test_a_missing_capability_that_is_required_is_an_error_without_verdicts(journal: Path) -> None:
    required = replace(case(1, Outcome.UNAVAILABLE), outcome=Outcome.ERROR, reason="--require cuda: no GPU")
    assert read_run(written(journal, required)).results == (required,)
    with pytest.raises(JournalError, match="ERROR without a verdict"):
        read_run(written(journal.with_name("other"), replace(required, reason="no GPU")))


BACKENDS = load_backends().by_name


def test_what_a_machine_cannot_have_executed_is_seen() -> None:
    other = replace(case(1), backend="cuda")
    assert impossible_on_machine([case(1)], {"gpus": "0"}, BACKENDS) == ""
    assert impossible_on_machine([other], {"gpus": "1"}, BACKENDS) == ""
    assert "PASS on cuda, and the machine had no GPU" in impossible_on_machine([other], {"gpus": "0"}, BACKENDS)


def test_what_a_node_cannot_have_executed_is_seen_whatever_the_header_says() -> None:
    one, none = (replace(case(1), backend="cuda", node={"name": "a", "gpus": gpus}) for gpus in ("1", "0"))
    assert impossible_on_machine([one], {"gpus": "0"}, BACKENDS) == ""
    assert "PASS on cuda, and the machine had no GPU" in impossible_on_machine([one, none], {"gpus": "1"}, BACKENDS)


def test_the_journal_of_a_run_that_goes_on_is_sealed(journal: Path) -> None:
    from runner.model.diagnostics import JournalAltered

    forged = json.dumps({"kind": "case"}).encode() + b"\n"
    for number, harm in enumerate((_append, _overwrite, _replace, _remove)):
        path = journal.with_name(f"{number}.jsonl")
        with JournalWriter(path) as writer:
            writer.write_header(header(case(1)))
            writer.write_case(case(1))
            harm(path, forged)
            with pytest.raises(JournalAltered, match=path.name):
                writer.verify()
            with pytest.raises(JournalAltered):
                writer.write_footer(footer_of([case(1)]))
            writer.set_aside()
        assert not path.exists()


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(data)


def _overwrite(path: Path, data: bytes) -> None:
    with path.open("r+b") as stream:
        stream.seek(-len(data), 2)
        stream.write(data)


def _replace(path: Path, data: bytes) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def _remove(path: Path, data: bytes) -> None:
    path.unlink()


def test_whatever_the_judge_says_does_not_contradict_itself(journal: Path) -> None:
    step = fakes.step(fakes.COUNTED)
    made = fakes.case(step)
    facts = ({}, {"counters": {}}, {"executed": {}}, {"raised": fakes.exception()})
    found = [fakes.verdict_of(made, fakes.observation(fakes.seen(**changes))) for changes in facts]
    assert [one.outcome for one in found] == [Outcome.PASS, Outcome.FAIL, Outcome.FELL_BACK, Outcome.FAIL]
    for number, one in enumerate(found, start=1):
        given = {"outcome": one.outcome, "reason": one.reason, "failure_type": one.failure_type, "verdicts": one.verdicts}
        result = replace(case(1), **given, position=one.position)
        read_run(written(journal.with_name(f"{number}.jsonl"), result))


@pytest.mark.parametrize(
    ("required", "shard", "code", "problem"),
    [
        ("triton", "", 4, ""),
        ("triton", "", 0, "its exit code is 0, but its cases give 4"),
        ("redis", "", 0, ""),
        ("redis", "", 4, "its exit code is 4, but its cases give 0"),
        ("triton", "1/2", 4, ""),
        ("triton", "1/2", 0, ""),
    ],
)
def test_the_exit_code_follows_from_what_was_required(journal: Path, required: str, shard: str, code: int, problem: str) -> None:
    """What a shard exits with may follow from cases of other shards."""
    results = [case(1, requires=("redis",)), case(2)]
    options = {**header().options, "require": required, "shard": shard}
    path = written(journal, *results, options=options)
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    lines[-1]["exit_code"] = code
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    if problem:
        with pytest.raises(JournalError, match=problem):
            read_run(path)
    else:
        assert len(read_run(path).results) == 2
