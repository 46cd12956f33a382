"""Reads the results in the journal of a run that goes on."""

from pathlib import Path

from runner.model.results import CaseResult
from runner.record.journal import decode, parse
from runner.record.run_folder import JOURNAL


def results_after(folder: Path, offset: int) -> tuple[list[CaseResult], int]:
    """Return the results in the whole lines of a journal from an offset in bytes, and the offset where they end."""
    with (folder / JOURNAL).open("rb") as stream:
        stream.seek(offset)
        lines = [line for line in stream if line.endswith(b"\n")]
    records = [decode(0, parse(line)) for line in lines]
    return [record for kind, record in records if kind == "case"], offset + sum(map(len, lines))
