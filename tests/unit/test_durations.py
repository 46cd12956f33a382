"""Durations of cases from tables beside specs: a hint for the order, so a table may be malformed."""

from pathlib import Path

import pytest

from runner.plan.durations import TABLE, as_table, seconds_of_run, seconds_of_tables
from tests.fakes import shipped_suite
from tools.benchmarks import durations as command


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    seconds = {"a/b[backend=cpu]": 1.26, "a/c d": 0.01, "a/e[x=%2C]": 60.0}
    (tmp_path / TABLE).write_text(as_table(seconds, ["a comment", "# and more"]))
    assert (tmp_path / TABLE).read_text().splitlines() == [
        "# a comment",
        "# # and more",
        "60.0 a/e[x=%2C]",
        "1.3 a/b[backend=cpu]",
        "0.1 a/c d",
    ]
    assert seconds_of_tables([tmp_path, tmp_path / "missing"]) == {"a/e[x=%2C]": 60.0, "a/b[backend=cpu]": 1.3, "a/c d": 0.1}


@pytest.mark.parametrize("line", ["", "x a", "1.5", "1.5 ", "-1 a", "nan a", "inf a", "1e9 a", "1234567 a", "\xff\xfe a"])
def test_a_malformed_line_is_left_out(tmp_path: Path, line: str) -> None:
    (tmp_path / TABLE).write_bytes(line.encode("latin-1") + b"\n2 b\n")
    assert seconds_of_tables([tmp_path]) == {"b": 2.0}


def test_a_link_to_a_device_is_not_read(tmp_path: Path) -> None:
    (tmp_path / TABLE).symlink_to("/dev/zero")
    assert seconds_of_tables([tmp_path]) == {}


def test_the_shipped_table_names_shipped_cases() -> None:
    found = seconds_of_tables([Path("specs")])
    ids = {case.id for case in shipped_suite().cases}
    assert len(found) > 300
    assert not set(found) - ids, "print it again: python -m tools.benchmarks.durations specs/durations.txt JOURNAL..."


def test_the_command_takes_the_longest_of_several_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seconds in (("one", 2.5), ("two", 1.5)):
        (tmp_path / name).write_text(f'{{"kind": "case", "case_id": "a/b", "outcome": "PASS", "seconds": {seconds}, "x": 1}}\n')
    assert seconds_of_run(tmp_path, "one") == {"a/b": 2.5}
    assert command.main([str(tmp_path / "two"), str(tmp_path / "one")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2.5 a/b"
    (tmp_path / TABLE).write_text("9.0 a/b\n4.0 a/c\n")  # a duration of a run counts more than that of an earlier table
    assert command.main([str(tmp_path / TABLE), str(tmp_path / "two")]) == 0
    assert capsys.readouterr().out.splitlines()[3:] == ["4.0 a/c", "1.5 a/b"]
    assert command.main([str(tmp_path / "missing")]) == 2
