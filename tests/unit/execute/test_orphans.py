"""What loses its parents comes to the runner and is killed at the end; what the process had before
is left alone.
"""

import contextlib
import ctypes
import os
import subprocess
import sys

import pytest

from torch_conformance.execute.spawn import Orphans, children

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


def adopts() -> bool:
    subreaper = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(37, ctypes.byref(subreaper))
    return bool(subreaper.value)


@pytest.mark.skipif(
    not os.path.exists(f"/proc/self/task/{os.getpid()}/children"),
    reason="this kernel does not list the children",
)
def test_orphans_and_their_children_are_killed_and_what_was_there_before_is_left_alone():
    with subprocess.Popen(["sleep", "600"]) as before:
        with contextlib.closing(Orphans()):
            with subprocess.Popen([sys.executable, "-c", ABROAD], stdout=subprocess.PIPE) as parent:
                assert parent.stdout is not None
                orphan = int(parent.stdout.readline())
            family = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE)
            assert family.stdout is not None
            with family.stdout:
                grandchild = int(family.stdout.readline())
            assert orphan in children()
            assert grandchild not in children()
        family.wait(timeout=60)
        assert before.poll() is None
        before.kill()
    assert not [pid for pid in (orphan, family.pid, grandchild) if os.path.exists(f"/proc/{pid}")]
    assert not adopts()
