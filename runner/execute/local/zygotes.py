"""The zygotes of a run: one for each environment, warmed up when the first job of that environment may start."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from runner.execute.local.descriptors import Descriptors
from runner.execute.local.limits import Limits
from runner.execute.local.spawn import Message, Starter, Zygote
from runner.plan.jobs import Environment


@dataclass
class _Entry:
    process: Zygote
    deadline: float


class Zygotes:
    """The zygotes, by the key of their environment."""

    def __init__(self, limits: Limits, starter: Starter, descriptors: Descriptors) -> None:
        self._limits = limits
        self._starter = starter
        self._descriptors = descriptors
        self._entries: dict[str, _Entry] = {}
        self._leaving: list[Zygote] = []
        """Zygotes that were hung up on and are ending."""
        self.broken: dict[str, str] = {}
        """Reasons why environments have no zygote that can fork."""

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))

    def start(self, wanted: Environment, on_readable: Callable[[], None]) -> None:
        """Start a zygote, which warms up; ``on_readable`` is called when it has sent something."""
        process = self._starter.zygote(wanted)
        self._entries[wanted.key] = _Entry(process, time.monotonic() + self._limits.start_seconds)
        self._descriptors.watch(process.control.fileno(), on_readable)

    def is_ready(self, key: str) -> bool:
        """Whether the zygote of an environment is warm."""
        return key in self._entries and self._entries[key].process.is_ready

    def fork(self, key: str, number: int, control: int) -> bool:
        """Request a worker; return False if there is no zygote that can fork."""
        return key not in self.broken and key in self._entries and self._entries[key].process.fork(number, control)

    def receive(self, key: str) -> Message | None:
        """Return the next message of a zygote; None when it has ended."""
        message = self._entries[key].process.receive()
        if message is not None and "ready" in message:
            self._entries[key].process.is_ready = True
        return message

    def last_words(self, key: str) -> str:
        """Return the last line that a zygote printed."""
        words = self._entries[key].process.last_words()
        return words.splitlines()[-1] if words else ""

    def hang_up(self, key: str) -> None:
        """End a zygote during the run."""
        process = self._entries.pop(key).process
        self._descriptors.forget(process.control.fileno())
        process.hang_up()
        self._leaving.append(process)

    def look_after(self, now: float) -> list[str]:
        """Continue those that a worker has stopped, and end those that were hung up on; return the keys of those that are late."""
        self._leaving = [process for process in self._leaving if not process.has_left()]
        late = []
        for key, entry in self._entries.items():
            entry.process.wake()
            if not entry.process.is_ready and now > entry.deadline:
                late.append(key)
        return late

    @property
    def deadlines(self) -> list[float]:
        """The deadlines of warm-ups."""
        return [entry.deadline for entry in self._entries.values() if not entry.process.is_ready]

    @property
    def warming_since(self) -> float | None:
        """The time at which the oldest warm-up began; None if no zygote warms up."""
        return min((deadline - self._limits.start_seconds for deadline in self.deadlines), default=None)

    def close(self) -> None:
        """Release all, and wait for the ends of those that do not serve another run."""
        closing = [*self._leaving, *(entry.process for entry in self._entries.values())]
        for process in closing:
            process.release()  # all in parallel: each needs time to kill the orphans of its workers
        for process in closing:
            process.close()
        self._entries.clear()
        self._leaving.clear()
