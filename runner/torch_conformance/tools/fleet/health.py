"""The health of nodes: when each is checked, what a check compares, and which results a failed
check takes back.

A check is the state that a node reports (clock, space, memory of its GPUs) and two canaries: a case
that must PASS and one that must FAIL. A node gets no case before its first check passed. Its
results are held until a check that began after them passed.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch_conformance.language.load import Suite, load_specs
from torch_conformance.language.read.spec_files import SpecPath
from torch_conformance.machine import capabilities
from torch_conformance.machine.cache_dirs import folder
from torch_conformance.machine.capabilities import Machine
from torch_conformance.model.case import Availability, Case
from torch_conformance.model.devices import is_accelerator
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.tools.fleet.messages import Message

_CHECK_EVERY_SECONDS = 120.0
"""How old a check may be before the next one begins: what a failed check, or a lost node, can take
back is no more than that.
"""
_CHECK_EVERY_RESULTS = 500
"""How many results may be held."""
_MOST_CLOCK_SECONDS = 30.0
"""By how much the clock of a node may differ from the runner's, besides the time that the answer
took.
"""
_LEAST_FREE_BYTES = 256 << 20
_MOST_GPU_BYTES = 2 << 30
"""How much more memory of a GPU may be used than at the first check, when no case but the canaries
runs.
"""

STATE = "state"

_KNOWN_VERDICTS: Mapping[str, tuple[Outcome, str]] = {
    "passes": (Outcome.PASS, ""),
    "fails": (Outcome.FAIL, "counter"),
}
"""Outcome and type of failure of each canary, by the name of the spec."""


@dataclass(eq=False)
class Entry:
    """A case that waits for a node, or that one has."""

    case: Case
    alone: bool
    places: frozenset[str]
    """The nodes that may run it."""
    number: int
    """Its place in the order of the run."""
    losses: list[str] = field(default_factory=list)
    """The nodes that were lost before its result counted."""


@dataclass
class Health:
    """The health of one node."""

    since: float = field(default_factory=time.monotonic)
    """When the last good check ended."""
    was_good: bool = False
    why_bad: str = ""
    held: list[tuple[Entry, CaseResult]] = field(default_factory=list)
    """The results that wait for the next check."""
    covered: int = 0
    """How many of them ended before the current check began."""
    waits_for: set[str] = field(default_factory=set)
    """What the current check still lacks: the state, and the canaries by id."""
    orders: deque[str] = field(default_factory=deque)
    """What the node gets next for the check."""
    first: Message = field(default_factory=dict)
    """The state at the first check."""

    def begin(self, canaries: Sequence[str]) -> None:
        """Begin a check."""
        self.orders = deque([STATE, *canaries])
        self.waits_for = {STATE, *canaries}
        self.covered = len(self.held)

    def is_due(self) -> bool:
        """Whether a check begins although cases wait."""
        if self.waits_for:
            return False
        is_old = time.monotonic() - self.since > _CHECK_EVERY_SECONDS and bool(self.held)
        return not self.was_good or is_old or len(self.held) >= _CHECK_EVERY_RESULTS

    def took(self, part: str, problem: str) -> list[CaseResult]:
        """Take one part of the check; return the results that it releases, once it is complete and
        good.
        """
        if problem:
            self.why_bad = self.why_bad or f"health check: {problem}"
        self.waits_for.discard(part)
        if self.waits_for or self.why_bad:
            return []
        self.was_good, self.since = True, time.monotonic()
        released, self.held = self.held[: self.covered], self.held[self.covered :]
        self.covered = 0
        return [result for _, result in released]


def problem_of_state(state: Message, first: Message, seconds: float, now: float) -> str:
    """Return what is wrong with the state of a node; ``seconds`` is how long the answer took,
    ``now`` the runner's clock.
    """
    try:
        off = float(state["clock"]) - now
        if abs(off) > _MOST_CLOCK_SECONDS + seconds:
            return f"its clock differs by {off:+.0f} s from the runner's"
        if int(state["free"]) < _LEAST_FREE_BYTES:
            return f"{int(state['free']) >> 20} MiB are free for files"
        used = {gpu["serial"]: gpu["used"] for gpu in state["gpus"]}
        for gpu in first.get("gpus", []):
            serial, before = gpu["serial"], gpu["used"]
            if serial not in used:
                return f"the GPU {serial} is gone"
            if (
                used[serial] is not None
                and before is not None
                and used[serial] - before > _MOST_GPU_BYTES
            ):
                return (
                    f"{(used[serial] - before) >> 20} MiB more of the memory of GPU {serial} are "
                    "used than at the first check"
                )
    except (KeyError, TypeError, ValueError) as error:
        return f"its state cannot be read: {type(error).__name__}: {error}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canaries:
    """The canaries of health checks, by id: two small cases with known verdicts, for each backend
    that a node may have.
    """

    suite: Suite
    cases: Mapping[str, Case]

    def of(self, machine: Machine) -> tuple[str, ...]:
        """Return those for a node: of its accelerator, or of its CPU."""
        possible = [
            case
            for case in self.cases.values()
            if capabilities.availability_of(case, machine).availability is Availability.YES
        ]
        preferred = [case for case in possible if is_accelerator(case.device)] or possible
        return tuple(case.id for case in preferred if case.backend == preferred[0].backend)


def read_canaries() -> Canaries:
    """Read the canaries of the package."""
    root = folder("templates") / "canaries"
    suite = load_specs(
        [SpecPath(path=root / f"{name}.yaml", root=root.parent) for name in _KNOWN_VERDICTS],
        (),
        None,
    )
    return Canaries(suite=suite, cases={case.id: case for case in suite.cases})


def problem_of_canary(case: Case, result: CaseResult) -> str:
    """Return how the result of a canary differs from its known verdict; empty if it does not."""
    outcome, kind = _KNOWN_VERDICTS[case.name.rpartition("/")[2].partition("[")[0]]
    failed = {verdict.kind for verdict in result.failed}
    if (
        result.outcome is outcome
        and result.failure_type == kind
        and failed == ({kind} if kind else set())
    ):
        return ""
    return (
        f"the canary '{case.id}' must be {outcome.label}, and it was {result.outcome.label}: "
        f"{result.reason}"[:600]
    )
