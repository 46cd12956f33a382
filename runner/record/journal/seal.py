"""Detects changes to a journal by anything but its writer during the run."""

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

from runner.core.diagnostics import JournalAltered
from runner.record.journal.files import open_plain
from runner.record.journal.lines import JournalError


class Seal:
    """The identity, size and digest of the data that a writer wrote to a file. Any other content is an alteration."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self._path = path
        self._descriptor = stream.fileno()
        self._size = 0
        self._digest = hashlib.sha256()

    def add(self, data: bytes) -> None:
        """Add written data."""
        self._size += len(data)
        self._digest.update(data)

    def check(self) -> None:
        """Raise ``JournalAltered`` if the path names another file, or the size differs."""
        mine = os.fstat(self._descriptor)
        try:
            named = os.lstat(self._path)
        except OSError as error:
            raise self._altered(f"it cannot be found: {error.strerror}") from error
        if (named.st_dev, named.st_ino) != (mine.st_dev, mine.st_ino):
            raise self._altered("another file stands in its place")
        if mine.st_size != self._size:
            raise self._altered(f"it has {mine.st_size} bytes, and {self._size} were written")

    def check_content(self) -> None:
        """Raise ``JournalAltered`` if the content of the file is not the written data."""
        self.check()
        try:
            with open_plain(self._path) as stream:
                found = hashlib.sha256(stream.read()).digest()
        except (OSError, JournalError) as error:
            raise self._altered(str(error)) from error
        if found != self._digest.digest():
            raise self._altered("its content is not what was written")

    def _altered(self, how: str) -> JournalAltered:
        return JournalAltered(f"{self._path}: the journal was changed while the run went on, by a case or another program: {how}")
