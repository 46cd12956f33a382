"""Order, environments and how many at once."""

import os

import pytest

from runner import schedule
from runner.diagnostics import UsageError
from tests.fakes import case


def with_env(name: str, device: str = "cpu", *, compiles: bool = True, **env: object):
    return case(id=f"area/{name}[backend=x]", device=device, body={"env": env, "compiles": compiles})


def test_values_become_what_a_shell_would_say():
    found = schedule.environment_of(with_env("a", A="text", B=True, C=False, D=3, E=0.5, F=None))
    assert found.variables == {"A": "text", "B": "1", "C": "0", "D": "3", "E": "0.5", "F": None}


def test_the_order_of_variables_makes_no_other_environment():
    one, two = with_env("a", A="1", B="2"), with_env("b", B="2", A="1")
    assert schedule.environment_of(one).key == schedule.environment_of(two).key


@pytest.mark.parametrize("env", [{"A": "2"}, {"A": "1", "B": "1"}, {"B": "1"}, {"A": None}, {}])
def test_other_variables_make_another_environment(env):
    assert schedule.environment_of(with_env("a", A="1")).key != schedule.environment_of(with_env("b", **env)).key


def test_what_a_template_warms():
    assert schedule.environment_of(with_env("a")).kinds == {"cpu"}
    assert schedule.environment_of(with_env("a", "cuda:1")).kinds == {"cuda"}
    assert schedule.environment_of(with_env("a", compiles=False)).kinds == frozenset()


def test_one_environment_is_warm_for_all_that_share_it():
    cases = [with_env("a", compiles=False), with_env("b", "cuda"), with_env("c"), with_env("d", A="1")]
    found = schedule.environments(cases)
    assert sorted(map(sorted, (one.kinds for one in found.values()))) == [["cpu"], ["cpu", "cuda"]]
    assert set(found) == {schedule.environment_of(one).key for one in cases}


def test_cases_of_one_environment_stand_together_in_their_order():
    cases = [with_env("a"), with_env("b", A="1"), with_env("c"), with_env("d", A="1"), with_env("e")]
    assert [one.id[5] for one in schedule.order(cases)] == ["a", "c", "e", "b", "d"]
    assert schedule.order([]) == []


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("7", 7)])
def test_jobs(text, count):
    assert schedule.workers(text) == count


@pytest.mark.parametrize("text", ["0", "-1", "", "x", "1.5", "1e3", " 2", "٣²"])
def test_jobs_that_are_no_number(text):
    with pytest.raises(UsageError, match="--jobs"):
        schedule.workers(text)


def test_auto_takes_what_cores_and_memory_allow(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    memory = {"SC_PAGE_SIZE": 4096}
    for gigabytes, count in ((64, 8), (10, 3), (1, 1)):
        memory["SC_PHYS_PAGES"] = (gigabytes << 30) // 4096
        monkeypatch.setattr(os, "sysconf", memory.__getitem__)
        assert schedule.workers("auto") == count


@pytest.mark.parametrize(("workers", "threads"), [(1, 8), (2, 4), (3, 2), (8, 1), (9, 1), (100, 1)])
def test_workers_share_the_cores(monkeypatch, workers, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert schedule.threads(workers) == threads
