"""Runs plans in worker processes: templates, deadlines, and what each worker sent before it ended."""

from runner.execute.engine import Engine, Limits
from runner.execute.jobs import Execution, Job

__all__ = ["Engine", "Execution", "Job", "Limits"]
