"""Availability of a case on this machine, with the reason if it is unavailable. An unavailable case is never a pass."""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner.machine.capabilities import CAPABILITIES, Machine
from runner.machine.installed_torch import InstalledTorch, no_torch_reason, release
from runner.model import devices
from runner.model.case import Availability, Case
from runner.model.diagnostics import UsageError

TORCH_ROOT = "torch_root"
"""The fact with the folder from which a worker imported torch. It is compared and not recorded."""

ANSWERS = "answers"
"""The fact with what predicates returned. It depends on the selected cases, so it is not recorded."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The availability of a case, the reason, and the name of the missing capability (empty for a missing name of torch)."""

    availability: Availability
    reason: str = ""
    capability: str = ""


def of_case(case: Case, machine: Machine) -> Verdict:
    """Return the first missing requirement; else the first one that only a worker can decide; else YES."""
    if machine.torch is None and not case.target:  # what is only compiled for a target needs no torch
        return Verdict(Availability.NO, machine.no_torch, "torch")
    if case.missing_names:
        return Verdict(Availability.NO, "; ".join(case.missing_names))
    if is_cpp_wrapped_and_counted(case):
        return Verdict(Availability.NO, "the expectation kernels: the wrapper is in C++ (cpp_wrapper), whose kernel calls are not seen")
    unknown: Verdict | None = None
    for requirement in case.requires:
        answer, reason = CAPABILITIES[requirement.name].answer(machine, requirement.argument or "")
        if answer is Availability.NO:
            return Verdict(answer, reason, requirement.name)
        if answer is Availability.UNKNOWN:
            unknown = unknown or Verdict(answer, reason, requirement.name)
    return unknown or Verdict(Availability.YES)


def is_cpp_wrapped_and_counted(case: Case) -> bool:
    """Whether the options of a case choose a C++ wrapper, and a step of it counts kernels."""
    settings = case.body.settings
    options = settings.compile.get("options")
    chosen = [settings.config.get("cpp_wrapper"), options.get("cpp_wrapper") if isinstance(options, Mapping) else None]
    is_chosen = True in chosen or str(settings.env.get("TORCHINDUCTOR_CPP_WRAPPER", "")) == "1"
    return is_chosen and any(expected.kind == "kernels" for step in case.steps for expected in step.expectations)


def of_cases(cases: Iterable[Case], machine: Machine) -> list[Verdict]:
    """Return ``of_case`` of each case. What many cases have in common is asked once."""
    known: dict[object, Verdict] = {}
    verdicts: list[Verdict] = []
    for case in cases:
        # positions do not count, and the hash of a tuple of texts is fast
        key = case.target, case.missing_names, is_cpp_wrapped_and_counted(case), tuple([(one.name, one.argument) for one in case.requires])
        if key not in known:
            known[key] = of_case(case, machine)
        verdicts.append(known[key])
    return verdicts


def inspect_files(installed: InstalledTorch | None) -> Machine:
    """Return what files and environment show of this machine, without importing torch."""
    return Machine(
        python=tuple(sys.version_info[:3]),
        torch=installed.version if installed else None,
        release=release(installed.version) if installed else None,
        builds=installed.builds if installed else {},
        # without one of these device nodes no driver can be reached; with one, only torch can say
        gpus=None if any(Path(node).exists() for node in devices.nodes()) else 0,
        found={name: capability.look() for name, capability in CAPABILITIES.items() if capability.look is not None},
        torch_root=str(installed.root) if installed else None,
        no_torch=no_torch_reason() if installed is None else "",
    )


def with_facts(machine: Machine, facts: Mapping[str, Any]) -> Machine:
    """Return the machine with a worker's facts; raise ``UsageError`` if the worker imported another torch than the inspected one."""
    known = {name: value for name, value in facts.items() if name not in (TORCH_ROOT, ANSWERS)}
    root, version, inspected = facts.get(TORCH_ROOT), str(facts.get("torch")), machine.torch_root or ""
    # conditions and names were resolved for the inspected torch
    if isinstance(root, str) and (os.path.realpath(root) != os.path.realpath(inspected) or version != machine.torch):
        shows = f"'{sys.executable} -P -c \"import torch\"' imports what workers import"
        raise UsageError(
            f"the workers import torch {version} from {root}, but the specs were read for torch {machine.torch} in "
            f"{inspected or 'no folder'} (remove one of the two, or correct PYTHONPATH or the .pth file that names it; {shows})"
        )
    answers = {str(path): str(answer) for path, answer in facts.get(ANSWERS, {}).items()}
    gpus, memory, arch = int(facts.get("gpus", 0)), facts.get("gpu_memory"), facts.get("arch")
    return replace(machine, gpus=gpus, gpu_memory=memory, arch=arch, facts={**machine.facts, **known}, answers=answers)


def with_target(machine: Machine, target: str, facts: Mapping[str, Any] | None, words: str) -> Machine:
    """Return the machine with what its compiler for a target said; ``words`` are the last ones of a compiler that did not answer."""
    if facts is None:
        problem = f"it ended without an answer: {words.splitlines()[-1]}" if words else "it ended without an answer"
        return replace(machine, targets={**machine.targets, target: problem})
    versions = {str(name): str(version) for name, version in facts.get("versions", {}).items()}
    known = {**machine.facts, **versions, f"target {target}": str(facts["problem"]) or f"canaries passed: {', '.join(facts['canaries'])}"}
    return replace(machine, targets={**machine.targets, target: str(facts["problem"])}, facts=known)


def questions_of(cases: Iterable[Case]) -> tuple[str, ...]:
    """Return the predicates and the devices of vendors that cases require, each once."""
    arguments = (need.argument for case in cases for need in case.requires if need.name in ("call", "device") and need.argument)
    return tuple(dict.fromkeys(arguments))
