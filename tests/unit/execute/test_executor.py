"""The seam between a run and what executes its cases: jobs and executions are plain data, and any
executor may stand behind it.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import GOOD
from tests.fakes import crashed, interrupted, observation, passes, seen, use_executor
from torch_conformance.cli.parser import main
from torch_conformance.execute.engine import LocalExecutor
from torch_conformance.execute.executor_protocol import Execution, ExecutorSettings, Job
from torch_conformance.execute.spawn import ProcessStarter, ZygoteProcess
from torch_conformance.machine.scratch import Space
from torch_conformance.model.case_facts import Ending, ServiceReport
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.plan.schedule import Capacity, Environment, Needs
from torch_conformance.record.journal import read_run
from torch_conformance.tools.author.commands.watch import KeptExecutor

JOB = Job(
    questions=("torch.cuda.is_available",),
    name="area/fake[backend=cpu] (00003)",
    plan={
        "format": 1,
        "body": {"inputs": [{"rand": [2, 3]}], "odd": "\udcff\u2028"},
        "seed": 7,
        "none": None,
    },
    folder="cases/00003",
    environment=Environment(variables={"A": "1", "B": None}, kinds=frozenset(["cpu", "cuda"])),
    timeout=2.5,
    services=("redis",),
    new_process=True,
    needs=Needs(cores=3, memory=1 << 33, gpu_memory=5, gpus=2, exclusive=True),
    memory_limit=1 << 32,
)
EXECUTION = Execution(
    job=JOB,
    observation={"steps": [{"counters": {"a": 1}, "excess": 1e-30}], "error": None},
    ending=Ending(exit_code=None, signal=11, timed_out=True, phase="run", step=4),
    seconds=1.25,
    isolation="fork",
    worker=9,
    begun=1.5e9,
    gpus=(0, 1),
    files=("code-0-0.txt", "plan.json", "\udcff"),
    services=(ServiceReport(name="redis", answered={"GET": 2}, foreign=1, problem="none"),),
    printed="Traceback",
    stack_from=17,
    space=Space(folder="/tmp", bytes=1 << 40, files=None, problem="none"),
    note="a note",
    problem="a problem",
    left_over="a process",
    node="epyc",
)


@pytest.mark.parametrize(
    "job", [JOB, Job(name="facts", plan=None, folder="", environment=Environment(), timeout=1)]
)
def test_a_job_and_an_execution_can_be_sent_as_json(job: Job) -> None:
    text = job.to_json()
    assert text.isascii()
    assert Job.from_json(text) == job
    sent = json.dumps(dataclasses.asdict(EXECUTION), default=sorted)
    assert Execution.of_job(EXECUTION.job, json.loads(sent)) == EXECUTION


@pytest.fixture
def here(here: Path) -> Path:
    (here / "spec.yaml").write_text(GOOD)
    return here


def test_a_run_makes_jobs_that_hold_no_path_of_its_machine(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = use_executor(monkeypatch, passes)
    assert main(["run", "spec.yaml", "--out", "out"]) == ExitCode.OK
    (job,) = executor.jobs
    assert job.folder == "cases/00001"
    assert (here / "out" / job.folder).is_dir()
    assert Job.from_json(job.to_json()) == job
    text = job.to_json().replace(
        str(here / "spec.yaml"), ""
    )  # tracebacks name the spec; no worker opens it
    for path in (here, Path(sys.prefix), Path.home(), Path(tempfile.gettempdir())):
        assert str(path) not in text
    assert executor.settings is not None
    assert executor.settings.folder == here / "out"
    assert executor.is_closed


def test_an_interrupt_cancels_the_jobs_that_wait(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "another.yaml").write_text(GOOD)
    executor = use_executor(monkeypatch, interrupted)
    assert main(["run", "another.yaml", "spec.yaml", "--out", "out"]) == ExitCode.INTERRUPTED
    assert len(executor.jobs) == 1
    assert executor.cancelled == 1
    assert executor.is_closed
    assert sorted(result.outcome.label for result in read_run(Path("out/run.jsonl")).results) == [
        "NOT_RUN",
        "PASS",
    ]
    assert "interrupted: finishing 0 running cases" in capsys.readouterr().err


def test_an_interrupted_audit_of_facts_prints_what_it_has(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "another.yaml").write_text(GOOD)
    row = {"fact": "global k", "fate": "unsound", "limit": "", "difference": "eager 5, compiled 2"}
    facts = {"facts": [{**row, "recompiled": False, "guards": []}], "left": 0}

    def answer(job: Job) -> Execution:
        sent = observation(seen(measured={"0": facts}), id=job.name.split(" ")[0])
        return replace(interrupted(job), observation=sent)

    use_executor(monkeypatch, answer)
    code = main(["audit", "--vary", "another.yaml", "spec.yaml"])
    shown = capsys.readouterr()
    assert code == ExitCode.INTERRUPTED, shown.err
    assert ": global k: eager 5, compiled 2; no recompile; guards that name it: none" in shown.out
    assert "it was not run" in shown.out
    assert "interrupted: 1 of 2 cases were not tried" in shown.err
    use_executor(monkeypatch, crashed)
    assert main(["audit", "--vary", "spec.yaml"]) == ExitCode.NOTHING
    assert "not tried: spec[backend=cpu]: " in capsys.readouterr().out


def test_a_resumed_run_asks_what_the_recorded_cases_need_too(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A predicate that was not called has not returned True: the recorded case would seem one that
    cannot run here.
    """
    (here / "spec.yaml").write_text(f"requires: [{{call: os.path.isabs}}]\n{GOOD}")
    (here / "zero.yaml").write_text(GOOD)
    executor = use_executor(monkeypatch, interrupted)
    executor.predicates_hold = True
    assert main(["run", "spec.yaml", "zero.yaml", "--out", "out"]) == ExitCode.INTERRUPTED
    (ended,) = [
        result
        for result in read_run(Path("out/run.jsonl")).results
        if result.outcome.label == "PASS"
    ]
    assert ended.case_id == "spec[backend=cpu]"
    executor.answer = passes
    assert main(["run", "spec.yaml", "zero.yaml", "--resume", "out"]) == ExitCode.OK, (
        capsys.readouterr().err
    )
    assert [result.outcome.label for result in read_run(Path("out/run.jsonl")).results] == [
        "PASS",
        "PASS",
    ]


# -- the executor of this machine ------------------------------------------------------------------

ANSWER = """\
import json, os, socket, sys
data, (pipe, out, err), _, _ = socket.recv_fds(socket.socket(fileno=int(sys.argv[1])), 1 << 16, 3)
message = json.loads(data)
answer = {"plan": message["plan"]}
if message["plan"] == "facts":
    os.write(err, b"no torch here")
else:
    plan = json.load(open(message["plan"]))
    answer["plan"] = plan
    services = os.path.join(plan["cache"], "services.json")
    answer["url"] = json.load(open(services))["redis"]["url"] if os.path.exists(services) else None
    os.makedirs(plan["cache"], exist_ok=True)
    open(os.path.join(plan["folder"], "code-0-0.txt"), "w").close()
os.write(pipe, json.dumps({"observation": answer, "word": message["word"]}).encode() + b"\\n")
"""


class Starter(ProcessStarter):
    """Starts workers that need no torch."""

    def zygote(self, wanted: Environment) -> Any:
        raise AssertionError("no zygote is needed")

    def worker(self, wanted: Environment, control: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-c", ANSWER, str(control)], pass_fds=[control], start_new_session=True
        )


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalExecutor]:
    settings = ExecutorSettings(
        folder=tmp_path / "run", workers=2, threads=1, torch_root="/its/torch"
    )
    executor = LocalExecutor(settings, Starter(threads=1))
    yield executor
    executor.close()


def ended(local: LocalExecutor, *jobs: Job) -> dict[str, Execution]:
    return {
        done.job.name: done for done in local.run(jobs, Capacity(jobs=2, cores=2.0, memory=1 << 40))
    }


def a_job(name: str, **more: Any) -> Job:
    return Job(
        name=name,
        plan={"id": name},
        folder=f"cases/{name}",
        environment=Environment(),
        timeout=60,
        new_process=True,
        **more,
    )


def test_the_plan_gets_the_paths_of_this_machine(local: LocalExecutor, tmp_path: Path) -> None:
    done = ended(local, a_job("00001"))["00001"]
    plan = done.observation["plan"]
    assert (plan["id"], plan["folder"], plan["torch_root"]) == (
        "00001",
        str(tmp_path / "run/cases/00001"),
        "/its/torch",
    )
    assert json.loads((tmp_path / "run/cases/00001/plan.json").read_text()) == plan
    assert done.files == ("code-0-0.txt", "plan.json", "stderr.txt", "stdout.txt")
    assert not Path(plan["cache"]).exists(), "the cache of a case is removed when it has ended"
    assert done.space is not None
    assert done.space.bytes > 0


def test_each_job_gets_services_of_its_own_where_its_worker_finds_them(
    local: LocalExecutor,
) -> None:
    done = ended(
        local,
        a_job("00001", services=("redis",)),
        a_job("00002", services=("redis",)),
        a_job("00003"),
    )
    urls = [done[name].observation["url"] for name in ("00001", "00002", "00003")]
    assert urls[0].startswith("redis://:")
    assert urls[0] != urls[1]
    assert urls[2] is None
    assert [len(done[name].services) for name in ("00001", "00002", "00003")] == [1, 1, 0]
    assert {
        (one.name, one.problem) for name in ("00001", "00002") for one in done[name].services
    } == {("redis", "")}


@pytest.mark.parametrize("is_link", [True, False])
def test_what_another_worker_put_in_the_place_of_a_plan_is_not_written_to(
    local: LocalExecutor, tmp_path: Path, is_link: bool
) -> None:
    folder = tmp_path / "run/cases/00001"
    folder.mkdir(parents=True)
    (tmp_path / "victim").write_text("mine")
    if is_link:
        (folder / "plan.json").symlink_to(tmp_path / "victim")
    else:
        (folder / "plan.json" / "deep").mkdir(parents=True)
    done = ended(local, a_job("00001"))["00001"]
    assert done.observation["plan"]["id"] == "00001"
    assert (tmp_path / "victim").read_text() == "mine"
    assert not (folder / "plan.json").is_symlink()


# -- an executor that serves one run after another -------------------------------------------------


EARLY = ProcessStarter.early
"""What the session replaces for each test."""

PLAIN_ZYGOTE = "tests.unit.execute.plain_zygote"


@pytest.fixture
def plain_zygotes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zygotes are real, and have no torch."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[3]))

    def plain(_: object, log: Path, __: str) -> ZygoteProcess:
        return ZygoteProcess(os.environ, log, PLAIN_ZYGOTE)

    monkeypatch.setattr("torch_conformance.execute.spawn.ZygoteProcess", plain)


@pytest.fixture
def kept(plain_zygotes: None) -> Iterator[KeptExecutor]:
    executor = KeptExecutor()
    yield executor
    executor.close()


def test_the_machine_is_looked_at_while_its_zygote_warms_up(
    plain_zygotes: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WARM_WHEN", str(tmp_path / "now"))
    environment = Environment(kinds=frozenset(["cpu"]), module="vendor.compiler")
    settings = ExecutorSettings(folder=tmp_path / "run", workers=1, threads=1, few=True)
    case = replace(a_job("00001"), new_process=False, environment=environment)
    facts = replace(case, name="facts", plan=None, folder="")
    with contextlib.closing(LocalExecutor(settings)) as executor:
        (execution,) = ended(executor, facts).values()
        assert (execution.observation, execution.note, execution.left_over) == ({}, "", "")
        (zygote,) = executor._zygotes.values()
        assert (zygote.is_asked, zygote.is_warm) == (True, False)
        assert executor.activity.starting is not None
        (tmp_path / "now").touch()
        (execution,) = ended(executor, case).values()
        assert execution.isolation == "fork"
        assert executor.start_up is not None
        assert executor.start_up.phases == {"cpu": 1.5, "module:vendor.compiler": 1.5, "few": 1.0}


def test_a_zygote_starts_before_the_cases_are_known(
    plain_zygotes: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ProcessStarter, "early", EARLY)
    case = replace(a_job("00001"), new_process=False)
    others = replace(case, name="00002", environment=Environment(variables={"A": "1"}))
    settings = ExecutorSettings(folder=tmp_path / "run", workers=1, threads=1, zygotes=2)
    for jobs, is_taken in (([case, others], True), ([others], False)):
        with ProcessStarter.early("1") as starter:
            assert starter is not None
            (early,) = starter._early
            started = LocalExecutor(replace(settings, threads=starter.threads), starter)
            with contextlib.closing(started) as executor:
                ended(executor, *jobs)
                assert (early in executor._zygotes.values()) is is_taken
                assert (early.process.poll() is None) is is_taken
        assert early.process.poll() is not None
        assert not starter.scratch.path.exists()
    with ProcessStarter.early("1") as starter:  # what no executor takes is ended too
        assert starter is not None
        (early,) = starter._early
    assert early.process.poll() is not None
    assert not starter.scratch.path.exists()


def run_of(kept: KeptExecutor, folder: Path, threads: int = 1) -> tuple[LocalExecutor, int]:
    """Make one run of one job; return its executor, and the process of its zygote."""
    executor = kept.of(ExecutorSettings(folder=folder, workers=1, threads=threads))
    (execution,) = ended(executor, dataclasses.replace(a_job("00001"), new_process=False)).values()
    assert execution.isolation == "fork"
    (zygote,) = executor._zygotes.values()
    executor.close()
    return executor, zygote.process.pid


def test_the_next_run_has_the_same_zygote(kept: KeptExecutor, tmp_path: Path) -> None:
    first = run_of(kept, tmp_path / "1")
    assert run_of(kept, tmp_path / "2") == first
    assert (tmp_path / "2/cases/00001").is_dir()


@pytest.mark.parametrize(
    "why", ["its zygote was killed", "other threads", "another state of the machine"]
)
def test_a_zygote_that_another_run_cannot_use_ends(
    kept: KeptExecutor, tmp_path: Path, why: str
) -> None:
    _, pid = run_of(kept, tmp_path / "1")
    if why == "its zygote was killed":
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if why == "another state of the machine":
        assert kept.close()
    assert run_of(kept, tmp_path / "2", threads=2 if why == "other threads" else 1)[1] != pid
    assert not Path(f"/proc/{pid}").exists()


def test_a_run_that_is_stopped_within_a_case_ends_its_zygote(
    kept: KeptExecutor, tmp_path: Path
) -> None:
    executor = kept.of(ExecutorSettings(folder=tmp_path / "1", workers=2, threads=1))
    jobs = [
        dataclasses.replace(a_job(name), new_process=False) for name in ("00001", "00002", "00003")
    ]
    next(executor.run(jobs, Capacity(jobs=2, cores=2.0, memory=1 << 40)))
    executor.close()
    assert kept.of(ExecutorSettings(folder=tmp_path / "2", workers=2, threads=1)) is not executor
