"""The outcomes of one spec in the latest run, for an editor."""

import os
from pathlib import Path

from runner.record.journal import read_run
from runner.record.run_folder import JOURNAL, find_run


def last_results(path: Path) -> tuple[list[str], float] | None:
    """Return the outcome of each case of a spec in the latest run and when the journal was written; None without such a run."""
    folder = find_run("latest")
    journal = folder / JOURNAL
    if not journal.is_file() or journal.stat().st_size > _LARGEST:
        return None
    wanted = os.path.realpath(path)
    outcomes = [result.outcome.label for result in read_run(journal).results if os.path.realpath(result.spec) == wanted]
    return (outcomes, journal.stat().st_mtime) if outcomes else None


_LARGEST = 64 << 20
"""Larger journals are not read while someone types."""
