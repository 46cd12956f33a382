"""The run's journal, written: line by line, sealed against every other writer, and continued by a resumed run."""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from runner.machine.output import naming
from runner.model.codec import encode
from runner.model.diagnostics import JournalAltered, UsageError
from runner.model.header import RunFooter, RunHeader
from runner.model.protocol import Json
from runner.model.results import CaseResult
from runner.record.journal import FORMAT, JournalError, Run, open_plain, read_run, standing_lines


class JournalWriter:
    """Appends to a journal; each line reaches the file before the call returns.

    The file is created and locked before any case runs. Alterations by other programs raise
    ``JournalAltered``. The journal of an incomplete run is continued. Raises ``UsageError`` while another process writes to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._has_footer = False
        self._continued: Run | None = None
        # what was written to the file: any other content is an alteration
        self._size = 0
        self._digest = hashlib.sha256()
        self._stream: BinaryIO | None = _open_to_append(path)
        self._has_header = os.fstat(self._stream.fileno()).st_size > 0
        if self._has_header:
            try:
                self._continued = read_run(path, checks=False)
            except BaseException:
                self.close()
                raise
            if self._continued.has_come_to_its_end:
                self.close()
                raise ValueError(f"{path}: this run has ended")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def write_header(self, header: RunHeader) -> None:
        """Write the first line. A resumed run without any result or attempt starts its journal again."""
        if self._has_header and (self._continued is None or self._continued.has_something):
            raise ValueError("the journal has its header")
        self._write("header", header, format=FORMAT)

    def write_case(self, result: CaseResult) -> None:
        """Write a case that ended."""
        self._write("case", result)

    def write_attempt(self, result: CaseResult) -> None:
        """Write one attempt of a case that has not ended."""
        self._write("attempt", result)

    def write_footer(self, footer: RunFooter) -> None:
        """Verify the journal and write the last line."""
        self.verify()
        self._write("footer", footer)
        self._has_footer = True

    def verify(self) -> None:
        """Raise ``JournalAltered`` if the file was altered. A journal that is to be continued is not checked before the first write."""
        if self._continued is None and self._stream is not None:
            self._check(content=True)

    def set_aside(self) -> None:
        """Rename an altered journal, so that no reader accepts it."""
        with contextlib.suppress(OSError):
            os.replace(self._path, self._path.with_name(f"{self._path.name}.altered"))
        self.close()

    def close(self) -> None:
        """Close the file; without a footer the run reads as truncated."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _write(self, kind: str, record: RunHeader | CaseResult | RunFooter, **extra: Json) -> None:
        if self._has_footer or (kind != "header" and not self._has_header):
            raise ValueError("the journal has its footer" if self._has_footer else "the journal has no header yet")
        encoded = encode(record)
        # the id is first, so that ``run.earlier_runs`` can read it without decoding the line
        named = {"case_id": encoded["case_id"]} if "case_id" in encoded else {}
        # ASCII, so that lone surrogates and every line separator of Unicode leave one line of valid UTF-8
        line = json.dumps({"kind": kind, **extra, **named, **encoded}, allow_nan=False, ensure_ascii=True)
        with naming(self._path):
            if self._continued is not None:
                self._continue(() if kind == "header" else standing_lines(self._path))
            self._check()
            self._append(line.encode("ascii") + b"\n")
            if kind in ("header", "footer"):
                os.fsync(self._open.fileno())
        self._has_header = True

    @property
    def _open(self) -> BinaryIO:
        assert self._stream is not None, "the journal is closed"
        return self._stream

    def _append(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:  # the stream has no buffer
            rest = rest[self._open.write(rest) :]
        self._size += len(data)
        self._digest.update(data)

    def _continue(self, lines: Iterable[bytes]) -> None:
        """Replace the journal by one with these lines of it, atomically."""
        former = self._open
        self._size, self._digest = 0, hashlib.sha256()
        temporary = self._path.parent / f".{self._path.name}.{secrets.token_hex(4)}"
        try:
            self._stream = _open_to_append(temporary)
            for line in lines:
                self._append(line)
            os.fsync(self._stream.fileno())
            temporary.replace(self._path)
        finally:
            temporary.unlink(missing_ok=True)
        former.close()
        self._continued = None

    def _check(self, *, content: bool = False) -> None:
        """Raise ``JournalAltered`` if the path names another file, or the size differs; with ``content``, if the content does."""
        mine = os.fstat(self._open.fileno())
        how = ""
        try:
            if not os.path.samestat(os.lstat(self._path), mine):
                how = "another file stands in its place"
            elif mine.st_size != self._size:
                how = f"it has {mine.st_size} bytes, and {self._size} were written"
            elif content:
                with open_plain(self._path) as stream:
                    if hashlib.sha256(stream.read()).digest() != self._digest.digest():
                        how = "its content is not what was written"
        except (OSError, JournalError) as error:
            how = str(error)
        if how:
            raise JournalAltered(f"{self._path}: the journal was changed while the run went on, by a case or another program: {how}")


def _open_to_append(path: Path) -> BinaryIO:
    """Open a journal for one writer, unbuffered, so that a failed write is not repeated by ``close``."""
    with naming(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    stream = os.fdopen(descriptor, "ab", buffering=0)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        stream.close()
        raise UsageError(f"{path}: this run is still going on; wait for its end, or end it") from None
    except OSError:  # a file system without locks
        pass
    return stream
