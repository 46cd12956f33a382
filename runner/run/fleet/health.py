"""The health of nodes: when each is checked, what a check compares, and which results a failed check takes back. Pure.

A check is the state that a node reports (clock, space, memory of its GPUs) and two canaries: a case that must PASS and one that must
FAIL. A node gets no case before its first check passed. Its results are held until a check that began after them passed.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from runner.core.case import Case
from runner.core.results import CaseResult
from runner.execute.ray.frames import Message

CHECK_EVERY_SECONDS = 120.0
"""How old a check may be before the next one begins: what a failed check, or a lost node, can take back is no more than that."""

CHECK_EVERY_RESULTS = 500
"""How many results may be held."""

MOST_CLOCK_SECONDS = 30.0
"""By how much the clock of a node may differ from the runner's, besides the time that the answer took."""

LEAST_FREE_BYTES = 256 << 20
MOST_GPU_BYTES = 2 << 30
"""How much more memory of a GPU may be used than at the first check, when no case but the canaries runs."""


@dataclass
class Entry:
    """A case that waits for a node."""

    case: Case
    alone: bool
    places: frozenset[str]
    """The nodes that can run it."""
    number: int
    """Its place in the order of the run."""
    retry_of: str = ""
    """Why it runs again, alone: what a shared worker made of it."""
    losses: list[str] = field(default_factory=list)
    """The nodes that were lost before its result counted."""


@dataclass(frozen=True, slots=True)
class Held:
    """A result that waits for the next check of its node."""

    entry: Entry
    result: CaseResult


@dataclass
class Health:
    """The health of one node."""

    since: float = field(default_factory=time.monotonic)
    """When the last good check ended."""
    was_good: bool = False
    why_bad: str = ""
    held: list[Held] = field(default_factory=list)
    covered: int = 0
    """How many of the held results ended before the current check began."""
    waits_for: set[str] = field(default_factory=set)
    """What the current check still lacks: the state, and the canaries by name."""
    orders: "deque[str]" = field(default_factory=deque)
    """What the node gets next for the check."""
    first: Message = field(default_factory=dict)
    """The state at the first check."""

    @property
    def is_checking(self) -> bool:
        """Whether a check is not complete."""
        return bool(self.waits_for)

    def begin(self, canaries: Sequence[str]) -> None:
        """Begin a check."""
        self.orders = deque([STATE, *canaries])
        self.waits_for = {STATE, *canaries}
        self.covered = len(self.held)

    def is_due(self) -> bool:
        """Whether a check begins although cases wait."""
        if self.is_checking:
            return False
        is_old = time.monotonic() - self.since > CHECK_EVERY_SECONDS and bool(self.held)
        return not self.was_good or is_old or len(self.held) >= CHECK_EVERY_RESULTS

    def took(self, part: str, problem: str) -> None:
        """Take one part of the check; a problem fails it."""
        if problem:
            self.why_bad = self.why_bad or f"health check: {problem}"
        self.waits_for.discard(part)

    def released(self) -> list[Held]:
        """Return the results that the check, which is complete and good, releases."""
        self.was_good, self.since = True, time.monotonic()
        found, self.held = self.held[: self.covered], self.held[self.covered :]
        self.covered = 0
        return found

    def forget(self) -> list[Held]:
        """Return what is held, of a node that is gone: these cases run again."""
        found, self.held, self.covered = self.held, [], 0
        self.waits_for.clear()
        self.orders.clear()
        self.was_good = False
        return found


STATE = "state"


def problem_of_state(state: Message, first: Message, seconds: float, now: float) -> str:
    """Return what is wrong with the state of a node; ``seconds`` is how long the answer took, ``now`` the runner's clock."""
    off = float(state["clock"]) - now
    if abs(off) > MOST_CLOCK_SECONDS + seconds:
        return f"its clock differs by {off:+.0f} s from the runner's"
    if int(state["free"]) < LEAST_FREE_BYTES:
        return f"{int(state['free']) >> 20} MiB are free for files"
    before = {gpu["serial"]: gpu for gpu in first.get("gpus", [])}
    now_there = {gpu["serial"]: gpu for gpu in state["gpus"]}
    for serial, gpu in before.items():
        if serial not in now_there:
            return f"the GPU {serial} is gone"
        used, then = now_there[serial]["used"], gpu["used"]
        if used is not None and then is not None and used - then > MOST_GPU_BYTES:
            return f"{(used - then) >> 20} MiB more of the memory of GPU {serial} are used than at the first check"
    return ""
