"""What loses its parents comes to the runner and is killed at the end; what the process had before is left alone."""

import contextlib
import ctypes
import os
import subprocess
import sys

import pytest

from runner.execute.spawn import Orphans, children

ABROAD = """\
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(60)
    os._exit(0)
os.wait()
"""
"""Leaves a process in a session of its own behind, and says which."""

FAMILY = """\
import subprocess, time
print(subprocess.Popen(["sleep", "60"], start_new_session=True).pid, flush=True)
time.sleep(60)
"""
"""Lives on with a child in a session of its own, and says which."""


def leave_orphan() -> int:
    with subprocess.Popen([sys.executable, "-c", ABROAD], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        return int(parent.stdout.readline())


def adopts() -> bool:
    found = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(37, ctypes.byref(found))
    return bool(found.value)


@pytest.fixture
def orphans() -> Orphans:
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        pytest.skip("this kernel does not list the children of a process")
    return Orphans()


def test_an_orphan_comes_to_us_and_is_killed(orphans):
    with contextlib.closing(orphans):
        orphan = leave_orphan()
        assert orphan in children()
    assert not os.path.exists(f"/proc/{orphan}")
    assert not adopts()


def test_the_children_of_what_is_killed_are_killed_too(orphans):
    with contextlib.closing(orphans):
        child = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE)
        assert child.stdout is not None
        pids = [child.pid, *map(int, child.stdout.readline().split())]
        assert pids[1] not in children()
    child.stdout.close()
    child.wait(timeout=60)
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def test_what_was_there_before_is_left_alone():
    with subprocess.Popen(["sleep", "600"]) as before:
        with contextlib.closing(Orphans()):
            orphan = leave_orphan()
        assert before.poll() is None
        before.kill()
    assert not os.path.exists(f"/proc/{orphan}")
