"""Which workers are started for jobs that have room and no worker: none for a place that another job takes at the same moment."""

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from runner.execute.base import Job
from runner.execute.local.readiness import Readiness
from runner.execute.local.waiting import WaitingJobs
from runner.plan.jobs import Environment
from runner.plan.resources import Capacity, Needs, Room

SMALL, LARGE = Needs(gpu_memory=1 << 30), Needs(gpu_memory=8 << 30)


def job(name: str, variable: str, needs: Needs = SMALL) -> Job:
    environment = Environment(kinds=frozenset(["cuda"]), variables={"A": variable})
    return Job(name=name, plan={}, folder="", environment=environment, timeout=9, needs=needs)


class Workers:
    """Idle workers by environment, and the environments for which one was started."""

    def __init__(self, idle: Mapping[str, int]) -> None:
        self.idle = dict(idle)
        self.started: list[Environment] = []

    def idle_for(self, job: Job, gpus: tuple[int, ...]) -> object:
        return self.idle.get(job.environment.key, 0) or None

    def are_for(self, environment: Environment) -> bool:
        return True

    def ensure_one(self, environment: Environment, gpus: tuple[int, ...]) -> None:
        self.started.append(environment)


class Warm:
    """Zygotes of all environments, which can fork."""

    broken: Mapping[str, str] = {}

    def __contains__(self, key: str) -> bool:
        return True

    def is_ready(self, key: str) -> bool:
        return True


@pytest.mark.parametrize(
    ("waiting", "starts", "workers"),
    [
        # the idle worker of environment c takes the only place: a further worker would be above the number of places
        ([job("first", "b"), job("second", "c")], ["second"], 0),
        # the case of environment c does not fit now, so the place is free for a new worker of environment b
        ([job("first", "b"), job("second", "c", LARGE)], [], 1),
        ([job("first", "b"), job("second", "b")], [], 1),
        ([job("first", "c"), job("second", "b")], ["first"], 0),
    ],
    ids=["place-taken", "place-free", "none-of-the-environment", "in-order"],
)
def test_a_worker_is_started_only_for_a_place_that_no_other_job_takes(waiting: list[Job], starts: list[str], workers: int) -> None:
    """A case runs in one of two places; environment c has an idle worker."""
    room = Room(Capacity(jobs=2, cores=9.0, memory=1 << 40, gpus=1, gpu_memory=8 << 30))
    room.take("running", replace(SMALL))
    pool: Any = Workers({job("", "c").environment.key: 1})
    warm: Any = Warm()
    readiness = Readiness(warm, warm, pool, pool)
    queue = WaitingJobs()
    for one in waiting:
        queue.put(one)
    started: list[str] = []
    for one in queue.started(room, functools.partial(readiness.may_start, room)):
        readiness.started()
        pool.idle[one.environment.key] -= 1
        started.append(one.name)
    assert pool.started == [], "a worker was started before all jobs that can start had started"
    readiness.start_missing()
    assert (started, len(pool.started)) == (starts, workers)
