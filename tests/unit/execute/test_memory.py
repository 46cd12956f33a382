"""What the processes of a worker use: its session, what has left its session, pages that are
shared, and processes that hide.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torch_conformance.execute.workers import above

MIB = 1 << 20


def used(pid: int, proc: Path | None = None) -> int:
    """Return what a worker uses: more than nothing is above its limit."""
    return above({pid: -1}, *([proc] if proc else []))[pid]


STATUS = (
    "Name:\t{name}\nRssAnon:\t{anon:>8} kB\nRssFile:\t  999999 kB\nRssShmem:\t{shmem:>8} "
    "kB\nVmSwap:\t{swap:>8} kB\n"
)


def process(
    root: Path,
    pid: int,
    parent: int,
    session: int,
    *,
    anon: int = 0,
    shmem: int = 0,
    swap: int = 0,
    name: str = "python",
    pss: int | None = None,
) -> None:
    """Write a process; sizes in MiB."""
    folder = root / str(pid)
    folder.mkdir()
    (folder / "stat").write_text(
        f"{pid} ({name}) S {parent} {session} {session} 0 -1 4194304 1 1 1 1\n"
    )
    (folder / "status").write_text(
        STATUS.format(name=name, anon=anon << 10, shmem=shmem << 10, swap=swap << 10)
    )
    if pss is not None:
        text = (
            f"Rss: 1 kB\nPss: 999999 kB\nPss_Anon: {pss << 10} kB\nPss_File: 999999 "
            "kB\nPss_Shmem: 0 kB\nSwapPss: 0 kB\n"
        )
        (folder / "smaps_rollup").write_text(f"55d-7ff ---p 00000000 00:00 0 [rollup]\n{text}")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("")
    return tmp_path


def test_the_whole_session_and_what_left_it(proc: Path) -> None:
    process(proc, 10, 5, 10, anon=1)
    process(proc, 11, 10, 10, anon=2)
    process(proc, 12, 1, 10, anon=4)  # its parent has ended: only the session tells
    process(proc, 13, 11, 13, anon=8)  # has a session of its own: only its parent tells
    process(proc, 14, 13, 13, anon=16)
    process(proc, 15, 1, 13, anon=32)  # of the session of one that belongs to it
    process(proc, 20, 5, 20, anon=64)
    process(proc, 5, 1, 5, anon=128)
    assert used(10, proc) == 63 * MIB
    assert above({10: 0, 20: 0}, proc) == {10: 63 * MIB, 20: 64 * MIB}


def test_one_that_has_ended_uses_nothing(proc: Path) -> None:
    process(proc, 10, 1, 10, anon=1)
    (proc / "10" / "status").unlink()
    process(proc, 11, 10, 10, anon=2)
    (proc / "13").mkdir()
    (proc / "13" / "stat").write_text("13 (torn")
    assert above({10: 0, 99: 0}, proc) == {10: 2 * MIB}


def test_pages_that_forks_share_count_once(proc: Path) -> None:
    process(proc, 10, 1, 10, anon=300, pss=100)
    for pid in range(11, 21):
        process(proc, pid, 10, 10, anon=300, pss=30)
    assert above({10: 1000 * MIB}, proc) == {}
    assert above({10: 399 * MIB}, proc) == {10: 400 * MIB}


def test_a_process_that_hides_its_pages_counts_with_all_of_them(proc: Path) -> None:
    process(proc, 10, 1, 10, anon=300)
    assert above({10: 299 * MIB}, proc) == {10: 300 * MIB}
    (proc / "10" / "smaps_rollup").write_text(
        "[rollup]\nPss: 1 kB\n"
    )  # a kernel that does not tell files from the rest
    assert above({10: 299 * MIB}, proc) == {10: 300 * MIB}


# -- real processes --------------------------------------------------------------------------------

HOLD = (
    "import sys, time; held = bytearray(int(sys.argv[1]) << 20); held[::4096] = b'x' * "
    "len(held[::4096]); "
    "print('held', flush=True); time.sleep(60)"
)


@pytest.mark.parametrize(
    "before",
    ["", "import ctypes; ctypes.CDLL(None).prctl(4, 0); "],
    ids=["open", "that nobody may look into"],
)
def test_a_process_that_holds_100_mib(before: str) -> None:
    command = [sys.executable, "-c", before + HOLD, "100"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as holds:
        assert holds.stdout is not None
        assert holds.stdout.readline() == "held\n"
        assert above({holds.pid: 50 * MIB, os.getpid(): 50 * MIB}).keys() == {
            holds.pid,
            os.getpid(),
        }  # a child of this process
        assert before or above({holds.pid: 150 * MIB}) == {}
        os.killpg(holds.pid, signal.SIGKILL)
