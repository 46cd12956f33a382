"""How long each case took in an earlier run, from its journal: a hint for the order, so nothing that is wrong there is an error."""

import json
import re
from pathlib import Path

from runner.system.safe_open import open_untrusted

_MOST_BYTES = 1 << 30
"""Of a larger journal the rest is not read."""

# A quote within a text is written \", so what follows an unescaped one is a key. To decode whole lines would cost three times as much.
_CASE = re.compile(rb'\{"kind": "case", "case_id": ("(?:[^"\\]|\\.)*")')
_SECONDS = re.compile(rb'"seconds": ([0-9][0-9.e+-]*)[,}]')


def seconds_of_run(folder: Path, journal: str) -> dict[str, float]:
    """Return the seconds of each case that was executed, by id; none of a journal that is not there or cannot be read."""
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
    if 0 < seconds < 1e9:  # 0 is of a case that was not executed
        found[case_id] = seconds
