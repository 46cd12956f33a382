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

from runner.core.diagnostics import JournalAltered, UsageError
from runner.core.header import RunFooter, RunHeader
from runner.core.protocol import Json
from runner.core.results import CaseResult
from runner.record.journal import FORMAT, JournalError, Run, encode, open_plain, read_form, standing_lines
from runner.system.output import naming


class JournalWriter:
    """Appends to a journal; each line reaches the file before the call returns.

    The file is created and locked before any case runs. Alterations by other programs raise
    ``JournalAltered``. The journal of an incomplete run is continued. Raises ``UsageError`` while another process writes to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._has_footer = False
        self._continued: Run | None = None
        self._stream: BinaryIO | None = _open_to_append(path)
        self._seal = _Seal(path, self._stream)
        self._has_header = os.fstat(self._stream.fileno()).st_size > 0
        if self._has_header:
            try:
                self._continued = self._unfinished()
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
        encoded = encode(record)
        # the id is first, so that ``plan.durations`` can read it without decoding the line
        named = {"case_id": encoded["case_id"]} if "case_id" in encoded else {}
        # ASCII, so that lone surrogates and every line separator of Unicode leave one line of valid UTF-8
        line = json.dumps({"kind": kind, **extra, **named, **encoded}, allow_nan=False, ensure_ascii=True)
        if self._continued is not None:
            self._continued = None
            self._replace(standing_lines(self._path))
        assert self._stream is not None, "the journal is closed"
        self._seal.check()
        data = line.encode("ascii") + b"\n"
        with naming(self._path):
            _write_all(self._stream, data)
        self._seal.add(data)

    def _replace(self, lines: Iterable[bytes]) -> None:
        """Replace the journal by one with these lines, atomically."""
        temporary = self._path.parent / f".{self._path.name}.{secrets.token_hex(4)}"
        with naming(self._path):
            try:
                stream = _open_to_append(temporary)
                seal = _Seal(self._path, stream)
                for line in lines:
                    _write_all(stream, line)
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

    def _unfinished(self) -> Run:
        run = read_form(self._path)
        if run.has_come_to_its_end:
            raise ValueError(f"{self._path}: this run has ended")
        return run


class _Seal:
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


def _write_all(stream: BinaryIO, data: bytes) -> None:
    """Write to a stream without a buffer."""
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]
