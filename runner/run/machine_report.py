"""What processes with torch say of this machine, for ``doctor``: the facts of a worker, and the generators of Composable Kernel."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.core import protocol
from runner.core.diagnostics import UsageError
from runner.execute.base import ExecutorSettings, Job
from runner.execute.local.executor import LocalExecutor
from runner.plan import schedule
from runner.plan.resources import Environment
from runner.run.pipeline import FACTS
from runner.system import availability, child_python, scratch
from runner.system.capabilities import Machine
from runner.system.doctor.composable_kernel import GENERATORS
from runner.system.doctor.findings import GeneratorReport, run_program

_FACTS_SECONDS = 300.0
_GENERATORS_SECONDS = 300.0
"""A first import of torch from a slow disk takes minutes."""

_MOST_BYTES = 1 << 16

_SHOWN_BYTES = 600
"""How much of what a failed process printed is shown: the end has the exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """The facts of a worker, and the machine with them; or why there are none."""

    machine: Machine
    facts: Mapping[str, Any] | None = None
    problem: str = ""


def ask_worker(machine: Machine, questions: Sequence[str] = ()) -> WorkerReport:
    """Let a worker report the facts of the machine, as the first job of a run does. A worker that dies is the answer too."""
    settings = ExecutorSettings(folder=Path(), workers=1, threads=1, torch_root=machine.torch_root)
    job = Job(name=FACTS, plan=None, questions=tuple(questions), folder="", environment=Environment(), timeout=_FACTS_SECONDS)
    executor = LocalExecutor(settings)
    try:
        execution = next(iter(executor.run([job], schedule.capacity(1, machine))))
    finally:
        executor.close()
    facts = execution.observation
    if not isinstance(facts, dict):
        said = (execution.printed or execution.note).strip()[-_SHOWN_BYTES:]
        return WorkerReport(machine=machine, problem=said or "a worker ended without an answer")
    try:
        return WorkerReport(machine=availability.with_facts(machine, facts), facts=facts)
    except UsageError as error:
        return WorkerReport(machine=machine, problem=str(error))
    except (AttributeError, TypeError, ValueError) as error:  # not the form that facts.collect writes
        return WorkerReport(machine=machine, problem=f"the facts cannot be read: {type(error).__name__}: {error}")


def ask_generators() -> GeneratorReport:
    """Let a process with torch count the instances of each generator of Composable Kernel."""
    space = scratch.make()
    try:
        answer = space.path / "generators.json"
        variables = child_python.variables(os.environ, space.path)
        command = child_python.command("runner.worker.torch_compat.ck_generators", str(answer))
        printed = run_program(command, seconds=_GENERATORS_SECONDS, environ=variables)
        if printed.problem:
            return GeneratorReport(problem=f"{printed.problem}: {printed.text.strip()[-_SHOWN_BYTES:]}")
        with answer.open("rb") as stream:
            found = protocol.loads(stream.read(_MOST_BYTES))
        return GeneratorReport(
            inductor=str(found["inductor"]),
            counts={name: int(found["counts"].get(name, 0)) for name in GENERATORS},
            reasons={name: str(reason) for name, reason in found["reasons"].items()},
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:  # not the file that ck_generators writes
        return GeneratorReport(problem=f"the answer cannot be read: {type(error).__name__}: {error}")
    finally:
        space.close()
