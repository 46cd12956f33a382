"""The engine comes to its end whatever becomes of a template: one that never forks, never tells of an end, or is stopped."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from runner.core.model import Activity
from runner.execute.local import engine as module
from runner.execute.local.engine import Engine, Limits
from runner.execute.local.spawn import TemplateProcess
from runner.plan.jobs import Environment, Execution, Isolation, Job
from runner.plan.resources import Capacity, Needs, Room
from runner.worker.process import zygote

ANSWER = """\
import json, os, socket, sys
data, (pipe, *_), _, _ = socket.recv_fds(socket.socket(fileno=int(sys.argv[1])), 1 << 16, 3)
answer = json.dumps({"observation": 7, "word": json.loads(data)["word"]})
os.write(pipe, b'{"phase": "api"}\\n' + answer.encode() + b'\\n')
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

    def hang_up(self) -> None:
        self.control.close()
        self.theirs.close()

    def has_left(self) -> bool:
        return True

    def close(self) -> None:
        for child in self.children:
            child.kill()
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
    monkeypatch.setattr(module, "_FORK_SECONDS", 0.3)
    monkeypatch.setattr(module, "_GONE_SECONDS", 0.3)
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
    assert re.fullmatch(r"its process \d+ was not reported to have ended 0\.\d s after it was killed", done.note)
    assert done.left_over == done.note
    assert time.monotonic() - begun < 60


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
    monkeypatch.setattr(zygote, "_FORK_SECONDS", 0.15)
    for name in ("signal", "set_wakeup_fd"):
        monkeypatch.setattr(zygote.signal, name, lambda *_, **__: None)
    tries = []

    def fork() -> int:
        tries.append(time.monotonic())
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    made = zygote.Template(theirs)
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


# -- workers that answer and do not end -------------------------------------------------------------------------------

ANSWER_AND = """\
import json, os, signal, socket, sys, time
{before}
data, (pipe, *_), _, _ = socket.recv_fds(socket.socket(fileno=int(sys.argv[1])), 1 << 16, 3)
answer = json.dumps({{"observation": 7, "word": json.loads(data)["word"]}})
os.write(pipe, b'{{"phase": "api"}}\\n' + answer.encode() + b'\\n')
if json.loads(data)["plan"] == "stays":
    {stays}
"""

STAYS = {
    "sleeps": "time.sleep(600)",
    "ignores signals": "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 10, 15)]; time.sleep(600)",
    "is stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "leaves a child on the pipe": "os.fork() or time.sleep(600); time.sleep(600)",
}


def starts(monkeypatch: pytest.MonkeyPatch, code: str) -> list["subprocess.Popen[bytes]"]:
    """Let workers be this code; return where each is added that is started."""
    started: list[subprocess.Popen[bytes]] = []

    def start(wanted: Environment, control: int, threads: int, scratch: Path) -> "subprocess.Popen[bytes]":
        started.append(subprocess.Popen([sys.executable, "-c", code, str(control)], pass_fds=[control], start_new_session=True))
        return started[-1]

    monkeypatch.setattr(module, "start_process", start)
    return started


def one_after_another(
    folder: Path, plans: list[str], engines: list[Engine] | None = None, timeout: float = 60.0
) -> list[tuple[float, Execution]]:
    """Run jobs with nothing beside each of them; return when each ended, and what became of it."""
    needs = Needs(exclusive=True)
    jobs = [
        Job(name=str(n), plan=plan, folder=folder / str(n), environment=Environment(), timeout=timeout, needs=needs)
        for n, plan in enumerate(plans)
    ]
    begun = time.monotonic()
    with Engine(Limits(threads=1, scratch=folder, isolation=Isolation.PROCESS)) as engine:
        if engines is not None:
            engines.append(engine)
        return [(time.monotonic() - begun, done) for done in engine.run(jobs, Capacity(jobs=2, cores=2.0, memory=1 << 40))]


@pytest.mark.parametrize("way", STAYS)
def test_a_worker_that_answers_and_does_not_end_delays_no_other_case(tmp_path, monkeypatch, way):
    starts(monkeypatch, ANSWER_AND.format(before="", stays=STAYS[way]))
    (first, stays), (second, next_), (third, last) = one_after_another(tmp_path, ["stays", "ends", "ends"])
    assert third < 60  # the worker that stays would stay for 600
    assert second - first < 60
    assert (stays.observation, stays.ending.exit_code, stays.ending.signal, stays.ending.timed_out) == (7, 0, None, False)
    assert stays.left_over.startswith("its worker had answered and did not end, so it was killed")
    assert stays.note == stays.left_over
    assert [(one.observation, one.left_over, one.note) for one in (next_, last)] == [(7, "", "")] * 2


def test_a_worker_that_outlives_even_the_kill_delays_no_other_case(tmp_path, monkeypatch):
    started = starts(monkeypatch, ANSWER_AND.format(before="", stays="time.sleep(600)"))
    monkeypatch.setattr("runner.execute.local.workers.os.killpg", lambda *_: None)
    engines: list[Engine] = []
    try:
        (_, stays), (second, _) = one_after_another(tmp_path, ["stays", "ends"], engines)
    finally:
        monkeypatch.undo()
        for process in started:
            process.kill()
            process.wait(timeout=60)
    assert second < 60
    assert re.search(r"so it was killed; its process \d+ had not ended \(state [SR]\) [\d.]+ s after it was killed", stays.left_over)
    assert stays.ending.exit_code == 0
    assert engines[0].left_over == (f"0: {stays.left_over}",)


@pytest.mark.parametrize(("ends", "code", "number"), [("os.kill(os.getpid(), 11)", None, 11), ("os._exit(3)", 3, None)])
def test_a_worker_that_answers_and_then_ends_by_itself_is_judged_by_its_end(tmp_path, monkeypatch, ends, code, number):
    starts(monkeypatch, ANSWER_AND.format(before="", stays=ends))
    ((_, done),) = one_after_another(tmp_path, ["stays"])
    assert (done.observation, done.ending.exit_code, done.ending.signal) == (7, code, number)
    assert done.left_over == ""


def test_what_was_not_answered_is_late_as_ever(tmp_path, monkeypatch):
    starts(monkeypatch, "import time; time.sleep(600)")
    ((_, done),) = one_after_another(tmp_path, ["stays"], timeout=0.2)
    assert done.ending.timed_out
    assert done.left_over == ""


class Kept(Stuck):
    """A template that is there, and whose workers are ready at once and never end."""

    made: ClassVar[list["Kept"]] = []

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        Kept.made.append(self)

    def fork(self, number: int, control: int) -> bool:
        code = ANSWER_AND.format(before=WARM, stays="time.sleep(600)")
        child = subprocess.Popen([sys.executable, "-c", code, str(control)], pass_fds=[control], start_new_session=True)
        self.children.append(child)
        self.theirs.send(json.dumps({"started": number, "pid": child.pid}).encode())
        return True


WARM = "socket_ = socket.socket(fileno=os.dup(int(sys.argv[1]))); socket_.send(socket_.recv(1 << 16)) if len(sys.argv) == 2 else None"


class Starting(Stuck):
    """A template that still starts torch."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.is_ready = False


@pytest.mark.parametrize(("template_process", "waits_for"), [(Starting, "starting"), (Stuck, "warming")])
def test_a_template_or_a_worker_that_starts_is_reported_since_when(tmp_path, monkeypatch, template_process, waits_for):
    monkeypatch.setattr(module, "TemplateProcess", template_process)
    environment = Environment(kinds=frozenset(["cuda"]))
    with Engine(Limits(threads=1, scratch=tmp_path, spares=1)) as engine:
        assert engine.activity == Activity()
        begun = time.monotonic()
        engine.again(Job(name="a", plan="x", folder=tmp_path / "a", environment=environment, timeout=9))
        engine._fill(Room(Capacity(jobs=1, cores=2.0, memory=1 << 40)))
        ended = time.monotonic()
        since = getattr(engine.activity, waits_for)
        assert begun - 0.001 <= since <= ended
        assert engine.activity == replace(Activity(), **{waits_for: since})


def test_a_spare_that_warms_up_beside_a_case_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TemplateProcess", Stuck)
    environment = Environment(kinds=frozenset(["cuda"]))
    with Engine(Limits(threads=1, scratch=tmp_path, spares=2)) as engine:
        room = Room(Capacity(jobs=1, cores=2.0, memory=1 << 40))
        for name in "ab":
            engine.again(Job(name=name, plan="x", folder=tmp_path / name, environment=environment, timeout=9))
        engine._fill(room)
        first, *_ = engine._workers.values()
        first.is_warm = True
        engine._fill(room)
        assert [case.name for case in engine.activity.running] == ["a"]
        assert any(not worker.is_warm for worker in engine._workers.values())
        assert engine.activity.warming is None


def test_workers_that_went_with_their_template_take_no_room_of_spares(tmp_path, monkeypatch):
    """Cases of one environment, then of another, then of the first again: its dead spares are neither counted nor waited for."""
    monkeypatch.setattr(module, "TemplateProcess", Kept)
    Kept.made.clear()
    here, there = (Environment(kinds=frozenset(["cuda"]), variables={"A": name}) for name in "xy")
    jobs = [
        Job(name=str(n), plan="ends", folder=tmp_path / str(n), environment=environment, timeout=30, needs=Needs(exclusive=n == 3))
        for n, environment in enumerate([here, here, there, here])
    ]
    begun = time.monotonic()
    with Engine(Limits(threads=1, scratch=tmp_path, spares=4)) as engine:
        done = list(engine.run(jobs, Capacity(jobs=1, cores=2.0, memory=1 << 40)))
        assert all(one.key == here.key for one in engine._workers.values() if not one.has_ended)
    assert [one.job.name for one in done] == ["0", "1", "2", "3"]
    assert len(Kept.made) == 3
    assert time.monotonic() - begun < 60


def test_a_worker_of_several_cases_takes_those_of_one_group(tmp_path, monkeypatch):
    serve = ANSWER_AND.split("data, (pipe", 1)[0].format(before="") + (
        "control = socket.socket(fileno=int(sys.argv[1]))\n"
        "while True:\n"
        "    data, fds, _, _ = socket.recv_fds(control, 1 << 16, 3)\n"
        "    if not data: break\n"
        "    answer = json.dumps({'observation': 7, 'word': json.loads(data)['word']})\n"
        "    os.write(fds[0], answer.encode() + b'\\n')\n"
        "    [os.close(fd) for fd in fds]\n"
        "    control.send(json.dumps({'done': '', 'word': json.loads(data)['word']}).encode())\n"
    )
    starts(monkeypatch, serve)
    monkeypatch.setattr(module.Engine, "_may_start", lambda *_: True)
    groups = ["a", "b", "a", "b", "a", "c", "d", "e", "f", "a"]
    jobs = [
        Job(name=str(n), plan="x", folder=tmp_path / str(n), environment=Environment(), timeout=30, shares=True, group=group)
        for n, group in enumerate(groups)
    ]
    with Engine(Limits(threads=1, scratch=tmp_path, isolation=Isolation.WORKER)) as engine:
        done = list(engine.run(jobs, Capacity(jobs=1, cores=2.0, memory=1 << 40)))
        assert sum(not one.is_retired for one in engine._workers.values()) <= 5
    by_worker: dict[int, set[str]] = {}
    for one in done:
        by_worker.setdefault(one.worker, set()).add(one.job.group)
    assert all(len(found) == 1 for found in by_worker.values())
    assert [one.after for one in done][:6] == [0, 0, 1, 1, 2, 0]


CLOSES = """\
from pathlib import Path
def wait(name):
    while not Path(FOLDER, name).exists():
        time.sleep(0.005)
match json.loads(data)["plan"]:
    case "closes":
        os.close(pipe)
        Path(FOLDER, "closed").touch()
        wait("begun")
    case "ends":
        wait("closed")
    case "goes on":
        Path(FOLDER, "begun").touch()
        wait("finished")
        control.send(json.dumps({"done": "", "word": json.loads(data)["word"]}).encode())
        time.sleep(600)
"""


def test_a_worker_is_heard_that_began_while_another_had_closed_its_pipe_and_not_ended(tmp_path, monkeypatch):
    """The number of a descriptor that is closed before its end is known is the next worker's: that would be forgotten in its stead."""
    monkeypatch.setattr(module, "_EXIT_SECONDS", 60.0)
    monkeypatch.setattr(module, "_CLEAN_SECONDS", 5.0)
    monkeypatch.setattr(module.Engine, "_may_start", lambda *_: True)
    answers = ANSWER_AND.split("if json", 1)[0].format(before="control = socket.socket(fileno=os.dup(int(sys.argv[1])))")
    starts(monkeypatch, answers + CLOSES.replace("FOLDER", repr(str(tmp_path))))
    jobs = [
        Job(name=plan, plan=plan, folder=tmp_path / plan, environment=Environment(), timeout=60, shares=plan == "goes on")
        for plan in ("closes", "ends", "goes on")
    ]
    found = {}
    with Engine(Limits(threads=1, scratch=tmp_path, isolation=Isolation.WORKER)) as engine:
        for done in engine.run(jobs, Capacity(jobs=2, cores=2.0, memory=1 << 40)):
            found[done.job.name] = (done.observation, done.left_over)
            if done.job.name == "closes":
                (tmp_path / "finished").touch()
    assert found == {"ends": (7, ""), "closes": (7, ""), "goes on": (7, "")}
    assert list(found) == ["ends", "closes", "goes on"]


# -- the template -----------------------------------------------------------------------------------------------------


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[zygote.Template, socket.socket]]:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for name in ("signal", "set_wakeup_fd"):
        monkeypatch.setattr(zygote.signal, name, lambda *_, **__: None)
    made = zygote.Template(theirs)
    yield made, mine
    for end in (made._wake, made._waker):
        os.close(end)
    mine.close()
    theirs.close()


def test_an_orphan_that_the_system_holds_delays_reports_once_and_not_for_each_worker(served, monkeypatch):
    made, mine = served
    monkeypatch.setattr(zygote, "_ORPHANS_SECONDS", 0.3)
    with subprocess.Popen(["sleep", "600"]) as orphan:
        monkeypatch.setattr(zygote, "_children", lambda: [orphan.pid])
        monkeypatch.setattr(zygote, "kill", lambda pids: set(pids))  # what is killed stays
        waits = []
        for number in (1, 2, 3):
            if number > 1:  # whoever waits for the orphan again reports nothing before this test's time is up
                monkeypatch.setattr(zygote, "_ORPHANS_SECONDS", 600)
            with subprocess.Popen(["true"]) as worker:
                os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
                made._workers[worker.pid] = number
                begun = time.monotonic()
                made._reap()
                if number == 1 and time.monotonic() - begun < 0.3:
                    assert not select.select([mine], [], [], 0)[0], "the template waits in no place where it could fork"
                while not select.select([mine], [], [], 0.01)[0]:
                    made._reap()
                waits.append(time.monotonic() - begun)
                worker.returncode = 0
            said = json.loads(mine.recv(1000))
            assert (said["ended"], said["held"]) == (number, [orphan.pid] if number == 1 else [])
        orphan.kill()
    assert waits[0] > 0.3
    assert max(waits[1:]) < 60
