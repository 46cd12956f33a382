"""Regular expressions from specs: checked before use, and searched with a time limit.

Two faults of a pattern are reported badly by ``re`` alone: it does not compile, or it backtracks for hours. All judging by patterns uses
this module.
"""

import functools
import json
import re
import sys
import threading
import warnings
from collections.abc import Sequence

from runner.core.matching.time_limit import PatternTooSlow, time_limit

_TRIAL = "import json, re, sys; re.search(*json.load(sys.stdin))"


def check_pattern(pattern: str) -> str | None:
    """Return None if Python's ``re`` compiles the pattern, otherwise the reason on one line."""
    try:
        with warnings.catch_warnings():
            # Python warns of syntax that will change its meaning (a set within a set): it is rejected.
            warnings.simplefilter("error")
            re.compile(pattern)
    except re.error as problem:
        return f"{problem.msg} at offset {problem.pos}" if problem.pos is not None else problem.msg
    except Warning as problem:
        return f"{str(problem).replace(' at position ', ' at offset ').lower()}: escape it with a backslash"
    except RecursionError:
        return "nested too deep at offset 0"
    except OverflowError as problem:
        return f"{problem} at offset 0"
    return None


def is_unspecific(pattern: str, frames: Sequence[str] = ("{0}",)) -> bool:
    """Whether a pattern matches texts without a common character, so that it describes no particular text.

    Each of ``frames`` is a text with ``{0}`` and ``{1}`` in place of the two variable parts. A pattern that matches only the fixed text of
    a frame is unspecific too. A pattern that exceeds its time limit counts as specific.
    """
    try:
        return any(_fits_unrelated(pattern, frame, length) for frame in frames for length in _LENGTHS)
    except PatternTooSlow:
        return False


@functools.lru_cache(maxsize=1 << 14)  # the shipped waivers are read by many commands, and by some several times
def _fits_unrelated(pattern: str, frame: str, length: int) -> bool:
    fillings = [_filling(characters, length) for characters in _UNRELATED]
    return sum(search(pattern, frame.replace("{0}", one).replace("{1}", one), seconds=1.0) is not None for one in fillings) > 1


def _filling(characters: str, length: int) -> str:
    return (characters * (length // len(characters) + 1))[:length]


_UNRELATED = (
    "kqxzj",
    "wvyhb",
    "KQXZJ",
    "WVYHB",
    "80",
    "97",
    "~^`",
    "@#&",
    "\u03b6\u03be\u03c8",
    "\u0416\u0429\u042d",
    "m P 3 %\n",
    "f\tR\t5\t!",
)
"""Texts without common characters."""


_LENGTHS = (0, 1, 9, 40, 120, 350, 2500)


def search(pattern: str, text: str, *, seconds: float = 5.0) -> re.Match[str] | None:
    """Search like ``re.search``; raise ``PatternTooSlow`` after ``seconds``.

    In the main thread a timer interrupts the search. In any other thread a child process searches first, because only a process can be
    killed. The start of the child is part of the time.
    """
    if threading.current_thread() is not threading.main_thread():
        _try_in_child(pattern, text, seconds)
        return re.search(pattern, text)
    with time_limit(seconds):
        return re.search(pattern, text)


def _try_in_child(pattern: str, text: str, seconds: float) -> None:
    """Search in a child process, to find out whether the search ends in time."""
    command = [sys.executable, "-I", "-S", "-c", _TRIAL]
    import subprocess

    request = json.dumps([pattern, text]).encode()
    try:
        subprocess.run(command, input=request, timeout=seconds, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        raise PatternTooSlow(seconds) from None
