"""What is learnt of sharing a worker: which place a case has next, what a difference forbids, and what resets the knowledge."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from runner.core.sharing import CONFIRMATIONS, NOTHING, Known, Place, place_of, sample
from runner.record.history import sharing as recorded
from runner.record.history.database import opened
from runner.run.sharing import Sharing, state_of
from runner.system.installed_torch import InstalledTorch

OWN = {"outcome": "a", "counters": "b"}
OTHER = {"outcome": "a", "counters": "c"}


def cleared() -> Known:
    known = NOTHING.after_own(OWN)
    for _ in range(CONFIRMATIONS):
        known = known.after_shared(OWN)
    return known


def test_a_case_is_learnt_then_tried_then_shared() -> None:
    known, places = NOTHING, []
    for _ in range(CONFIRMATIONS + 2):
        places.append(place_of(known, is_sampled=False))
        known = known.after_shared(OWN) if places[-1].shares else known.after_own(OWN)
    assert places == [Place.LEARNING, *[Place.TRIAL] * CONFIRMATIONS, Place.SHARED]
    assert place_of(known, is_sampled=True) is Place.RECHECK
    assert not Place.RECHECK.shares


def test_any_difference_forbids_and_stays() -> None:
    known = cleared().after_shared(OTHER)
    assert known.forbidden == "in a shared worker it had other counters than alone"
    assert place_of(known, is_sampled=False) is Place.FORBIDDEN
    assert known.after_shared(OWN).forbidden
    assert known.after_own(OTHER).forbidden == known.forbidden
    assert known.forbid("again").forbidden == known.forbidden
    assert cleared().after_shared({"outcome": "a"}).forbidden, "a part that is missing is a difference"


def test_another_print_of_its_own_process_begins_anew() -> None:
    assert cleared().after_own(OWN) == cleared()
    again = cleared().after_own(OTHER)
    assert again == Known(own=OTHER)
    assert place_of(again, is_sampled=False) is Place.TRIAL


def test_the_sample_has_a_twentieth_and_changes_with_the_run() -> None:
    ids = [f"case-{number}" for number in range(100)]
    assert len(sample(ids, "run 1")) == 5
    assert len(sample(ids[:3], "run 1")) == 1
    assert sample([], "run 1") == frozenset()
    assert sample(ids, "run 1") == sample(reversed(ids), "run 1") != sample(ids, "run 2")
    assert len(frozenset().union(*(sample(ids, f"run {number}") for number in range(200)))) == 100


def test_the_history_keeps_what_is_known_of_one_state(tmp_path: Path) -> None:
    file = tmp_path / "history.sqlite"
    forbidden = cleared().forbid("why")
    with opened(file, writes=True) as connection:
        recorded.write(connection, "one", {("a", "1"): cleared(), ("b", "1"): forbidden})
    with opened(file, writes=True) as connection:
        recorded.write(connection, "one", {("b", "1"): replace(forbidden, forbidden="", confirmed=0), ("a", "2"): NOTHING})
    with opened(file) as connection:
        assert recorded.read(connection, "one") == {
            ("a", "1"): cleared(),
            ("b", "1"): replace(forbidden, confirmed=0),
            ("a", "2"): NOTHING,
        }
        assert recorded.read(connection, "two") == {}, "another torch, or another version of the runner"


def test_a_history_without_the_table_knows_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "history.sqlite", writes=True) as connection:
        assert recorded.read(connection, "one") == {}


@pytest.mark.parametrize("own", ["[]", '{"a": 1}', "{"])
def test_values_that_no_version_writes_are_refused(tmp_path: Path, own: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history.sqlite"
    with opened(file, writes=True) as connection:
        recorded.write(connection, "one", {("a", "1"): cleared()})
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE sharing SET own = ?", (own,))
    connection.close()
    sharing = Sharing(file, "one", [], "run")
    assert "so cases run alone" in capsys.readouterr().err
    assert (sharing.summary, [*sharing.warnings]) == ("", [])


def test_the_state_names_torch_its_commit_and_the_runner() -> None:
    torch = InstalledTorch(version="2.13.0", minor="2.13", root=Path("torch"), builds={}, git="abc")
    others = [None, replace(torch, version="2.13.1"), replace(torch, git="abd")]
    assert len({state_of(one) for one in (torch, *others)}) == 4
    assert "runner 0." in state_of(torch)
