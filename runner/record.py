"""The run's journal: JSON lines written as the run goes, and read back by every report.

A header, one line for each case that ended, a footer. A journal without a footer is a truncated run; only its last line may be torn.
Of a case that is run several times each attempt has a line as soon as it ended, so that none is lost with the run; the case's own line
follows.
A run that is gone on with loses what stands for nothing once more is written: the torn line, the cases that were not run, the footer of
an interrupt. So a journal has one line for a case and one footer, however often its run was cut off.
A field that is added to ``CaseResult`` travels by itself; ``schemas/journal.schema.json`` must be told of it.
"""

import errno
import fcntl
import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NewType, NoReturn, Self, get_args, get_origin, get_type_hints

from runner.diagnostics import UsageError
from runner.model import CaseId, CaseResult, Json
from runner.outcomes import Outcome
from runner.streams import naming

FORMAT = 1
"""The journal's format; a reader refuses any other."""

class JournalError(Exception):
    """A line of a journal that no writer of ours left there."""

    def __init__(self, line: int, reason: str) -> None:
        self.line = line
        self.reason = reason
        super().__init__(f"line {line}: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """What is known of a run before its first case."""

    run_id: str
    started: str
    """UTC, ISO 8601."""
    version: str
    """Of this program."""
    command: tuple[str, ...]
    """The command line, without credentials."""
    environment: Mapping[str, str]
    """torch, torch_git, triton, python, platform, device, arch, driver, cuda, hip, ck ..."""
    variables: Mapping[str, str]
    """Environment variables of the committed list (``redaction``)."""
    specs: Mapping[str, str]
    """sha256 of each YAML file that was read."""
    selected: int
    shard: str = ""
    """``I/N``; empty for a whole run."""
    shuffle: str = ""
    """The seed of a random order; empty for the usual one."""
    selected_whole: int = 0
    """How many cases were selected before the shard was taken."""
    selection: str = ""
    """``digest_of_selection`` of those; empty in a journal of an older version."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What the command line asked for, by the option's name; what it did not say, too."""
    merged: tuple[str, ...] = ()
    """The ids of the runs that this one was joined from."""
    retries: int = 0
    """How many more times what failed is run."""
    repeat: int = 1
    """How many times every case is run."""
    flaky: str = "fail"
    """``pass`` where a FLAKY case does not fail the run."""

    @property
    def lets_flaky_pass(self) -> bool:
        """Whether a FLAKY case does not fail the run."""
        return self.flaky == "pass"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFooter:
    """How a run ended."""

    ended: str
    seconds: float
    totals: Mapping[str, int]
    exit_code: int
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A journal as read."""

    header: RunHeader
    results: tuple[CaseResult, ...]
    footer: RunFooter | None
    attempts: Mapping[CaseId, tuple[CaseResult, ...]] = field(default_factory=dict)
    """Of cases that have no result yet, or that are NOT_RUN: the attempts that were made, in the order in which they ended."""

    @property
    def truncated(self) -> bool:
        """True when the run did not reach its end."""
        return self.footer is None

    @property
    def has_come_to_its_end(self) -> bool:
        """True when nothing is left to run: it was neither cut off nor interrupted."""
        return self.footer is not None and not self.footer.interrupted

    @property
    def finished(self) -> tuple[CaseResult, ...]:
        """The results that stand when the run is gone on with."""
        return tuple(result for result in self.results if result.outcome is not Outcome.NOT_RUN)

    @property
    def has_something(self) -> bool:
        """Whether anything of it stands when it is gone on with: a result, or an attempt of a case that has none yet."""
        return bool(self.finished or self.attempts)


@dataclass(frozen=True, slots=True)
class _AttemptLine:
    """A line that holds no case's result, but that of one attempt."""

    result: CaseResult


_KINDS: Mapping[str, type] = {"header": RunHeader, "attempt": CaseResult, "case": CaseResult, "footer": RunFooter}


def digest_of_selection(digests: Mapping[str, str]) -> str:
    """Return the sha256 of which cases were selected: of their ids and their digests, in whatever order."""
    whole = hashlib.sha256()
    for case_id in sorted(digests):
        whole.update(f"{case_id}\0{digests[case_id]}\n".encode("utf-8", "surrogatepass"))
    return whole.hexdigest()


def totals(results: Iterable[CaseResult]) -> dict[str, int]:
    """Count the results of each outcome, zeros included, in the order of the table."""
    counts = {outcome.label: 0 for outcome in Outcome}
    for result in results:
        counts[result.outcome.label] += 1
    return counts


class JournalWriter:
    """Appends to a journal; each line reaches the file before the call returns, and until the first nothing is touched.

    The journal of a run that did not come to its end is continued. Raises ``UsageError`` while another process writes to it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._has_header = path.exists() and path.stat().st_size > 0
        self._has_footer = False
        self._continued: Run | None = None
        self._stream: BinaryIO | None = None
        if self._has_header:
            self._stream = _open_to_append(path)
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
        """Write the first line; a run that is gone on with and in which nothing was finished begins anew."""
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

    def write_footer(self, footer: RunFooter) -> None:
        """Write the last line."""
        self._require_open()
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
        line = json.dumps({"kind": kind, **extra, **_encode(record)}, allow_nan=False, ensure_ascii=True)
        if self._continued is not None:
            self._continued = None
            self._replace(_standing_lines(self._path))
        if self._stream is None:
            self._stream = _open_to_append(self._path)
        with naming(self._path):
            _write_all(self._stream, line.encode("ascii") + b"\n")

    def _replace(self, lines: Iterable[bytes]) -> None:
        """Put a journal of these lines in the place of the former one, which stands until this one is whole."""
        temporary = self._path.parent / f".{self._path.name}.{secrets.token_hex(4)}"
        with naming(self._path):
            try:
                stream = _open_to_append(temporary)
                for line in lines:
                    _write_all(stream, line)
                os.fsync(stream.fileno())
                temporary.replace(self._path)
            finally:
                temporary.unlink(missing_ok=True)
        self.close()  # the former one
        self._stream = stream

    def _sync(self) -> None:
        assert self._stream is not None
        with naming(self._path):
            os.fsync(self._stream.fileno())


def _unfinished(path: Path) -> Run:
    run = read_run(path)
    if run.has_come_to_its_end:
        raise ValueError(f"{path}: this run has ended")
    return run


def _open_to_append(path: Path) -> BinaryIO:
    """Open a journal for one writer alone, without a buffer, so that what was not written is not tried again when it is closed."""
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
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]


def read_run(path: Path) -> Run:
    """Read a journal, whole or truncated; raise ``JournalError`` for anything else."""
    header: RunHeader | None = None
    footer: RunFooter | None = None
    results: dict[CaseId, CaseResult] = {}
    attempts: dict[CaseId, list[CaseResult]] = {}
    number = 0
    for number, record in _records(path):
        if (header is None) != isinstance(record, RunHeader):
            raise JournalError(number, "a second header" if header else "the first line is no header")
        if footer is not None:
            raise JournalError(number, "a line after the footer")
        match record:
            case RunHeader():
                header = record
            case RunFooter():
                footer = record
            case _AttemptLine(result) if result.case_id in results:
                raise JournalError(number, f"an attempt of {result.case_id!r}, which had ended")
            case _AttemptLine(result):
                attempts.setdefault(result.case_id, []).append(result)
            case _ if record.case_id in results:
                raise JournalError(number, f"a second line for the case {record.case_id!r}")
            case _:
                results[record.case_id] = record
                if record.outcome is not Outcome.NOT_RUN:  # it has attempts left
                    attempts.pop(record.case_id, None)
    if header is None:
        raise JournalError(1, "no header")
    pending = {case_id: tuple(made) for case_id, made in attempts.items()}
    return Run(header=header, results=tuple(results.values()), footer=footer, attempts=pending)


def _records(path: Path) -> Iterator[tuple[int, RunHeader | _AttemptLine | CaseResult | RunFooter]]:
    with _open_plain(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                value = _parse(line)
            except (ValueError, RecursionError) as error:
                if not line.endswith(b"\n"):
                    return
                raise JournalError(number, f"not JSON: {error}") from error
            yield number, _record(number, value)


def _parse(line: bytes) -> Json:
    return json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def _open_plain(path: Path) -> BinaryIO:
    """Open a journal that a worker, or who packed an archive, could have put anything in place of."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise JournalError(1, "this is a link, not the file itself") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise JournalError(1, "this is no file")
    return os.fdopen(descriptor, "rb")


def _standing_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a journal that stand when its run is gone on with."""
    with _open_plain(path) as stream:
        for line in stream:
            try:
                value = _parse(line)
            except (ValueError, RecursionError):
                return  # torn: the last one
            if value["kind"] != "footer" and value.get("outcome") != Outcome.NOT_RUN.label:
                yield line if line.endswith(b"\n") else line + b"\n"


def _record(number: int, value: Json) -> Any:
    if not isinstance(value, dict):
        raise JournalError(number, "not an object")
    kind = value.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise JournalError(number, f"unknown kind {kind!r}")
    if kind == "header" and (found := value.pop("format", None)) != FORMAT:
        raise JournalError(number, f"format {found!r}; this program reads {FORMAT}")
    try:
        decoded = _decode(_KINDS[kind], value, kind)
    except _MalformedError as error:
        raise JournalError(number, str(error)) from error
    return _AttemptLine(decoded) if kind == "attempt" else decoded


class _MalformedError(Exception):
    """A value that is not of its field's type."""


def _encode(value: Any) -> Json:
    match value:
        case Outcome():
            return value.label
        case Enum():
            return value.value
        case Mapping():
            return {str(key): _encode(item) for key, item in value.items()}
        case tuple():
            return [_encode(item) for item in value]
        case _ if is_dataclass(value):
            return {field.name: _encode(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value


def _decode(kind: Any, value: Json, where: str) -> Any:
    """Return ``value`` as the annotated type ``kind``; ``where`` names it in the message."""
    if isinstance(kind, NewType):
        return _decode(kind.__supertype__, value, where)
    if is_dataclass(kind):
        return _decode_object(kind, value, where)
    if get_origin(kind) is tuple:
        return tuple(_decode(get_args(kind)[0], item, f"{where}[{i}]") for i, item in enumerate(_expect(list, value, where)))
    if get_origin(kind) is Mapping:
        return {key: _decode(get_args(kind)[1], item, f"{where}.{key}") for key, item in _expect(dict, value, where).items()}
    if issubclass(kind, Enum):
        return _decode_member(kind, value, where)
    return _decode_number(value, where) if kind is float else _expect(kind, value, where)


def _decode_object(kind: Any, value: Json, where: str) -> Any:
    given = _expect(dict, value, where)
    if extra := given.keys() - _annotations(kind).keys():
        raise _MalformedError(f"{where} has an unknown key '{min(extra)}'")
    if missing := _required(kind) - given.keys():
        raise _MalformedError(f"{where} lacks '{min(missing)}'")
    return kind(**{name: _decode(_annotations(kind)[name], item, f"{where}.{name}") for name, item in given.items()})


@cache
def _annotations(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


@cache
def _required(kind: type[Any]) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING)


def _decode_member(kind: type[Enum], value: Json, where: str) -> Enum:
    for member in kind:
        if _encode(member) == value:
            return member
    raise _MalformedError(f"{where}: unknown word {value!r}")


def _decode_number(value: Json, where: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _MalformedError(f"{where} is not a finite number")
    return number


def _expect(kind: type[Any], value: Json, where: str) -> Any:
    # bool is an int to Python, and no count to us.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _MalformedError(f"{where} is not {kind.__name__}")
    return value
