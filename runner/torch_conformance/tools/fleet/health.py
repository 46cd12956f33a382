"""The health of nodes: what a check compares.

A check is the state that a node reports (clock, space, memory of its GPUs) and two canaries: a case
that must PASS and one that must FAIL. A node gets no case before its first check passed. Its
results are held until a check that began after them passed.
"""

from collections.abc import Mapping, Sequence

from torch_conformance.language.load import Suite, load_specs
from torch_conformance.language.read.spec_files import SpecPath
from torch_conformance.machine import capabilities
from torch_conformance.machine.cache_dirs import folder
from torch_conformance.machine.capabilities import Machine
from torch_conformance.model.case import Availability, Case
from torch_conformance.model.devices import is_accelerator
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.protocol import Json
from torch_conformance.model.results import CaseResult

_MOST_CLOCK_SECONDS = 30.0
"""By how much the clock of a node may differ from the runner's, besides the time that the answer
took.
"""
_LEAST_FREE_BYTES = 256 << 20
_MOST_GPU_BYTES = 2 << 30
"""How much more memory of a GPU may be used than at the first check, when no case but the canaries
runs.
"""

_EXPECTED: Mapping[str, tuple[Outcome, str]] = {
    "passes": (Outcome.PASS, ""),
    "fails": (Outcome.FAIL, "counter"),
}
"""Outcome and type of failure of each canary, by the name of the spec."""


def problem_of_state(state: Json, first: Json, seconds: float, now: float) -> str:
    """Return what is wrong with the state of a node; ``seconds`` is how long the answer took,
    ``now`` the runner's clock.
    """
    off = float(state["clock"]) - now
    if abs(off) > _MOST_CLOCK_SECONDS + seconds:
        return f"its clock differs by {off:+.0f} s from the runner's"
    if int(state["free"]) < _LEAST_FREE_BYTES:
        return f"{int(state['free']) >> 20} MiB are free for files"
    for serial, before in first["gpus"].items():
        if serial not in state["gpus"]:
            return f"the GPU {serial} is gone"
        more = (state["gpus"][serial] or 0) - (before or 0)
        if before is not None and more > _MOST_GPU_BYTES:
            return (
                f"{more >> 20} MiB more of the memory of GPU {serial} are used than at the first "
                "check"
            )
    return ""


def read_canaries() -> Suite:
    """Return the canaries: a small case that must PASS and one that must FAIL, for each backend
    that a node may have.
    """
    root = folder("templates") / "canaries"
    files = [SpecPath(path=root / f"{name}.yaml", root=root.parent) for name in _EXPECTED]
    return load_specs(files, (), None)


def canaries_of(suite: Suite, machine: Machine) -> Sequence[Case]:
    """Return the canaries for a node: of its accelerator, or of its CPU."""
    possible = [
        case
        for case in suite.cases
        if capabilities.availability_of(case, machine).availability is Availability.YES
    ]
    preferred = [case for case in possible if is_accelerator(case.device)] or possible
    return [case for case in preferred if case.backend == preferred[0].backend]


def problem_of_canary(case: Case, result: CaseResult) -> str:
    """Return how the result of a canary differs from what it must be; empty if it does not."""
    outcome, kind = _EXPECTED[case.name.rpartition("/")[2].partition("[")[0]]
    failed = {verdict.kind for verdict in result.failed}
    expected = (outcome, kind, {kind} if kind else set())
    if (result.outcome, result.failure_type, failed) == expected:
        return ""
    return (
        f"the canary '{case.id}' must be {outcome.label}, and it was {result.outcome.label}: "
        f"{result.reason}"[:600]
    )
