"""Cores and memory that this process may use: what the kernel shows of a machine that was made by hand."""

import os
from pathlib import Path

import pytest

from runner.plan import schedule

GIB = 1 << 30
MEMINFO = f"MemTotal: {64 * GIB >> 10} kB\nMemFree: 1 kB\nMemAvailable: {24 * GIB >> 10} kB\n"


@pytest.fixture(autouse=True)
def _affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def machine(root: Path, *, cgroup: str = "0::/a/b\n", meminfo: str = MEMINFO, **files: str) -> Path:
    """Write a root folder; a name of ``files`` is a path with ``__`` for slashes."""
    given = {"proc/self/cgroup": cgroup, "proc/meminfo": meminfo}
    given |= {f"sys/fs/cgroup/{name.replace('__', '/').replace('-', '.')}": text for name, text in files.items()}
    for name, text in given.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_smallest_quota_on_the_way_up(tmp_path: Path) -> None:
    found = machine(tmp_path, **{"a__b__cpu.max": "400000 100000\n", "a__cpu.max": "150000 100000\n", "a__c__cpu.max": "1000 100000"})
    assert schedule.cores(found) == 1.5


def test_smallest_free_memory_of_all_groups_counts(tmp_path: Path) -> None:
    files = {"a__b__memory.max": f"{10 * GIB}\n", "a__b__memory.current": f"{GIB}\n"}
    files |= {"a__memory.max": f"{12 * GIB}\n", "a__memory.current": f"{8 * GIB}\n", "a__memory.stat": f"anon 1\ninactive_file {2 * GIB}\n"}
    # what is cached of files goes when memory is asked for
    assert schedule.available_memory(machine(tmp_path, **files)) == 6 * GIB


def test_a_throttle_bounds_as_a_limit_does(tmp_path: Path) -> None:
    files = {"a__b__memory.max": f"{10 * GIB}\n", "a__b__memory.high": f"{4 * GIB}\n", "a__b__memory.current": f"{GIB}\n"}
    assert schedule.available_memory(machine(tmp_path, **files)) == 3 * GIB


@pytest.mark.parametrize("text", ["", "nonsense", "1 2 3 4", "0 0", "-5 100000", "100000 0", "x 100000", "٣ 1"])
def test_invalid_limits_are_ignored(text: str, tmp_path: Path) -> None:
    found = machine(tmp_path, **{"a__b__cpu.max": text, "a__b__memory.max": text, "a__b__memory.current": text})
    assert (schedule.cores(found), schedule.available_memory(found)) == (8, 24 * GIB)


@pytest.mark.parametrize("cgroup", ["", "\n", "0:", "0::", "no colons", "x:y:z\n", "0::/../../..\n", "0::relative\n"])
def test_groups_that_cannot_be_read(cgroup: str, tmp_path: Path) -> None:
    assert schedule.cores(machine(tmp_path, cgroup=cgroup)) == 8


def test_system_without_proc_and_cgroups(tmp_path: Path) -> None:
    assert schedule.cores(tmp_path) == 8
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert schedule.available_memory(tmp_path) == memory
