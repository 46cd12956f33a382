"""Writes a journal, line by line, and continues the journal of a resumed run."""

import contextlib
import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from runner.core.header import RunFooter, RunHeader
from runner.core.protocol import Json
from runner.core.results import CaseResult
from runner.record.journal.contents import Run
from runner.record.journal.files import open_to_append, write_all
from runner.record.journal.lines import FORMAT, encode
from runner.record.journal.reading import read_form, standing_lines
from runner.record.journal.seal import Seal
from runner.system.streams import naming


class JournalWriter:
    """Appends to a journal; each line reaches the file before the call returns.

    The file is created and locked before any case runs. Alterations by other programs raise
    ``JournalAltered``. The journal of an incomplete run is continued. Raises ``UsageError`` while another process writes to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._has_footer = False
        self._continued: Run | None = None
        self._stream: BinaryIO | None = open_to_append(path)
        self._seal = Seal(path, self._stream)
        self._has_header = os.fstat(self._stream.fileno()).st_size > 0
        if self._has_header:
            try:
                self._continued = _unfinished(path)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def write_header(self, header: RunHeader) -> None:
        """Write the first line. A resumed run without any result or attempt starts its journal again."""
        if self._has_header and (self._continued is None or self._continued.has_something):
            raise ValueError("the journal has its header")
        if self._continued is not None:
            self._continued = None
            self._replace(())
        self._write("header", header, format=FORMAT)
        self._has_header = True
        self._sync()

    def write_case(self, result: CaseResult) -> None:
        """Write a case that ended."""
        self._require_open()
        self._write("case", result)

    def write_attempt(self, result: CaseResult) -> None:
        """Write one attempt of a case that has not ended."""
        self._require_open()
        self._write("attempt", result)

    def verify(self) -> None:
        """Raise ``JournalAltered`` if the file was altered. A journal that is to be continued is not checked before the first write."""
        if self._continued is None and self._stream is not None:
            self._seal.check_content()

    def set_aside(self) -> Path:
        """Rename an altered journal, so that no reader accepts it; return its new name."""
        aside = self._path.with_name(f"{self._path.name}.altered")
        with contextlib.suppress(OSError):
            os.replace(self._path, aside)
        self.close()
        return aside

    def write_footer(self, footer: RunFooter) -> None:
        """Verify the journal and write the last line."""
        self._require_open()
        self.verify()
        self._write("footer", footer)
        self._has_footer = True
        self._sync()

    def close(self) -> None:
        """Close the file; without a footer the run reads as truncated."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _require_open(self) -> None:
        if not self._has_header or self._has_footer:
            raise ValueError("the journal has its footer" if self._has_footer else "the journal has no header yet")

    def _write(self, kind: str, record: RunHeader | CaseResult | RunFooter, **extra: Json) -> None:
        # ASCII, so that lone surrogates and every line separator of Unicode leave one line of valid UTF-8.
        encoded = encode(record)
        named = {
            key: encoded[key] for key in ("case_id",) if key in encoded
        }  # the id is first, so that ``plan.durations`` can read it without decoding the line
        line = json.dumps({"kind": kind, **extra, **named, **encoded}, allow_nan=False, ensure_ascii=True)
        if self._continued is not None:
            self._continued = None
            self._replace(standing_lines(self._path))
        assert self._stream is not None, "the journal is closed"
        self._seal.check()
        data = line.encode("ascii") + b"\n"
        with naming(self._path):
            write_all(self._stream, data)
        self._seal.add(data)

    def _replace(self, lines: Iterable[bytes]) -> None:
        """Replace the journal by one with these lines, atomically."""
        temporary = self._path.parent / f".{self._path.name}.{secrets.token_hex(4)}"
        with naming(self._path):
            try:
                stream = open_to_append(temporary)
                seal = Seal(self._path, stream)
                for line in lines:
                    write_all(stream, line)
                    seal.add(line)
                os.fsync(stream.fileno())
                temporary.replace(self._path)
            finally:
                temporary.unlink(missing_ok=True)
        self.close()  # the former one
        self._stream, self._seal = stream, seal

    def _sync(self) -> None:
        assert self._stream is not None
        with naming(self._path):
            os.fsync(self._stream.fileno())


def _unfinished(path: Path) -> Run:
    run = read_form(path)
    if run.has_come_to_its_end:
        raise ValueError(f"{path}: this run has ended")
    return run
