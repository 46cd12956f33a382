"""Room for jobs: never more at once than there is, exclusive ones alone, and every job starts
eventually.

On a clock of its own.
"""

import heapq
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from torch_conformance.execute.room import MOST_OVERTAKES, Lease, Queue, Room
from torch_conformance.model.case import Group
from torch_conformance.plan.schedule import Capacity, Needs

GIB = 1 << 30
SMALL = Capacity(jobs=4, cores=4, memory=8 * GIB)
TWO_GPUS = Capacity(jobs=8, cores=16, memory=64 * GIB, gpus=2, gpu_memory=80 * GIB)


@dataclass(frozen=True)
class Waiting:
    """What a queue must know of a job."""

    name: str
    needs: Needs = field(default_factory=Needs)
    seconds: float = 1.0
    line: str = ""


def take(room: Room, name: str, needs: Needs) -> Lease:
    room.leases[name] = lease = room.places(needs)[0]
    return lease


def taken(capacity: Capacity, *running: Needs) -> Room:
    room = Room(capacity)
    for number, needs in enumerate(running):
        take(room, f"running-{number}", needs)
    return room


def of(*entries: Needs) -> Queue:
    return queue_of(Waiting(str(number), needs) for number, needs in enumerate(entries))


def queue_of(jobs: Iterable[Waiting]) -> Queue:
    queue = Queue()
    for job in jobs:
        queue.put(job)
    return queue


def started(queue: Queue, room: Room) -> list[str]:
    """Start what can start now; return the names."""
    names: list[str] = []
    while (job := queue.next(room, is_ready=lambda *_: True)) is not None:
        names.append(job.name)
    return names


# -- what fits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("running", "needs", "fits"),
    [
        ([], Needs(), True),
        ([Needs()] * 3, Needs(), True),
        ([Needs(cores=0.1)] * 4, Needs(cores=0.1), False),  # as many as may run at once
        ([Needs(cores=2)], Needs(cores=2), True),
        ([Needs(cores=2)], Needs(cores=2.5), False),
        (
            [Needs(cores=0.1)] * 3,
            Needs(cores=3.7),
            True,
        ),  # 0.1 has no exact float: a sum must not spill over by that
        ([Needs(memory=5 * GIB)], Needs(memory=3 * GIB), True),
        ([Needs(memory=5 * GIB)], Needs(memory=3 * GIB + 1), False),
        ([], Needs(exclusive=True), True),
        ([Needs(cores=0.1)], Needs(exclusive=True), False),
        ([Needs(exclusive=True)], Needs(cores=0.1), False),
        ([Needs(exclusive=True)], Needs(exclusive=True), False),
        ([], Needs(cores=64), True),  # more than the whole machine: alone rather than never
        ([Needs(cores=0.1)], Needs(cores=64), False),
        (
            [Needs(memory=9 * GIB)],
            Needs(cores=0.1),
            False,
        ),  # and nothing beside it, whatever is left of the rest
        ([], Needs(gpu_memory=1), True),  # a machine without a GPU does not decide what can run
        ([Needs(gpu_memory=1)], Needs(), False),
    ],
)
def test_cores_and_memory(running: list[Needs], needs: Needs, fits: bool) -> None:
    assert bool(taken(SMALL, *running).places(needs)) is fits


def test_a_lease_says_which_gpus() -> None:
    room = Room(TWO_GPUS)
    assert take(room, "host", Needs()).gpus == ()
    assert take(room, "a", Needs(gpu_memory=30 * GIB)).gpus == (0,)
    assert take(room, "b", Needs(gpu_memory=20 * GIB)).gpus == (1,)
    assert take(room, "c", Needs(gpu_memory=20 * GIB)).gpus == (1,)  # the one with the most left
    del room.leases["a"]
    assert take(room, "d", Needs(gpus=1)).gpus == (0,)
    assert room.leases["d"] == Lease(Needs(gpus=1), (0,))
    for name in ("host", "b", "c", "d"):
        del room.leases[name]
    assert take(room, "both", Needs(gpus=2)).gpus == (0, 1)


# -- who is next -----------------------------------------------------------------------------------


def test_one_that_waits_is_overtaken_so_often_and_no_more() -> None:
    queue, room = (
        of(Needs(), Needs(exclusive=True), *[Needs()] * 100),
        Room(Capacity(jobs=2, cores=2, memory=GIB)),
    )
    assert started(queue, room) == ["0", "2"]
    overtakes = 1
    while not room.is_taken_alone:
        # one ends, the other goes on: without a bound the room would never be empty
        del room.leases[next(iter(room.leases))]
        names = started(queue, room)
        overtakes += len([name for name in names if name != "1"])
        assert overtakes <= MOST_OVERTAKES
    assert overtakes == MOST_OVERTAKES
    assert list(room.leases) == ["1"]
    del room.leases["1"]
    assert len(started(queue, room)) == 2


def test_a_group_is_bounded_and_holds_up_no_other_job() -> None:
    pair = Group(name="pair", file="_defaults.yaml", most=2)
    one = Group(name="one", file="_defaults.yaml", most=1)
    members = [Needs(cores=0.1, group=pair), Needs(cores=0.2, group=pair)] * 2
    queue = of(*members, *[Needs(cores=0.1, group=one)] * 2, *[Needs(cores=0.1)] * 40)
    room = Room(Capacity(jobs=4, cores=4, memory=GIB))
    assert started(queue, room) == ["0", "1", "4", "6"]
    for _ in range(30):  # more than may overtake a job that waits for room
        del room.leases[next(reversed(room.leases))]
        assert len(started(queue, room)) == 1
    del room.leases["0"]
    assert started(queue, room) == ["2"]  # the first of the group, whatever its needs


def test_a_job_that_is_not_ready_does_not_hold_up_those_of_other_lines() -> None:
    queue, room = (
        queue_of([Waiting("a", line="x"), Waiting("b", line="x"), Waiting("c", line="y")]),
        Room(SMALL),
    )
    job = queue.next(room, is_ready=lambda job, _: job.line == "y")
    assert job is not None
    assert job.name == "c"
    for _ in range(3 * MOST_OVERTAKES):
        # it fits, so what overtakes it takes nothing that it waits for
        queue.put(Waiting("later", line="y"))
        del room.leases[next(iter(room.leases))]
        assert queue.next(room, is_ready=lambda job, _: job.line == "y") is not None
    del room.leases["later"]
    assert started(queue, room) == ["a", "b"]


def test_how_many_contexts_fit_beside_the_leases() -> None:
    room = taken(TWO_GPUS, Needs(gpu_memory=78 * GIB), Needs(gpu_memory=10 * GIB))
    assert [room.contexts(gpus) for gpus in ((0,), (1,), ())] == [2, 70, 2]
    assert taken(SMALL).contexts(()) > 1000  # no GPU is known


def test_which_gpus_a_worker_sees() -> None:
    four = Room(Capacity(jobs=8, cores=16, memory=GIB, gpus=4, gpu_memory=GIB))
    assert four.pins_of_one == [(0,), (1,), (2,), (3,)]
    assert [four.pins(Lease(Needs(), gpus)) for gpus in [(), (2,), (1, 3), (0, 1, 2, 3)]] == [
        (),
        (2,),
        (1, 3),
        (),
    ]
    one = Room(replace(TWO_GPUS, gpus=1))
    assert one.pins_of_one == []
    assert one.pins(Lease(Needs(), (0,))) == ()


# -- whatever comes --------------------------------------------------------------------------------


def some_needs(rng: random.Random) -> Needs:
    return Needs(
        cores=rng.choice([0.25, 1, 1, 1, 2, 5, 100]),
        memory=rng.choice([0, GIB, GIB, 6 * GIB, 300 * GIB]),
        gpu_memory=rng.choice([0, 0, 4 * GIB, 64 * GIB, 200 * GIB]),
        gpus=rng.choice([0, 0, 0, 0, 1, 2, 9]),
        exclusive=rng.random() < 0.05,
    )


def some_capacity(rng: random.Random) -> Capacity:
    return Capacity(
        jobs=rng.choice([1, 2, 4, 16]),
        cores=rng.choice([0.5, 1, 4, 16]),
        memory=rng.choice([2, 24, 128]) * GIB,
        gpus=rng.choice([0, 1, 2, 8]),
        gpu_memory=rng.choice([24, 80]) * GIB,
    )


def within(capacity: Capacity, leases: Iterable[Lease]) -> bool:
    """Whether a machine can bear what runs; reckoned otherwise than the room does it."""
    running = list(leases)
    if len(running) <= 1:
        return True
    per_gpu = [
        sum(lease.needs.gpu_memory for lease in running if gpu in lease.gpus)
        for gpu in range(capacity.gpus)
    ]
    return (
        not any(lease.needs.exclusive for lease in running)
        and len(running) <= capacity.jobs
        and sum(lease.needs.cores for lease in running) <= capacity.cores + 1e-6
        and sum(lease.needs.memory for lease in running) <= capacity.memory
        and all(
            len(set(lease.gpus)) == (lease.needs.gpus or bool(lease.needs.gpu_memory))
            for lease in running
        )
        and all(gpu < capacity.gpus for lease in running for gpu in lease.gpus)
        and all(used <= capacity.gpu_memory for used in per_gpu)
    )


@pytest.mark.parametrize("seed", range(150))
def test_every_job_is_started_within_what_there_is_and_none_is_overtaken_for_ever(
    seed: int,
) -> None:
    rng = random.Random(seed)
    ready = rng.choice(
        [1.0, 0.7]
    )  # only jobs that do not fit are overtaken a limited number of times
    capacity = some_capacity(rng)
    kinds = [some_needs(rng) for _ in range(rng.randint(1, 8))]
    jobs = [
        Waiting(str(number), rng.choice(kinds), rng.expovariate(1))
        for number in range(rng.randint(1, 120))
    ]
    queue, room = queue_of(jobs), Room(capacity)
    order = count()
    ends: list[tuple[float, int, str]] = []
    names: list[str] = []
    now = 0.0
    while queue.lines or ends:
        while (job := queue.next(room, is_ready=lambda *_: rng.random() < ready)) is not None:
            names.append(job.name)
            assert room.leases[job.name].needs == job.needs
            assert within(capacity, room.leases.values())
            heapq.heappush(ends, (now + job.seconds, next(order), job.name))
        if ends:
            now, _, name = heapq.heappop(ends)
            del room.leases[name]
    assert sorted(names, key=int) == [job.name for job in jobs]
    assert not room.leases
    by_needs: dict[Needs, list[int]] = {}
    for name in names:
        by_needs.setdefault(jobs[int(name)].needs, []).append(int(name))
    assert all(line == sorted(line) for line in by_needs.values())  # alike ones keep their order
    for place, name in enumerate(names):
        # counted from the moment at which it was the first of its kind
        of_kind = by_needs[jobs[int(name)].needs]
        before = of_kind[of_kind.index(int(name)) - 1] if of_kind[0] != int(name) else None
        since = names.index(str(before)) + 1 if before is not None else 0
        assert (
            ready < 1
            or sum(int(other) > int(name) for other in names[since:place]) <= MOST_OVERTAKES
        )
