"""Whether a case can run on this machine, and the reason when it cannot. Never blank, never a pass."""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner.core import devices
from runner.core.diagnostics import UsageError
from runner.core.model import Availability, Case
from runner.system.capabilities import CAPABILITIES, Machine
from runner.system.installed_torch import InstalledTorch, release, why_no_torch

TORCH_ROOT = "torch_root"
"""The fact that says which folder a worker imported torch from: compared, and not recorded."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a case can run, why not, and the capability that is missing (empty when it is a name of torch)."""

    availability: Availability
    reason: str = ""
    capability: str = ""


def of_case(case: Case, machine: Machine) -> Verdict:
    """Return the first thing that is missing; else the first that only the run can know; else YES."""
    if machine.torch is None:
        return Verdict(Availability.NO, machine.no_torch, "torch")
    if case.missing_names:
        return Verdict(Availability.NO, "; ".join(case.missing_names))
    unknown: Verdict | None = None
    for requirement in case.requires:
        answer = CAPABILITIES[requirement.name].probe(machine, requirement.argument or "")
        found = Verdict(answer.availability, answer.reason, requirement.name)
        if answer.availability is Availability.NO:
            return found
        if answer.availability is Availability.UNKNOWN:
            unknown = unknown or found
    return unknown or Verdict(Availability.YES)


def glance(installed: InstalledTorch | None, servers: Iterable[str] = ()) -> Machine:
    """Return what files and environment say of this machine, in milliseconds and without torch; ``servers`` the command line names."""
    return Machine(
        python=tuple(sys.version_info[:3]),
        torch=installed.version if installed else None,
        release=release(installed.version) if installed else None,
        builds=installed.builds if installed else {},
        gpus=None if _may_have_gpu() else 0,
        found={name: capability.look() for name, capability in CAPABILITIES.items() if capability.look is not None},
        servers=frozenset(servers),
        torch_root=str(installed.root) if installed else None,
        no_torch=why_no_torch() if installed is None else "",
    )


def informed(machine: Machine, facts: Mapping[str, Any]) -> Machine:
    """Return the machine with what a worker found out; raise ``UsageError`` where its torch is not the one that was inspected."""
    known = {name: value for name, value in facts.items() if name != TORCH_ROOT}
    if isinstance(root := facts.get(TORCH_ROOT), str):
        _refuse_other_torch(machine, root, str(facts.get("torch")))
    return replace(machine, gpus=int(facts.get("gpus", 0)), gpu_memory=facts.get("gpu_memory"), arch=facts.get("arch"), facts=known)


def _refuse_other_torch(machine: Machine, root: str, version: str) -> None:
    """Conditions and names were decided for the torch that was inspected: with another, they say nothing."""
    inspected = machine.torch_root or ""
    if os.path.realpath(root) != os.path.realpath(inspected) or version != machine.torch:
        shows = f"'{sys.executable} -P -c \"import torch\"' imports what workers import"
        raise UsageError(
            f"the workers import torch {version} from {root}, but the specs were read for torch {machine.torch} in "
            f"{inspected or 'no folder'} (remove one of the two, or correct PYTHONPATH or the .pth file that names it; {shows})"
        )


def _may_have_gpu() -> bool:
    # without one of these device nodes no driver can be reached; with one, only torch can say
    return any(Path(node).exists() for node in devices.nodes())
