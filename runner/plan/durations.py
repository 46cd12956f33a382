"""Durations of cases: of an earlier run, from its journal, and of the table beside specs. A hint for the order: no error if malformed.

The table ``durations.txt`` is for a machine without earlier runs. A line has seconds and the id of a case; ``#`` begins a comment.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from runner.machine.data_dirs import folder
from runner.machine.safe_open import open_untrusted

TABLE = "durations.txt"

_MOST_BYTES_OF_TABLE = 1 << 24
_NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,3})?")

_MOST_BYTES = 1 << 30
"""Bytes that are read of a journal; the rest is ignored."""

# JSON escapes a quote within a string as \", so an unescaped quote begins a key. Decoding whole lines is three times slower.
_CASE = re.compile(rb'\{"kind": "case", "case_id": ("(?:[^"\\]|\\.)*")')
_SECONDS = re.compile(rb'"seconds": ([0-9][0-9.e+-]*)[,}]')


def seconds_of_run(folder: Path, journal: str) -> dict[str, float]:
    """Return the seconds of each executed case, by id; empty if the journal is missing or cannot be read."""
    seconds: dict[str, float] = {}
    try:
        with open_untrusted(folder / journal) as stream:
            left = _MOST_BYTES
            while left > 0 and (line := stream.readline(left)):
                left -= len(line)
                _note(line, seconds)
    except OSError:
        return {}
    return seconds


def seconds_of_tables(folders: Iterable[Path]) -> dict[str, float]:
    """Return the seconds of the cases in the tables in these folders, by id; empty where there is none that can be read."""
    seconds_of: dict[str, float] = {}
    for root in folders:
        try:
            with open_untrusted(root / TABLE) as stream:
                data = stream.read(_MOST_BYTES_OF_TABLE)
        except OSError:
            continue
        for line in data.decode("utf-8", "replace").splitlines():
            seconds, _, case_id = line.partition(" ")
            if _NUMBER.fullmatch(seconds) and case_id:
                seconds_of[case_id] = float(seconds)
    return seconds_of


def roots_of(paths: Sequence[Path]) -> list[Path]:
    """Return the folders where tables of the given specs lie: the folders, those of the files, the shipped specs for paths within them."""
    shipped = folder("specs").resolve()
    return list(dict.fromkeys([_root(path.resolve(), shipped) for path in paths] or [shipped]))


def _root(path: Path, shipped: Path) -> Path:
    if path.is_relative_to(shipped):
        return shipped
    return path if path.is_dir() else path.parent


def _note(line: bytes, seconds_of: dict[str, float]) -> None:
    named, timed = _CASE.match(line), _SECONDS.search(line)
    if named is None or timed is None:
        return
    try:
        case_id, seconds = json.loads(named[1]), float(timed[1])
    except ValueError:
        return
    if 0 < seconds < 1e9:  # 0: the case was not executed
        seconds_of[case_id] = seconds
