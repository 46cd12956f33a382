"""A journal: what is written is read back; what is torn is truncated; what is malformed or cannot
be true is refused with its line.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, NewType, get_args, get_origin, get_type_hints

import pytest
from jsonschema import Draft202012Validator

from tests.fakes import ROOT, shipped
from tests.recorded import edit, footer_of, recorded, run_of, waiver_of, write_journal
from torch_conformance.model.case import CaseId
from torch_conformance.model.codec import COMPUTED
from torch_conformance.model.diagnostics import JournalAltered
from torch_conformance.model.header import RunFooter, RunHeader
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult, Policy, WaiverEffect
from torch_conformance.record.journal import (
    JournalError,
    JournalWriter,
    Run,
    digest_of_selection,
    read_run,
)
from torch_conformance.run.rejudge import impossible_on_machine

Change = Callable[[list[dict[str, Any]]], object]


def filled(kind: Any) -> Any:
    """Return a value of an annotated type in which nothing has its default, and texts hold what is
    hard to write.
    """
    if isinstance(kind, NewType):
        return filled(kind.__supertype__)
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(
            **{
                field.name: filled(hints[field.name])
                for field in fields(kind)
                if COMPUTED not in field.metadata
            }
        )
    if get_origin(kind) is UnionType:  # of one type and None
        return filled(get_args(kind)[0])
    if get_origin(kind) is tuple:
        return (filled(get_args(kind)[0]),) * 2
    if get_origin(kind) is Mapping:
        return {"name": filled(get_args(kind)[1])}
    if issubclass(kind, Enum):
        return list(kind)[-1]
    texts = "lone \ud800 and \udcff, NUL \x00, \x1b[31m, \U0001f600, a\r\n\u2028"
    return {str: texts, int: 3, float: 1e-9, bool: True, Any: {}}[kind]


FULL: CaseResult = replace(filled(CaseResult), warnings=())  # the footer has them
HEADER = replace(filled(RunHeader), profile=())
FOOTER: RunFooter = filled(RunFooter)
PASSED = recorded("one")


def case(number: int, outcome: Outcome = Outcome.PASS, **changes: Any) -> CaseResult:
    values = {
        "case_id": f"area/one[backend=cpu,n={number}]",
        "digest": f"{number:064x}",
        "folder": f"cases/{number:05d}",
    }
    return recorded("one", outcome, **{**values, **changes})


def header(*results: CaseResult, **changes: Any) -> RunHeader:
    options = {
        "min-executed": "1",
        "retries": "2",
        "repeat": "1",
        "flaky": "fail",
        "fail-fast": "",
        **changes.pop("options", {}),
    }
    selection = digest_of_selection({result.case_id: result.digest for result in results})
    return run_of(
        *results, selected_whole=len(results), selection=selection, options=options, **changes
    ).header


def written(
    path: Path,
    *results: CaseResult,
    attempts: Sequence[CaseResult] = (),
    top: RunHeader | None = None,
    footer: Any = ...,
) -> Path:
    """Write a journal: with its own header and footer, unless others are given, or None for no
    footer.
    """
    footer = footer_of(results) if footer is ... else footer
    return write_journal(path, top or header(*results), results, attempts=attempts, footer=footer)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


# -- the form --------------------------------------------------------------------------------------


def test_every_field_comes_back(journal: Path) -> None:
    path = written(journal, FULL, PASSED, top=HEADER, footer=FOOTER)
    assert read_run(path, checks=False) == Run(
        header=HEADER, results=FOOTER.warned((FULL, PASSED)), footer=FOOTER
    )
    assert FOOTER.warned((FULL,)) != (FULL,)


@pytest.mark.parametrize("outcome", Outcome)
def test_each_written_line_validates(journal: Path, outcome: Outcome) -> None:
    validator = Draft202012Validator(
        json.loads((ROOT / "schemas" / "journal.schema.json").read_text())
    )
    for line in (
        written(journal, recorded("one", outcome), attempts=(recorded("two"),))
        .read_text()
        .splitlines()
    ):
        validator.validate(json.loads(line))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_json_cannot_say_is_refused_and_leaves_no_half_line(
    journal: Path, number: float
) -> None:
    with closing(JournalWriter(journal)) as writer:
        writer.write("header", HEADER)
        with pytest.raises(ValueError, match="JSON compliant"):
            writer.write("case", replace(FULL, seconds=number))
    assert read_run(journal, checks=False).results == ()


def test_each_line_is_on_disk_before_the_next(journal: Path) -> None:
    with closing(JournalWriter(journal)) as writer:
        writer.write("header", HEADER)
        assert read_run(journal, checks=False).results == ()
        writer.write("case", FULL)
        assert read_run(journal, checks=False).results == (FULL,)


def test_wherever_the_last_line_is_torn_the_rest_stands(journal: Path) -> None:
    data = written(journal, PASSED, FULL, top=HEADER, footer=None).read_bytes()
    for end in range(data[:-1].rfind(b"\n") + 1, len(data) - 1, 7):
        journal.write_bytes(data[:end])
        run = read_run(journal, checks=False)
        assert (run.footer, run.results) == (None, (PASSED,))


def test_a_link_or_a_pipe_is_no_journal(journal: Path) -> None:
    written(journal, FULL, top=HEADER)
    link, pipe = journal.parent / "link", journal.parent / "pipe"
    link.symlink_to(journal)
    os.mkfifo(pipe)
    for path, words in (
        (link, "this is a link"),
        (pipe, "this is not a regular file"),
        (journal.parent, "this is not a regular file"),
    ):
        with pytest.raises(JournalError, match=words):
            read_run(path, checks=False)


@pytest.mark.parametrize(
    ("number", "change", "reason"),
    [
        (1, lambda record: record.pop("format"), "format None; this program reads 1"),
        (1, lambda record: record.update(format=2), "format 2"),
        (1, lambda record: record.update(format="1"), "format '1'"),
        (1, lambda record: record.pop("specs"), "header lacks 'specs'"),
        (
            1,
            lambda record: record.update(environment={"torch": 2}),
            "header.environment.torch is not",
        ),
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
        (
            2,
            lambda record: record["verdicts"][0].update(status="lost"),
            r"case.verdicts\[0\].status: unknown word",
        ),
        (2, lambda record: record["verdicts"][1].pop("kind"), r"verdicts\[1\] lacks 'kind'"),
        (2, lambda record: record.update(position=None), "case.position is not"),
        (2, lambda record: record.update(kind="footer"), "footer has an unknown key"),
        (
            2,
            lambda record: record["attempts"][1].pop("folder"),
            r"case.attempts\[1\] lacks 'folder'",
        ),
        (
            2,
            lambda record: record.update(kind="attempt", seconds="1"),
            "attempt.seconds is not a finite number",
        ),
        (3, lambda record: record.update(interrupted=0), "footer.interrupted is not"),
        (3, lambda record: record.update(totals={}), "footer has an unknown key 'totals'"),
        (3, lambda record: record.update(statement=[]), "footer has an unknown key 'statement'"),
    ],
)
def test_a_malformed_line_is_refused_with_its_number(
    journal: Path, number: int, change: Callable[[Any], object], reason: str
) -> None:
    edit(written(journal, FULL, top=HEADER), lambda lines: change(lines[number - 1]))
    with pytest.raises(JournalError, match=reason) as caught:
        read_run(journal, checks=False)
    assert (caught.value.line, str(caught.value).startswith(f"line {number}: ")) == (number, True)


BAD = [
    b"\n",
    b"garbage\n",
    b"[]\n",
    b"1\n",
    b"{\n",
    b'{"kind": "case"}\n',
    b"\xff\xfe\n",
    b'{"seconds": NaN}\n',
    b"[" * 100_000 + b"\n",
]


@pytest.mark.parametrize("line", BAD)
def test_a_bad_line_in_the_middle_is_refused(journal: Path, line: bytes) -> None:
    lines = written(journal, FULL, top=HEADER).read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], line, *lines[1:]]))
    with pytest.raises(JournalError) as caught:
        read_run(journal, checks=False)
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("order", "line"),
    [((0, 0), 2), ((1,), 1), ((2,), 1), ((0, 2, 1), 3), ((0, 2, 2), 3), ((0, 1, 1), 3)],
)
def test_lines_in_a_wrong_order_are_refused(
    journal: Path, order: tuple[int, ...], line: int
) -> None:
    lines = written(journal, FULL, top=HEADER).read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[i] for i in order))
    with pytest.raises(JournalError) as caught:
        read_run(journal, checks=False)
    assert caught.value.line == line


# -- runs that go on -------------------------------------------------------------------------------

UNRUN = recorded("two", Outcome.NOT_RUN, reason="interrupted")
INTERRUPTED = footer_of([PASSED], interrupted=True)


def test_attempts_are_kept_until_their_case_has_ended(journal: Path) -> None:
    again, other = replace(FULL, seconds=9.0), replace(PASSED, seconds=1.0)
    run = read_run(
        written(journal, top=HEADER, attempts=(FULL, other, again), footer=None), checks=False
    )
    assert (run.results, run.attempts) == (
        (),
        {FULL.case_id: (FULL, again), PASSED.case_id: (other,)},
    )
    with closing(JournalWriter(journal)) as writer:
        writer.write("case", again)
    run = read_run(journal, checks=False)
    assert (run.results, run.attempts) == ((again,), {PASSED.case_id: (other,)})
    with closing(JournalWriter(journal)) as writer:
        writer.write("attempt", again)
    with pytest.raises(JournalError, match="an attempt of a case that had ended"):
        read_run(journal, checks=False)


@pytest.mark.parametrize(
    "footer", [INTERRUPTED, None], ids=["with its footer", "killed before its footer"]
)
@pytest.mark.parametrize("torn", [b"", b'{"kind": "case", "ca'])
def test_what_was_not_run_stands_for_nothing_once_the_run_goes_on(
    journal: Path, footer: RunFooter | None, torn: bytes
) -> None:
    written(journal, PASSED, UNRUN, top=HEADER, attempts=(UNRUN,), footer=footer)
    if footer is None:
        journal.write_bytes(journal.read_bytes() + torn)
    before = journal.read_bytes()
    ended = footer_of([PASSED])
    with closing(JournalWriter(journal)) as writer:
        assert journal.read_bytes() == before, (
            "until there is something to write, nothing is touched"
        )
        assert read_run(journal, checks=False).finished == (PASSED,)
        writer.write("case", recorded("two"))
        writer.write("footer", ended)
    assert read_run(journal, checks=False) == Run(
        header=HEADER, results=(PASSED, recorded("two")), footer=ended
    )
    assert [path.name for path in journal.parent.iterdir()] == [journal.name]


def test_a_run_that_finished_nothing_begins_anew(journal: Path) -> None:
    written(journal, UNRUN, top=HEADER, footer=INTERRUPTED)
    other = replace(HEADER, started="2026-10-08T00:00:00Z")
    with closing(JournalWriter(journal)) as writer:
        writer.write("header", other)
        writer.write("case", PASSED)
    assert read_run(journal, checks=False) == Run(header=other, results=(PASSED,), footer=None)


@pytest.mark.parametrize(
    "harm",
    [
        lambda path, data: path.write_bytes(path.read_bytes() + data),
        lambda path, data: path.write_bytes(path.read_bytes()[: -len(data)] + data),
        lambda path, data: (
            os.replace(path.with_name("copy"), path)
            if path.with_name("copy").write_bytes(path.read_bytes())
            else None
        ),
        lambda path, data: path.unlink(),
    ],
    ids=["appended", "overwritten", "replaced", "removed"],
)
def test_the_journal_of_a_run_that_goes_on_is_sealed(
    journal: Path, harm: Callable[[Path, bytes], object]
) -> None:
    with closing(JournalWriter(journal)) as writer:
        writer.write("header", header(case(1)))
        writer.write("case", case(1))
        harm(journal, b'{"kind": "case"}\n')
        with pytest.raises(JournalAltered, match=journal.name):
            writer.verify()
        with pytest.raises(JournalAltered):
            writer.write("footer", footer_of([case(1)]))
        writer.set_aside()
    assert not journal.exists()


# -- lines that cannot all be true -----------------------------------------------------------------

RETRIED = (case(1, Outcome.CRASH), case(1, Outcome.PASS, folder="cases/00009"))
FLAKY = Policy(retries=2).fold(RETRIED)
WHOLE = [
    case(number, outcome)
    for number, outcome in enumerate(Outcome, start=1)
    if outcome not in (Outcome.FLAKY, Outcome.NOT_RUN)
]
PART = replace(case(1), waivers=(waiver_of(WaiverEffect.PART_PASSED, "r", case(1).position),))
REQUIRED = replace(
    case(1, Outcome.UNAVAILABLE), outcome=Outcome.ERROR, reason="--require cuda: no GPU"
)


@pytest.mark.parametrize(
    ("results", "attempts"), [(WHOLE, ()), ([FLAKY], RETRIED), ([PART], ()), ([REQUIRED], ())]
)
def test_what_a_run_writes_is_read(
    journal: Path, results: list[CaseResult], attempts: tuple[CaseResult, ...]
) -> None:
    assert list(read_run(written(journal, *results, attempts=attempts)).results) == results


def line(number: int, **changes: Any) -> Change:
    return lambda lines: lines[number].update(changes)


def verdict(**changes: Any) -> Change:
    return lambda lines: lines[1]["verdicts"][0].update(changes)


FILE = "specs/area/one.yaml"
POSITION = {"file": FILE, "line": 99, "column": 1}
WAIVER = {
    "effect": "matched",
    "cases": "*",
    "position": POSITION,
    "reason": "r",
    "issue": "i",
    "until": "2027-01-01",
}

LIES: list[tuple[Outcome, Change, str]] = [
    (
        Outcome.FAIL,
        line(1, outcome="PASS", reason="", failure_type=""),
        "PASS (), though its verdicts and waivers give FAIL (counter)",
    ),
    (
        Outcome.FELL_BACK,
        line(1, outcome="PASS", reason="", failure_type=""),
        "give FELL_BACK (fell-back)",
    ),
    (Outcome.CRASH, line(1, outcome="PASS", reason="", failure_type=""), "give CRASH (crash)"),
    (Outcome.TIMEOUT, line(1, outcome="FAIL"), "give TIMEOUT (timeout)"),
    (
        Outcome.FAIL,
        line(1, outcome="PASS", reason="", failure_type="", verdicts=[]),
        "PASS without a verdict",
    ),
    (Outcome.FAIL, verdict(status="held"), "give PASS ()"),
    (Outcome.PASS, verdict(status="not-applicable"), "PASS without a verdict"),
    (
        Outcome.FAIL,
        line(1, failure_type="close"),
        "FAIL (close), though its verdicts and waivers give FAIL (counter)",
    ),
    (Outcome.FAIL, line(1, outcome="XFAIL"), "give FAIL (counter)"),
    (Outcome.FAIL, line(1, waivers=[WAIVER]), "give XFAIL (counter)"),
    (Outcome.XFAIL, line(1, waivers=[{**WAIVER, "effect": "part-passed"}]), "give FAIL (counter)"),
    (Outcome.ERROR, line(1, outcome="XFAIL", waivers=[WAIVER]), "give ERROR (error)"),
    (Outcome.XPASS, line(1, outcome="PASS", reason="", failure_type=""), "give XPASS (xpass)"),
    (
        Outcome.PASS,
        line(1, outcome="UNAVAILABLE", reason="no GPU", failure_type="unavailable"),
        "though it was executed",
    ),
    (
        Outcome.PASS,
        line(1, outcome="UNAVAILABLE", reason="no", failure_type="unavailable", verdicts=[]),
        "though it was executed",
    ),
    (
        Outcome.UNAVAILABLE,
        line(1, outcome="PASS", reason="", failure_type=""),
        "PASS without a verdict",
    ),
    (
        Outcome.PASS,
        line(1, outcome="NOT_RUN", reason="x", failure_type="not-run", verdicts=[]),
        "NOT_RUN, though it was executed",
    ),
    (Outcome.PASS, line(1, outcome="FLAKY", reason="x", failure_type="flaky"), "give PASS ()"),
    (
        Outcome.PASS,
        line(1, case_id="area/other[backend=cpu,n=1]"),
        "name is not what the others give",
    ),
    (Outcome.PASS, line(1, backend="cuda"), "backend is not what the others give"),
    (Outcome.PASS, line(1, folder=""), "without the folder"),
    (Outcome.PASS, line(1, folder="../elsewhere"), "'../elsewhere' is not the folder of a case"),
    (Outcome.PASS, line(1, folder="cases/00002"), "cases/00002 is the folder of"),
    (Outcome.PASS, line(1, evidence={}), "the digest of what it was judged by"),
    (Outcome.PASS, line(1, evidence={"../x": "e" * 64}), "is not a file of a case"),
    (Outcome.PASS, line(1, attachments=["../x"]), "'../x' is not a file of a case"),
    (Outcome.PASS, line(1, digest="f" * 64), "its cases are not those that were selected"),
    (Outcome.PASS, line(2, case_id="area/one[backend=cpu,n=1]"), "a second line for the case"),
    (Outcome.PASS, line(0, selected=1), "it holds 2 of its 1 cases"),
    (Outcome.PASS, line(0, selected=3), "3 cases are selected of 2"),
    (Outcome.FAIL, line(3, exit_code=0), "its exit code is 0, but its cases give 1"),
    (Outcome.PASS, line(3, exit_code=4), "its exit code is 4, but its cases give 0"),
    (Outcome.PASS, line(3, interrupted=True), "its exit code is 0, but its cases give 130"),
    (Outcome.NOT_RUN, line(3), "a case was not run, though nothing stopped the run"),
]


@pytest.mark.parametrize(
    ("outcome", "change", "words"),
    LIES,
    ids=[f"{outcome.label}-{words[:40]}" for outcome, _, words in LIES],
)
def test_a_line_that_contradicts_another_field_is_refused(
    journal: Path, outcome: Outcome, change: Change, words: str
) -> None:
    edit(written(journal, case(1, outcome), case(2)), change)
    with pytest.raises(JournalError, match=r"^line [1-4]: ") as caught:
        read_run(journal)
    assert words in str(caught.value)


OF_ATTEMPTS: list[tuple[Change, str]] = [
    (line(3, outcome="PASS", reason="", failure_type=""), "PASS, though its attempts give FLAKY"),
    (lambda lines: lines[3]["attempts"].pop(), "its 1 attempts are not the 2"),
    (lambda lines: lines.pop(1), "its 2 attempts are not the 1"),
    (lambda lines: lines[3]["attempts"][0].update(outcome="FAIL"), "its 2 attempts are not the 2"),
    (
        lambda lines: lines[1].update(outcome="PASS", reason="", failure_type=""),
        "give CRASH (crash)",
    ),
]


@pytest.mark.parametrize(("change", "words"), OF_ATTEMPTS, ids=[words for _, words in OF_ATTEMPTS])
def test_a_case_that_contradicts_its_attempts_is_refused(
    journal: Path, change: Change, words: str
) -> None:
    edit(written(journal, FLAKY, attempts=RETRIED), change)
    with pytest.raises(JournalError) as caught:
        read_run(journal)
    assert words in str(caught.value)


def test_more_attempts_than_the_run_makes_and_an_error_without_verdicts_are_refused(
    journal: Path,
) -> None:
    attempts = tuple(case(1, Outcome.FAIL, folder=f"cases/{number:05d}") for number in range(1, 5))
    with pytest.raises(JournalError, match="4 attempts, where at most 3 are made"):
        read_run(written(journal, Policy(retries=3).fold(attempts), attempts=attempts))
    with pytest.raises(JournalError, match="ERROR without a verdict"):
        read_run(written(journal.with_name("other"), replace(REQUIRED, reason="no GPU")))


def test_what_a_machine_cannot_have_executed_is_seen_whatever_the_header_says() -> None:
    backends = shipped()
    other = replace(case(1), case_id=CaseId("area/one[backend=cuda,n=1]"))
    one, none = (replace(other, node={"name": "a", "gpus": gpus}) for gpus in ("1", "0"))
    for results, gpus in (([case(1)], "0"), ([other], "1"), ([one], "0")):
        assert impossible_on_machine(results, {"gpus": gpus}, backends) == ""
    for results, gpus in (([other], "0"), ([one, none], "1")):
        assert "PASS on cuda, and the machine had no GPU" in impossible_on_machine(
            results, {"gpus": gpus}, backends
        )


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
def test_the_exit_code_follows_from_what_was_required(
    journal: Path, required: str, shard: str, code: int, problem: str
) -> None:
    """What a shard exits with may follow from cases of other shards."""
    results = [case(1, requires=("redis",)), case(2)]
    top = header(*results, options={"require": required, "shard": shard})
    edit(written(journal, *results, top=top), line(-1, exit_code=code))
    if problem:
        with pytest.raises(JournalError, match=problem):
            read_run(journal)
    else:
        assert len(read_run(journal).results) == 2
