"""Why a shared worker gets no further case: what the system shows of it, and how much it has run."""

import os
from pathlib import Path

from runner.execute.local.workers import Worker, state_of

_MOST_GROWTH = 1 << 30
"""Bytes by which a shared worker may grow after its first case."""

_MOST_CASES = 100
"""How many cases a worker runs: what none of our checks sees grows with them."""


def contamination(worker: Worker) -> str:
    """Return what makes a worker that has done its case unfit for another one; empty for nothing."""
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
    """Return how many processes a worker has started that are still there, and the bytes of its memory."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
        # orphans that have ended by themselves wait for a parent that never reaps them
        children = [child for child in listed if state_of(child) not in ("", "Z", "X")]
        pages = Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]
    except OSError:
        return 0, 0
    return len(children), int(pages) * os.sysconf("SC_PAGE_SIZE")
