"""Retirement of shared workers: by the state of their processes, and by the number of their cases."""

import os
from pathlib import Path

from runner.execute.local.workers import Worker, state_of

_MOST_GROWTH = 1 << 30
"""Bytes by which a shared worker may grow after its first case."""

_MOST_CASES = 100
"""The maximum number of cases of a worker, as a bound for contamination that no check detects."""


def contamination(worker: Worker) -> str:
    """Return why a worker must not run another case; empty if it may."""
    children, resident = _seen_by_system(worker.pid)
    if worker.broke_protocol:
        return "it sent what only the runner's own code may send"
    if children:
        return f"it left {children} process{'' if children == 1 else 'es'} behind"
    worker.first_resident = worker.first_resident or resident
    grown = resident - worker.first_resident
    if grown > _MOST_GROWTH:
        return f"it grew by {grown >> 20} MiB"
    return worker.done or ""


def has_run_enough(worker: Worker) -> bool:
    """Whether a worker has run as many cases as it may."""
    return worker.cases >= _MOST_CASES


def _seen_by_system(pid: int | None) -> tuple[int, int]:
    """Return the number of a worker's remaining child processes, and its memory in bytes."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
        # zombies are not counted: their parent never reaps them
        children = [child for child in listed if state_of(child) not in ("", "Z", "X")]
        pages = Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]
    except OSError:
        return 0, 0
    return len(children), int(pages) * os.sysconf("SC_PAGE_SIZE")
