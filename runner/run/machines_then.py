"""The machine that a recorded result came from: that of the node that it names, or that of the run's header."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from runner.language.backends import Backend
from runner.language.expand.cases import surroundings_for
from runner.language.load import surroundings_of
from runner.machine.capabilities import Machine
from runner.model import devices
from runner.model.case import Case
from runner.model.conditions import Surroundings
from runner.model.header import RunHeader
from runner.model.results import Attempt, CaseResult


def surroundings_then(header: RunHeader) -> Surroundings:
    """Return the surroundings of the machine of a run, for conditions, without a backend."""
    return surroundings_of_record(header.environment)


def surroundings_of_record(facts: Mapping[str, str]) -> Surroundings:
    """Return the surroundings that recorded facts of a machine give."""
    python = (
        tuple(int(number) for number in facts["python"].split(".") if number.isdecimal()) if "python" in facts else sys.version_info[:3]
    )
    torch = facts.get("torch")
    machine = Machine(
        python=python,
        torch=torch,
        release=None,
        builds={build.version: facts.get(build.version) for build in devices.builds()},
        arch=facts.get("arch"),
    )
    return replace(surroundings_of(torch, machine), python=python)


def here_of(case: Case, backend: Backend, part: Attempt, known: Surroundings) -> Surroundings:
    """Return the surroundings of a case where a result, or an attempt of it, came from; ``known`` are those of the machine of the run."""
    return surroundings_for(backend, surroundings_of_record(part.node) if part.node else known, case.target)


def impossible_on_machine(results: Sequence[CaseResult], environment: Mapping[str, str], device_of: Mapping[str, str]) -> str:
    """Return which case a machine without a GPU cannot have executed; empty for none. ``device_of`` has the devices of backends by name.

    The machine is the node that a result names, or that of the header with this ``environment``.
    """
    for result in results:
        if (result.node or environment).get("gpus") != "0":
            continue
        device = devices.kind_of(device_of.get(result.backend, devices.CPU))
        # whether there was a device of a vendor's module is not recorded
        if device in devices.WITHOUT_MODULE and device != devices.CPU and result.folder:
            return f"{result.case_id!r}: {result.outcome.label} on {device}, and the machine had no GPU"
    return ""
