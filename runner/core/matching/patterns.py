"""Regular expressions that a person wrote: checked before use, searched under a time limit, and POSIX ones put into Python's words.

A pattern can be wrong in two ways that ``re`` alone does not report well: it does not compile, or it backtracks for
hours. Everything that judges by a pattern comes through here.
"""

import json
import re
import signal
import string
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from types import FrameType
from typing import NoReturn

_EARLY = 1e-3
"""A timer that rings this much before its deadline (seconds) is on time: clocks round."""

_NESTING = 50
"""Groups deeper than this are refused, so that no pattern can exhaust the stack of ``re``'s own parser."""

_REPETITIONS = 255
"""What POSIX allows in ``{n}``."""

_REHEARSAL = "import json, re, sys; re.search(*json.load(sys.stdin))"


class PatternTooSlow(Exception):
    """A pattern gave no answer in time; nothing is claimed about the text."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"pattern too slow: no answer within {seconds:g} s")
        self.seconds = seconds


class BadPattern(ValueError):
    """A POSIX expression that does not parse; ``offset`` counts from 0."""

    def __init__(self, message: str, offset: int, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint


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


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``PatternTooSlow`` in the body when it runs longer than ``seconds``.

    It works in the main thread only (a ``RuntimeError`` elsewhere), because only there does Python run signal handlers;
    ``re`` looks for them while it matches. The former handler and timer come back at the end; an outer limit that
    ends first rings first.
    """
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise ValueError(f"a time limit is a positive number of seconds, not {seconds}")
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a time limit can be set in the main thread only")
    alarm = _Alarm.set(seconds)
    try:
        try:
            yield
        finally:
            # From here on the alarm is silent. Should it ring just before this line, the outer finally still cleans up.
            alarm.armed = False
    finally:
        alarm.restore()


_Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None


@dataclass(slots=True, kw_only=True)
class _Alarm:
    """One running time limit and what it stands in front of."""

    seconds: float
    deadline: float
    outer_due: float | None
    """When the timer that ran before this one is due; None when there is none."""
    outer_interval: float
    former: _Handler = None
    armed: bool = True

    @classmethod
    def set(cls, seconds: float) -> "_Alarm":
        now = time.monotonic()
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        alarm = cls(seconds=seconds, deadline=now + seconds, outer_due=now + left if left else None, outer_interval=interval)
        alarm.former = signal.signal(signal.SIGALRM, alarm.ring)
        alarm.wind()
        return alarm

    def wind(self) -> None:
        """Let the timer ring for whichever limit ends first."""
        due = self.deadline if self.outer_due is None else min(self.deadline, self.outer_due)
        signal.setitimer(signal.ITIMER_REAL, max(due - time.monotonic(), 1e-6))

    def ring(self, signum: int, frame: FrameType | None) -> None:
        if not self.armed:
            return
        if time.monotonic() < self.deadline - _EARLY:
            self.ring_outer(signum, frame)
            return
        raise PatternTooSlow(self.seconds)

    def ring_outer(self, signum: int, frame: FrameType | None) -> None:
        """Hand the signal on to the handler that was there before, as if this limit did not exist."""
        self.outer_due = time.monotonic() + self.outer_interval if self.outer_interval else None
        self.wind()
        if callable(self.former):
            self.former(signum, frame)
        elif self.former == signal.SIG_DFL:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGALRM)

    def restore(self) -> None:
        self.armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self.former is not None:
            signal.signal(signal.SIGALRM, self.former)
        if self.outer_due is not None:
            signal.setitimer(signal.ITIMER_REAL, max(self.outer_due - time.monotonic(), 1e-6), self.outer_interval)


@dataclass(frozen=True, slots=True, kw_only=True)
class PosixPattern:
    """A POSIX extended expression in Python's words, to be compiled with ``re.MULTILINE``."""

    python: str
    ambiguous: bool
    """Whether one start can have several ends of which Python may not take the longest, as POSIX does."""
    spans_lines: bool
    """Whether a match may hold a newline."""


class _Before(Enum):
    """What stands before the place that is read: it decides what may follow."""

    NOTHING = auto()
    ATOM = auto()
    GROUP = auto()
    ANCHOR = auto()
    REPETITION = auto()


_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"\x21-\x7e",
    "lower": "a-z",
    "print": r"\x20-\x7e",
    "punct": re.escape(string.punctuation),
    "space": r" \t\n\r\f\v",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}

_INSTEAD = {
    "d": "write [0-9]",
    "D": "write [^0-9]",
    "w": "write [[:alnum:]_]",
    "W": "write [^[:alnum:]_]",
    "s": "write [[:space:]]",
    "S": "write [^[:space:]]",
    "n": "a newline is in [[:space:]]",
    "t": "a tab is in [[:blank:]]",
}
"""What people write who think of Python's expressions."""

_BOUNDS = re.compile(r"\{(\d+)(,(\d*))?\}")
_CLASS = re.compile(r"\[:([^]:]*):\]")


def from_posix(expression: str) -> PosixPattern:
    """Translate a POSIX extended expression, in the dialect that LLVM's FileCheck takes; raise ``BadPattern``.

    Where that dialect differs from Python's: no ``\\d`` or lazy repetition, a backslash within brackets is itself, and
    ``.`` and ``[^...]`` never match a newline. What would silently mean something else is refused.
    """
    return _Translation(source=expression).whole()


@dataclass(slots=True, kw_only=True)
class _Translation:
    """Reads an expression from left to right, writing Python's form of it."""

    source: str
    at: int = 0
    out: list[str] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    """Where each group that is still open began."""
    before: _Before = _Before.NOTHING
    ambiguous: bool = False
    spans_lines: bool = False

    def whole(self) -> PosixPattern:
        while self.at < len(self.source):
            self.step()
        if self.groups:
            self.fail("parenthesis without its end", at=self.groups[-1])
        self.end_branch()
        return PosixPattern(python="".join(self.out), ambiguous=self.ambiguous, spans_lines=self.spans_lines)

    def step(self) -> None:
        character = self.source[self.at]
        match character:
            case "(":
                self.open_group()
            case ")":
                self.close_group()
            case "|":
                self.end_branch()
                self.ambiguous = True
                self.put("|", _Before.NOTHING)
            case "^" | "$":
                self.put(character, _Before.ANCHOR)
            case "*" | "+" | "?":
                self.repeat(character, 1)
            case "{" if self.source[self.at + 1 : self.at + 2].isdecimal():
                self.repeat_counted()
            case "[":
                self.bracket()
            case "\\":
                self.escape()
            case ".":
                self.put(".", _Before.ATOM)
            case _:
                self.put(re.escape(character), _Before.ATOM)

    def fail(self, message: str, *, hint: str = "", at: int | None = None) -> NoReturn:
        raise BadPattern(message, self.at if at is None else at, hint)

    def put(self, python: str, then: _Before, width: int = 1) -> None:
        self.out.append(python)
        self.before = then
        self.at += width

    def open_group(self) -> None:
        if len(self.groups) == _NESTING:
            self.fail("groups nested too deep")
        self.groups.append(self.at)
        self.put("(?:", _Before.NOTHING)

    def close_group(self) -> None:
        if not self.groups:
            self.fail("parenthesis without its beginning", hint="for the character itself write \\)")
        self.end_branch()
        self.groups.pop()
        self.put(")", _Before.GROUP)

    def end_branch(self) -> None:
        if self.before is _Before.NOTHING:
            self.fail("empty expression")

    def repeat(self, python: str, width: int) -> None:
        if self.before not in (_Before.ATOM, _Before.GROUP):
            self.fail(f"'{self.source[self.at]}' has nothing to repeat", hint=self.why_not_repeat())
        self.ambiguous |= self.before is _Before.GROUP
        self.put(python, _Before.REPETITION, width)

    def why_not_repeat(self) -> str:
        if self.before is _Before.REPETITION:
            return "there is no lazy or doubled repetition"
        if self.source[max(self.at - 1, 0) : self.at + 1] == "(?":
            return "there are no (?...) groups"
        return f"for the character itself write \\{self.source[self.at]}"

    def repeat_counted(self) -> None:
        bounds = _BOUNDS.match(self.source, self.at)
        if bounds is None:
            self.fail("brace without its end", hint="a count before }} needs parentheses: {{(a{2})}}")
        low = int(bounds[1])
        high = int(bounds[3]) if bounds[3] else low
        if not low <= high <= _REPETITIONS:
            self.fail(f"counts go from 0 to {_REPETITIONS}, the smaller one first")
        self.repeat(bounds[0], len(bounds[0]))

    def escape(self) -> None:
        character = self.source[self.at + 1 : self.at + 2]
        if not character:
            self.fail("backslash at the end")
        if character.isdecimal():
            self.fail(f"no numbered reference \\{character}", hint="name it: [[NAME:...]], then [[NAME]]")
        if character.isalnum():
            hint = _INSTEAD.get(character, f"for the letter itself write {character}")
            self.fail(f"\\{character} means the letter {character} here", hint=hint)
        self.put(re.escape(character), _Before.ATOM, 2)

    def bracket(self) -> None:
        """Read ``[...]``: a ``]`` that comes first and a ``-`` at either end are characters."""
        begin = self.at
        self.at += 1
        inverse = r"^\n" if self.eat("^") else ""
        members = ["\\]"] if self.eat("]") else ["\\-"] if self.eat("-") else []
        while not self.source.startswith(("]", "-]"), self.at):
            members.append(self.member(begin))
        if self.eat("-"):
            members.append("\\-")
        python = f"[{inverse}{''.join(members)}]"
        self.spans_lines |= re.match(python, "\n") is not None
        self.put(python, _Before.ATOM)

    def eat(self, character: str) -> bool:
        found = self.source.startswith(character, self.at)
        self.at += found
        return found

    def member(self, begin: int) -> str:
        """Read a class, a range or a character."""
        if self.at >= len(self.source):
            self.fail("bracket without its end", at=begin)
        if self.source.startswith("[:", self.at):
            return self.character_class()
        if self.source.startswith("-", self.at):
            self.fail("a range without its beginning", hint="put - first or last")
        low = self.single(begin)
        if not self.source.startswith("-", self.at) or self.source.startswith("-]", self.at):
            return re.escape(low)
        self.at += 1
        high = self.single(begin)
        if high < low:
            self.fail(f"the range {low}-{high} is upside down")
        return f"{re.escape(low)}-{re.escape(high)}"

    def character_class(self) -> str:
        found = _CLASS.match(self.source, self.at)
        if found is None or found[1] not in _CLASSES:
            self.fail("unknown character class", hint=f"known: {', '.join(_CLASSES)}")
        self.at = found.end()
        return _CLASSES[found[1]]

    def single(self, begin: int) -> str:
        """Read one character of a set. A backslash is one; before a letter it is surely meant otherwise."""
        character = self.source[self.at : self.at + 1]
        following = self.source[self.at + 1 : self.at + 2]
        if not character:
            self.fail("bracket without its end", at=begin)
        if character == "[" and following in (".", "="):
            self.fail(f"no [{following} {following}] here")
        if character == "\\" and following.isalnum():
            self.fail("within brackets a backslash is itself", hint=_INSTEAD.get(following, ""))
        self.at += 1
        return character
