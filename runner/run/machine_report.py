"""The facts of this machine as a worker reports them, for ``doctor`` and for a node that joins a lab."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.execute.engine import LocalExecutor
from runner.execute.executor_protocol import ExecutorSettings, Job
from runner.machine import capabilities
from runner.machine.capabilities import Machine
from runner.model.diagnostics import UsageError
from runner.plan import schedule
from runner.plan.schedule import Environment
from runner.run.pipeline import FACTS

_FACTS_SECONDS = 300.0

SHOWN_BYTES = 600
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
        said = (execution.printed or execution.note).strip()[-SHOWN_BYTES:]
        return WorkerReport(machine=machine, problem=said or "a worker ended without an answer")
    try:
        return WorkerReport(machine=capabilities.with_facts(machine, facts), facts=facts)
    except UsageError as error:
        return WorkerReport(machine=machine, problem=str(error))
    except (AttributeError, TypeError, ValueError) as error:  # not the form that facts.collect writes
        return WorkerReport(machine=machine, problem=f"the facts cannot be read: {type(error).__name__}: {error}")
