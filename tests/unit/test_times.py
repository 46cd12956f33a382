"""Times of the last run: read where they can be, and nothing at all of what is broken, hostile or none of ours."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from runner.model.case import CaseId
from runner.model.results import CaseResult
from runner.record.journal import JournalWriter
from runner.record.run_folder import JOURNAL
from runner.run import preparation
from runner.run.preparation import seconds_of_run
from tests.unit.test_record import FOOTER, FULL, HEADER


def recorded(folder: Path, *results: CaseResult) -> Path:
    with JournalWriter(folder / JOURNAL) as journal:
        journal.write_header(HEADER)
        for result in results:
            journal.write_case(result)
        journal.write_footer(FOOTER)
    return folder


def of(case_id: str, seconds: float, **changes: object) -> CaseResult:
    return replace(FULL, case_id=CaseId(case_id), seconds=seconds, **changes)  # type: ignore[arg-type]


def test_ids_and_seconds(tmp_path: Path) -> None:
    folder = recorded(tmp_path, of("a/one[backend=cpu]", 1.25), of("b/two[backend=cpu,x=é]", 1e-05), of('"q\\', 300))
    assert seconds_of_run(folder / JOURNAL) == {"a/one[backend=cpu]": 1.25, "b/two[backend=cpu,x=é]": 1e-05, '"q\\': 300.0}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"\xff\x00",
        b"[]",
        b'{"kind": "case"',
        b'{"kind": "case", "case_id": "b", "seconds": "1"}',
        b'{"kind": "case", "case_id": "b", "seconds": -1}',
        b'{"kind": "case", "case_id": "b", "seconds": 1e999}',
        b'{"kind": "case", "case_id": "b", "seconds": 1.2.3}',
        b'{"kind": "case", "case_id": "b", "seconds": NaN}',
        b'{"kind": "case", "case_id": "\\x", "seconds": 1}',
        b'{"kind": "case", "case_id": 7, "seconds": 1}',
        b'{"kind": "case", "case_id": "b", "seconds": 1',
    ],
)
def test_a_line_that_is_broken_says_nothing_and_costs_no_other(line: bytes, tmp_path: Path) -> None:
    folder = recorded(tmp_path, of("a", 2.5))
    with (folder / JOURNAL).open("ab") as stream:
        stream.write(line)
    assert seconds_of_run(folder / JOURNAL) == {"a": 2.5}


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    folder = recorded(tmp_path, of("a", 2.5))
    (folder / JOURNAL).rename(folder / "elsewhere")
    (folder / JOURNAL).symlink_to(folder / "elsewhere")
    assert seconds_of_run(folder / JOURNAL) == {}
    (folder / JOURNAL).unlink()
    os.mkfifo(folder / JOURNAL)
    assert seconds_of_run(folder / JOURNAL) == {}
    (folder / JOURNAL).unlink()
    (folder / JOURNAL).mkdir()
    assert seconds_of_run(folder / JOURNAL) == {}


def test_a_journal_without_end_is_left_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = recorded(tmp_path, of("a", 2.5), *[of(f"b{number}", 1) for number in range(50)])
    monkeypatch.setattr(preparation, "_MOST_BYTES", 5000)
    found = seconds_of_run(folder / JOURNAL)
    assert found["a"] == 2.5
    assert len(found) < 10
