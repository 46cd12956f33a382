"""The executor of a run starts each executor with the first job that names it, and runs them one after the other."""

from collections.abc import Callable
from pathlib import Path

from runner.execute.base import Execution, Executor, ExecutorSettings, Job
from runner.execute.executors import EXECUTORS, LOCAL, OFFLINE
from runner.execute.routing import RoutingExecutor
from runner.plan.resources import Capacity, Environment
from tests.fakes import ENDED, FakeExecutor

CAPACITY = Capacity(jobs=1, cores=1, memory=1 << 30)
SETTINGS = ExecutorSettings(folder=Path("/nowhere"), workers=1, threads=1)


def job(name: str, executor: str) -> Job:
    return Job(name=name, plan={"id": name}, folder="", environment=Environment(), timeout=1, executor=executor)


def answer(wanted: Job) -> Execution:
    return Execution(job=wanted, observation={"of": wanted.executor}, ending=ENDED, seconds=0.0, isolation="fork")


def routing() -> tuple[RoutingExecutor, dict[str, FakeExecutor], list[str]]:
    fakes = {name: FakeExecutor(answer) for name in EXECUTORS}
    started: list[str] = []

    def maker(name: str) -> Callable[[ExecutorSettings], Executor]:
        def make(settings: ExecutorSettings) -> Executor:
            started.append(name)
            return fakes[name].started(settings)

        return make

    return RoutingExecutor(SETTINGS, {name: maker(name) for name in EXECUTORS}), fakes, started


def test_each_job_is_run_by_the_executor_that_it_names() -> None:
    whole, fakes, started = routing()
    jobs = [job("a", OFFLINE), job("b", LOCAL), job("c", OFFLINE)]
    found = [(one.job.name, one.observation["of"]) for one in whole.run(jobs, CAPACITY)]
    assert found == [("b", LOCAL), ("a", OFFLINE), ("c", OFFLINE)]
    assert started == [LOCAL, OFFLINE]
    assert fakes[LOCAL].settings == SETTINGS


def test_a_retried_job_goes_to_its_own_executor() -> None:
    whole, _, _ = routing()
    names = []
    for one in whole.run([job("a", LOCAL), job("b", OFFLINE)], CAPACITY):
        names.append(one.job.name)
        if len(names) == 1:
            whole.again(job(f"{one.job.name} again", one.job.executor))
    assert names == ["a", "a again", "b"]


def test_an_interrupt_drops_the_jobs_of_executors_that_have_not_begun() -> None:
    whole, fakes, started = routing()
    checks: list[int] = []
    whole.on_interrupt(0, lambda: checks.append(1))
    found = []
    for one in whole.run([job("a", LOCAL), job("b", LOCAL), job("c", OFFLINE)], CAPACITY):
        found.append(one.job.name)
        whole.cancel_waiting()
    assert found == ["a"]
    assert started == [LOCAL]
    assert fakes[LOCAL].cancelled == 1
    assert checks
