"""Durations of cases from tables beside specs: a hint for the order and for shards, so a table may
be malformed.
"""

from pathlib import Path

import pytest

from tests.fakes import shipped_suite
from tools.benchmarks.durations import as_table
from torch_conformance.optional.options import Selection
from torch_conformance.plan.selection import requested, shards_of
from torch_conformance.run.preparation import TABLE, seconds_of_tables


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
    assert seconds_of_tables([tmp_path / TABLE, tmp_path / "missing"]) == {
        "a/e[x=%2C]": 60.0,
        "a/b[backend=cpu]": 1.3,
        "a/c d": 0.1,
    }


def test_a_link_to_a_device_is_not_read(tmp_path: Path) -> None:
    (tmp_path / TABLE).symlink_to("/dev/zero")
    assert seconds_of_tables([tmp_path / TABLE]) == {}


def test_the_shipped_table_names_shipped_cases() -> None:
    found = seconds_of_tables([Path("specs") / TABLE])
    ids = {case.id for case in shipped_suite().cases}
    assert len(found) > 300
    assert not set(found) - ids, (
        "print it again: python -m tools.benchmarks.durations specs/durations.txt JOURNAL..."
    )


@pytest.mark.parametrize("count", [2, 3, 4, 7, 16])
@pytest.mark.parametrize("backends", [(), ("cpu",), ("cuda",), ("cpu", "host")])
def test_shards_of_the_shipped_specs_take_the_same_time(
    count: int, backends: tuple[str, ...]
) -> None:
    cases = shipped_suite().cases
    selected = [
        case
        for case in requested(cases, cases, Selection())
        if not backends or case.backend in backends
    ]
    seconds = seconds_of_tables([Path("specs") / TABLE])
    _, loads = shards_of(selected, seconds, count)
    mean = sum(loads) / count
    assert max(loads) <= max(1.15 * mean, *(seconds.get(case.id, 0) for case in selected))
