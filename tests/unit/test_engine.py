"""The engine comes to its end whatever becomes of a template: one that never forks, never tells of an end, or is stopped."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.execute import engine as module
from runner.execute.engine import Engine, Limits
from runner.execute.jobs import Environment, Execution, Job
from runner.execute.room import Capacity
from runner.execute.spawn import TemplateProcess
from runner.worker import template

ANSWER = """\
import os, socket, sys
_, (pipe, *_), _, _ = socket.recv_fds(socket.socket(fileno=int(sys.argv[1])), 1 << 16, 3)
os.write(pipe, b'{"phase": "api"}\\n{"observation": 7}\\n')
"""


class Stuck:
    """A template that is there and does nothing that it is asked."""

    children: list["subprocess.Popen[bytes]"]

    def __init__(self, *_: Any) -> None:
        self.control, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.is_ready = True
        self.is_closed = False
        self.children = []

    def fork(self, number: int, control: int) -> bool:
        return True

    def receive(self) -> dict[str, Any]:
        return dict(json.loads(self.control.recv(1 << 16)))

    def wake(self) -> None: ...

    def close(self) -> None:
        self.control.close()
        self.theirs.close()
        for child in self.children:
            child.wait(timeout=60)


class Silent(Stuck):
    """A template that forks and never tells of an end."""

    def fork(self, number: int, control: int) -> bool:
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        self.children.append(child)
        self.theirs.send(json.dumps({"started": number, "pid": child.pid}).encode())
        return True


def start_process(wanted: Environment, control: int, threads: int, scratch: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", ANSWER, str(control)], pass_fds=[control], start_new_session=True)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_END_SECONDS", 0.3)
    monkeypatch.setattr(module, "_STACK_SECONDS", 0.05)
    monkeypatch.setattr(module, "start_process", start_process)


def executions(folder: Path, count: int, timeout: float) -> list[Execution]:
    jobs = [Job(name=str(n), plan="x", folder=folder / str(n), environment=Environment(), timeout=timeout) for n in range(count)]
    with Engine(Limits(threads=1, scratch=folder)) as engine:
        return list(engine.run(jobs, Capacity(jobs=2, cores=2.0, memory=1 << 40)))


def test_jobs_that_a_template_never_forks_for_are_run_without_it(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TemplateProcess", Stuck)
    # shorter than the template is waited for: a job's time begins with its process
    done = executions(tmp_path, count=3, timeout=20)
    assert sorted(one.job.name for one in done) == ["0", "1", "2"]
    for one in done:
        assert (one.observation, one.isolation, one.note) == (7, "process", "the template did not fork within 0.3 s")
        assert (one.ending.timed_out, one.ending.exit_code, one.ending.phase) == (False, 0, "api")


def test_a_killed_worker_of_which_nothing_is_heard_does_not_hold_up_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TemplateProcess", Silent)
    begun = time.monotonic()
    (done,) = executions(tmp_path, count=1, timeout=0.1)
    assert done.ending.timed_out
    assert done.note == "the template did not tell within 0.3 s that a worker had ended"
    assert time.monotonic() - begun < 20


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def state(process: "subprocess.Popen[bytes]") -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_stopped_template_goes_on(sleeper):
    asleep = TemplateProcess.__new__(TemplateProcess)
    asleep.process = sleeper
    asleep.wake()
    for _ in range(2):
        os.kill(sleeper.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
        assert state(sleeper) == "T"
        asleep.wake()
        assert state(sleeper) != "T"
    sleeper.kill()
    sleeper.wait(timeout=60)
    asleep.wake()


def test_a_template_that_the_system_gives_no_process_says_so(monkeypatch):
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setattr(template, "_FORK_SECONDS", 0.15)
    for name in ("signal", "set_wakeup_fd"):
        monkeypatch.setattr(template.signal, name, lambda *_, **__: None)
    tries = []

    def fork() -> int:
        tries.append(time.monotonic())
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    made = template.Template(theirs)
    made._fork(7, theirs.fileno())
    assert select.select([mine], [], [], 0)[0]
    assert json.loads(mine.recv(1000)) == {
        "refused": 7,
        "why": "the system has no process for a fork: Resource temporarily unavailable",
    }
    assert len(tries) > 1
    for end in (made._wake, made._waker):
        os.close(end)
    mine.close()
    theirs.close()
