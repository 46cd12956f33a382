"""Regular expressions that a person wrote: checked before use, searched under a time limit, and POSIX ones put into Python's words.

A pattern can be wrong in two ways that ``re`` alone does not report well: it does not compile, or it backtracks for
hours. Everything that judges by a pattern comes through here.
"""

import json
import re
import sys
import threading
import warnings
from collections.abc import Sequence

from runner.core.matching.time_limit import PatternTooSlow, time_limit

_REHEARSAL = "import json, re, sys; re.search(*json.load(sys.stdin))"


def check_pattern(pattern: str) -> str | None:
    """Return None when Python's ``re`` takes the pattern, otherwise one line that says why not."""
    try:
        with warnings.catch_warnings():
            # What Python warns about (a set within a set) will mean something else one day: better refused now.
            warnings.simplefilter("error")
            re.compile(pattern)
    except re.error as problem:
        return f"{problem.msg} at offset {problem.pos}" if problem.pos is not None else problem.msg
    except Warning as problem:
        return f"{str(problem).replace(' at position ', ' at offset ').lower()}: put a backslash before it"
    except RecursionError:
        return "nested too deep at offset 0"
    except OverflowError as problem:
        return f"{problem} at offset 0"
    return None


def says_nothing(pattern: str, frames: Sequence[str] = ("{0}",)) -> bool:
    """Whether a pattern that compiles is satisfied by texts that have no character in common: it describes no particular text.

    Each of ``frames`` is a text with ``{0}`` and ``{1}`` where the two fillings stand; a match in one that uses only what the frame
    itself brings describes nothing either. A pattern without an answer in time is not judged here.
    """
    try:
        return any(_fits_unrelated(pattern, frame, length) for frame in frames for length in _LENGTHS)
    except PatternTooSlow:
        return False


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
"""Texts of which no two share a character."""


_LENGTHS = (0, 1, 9, 40, 120, 350, 2500)


def search(pattern: str, text: str, *, seconds: float = 5.0) -> re.Match[str] | None:
    """Search like ``re.search``; raise ``PatternTooSlow`` when that takes longer than ``seconds``.

    In the main thread a timer interrupts the search. In any other thread nothing can, so there a child process,
    which can be killed, searches first; its start is part of the time.
    """
    if threading.current_thread() is not threading.main_thread():
        _rehearse(pattern, text, seconds)
        return re.search(pattern, text)
    with time_limit(seconds):
        return re.search(pattern, text)


def _rehearse(pattern: str, text: str, seconds: float) -> None:
    """Search in a child process, only to learn whether the search ends in time."""
    command = [sys.executable, "-I", "-S", "-c", _REHEARSAL]
    import subprocess

    request = json.dumps([pattern, text]).encode()
    try:
        subprocess.run(command, input=request, timeout=seconds, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        raise PatternTooSlow(seconds) from None
