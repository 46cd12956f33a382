"""The file of the history: its tables, opening it, and the problems that a user can mend."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.core.diagnostics import UsageError, shown_path
from runner.record.report_paths import special
from runner.record.run_folder import REPORTS

VARIABLE = "TORCH_CONFORMANCE_HISTORY"
"""The environment variable with the path of the file."""

DEFAULT = REPORTS / "history.sqlite"

FORMAT = 2
"""The number of the tables below; another number is refused."""

_APPLICATION = 0x54434846
"""Marks a SQLite file as a history: ``TCHF``."""

_WAIT_SECONDS = 20.0
"""How long one process waits for another that writes."""

_TABLES = """
CREATE TABLE machines (machine INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE cases (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE runs (
    run INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, digest TEXT NOT NULL, merged TEXT NOT NULL, machine INTEGER NOT NULL,
    started TEXT NOT NULL, seconds REAL NOT NULL, torch TEXT NOT NULL, version TEXT NOT NULL, exit_code INTEGER NOT NULL,
    selected INTEGER NOT NULL, executed INTEGER NOT NULL, passed INTEGER NOT NULL, failed INTEGER NOT NULL, totals TEXT NOT NULL
) STRICT;
CREATE INDEX runs_by_start ON runs (started, id);
CREATE TABLE results (
    run INTEGER NOT NULL, number INTEGER NOT NULL, outcome TEXT NOT NULL, seconds REAL NOT NULL, executed INTEGER NOT NULL,
    PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE stats (
    number INTEGER NOT NULL, machine INTEGER NOT NULL, runs INTEGER NOT NULL, executed INTEGER NOT NULL, passed INTEGER NOT NULL,
    failed INTEGER NOT NULL, waived INTEGER NOT NULL, flaky INTEGER NOT NULL, changes INTEGER NOT NULL, seconds REAL NOT NULL,
    timed INTEGER NOT NULL, estimate REAL NOT NULL, last_outcome TEXT NOT NULL, last_run INTEGER NOT NULL, last_good INTEGER NOT NULL,
    first_bad INTEGER NOT NULL, recent TEXT NOT NULL, PRIMARY KEY (number, machine)
) STRICT, WITHOUT ROWID;
"""


class HistoryProblem(UsageError):
    """The history cannot be read or written; the run folders are not affected."""


class HistoryLocked(HistoryProblem):
    """Another process is writing the history."""


def file_of(named: Path | None) -> Path:
    """Return the file of the history: the named one, that of the environment variable, or the default."""
    return named or Path(os.environ.get(VARIABLE) or DEFAULT)


def file_of_run(named: Path | None) -> Path | None:
    """Return the file that a run adds itself to: one that is named or set, or the default where it exists; None for none."""
    path = file_of(named)
    return path if named or os.environ.get(VARIABLE) or path.is_file() else None


@contextmanager
def opened(path: Path, *, writes: bool = False, wait: float | None = None) -> Iterator[sqlite3.Connection]:
    """Open a history; with ``writes`` it is made where there is none, and what the block writes is committed as a whole at its end.

    Raise ``HistoryProblem`` for a file that is locked, damaged or no history, and ``OSError`` on a full disk.
    """
    _require_file(path, writes=writes)
    with _problems_of(path):
        mode = "rwc" if writes else "ro"
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=_WAIT_SECONDS if wait is None else wait, isolation_level=None
        )
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            _check_format(connection, path, writes=writes)
            yield connection
            connection.execute("COMMIT")
        finally:
            connection.close()  # rolls back what was not committed


def _require_file(path: Path, *, writes: bool) -> None:
    if path.exists() and not path.is_file():
        raise HistoryProblem(f"{shown_path(path)}: this is {special(path)}, and no history; name a file with --history")
    if writes:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HistoryProblem(f"{shown_path(path)}: its folder cannot be made: {error.strerror}") from error
    elif not path.exists():
        raise HistoryProblem(
            f"no history: {shown_path(path)} does not exist ('torch-conformance history add RUN' makes it; --history FILE names another)"
        )


def _check_format(connection: sqlite3.Connection, path: Path, *, writes: bool) -> None:
    (application,), (number,) = (connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == _APPLICATION and number == FORMAT:
        return
    if application == _APPLICATION:
        raise HistoryProblem(
            f"{shown_path(path)}: this history has the format {number}, of {'an older' if number < FORMAT else 'a newer'} version of this "
            f"program, which reads {FORMAT}; name another file with --history, and add the runs again ('history add RUN ...')"
        )
    if tables or not writes:
        raise HistoryProblem(f"{shown_path(path)}: this is {'the database of another program' if tables else 'empty'}, and no history")
    for statement in _TABLES.strip().split(";\n"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")


@contextmanager
def _problems_of(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into messages with what to do."""
    try:
        yield
    except (ValueError, KeyError) as error:  # of JSON and outcomes that were read
        raise HistoryProblem(f"{shown_path(path)}: this history has values that no version of this program writes: {error}") from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code of an extended one
        if code == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        kind = HistoryLocked if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else HistoryProblem
        raise kind(f"{shown_path(path)}: {_MESSAGES.get(code, f'the history cannot be used: {error}')}") from error


_MESSAGES = {
    sqlite3.SQLITE_BUSY: "another process is writing this history; try again when it has ended",
    sqlite3.SQLITE_LOCKED: "another process is writing this history; try again when it has ended",
    sqlite3.SQLITE_CANTOPEN: "this file cannot be opened; check the permissions of it and of its folder",
    sqlite3.SQLITE_READONLY: "this file cannot be written to; check its permissions",
    sqlite3.SQLITE_NOTADB: "this is no history: not a SQLite file; name another file with --history",
    sqlite3.SQLITE_CORRUPT: "this history is damaged; move it away, and add the runs again ('history add RUN ...')",
    sqlite3.SQLITE_IOERR: "the disk reports an error; check it, or name another file with --history",
}
