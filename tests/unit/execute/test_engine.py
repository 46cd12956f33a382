"""The engine comes to its end whatever becomes of a zygote: one that never forks, never reports an
end, or is stopped.
"""

import contextlib
import json
import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torch_conformance.execute.engine import Grace, LocalExecutor
from torch_conformance.execute.executor_protocol import Execution, ExecutorSettings, Job
from torch_conformance.execute.spawn import ProcessStarter
from torch_conformance.execute.workers import Worker
from torch_conformance.plan.schedule import Capacity, Environment, Needs
from torch_conformance.worker.process import zygote

ANSWER = """\
import json, os, socket, sys
data, (pipe, *_), _, _ = socket.recv_fds(socket.socket(fileno=int(sys.argv[1])), 1 << 16, 3)
answer = json.dumps({"observation": 7, "word": json.loads(data)["word"]})
os.write(pipe, b'{"phase": "api"}\\n' + answer.encode() + b'\\n')
"""


class Stuck:
    """A zygote that is there and does nothing that it is requested to do."""

    children: list["subprocess.Popen[bytes]"]

    def __init__(self) -> None:
        self.control, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.is_ready = self.is_warm = self.is_asked = True
        self.begun = 0.0
        self.is_closed = False
        self.children = []

    def fork(self, number: int, control: int) -> bool:
        return True

    def receive(self) -> dict[str, Any]:
        return dict(json.loads(self.control.recv(1 << 16)))

    def wake(self) -> None: ...

    def last_words(self) -> str:
        return ""

    def hang_up(self) -> None:
        self.control.close()
        self.theirs.close()

    def has_left(self) -> bool:
        self.close()
        return True

    def close(self) -> None:
        for child in self.children:
            child.kill()
            child.wait(timeout=60)


class Silent(Stuck):
    """A zygote that forks and never reports an end."""

    def fork(self, number: int, control: int) -> bool:
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        self.children.append(child)
        self.theirs.send(json.dumps({"started": number, "pid": child.pid}).encode())
        return True


IMPATIENT = Grace(fork=0.3, gone=0.3, stack=0.05)


class Starter(ProcessStarter):
    """Starts workers that run this code, and zygotes of this kind."""

    def __init__(self, code: str = ANSWER, zygotes: Callable[[], "Stuck"] | None = None) -> None:
        super().__init__(threads=1)
        self.code = code
        self.zygotes = zygotes
        self.workers: list[subprocess.Popen[bytes]] = []
        self.made: list[Stuck] = []

    def zygote(self, wanted: Environment) -> Any:
        assert self.zygotes is not None
        self.made.append(self.zygotes())
        return self.made[-1]

    def worker(self, wanted: Environment, control: int) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", self.code, str(control)]
        self.workers.append(subprocess.Popen(command, pass_fds=[control], start_new_session=True))
        return self.workers[-1]


def a_job(folder: Path, name: object, plan: str = "x", timeout: float = 30, **more: Any) -> Job:
    more = {"environment": Environment(), **more}
    return Job(
        name=str(name), plan={"word": plan}, folder=str(folder / str(name)), timeout=timeout, **more
    )


class Executor(LocalExecutor):
    """Gives a worker a word in the place of a plan's file."""

    def _prepare(self, job: Job) -> tuple[str, Path]:
        assert job.plan is not None
        return job.plan["word"], Path(job.folder)


def engine_with(
    starter: Starter, grace: Grace = IMPATIENT, **limits: Any
) -> "contextlib.closing[Executor]":
    settings = ExecutorSettings(folder=Path(), workers=1, threads=1, **limits)
    return contextlib.closing(Executor(settings, starter, grace))


def room(jobs: int) -> Capacity:
    return Capacity(jobs=jobs, cores=2.0, memory=1 << 40)


THREADS = "the zygote has 2 threads (python, python)"


class Refuses(Stuck):
    """A zygote in which a fork is not safe."""

    def fork(self, number: int, control: int) -> bool:
        self.theirs.send(json.dumps({"refused": number, "why": THREADS}).encode())
        return True


@pytest.mark.parametrize(
    ("zygotes", "why"), [(Stuck, "the zygote did not fork within 0.3 s"), (Refuses, THREADS)]
)
def test_jobs_that_a_zygote_does_not_fork_for_get_new_processes_and_the_user_is_warned(
    tmp_path, zygotes, why
):
    # shorter than the zygote is waited for: a job's time begins with its process
    with engine_with(Starter(zygotes=zygotes)) as engine:
        done = list(engine.run([a_job(tmp_path, n, timeout=20) for n in range(3)], room(2)))
        assert engine.warnings == [
            f"cases got a new process each instead of a fork, which is slow: {why}"
        ]
    assert sorted(execution.job.name for execution in done) == ["0", "1", "2"]
    for execution in done:
        assert (execution.observation, execution.isolation, execution.note) == (7, "process", why)
        assert (execution.ending.timed_out, execution.ending.exit_code, execution.ending.phase) == (
            False,
            0,
            "api",
        )


def test_a_zygote_with_a_thread_forks_nothing():
    """In a Python of its own: no process of pytest has one thread."""
    act = """
import json, os, socket, sys, threading
from torch_conformance.worker.process import zygote
mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
before = zygote.danger_of_threads()
threading.Thread(target=threading.Event().wait, daemon=True).start()
made = zygote.Zygote(theirs, danger=zygote.danger_of_threads)
socket.send_fds(mine, [json.dumps({"fork": 7}).encode()], [mine.fileno()])
made._serve()
print(json.dumps([before, json.loads(mine.recv(1000)), "torch" in sys.modules]))
"""
    done = subprocess.run(
        [sys.executable, "-c", act], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    before, answer, has_torch = json.loads(done.stdout)
    assert (before, has_torch) == ("", False)
    assert answer["refused"] == 7
    assert answer["why"].startswith("the zygote has 2 threads (")


def test_a_killed_worker_whose_end_is_not_reported_does_not_hold_up_the_run(tmp_path):
    with engine_with(Starter(zygotes=Silent)) as engine:
        (done,) = engine.run([a_job(tmp_path, 0, timeout=0.1)], room(2))
    assert done.ending.timed_out
    assert re.fullmatch(
        r"its process \d+ was not reported to have ended 0\.\d s after it was killed", done.note
    )
    assert done.left_over == done.note


# -- workers that answer and do not end ------------------------------------------------------------

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
    "ignores signals": "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 10, 15)]; time.sleep(600)",  # noqa: E501 - a word without a break
    "is stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "leaves a child on the pipe": "os.fork() or time.sleep(600); time.sleep(600)",
}


def one_after_another(
    starter: Starter, folder: Path, plans: list[str], timeout: float = 60.0
) -> list[tuple[float, Execution, list[str]]]:
    """Run jobs with nothing beside each of them; return when each ended, what became of it, and
    what had outlived its job by then.
    """
    jobs = [
        a_job(folder, n, plan, timeout, needs=Needs(exclusive=True), new_process=True)
        for n, plan in enumerate(plans)
    ]
    begun = time.monotonic()
    with engine_with(starter) as engine:
        return [
            (time.monotonic() - begun, done, engine.warnings) for done in engine.run(jobs, room(2))
        ]


@pytest.mark.parametrize("way", STAYS)
def test_a_worker_that_answers_and_does_not_end_delays_no_other_case(tmp_path, way):
    starter = Starter(ANSWER_AND.format(before="", stays=STAYS[way]))
    (first, stays, _), (second, next_, _), (third, last, _) = one_after_another(
        starter, tmp_path, ["stays", "ends", "ends"]
    )
    assert third < 60  # the worker that stays would stay for 600
    assert second - first < 60
    assert (
        stays.observation,
        stays.ending.exit_code,
        stays.ending.signal,
        stays.ending.timed_out,
    ) == (7, 0, None, False)
    assert stays.left_over.startswith("its worker had answered and did not end, so it was killed")
    assert stays.note == stays.left_over
    assert [(one.observation, one.left_over, one.note) for one in (next_, last)] == [
        (7, "", "")
    ] * 2


def test_a_worker_that_outlives_even_the_kill_delays_no_other_case(tmp_path, monkeypatch):
    starter = Starter(ANSWER_AND.format(before="", stays="time.sleep(600)"))
    monkeypatch.setattr("torch_conformance.execute.workers.os.killpg", lambda *_: None)
    try:
        (_, stays, left_over), (second, _, _) = one_after_another(
            starter, tmp_path, ["stays", "ends"]
        )
    finally:
        monkeypatch.undo()
        for process in starter.workers:
            process.kill()
            process.wait(timeout=60)
    assert second < 60
    assert re.search(
        r"so it was killed; its process \d+ had not ended \(state [SR]\) [\d.]+ s after it "
        r"was killed",
        stays.left_over,
    )
    assert stays.ending.exit_code == 0
    assert left_over == [f"0: {stays.left_over}"]


@pytest.mark.parametrize(
    ("ends", "code", "number"), [("os.kill(os.getpid(), 11)", None, 11), ("os._exit(3)", 3, None)]
)
def test_a_worker_that_answers_and_then_ends_by_itself_is_judged_by_its_end(
    tmp_path, ends, code, number
):
    ((_, done, _),) = one_after_another(
        Starter(ANSWER_AND.format(before="", stays=ends)), tmp_path, ["stays"]
    )
    assert (done.observation, done.ending.exit_code, done.ending.signal) == (7, code, number)
    assert done.left_over == ""


class Kept(Stuck):
    """A zygote that is there, and whose workers are ready at once and never end."""

    def fork(self, number: int, control: int) -> bool:
        code = ANSWER_AND.format(before=WARM, stays="time.sleep(600)")
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(control)], pass_fds=[control], start_new_session=True
        )
        self.children.append(child)
        self.theirs.send(json.dumps({"started": number, "pid": child.pid}).encode())
        return True


WARM = (
    "socket_ = socket.socket(fileno=os.dup(int(sys.argv[1]))); socket_.send(socket_.recv(1 << "
    "16)) if len(sys.argv) == 2 else None"
)


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
"""


def test_a_worker_is_heard_that_began_while_another_had_closed_its_pipe_and_not_ended(tmp_path):
    """The number of a descriptor that is closed before its end is known is the next worker's: that
    would be forgotten in its stead.
    """
    answers = ANSWER_AND.split("if json", 1)[0].format(
        before="control = socket.socket(fileno=os.dup(int(sys.argv[1])))"
    )
    starter = Starter(answers + CLOSES.replace("FOLDER", repr(str(tmp_path))))
    jobs = [a_job(tmp_path, plan, plan, timeout=60) for plan in ("closes", "ends", "goes on")]
    found = {}
    with engine_with(starter, replace(IMPATIENT, exit=60.0)) as engine:
        engine.broken[Environment().key] = "none is needed"
        for done in engine.run(jobs, room(2)):
            found[done.job.name] = (done.observation, done.left_over)
            if done.job.name == "closes":
                (tmp_path / "finished").touch()
    assert found == {"ends": (7, ""), "closes": (7, ""), "goes on": (7, "")}
    assert list(found) == ["ends", "closes", "goes on"]


# -- the template ----------------------------------------------------------------------------------


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[zygote.Zygote, socket.socket]]:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for name in ("signal", "set_wakeup_fd"):
        monkeypatch.setattr(zygote.signal, name, lambda *_, **__: None)
    made = zygote.Zygote(theirs)
    yield made, mine
    for end in (made._wake, made._waker):
        os.close(end)
    mine.close()
    theirs.close()


def test_an_orphan_that_the_system_holds_delays_reports_once_and_not_for_each_worker(
    served, monkeypatch
):
    made, mine = served
    monkeypatch.setattr(zygote, "_ORPHANS_SECONDS", 0.3)
    with subprocess.Popen(["sleep", "600"]) as orphan:
        monkeypatch.setattr(zygote, "_children", lambda: [orphan.pid])
        monkeypatch.setattr(zygote, "kill", lambda pids: set(pids))  # what is killed stays
        waits = []
        for number in (1, 2, 3):
            if number > 1:
                # whoever waits for the orphan again reports nothing before this test's time is up
                monkeypatch.setattr(zygote, "_ORPHANS_SECONDS", 600)
            with subprocess.Popen(["true"]) as worker:
                os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
                made._workers[worker.pid] = number
                begun = time.monotonic()
                made._reap()
                if number == 1 and time.monotonic() - begun < 0.3:
                    assert not select.select([mine], [], [], 0)[0], (
                        "the template waits in no place where it could fork"
                    )
                while not select.select([mine], [], [], 0.01)[0]:
                    made._reap()
                waits.append(time.monotonic() - begun)
                worker.returncode = 0
            said = json.loads(mine.recv(1000))
            assert (said["ended"], said["held"]) == (number, [orphan.pid] if number == 1 else [])
        orphan.kill()
    assert waits[0] > 0.3
    assert max(waits[1:]) < 60


SOON = replace(IMPATIENT, exit=0.2)
"""For zygotes that report no end: each worker that has answered is waited for."""


def of_gpu(**variables: str) -> Environment:
    return Environment(kinds=frozenset(["cuda"]), variables=variables)


@pytest.mark.parametrize(
    ("zygotes", "order"), [(1, ["0", "2", "1", "3"]), (2, ["0", "1", "2", "3"])]
)
def test_as_many_environments_run_at_a_time_as_may_have_a_zygote(tmp_path, zygotes, order):
    jobs = [a_job(tmp_path, n, "ends", environment=of_gpu(A="xy"[n % 2])) for n in range(4)]
    starter = Starter(zygotes=Kept)
    with engine_with(starter, SOON, zygotes=zygotes) as engine:
        done = [one.job.name for one in engine.run(jobs, room(1))]
    assert sorted(done) == ["0", "1", "2", "3"]
    assert (
        done == order or zygotes == 2
    )  # with two, the order depends on which worker is warm first
    assert len(starter.made) == 2


def test_cases_spread_over_the_gpus_and_each_worker_is_told_which_it_sees(tmp_path):
    capacity = Capacity(jobs=4, cores=8.0, memory=1 << 40, gpus=2, gpu_memory=4 << 30)
    needs = [Needs(gpu_memory=2 << 30)] * 4 + [Needs(gpus=2, gpu_memory=1 << 30), Needs()]
    jobs = [
        a_job(tmp_path, n, "ends", environment=of_gpu(), needs=one) for n, one in enumerate(needs)
    ]
    sent: list[dict[str, Any]] = []
    with (
        engine_with(Starter(zygotes=Kept), SOON, spares=2) as engine,
        pytest.MonkeyPatch.context() as patch,
    ):
        given = Worker.give

        def give(worker: Worker, job: Job, *where: Any) -> Any:
            sent.append({"name": job.name, "gpus": worker.gpus})
            return given(worker, job, *where)

        patch.setattr(Worker, "give", give)
        leased = {one.job.name: one.gpus for one in engine.run(jobs, capacity)}
    seen = {one["name"]: one["gpus"] for one in sent}
    assert sorted(leased[str(n)] for n in range(4)) == [(0,), (0,), (1,), (1,)]
    assert {name: leased[name] for name in "45"} == {"4": (0, 1), "5": ()}
    assert {name: seen[name] for name in "0123"} == {name: leased[name] for name in "0123"}
    assert (seen["4"], seen["5"]) == ((), ())  # all GPUs
