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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from runner.core.matching.time_limit import PatternTooSlow, time_limit

_TRIAL = "import json, re, sys; pattern, texts = json.load(sys.stdin); [re.search(pattern, text) for text in texts]"

_ALL_SEARCHES = 5.0
"""In seconds: the limit of all searches that find out whether a pattern is unspecific."""


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
        return _fits_unrelated(pattern, tuple(frames))
    except PatternTooSlow:
        return False


@functools.cache
def _fits_unrelated(pattern: str, frames: tuple[str, ...]) -> bool:
    """Whether the pattern matches two unrelated fillings of one frame and length.

    One time limit covers all searches: to set and restore a timer costs more than such a search.
    """
    groups = [_fillings(frame, length) for frame in frames for length in _LENGTHS]
    with _limited(pattern, [text for group in groups for text in group], _ALL_SEARCHES):
        return any(sum(re.search(pattern, text) is not None for text in group) > 1 for group in groups)


@functools.cache
def _fillings(frame: str, length: int) -> tuple[str, ...]:
    fillings = [(characters * (length // len(characters) + 1))[:length] for characters in _UNRELATED]
    return tuple(frame.replace("{0}", filling).replace("{1}", filling) for filling in fillings)


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
    with _limited(pattern, [text], seconds):
        return re.search(pattern, text)


@contextmanager
def _limited(pattern: str, texts: Sequence[str], seconds: float) -> Iterator[None]:
    """Let the body search the texts, for at most ``seconds``."""
    if threading.current_thread() is threading.main_thread():
        with time_limit(seconds):
            yield
    else:
        _try_in_child(pattern, texts, seconds)
        yield


def _try_in_child(pattern: str, texts: Sequence[str], seconds: float) -> None:
    """Search in a child process, to find out whether the searches end in time."""
    command = [sys.executable, "-I", "-S", "-c", _TRIAL]
    import subprocess

    request = json.dumps([pattern, list(texts)]).encode()
    try:
        subprocess.run(command, input=request, timeout=seconds, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        raise PatternTooSlow(seconds) from None
