"""Reads the results in the journal of a run that goes on."""

import contextlib
from pathlib import Path

from runner.core.case import CaseId
from runner.core.results import CaseResult
from runner.record.journal import decode, parse
from runner.record.run_folder import JOURNAL


class FollowedJournal:
    """The results of a journal; each ``read`` takes the lines that were written since the last one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOURNAL
        self._offset = 0
        self._rest = b""
        self.results: dict[CaseId, CaseResult] = {}

    def read(self) -> None:
        """Take the new lines that are whole; raise ``JournalError`` or ``ValueError`` for a line that is none of a journal."""
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as stream:
            stream.seek(self._offset)
            data = stream.read()
            self._offset += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                kind, record = decode(0, parse(line))
                if kind == "case":
                    self.results[record.case_id] = record
