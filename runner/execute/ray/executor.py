"""The executor of a fleet (``runner.execute.base.Executor``): gives jobs to nodes, and accepts one execution of each.

A job has a token for each node that it is given to. Only the execution that carries the token of the node that has the job now is
accepted, once; what a node sends that was lost meanwhile is dropped. A crash of a worker is an execution like any other. Only where a
node is lost, or quarantined, before a job of it ended, is the job given to another one.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from runner.core.activity import Activity, RunningCase
from runner.execute.base import Execution, ExecutorSettings, Job
from runner.execute.ray.frames import Frame, pack
from runner.execute.ray.link import Came, Event, Joined, Link, Lost, Opened
from runner.execute.ray.peers import Dispatch, FleetSettings, Peer, State
from runner.execute.ray.returned import write_files
from runner.execute.ray.roster import Roster
from runner.execute.ray.source import ANY, Order, PinnedSource, Source
from runner.plan.resources import Capacity

_WAIT_SECONDS = 1.0


class FleetExecutor:
    """Runs jobs on the nodes of a lab."""

    def __init__(self, settings: ExecutorSettings, fleet: FleetSettings, link: Link) -> None:
        self._settings = settings
        self._link = link
        self.roster = Roster(fleet, link)
        self._workers: dict[tuple[str, int], int] = {}
        """The numbers of workers in this run, by node and number there."""
        self._check: Callable[[], None] = lambda: None
        self._wake: int | None = None
        self._source: Source = PinnedSource({})

    def connect(self) -> None:
        """Open every node that joined, and wait until each answered or is given up; raise ``UsageError`` where there is none."""
        self.roster.open()
        while any(peer.state is State.OPENING and not peer.is_late for peer in self.roster):
            self._check()
            for _ in self._take(self._link.wait(_WAIT_SECONDS, self._wake)):
                pass  # no node has a job yet
            self.roster.give_up_on_stalled(self._source)

    def quarantine(self, name: str, why: str) -> None:
        """Give a node nothing more, and its jobs to others."""
        self.roster.give_up(self.roster[name], State.QUARANTINED, why, self._source)

    def run(self, jobs: Iterable[Job] | Source, capacity: Capacity | None = None) -> Iterator[Execution]:
        """Run every job on a node that may run it, and yield each as it ends; each node has a capacity of its own."""
        self._source = source = jobs if isinstance(jobs, Source) else PinnedSource({ANY: jobs})
        while True:
            self._check()
            self._feed()
            yield from source.unrunnable(self.roster.possible)
            if source.is_done([peer.name for peer in self.roster if peer.in_flight]):
                return
            yield from self._take(self._link.wait(_WAIT_SECONDS, self._wake))
            self.roster.give_up_on_stalled(source)
            self.roster.reconnect()

    def again(self, job: Job) -> None:
        """Append a job to the queue of ``run``."""
        if isinstance(self._source, PinnedSource):
            self._source.put(job)

    def retire(self, worker: int) -> None:
        """Retire a worker of a node."""
        for (name, local), number in self._workers.items():
            if number == worker and self.roster[name].state is State.READY:
                self.roster.send(self.roster[name], {"kind": "retire", "worker": local})

    def cancel_waiting(self) -> int:
        """Drop what waits, and return the number of jobs that nodes have."""
        self._source.cancel()
        return sum(len(peer.in_flight) for peer in self.roster)

    def on_interrupt(self, wake: int, check: Callable[[], None]) -> None:
        """Call ``check`` before jobs are given, and when ``wake`` is readable."""
        self._wake, self._check = wake, check

    @property
    def activity(self) -> Activity:
        """The jobs that nodes have."""
        opening = [peer for peer in self.roster if peer.state is State.OPENING and not peer.is_late]
        starting = min((peer.heard for peer in opening if peer.is_open), default=None)
        held = min((peer.heard for peer in opening if not peer.is_open), default=None)
        dispatches = [one for peer in self.roster for one in peer.in_flight.values() if one.job.plan is not None or not peer.is_late]
        running = [RunningCase(name=one.job.name, since=one.sent, phase="") for one in dispatches]
        return Activity(starting=starting, held=held, running=tuple(running))

    @property
    def warnings(self) -> Sequence[str]:
        """Which nodes were lost or quarantined."""
        return self.roster.warnings

    def close(self) -> None:
        """End every agent, with its workers."""
        self._link.close()

    def _feed(self) -> None:
        """Give jobs to the nodes with room, one to each in turn."""
        waiting = [peer for peer in self.roster if peer.state is State.READY]
        batches: dict[str, list[bytes]] = {}
        while waiting:
            for peer in list(waiting):
                found = self._source.take(peer.name, len(peer.in_flight)) if peer.has_room and not peer.check_sent else None
                if found is None:
                    waiting.remove(peer)
                else:
                    batches.setdefault(peer.node.key, []).append(_message(peer, found))
        for key, batch in batches.items():
            self._link.send(key, b"".join(batch))

    def _take(self, events: Sequence[Event]) -> Iterator[Execution]:
        for event in events:
            if isinstance(event, Joined):
                self.roster.join(event.nodes)
                continue
            peer = self.roster.at(event.key)
            if peer is None:
                continue
            match event:
                case Opened():
                    peer.heard = time.monotonic()
                    self.roster.begin(peer)
                case Came(frame=frame):
                    peer.heard = time.monotonic()
                    yield from self._came(peer, frame)
                case Lost(why=why):
                    self.roster.give_up(peer, State.LOST, why, self._source)

    def _came(self, peer: Peer, frame: Frame) -> Iterator[Execution]:
        match frame.kind:
            case "hello" if peer.state is State.OPENING:
                self.roster.greet(peer, frame, self._source)
            case "refused" if peer.state is State.OPENING:
                self.quarantine(peer.name, str(frame.message.get("why", ""))[:500])
            case "checked" if peer.check_sent:
                seconds, peer.check_sent = time.monotonic() - peer.check_sent, 0.0
                self._source.checked(peer.name, frame.message, seconds)
            case "ended" if dispatch := peer.in_flight.pop(str(frame.message.get("token", "")), None):
                if (execution := self._accepted(peer, dispatch, frame)) is not None:
                    yield execution
            case kind:  # a second answer: what of it is true cannot be decided
                self.quarantine(peer.name, f"it sent {kind[:50]!r} and was not asked for it")

    def _accepted(self, peer: Peer, dispatch: Dispatch, frame: Frame) -> Execution | None:
        """Return the execution, with its files in the folder of the run; None where it cannot be read: then the node is at fault."""
        try:
            found = dict(frame.message["execution"])
            files = dict(zip(map(str, found["files"]), frame.blobs, strict=True))
            local = int(found["worker"])
            number = self._workers.setdefault((peer.name, local), len(self._workers) + 1) if local else 0
            execution = Execution.of_job(dispatch.job, {**found, "node": peer.name, "worker": number, "unrun": ""})
            peer.took(float(execution.seconds))
        except (KeyError, TypeError, ValueError) as error:
            self._source.put_back(dispatch.job, peer.name, "its answer could not be read")
            self.quarantine(peer.name, f"an answer of it cannot be read: {type(error).__name__}: {error}")
            return None
        if dispatch.job.folder:
            write_files(self._settings.folder / dispatch.job.folder, files)
        return execution


def _message(peer: Peer, found: Job | Order) -> bytes:
    """Return what is sent to a node, and record that it has it."""
    now = time.monotonic()
    if not peer.in_flight:
        peer.heard = now
    if isinstance(found, Order):
        peer.check_sent = now
        return pack({"kind": "check"})
    token = secrets.token_hex(8)
    peer.in_flight[token] = Dispatch(found, now)
    return pack({"kind": "job", "token": token, "job": found.to_json(), "limited": found.memory_limit is not None})
