"""Durations of cases in an earlier run, read from its journal. They are a hint for the order, so a malformed journal is no error."""

import json
import re
from pathlib import Path

from runner.system.safe_open import open_untrusted

_MOST_BYTES = 1 << 30
"""Bytes that are read of a journal; the rest is ignored."""

# JSON escapes a quote within a string as \", so an unescaped quote begins a key. Decoding whole lines is three times slower.
_CASE = re.compile(rb'\{"kind": "case", "case_id": ("(?:[^"\\]|\\.)*")')
_SECONDS = re.compile(rb'"seconds": ([0-9][0-9.e+-]*)[,}]')


def seconds_of_run(folder: Path, journal: str) -> dict[str, float]:
    """Return the seconds of each executed case, by id; empty if the journal is missing or cannot be read."""
    found: dict[str, float] = {}
    try:
        with open_untrusted(folder / journal) as stream:
            left = _MOST_BYTES
            while left > 0 and (line := stream.readline(left)):
                left -= len(line)
                _note(line, found)
    except OSError:
        return {}
    return found


def _note(line: bytes, found: dict[str, float]) -> None:
    named, timed = _CASE.match(line), _SECONDS.search(line)
    if named is None or timed is None:
        return
    try:
        case_id, seconds = json.loads(named[1]), float(timed[1])
    except ValueError:
        return
    if 0 < seconds < 1e9:  # 0: the case was not executed
        found[case_id] = seconds
