"""The run's journal: JSON lines written as the run goes, and read back by every report.

A header, one line for each case that ended, a footer. A journal without a footer is a truncated run; only its last line may be torn.
Of a case that is run several times each attempt has a line as soon as it ended, so that none is lost with the run; the case's own line
follows.
A run that is gone on with loses what stands for nothing once more is written: the torn line, the cases that were not run, the footer of
an interrupt. So a journal has one line for a case and one footer, however often its run was cut off.
A field that is added to ``CaseResult`` travels by itself; ``schemas/journal.schema.json`` must be told of it.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NewType, NoReturn, Self, get_args, get_origin, get_type_hints

from runner.core.diagnostics import JournalAltered, UsageError
from runner.core.model import CaseId, CaseResult, Json
from runner.core.outcomes import Outcome
from runner.record import consistency
from runner.system.streams import naming

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


class _Seal:
    """What a writer wrote to a file: which file, how much, and its digest. Anything else there was written by somebody else."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self._path = path
        self._descriptor = stream.fileno()
        self._size = 0
        self._digest = hashlib.sha256()

    def add(self, data: bytes) -> None:
        """Take in what was written."""
        self._size += len(data)
        self._digest.update(data)

    def check(self) -> None:
        """Raise ``JournalAltered`` where the path names another file, or the size is another."""
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
        """Raise ``JournalAltered`` where the file does not hold what was written."""
        self.check()
        try:
            with _open_plain(self._path) as stream:
                found = hashlib.sha256(stream.read()).digest()
        except (OSError, JournalError) as error:
            raise self._altered(str(error)) from error
        if found != self._digest.digest():
            raise self._altered("its content is not what was written")

    def _altered(self, how: str) -> JournalAltered:
        return JournalAltered(f"{self._path}: the journal was changed while the run went on, by a case or another program: {how}")


class JournalWriter:
    """Appends to a journal; each line reaches the file before the call returns.

    The file is made and locked at once, before anything runs that could write to it, and whatever else is written to it is noticed:
    ``JournalAltered``. The journal of a run that did not come to its end is continued. Raises ``UsageError`` while another process
    writes to it.
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

    def verify(self) -> None:
        """Raise ``JournalAltered`` where the file does not hold what this writer wrote; what it is to continue is not looked at."""
        if self._continued is None and self._stream is not None:
            self._seal.check_content()

    def set_aside(self) -> Path:
        """Rename a journal that was altered, so that no reader takes it for a run's; return its new name."""
        aside = self._path.with_name(f"{self._path.name}.altered")
        with contextlib.suppress(OSError):
            os.replace(self._path, aside)
        self.close()
        return aside

    def write_footer(self, footer: RunFooter) -> None:
        """Write the last line, where the lines before it are those that this writer wrote."""
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
        line = json.dumps({"kind": kind, **extra, **_encode(record)}, allow_nan=False, ensure_ascii=True)
        if self._continued is not None:
            self._continued = None
            self._replace(_standing_lines(self._path))
        assert self._stream is not None, "the journal is closed"
        self._seal.check()
        data = line.encode("ascii") + b"\n"
        with naming(self._path):
            _write_all(self._stream, data)
        self._seal.add(data)

    def _replace(self, lines: Iterable[bytes]) -> None:
        """Put a journal of these lines in the place of the former one, which stands until this one is whole."""
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


def _unfinished(path: Path) -> Run:
    run = read_form(path)
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
    """Read a journal, whole or truncated; raise ``JournalError`` for anything else, also for lines that contradict each other."""
    return _read(path, _Reader(checks=True))


def read_form(path: Path) -> Run:
    """Read a journal as ``read_run``, without the question whether its lines can all be true: for the writer that continues its own."""
    return _read(path, _Reader(checks=False))


def _read(path: Path, reader: "_Reader") -> Run:
    number = 0
    for number, record in _records(path):
        if problem := reader.take(record):
            raise JournalError(number, problem)
    if reader.header is None:
        raise JournalError(1, "no header")
    if problem := reader.problem_of_end():
        raise JournalError(number, problem)
    return reader.run()


class _Reader:
    """The lines of a journal, taken one after another."""

    def __init__(self, *, checks: bool) -> None:
        self._checks = checks
        self.header: RunHeader | None = None
        self._footer: RunFooter | None = None
        self._results: dict[CaseId, CaseResult] = {}
        self._attempts: dict[CaseId, list[CaseResult]] = {}

    def take(self, record: "RunHeader | _AttemptLine | CaseResult | RunFooter") -> str:
        """Take a line; return what is wrong with it, else an empty string."""
        if isinstance(record, RunHeader):
            return self._take_header(record)
        if self.header is None:
            return "the first line is no header"
        if self._footer is not None:
            return "a line after the footer"
        if isinstance(record, RunFooter):
            self._footer = record
            return self._problem_of_footer(record)
        return self._take_attempt(record.result) if isinstance(record, _AttemptLine) else self._take_case(record)

    def _take_header(self, header: RunHeader) -> str:
        if self.header is not None:
            return "a second header"
        self.header = header
        if not self._checks:
            return ""
        said = {"retries": header.retries, "repeat": header.repeat, "flaky": header.flaky, "shard": header.shard}
        if header.selected > header.selected_whole > 0:
            return f"{header.selected} cases are selected of {header.selected_whole}"
        return consistency.of_options(header.options, said)

    def _take_attempt(self, result: CaseResult) -> str:
        if result.case_id in self._results:
            return f"an attempt of {result.case_id!r}, which had ended"
        if self._checks and (result.attempts or result.outcome in (Outcome.NOT_RUN, Outcome.FLAKY)):
            return f"{result.case_id!r}: an attempt of attempts"
        self._attempts.setdefault(result.case_id, []).append(result)
        return self._contradiction(result)

    def _take_case(self, result: CaseResult) -> str:
        if result.case_id in self._results:
            return f"a second line for the case {result.case_id!r}"
        self._results[result.case_id] = result
        made = self._attempts.get(result.case_id, [])
        if result.outcome is not Outcome.NOT_RUN:  # it has attempts left
            self._attempts.pop(result.case_id, None)
            if problem := self._problem_of_attempts(result, made):
                return f"{result.case_id!r}: {problem}"
        return self._contradiction(result)

    def _problem_of_attempts(self, result: CaseResult, made: Sequence[CaseResult]) -> str:
        assert self.header is not None
        is_merged = bool(self.header.merged)  # a merge writes no line for an attempt
        return "" if not self._checks or is_merged or not (made or result.attempts) else consistency.of_attempt_lines(result, made)

    def _contradiction(self, result: CaseResult) -> str:
        assert self.header is not None
        if not self._checks:
            return ""
        problem = consistency.of_result(result, retries=self.header.retries, repeat=self.header.repeat)
        return f"{result.case_id!r}: {problem}" if problem else ""

    def _problem_of_footer(self, footer: RunFooter) -> str:
        assert self.header is not None
        if not self._checks:
            return ""
        results = list(self._results.values())
        problem = consistency.of_footer(
            results,
            selected=self.header.selected,
            options=self.header.options,
            totals=(footer.totals, totals(results)),
            ended=(footer.exit_code, footer.interrupted),
            lets_flaky_pass=self.header.lets_flaky_pass,
        )
        is_whole = self.header.selection and not self.header.shard
        return problem or (consistency.of_selection(results, self.header.selection, digest_of_selection) if is_whole else "")

    def problem_of_end(self) -> str:
        """Return what lines contradict each other, once all are read."""
        return consistency.of_results(list(self._results.values())) if self._checks else ""

    def run(self) -> Run:
        """Return what was read."""
        assert self.header is not None
        pending = {case_id: tuple(made) for case_id, made in self._attempts.items()}
        return Run(header=self.header, results=tuple(self._results.values()), footer=self._footer, attempts=pending)


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


def lines_of(path: Path) -> dict[str, int]:
    """Return on which line of a journal that was read each case stands."""
    return {str(record.case_id): number for number, record in _records(path) if isinstance(record, CaseResult)}


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
