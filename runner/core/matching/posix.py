"""Translates POSIX extended regular expressions, in LLVM's dialect, to Python."""

import re
import string
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NoReturn

_NESTING = 50
"""The maximum depth of groups, so that no pattern exhausts the stack of ``re``'s parser."""


_REPETITIONS = 255
"""The maximum of POSIX for ``{n}``."""


class BadPattern(ValueError):
    """An invalid POSIX expression; ``offset`` counts from 0."""

    def __init__(self, message: str, offset: int, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class PosixPattern:
    """A POSIX extended expression as a Python expression, for ``re.MULTILINE``."""

    python: str
    ambiguous: bool
    """Whether matches with one start may have several ends: POSIX takes the longest, Python may not."""
    spans_lines: bool
    """Whether a match may contain a newline."""


class _Before(Enum):
    """The kind of the previous element. It decides what may follow."""

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
"""Hints for escapes of Python's expressions."""


_BOUNDS = re.compile(r"\{(\d+)(,(\d*))?\}")


_CLASS = re.compile(r"\[:([^]:]*):\]")


def from_posix(expression: str) -> PosixPattern:
    """Translate a POSIX extended expression in the dialect of LLVM's FileCheck; raise ``BadPattern``.

    Differences from Python: there is no ``\\d`` and no lazy repetition, a backslash within brackets is literal, and ``.`` and ``[^...]``
    never match a newline. Syntax with another meaning in Python is rejected.
    """
    return _Translation(source=expression).whole()


@dataclass(slots=True, kw_only=True)
class _Translation:
    """Translates an expression from left to right."""

    source: str
    at: int = 0
    out: list[str] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    """The offsets of the open groups."""
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
            self.fail("parenthesis without its beginning", hint="to match the character write \\)")
        self.end_branch()
        self.groups.pop()
        self.put(")", _Before.GROUP)

    def end_branch(self) -> None:
        if self.before is _Before.NOTHING:
            self.fail("empty expression")

    def repeat(self, python: str, width: int) -> None:
        if self.before not in (_Before.ATOM, _Before.GROUP):
            self.fail(f"'{self.source[self.at]}' has nothing to repeat", hint=_why_not_repeat(self))
        self.ambiguous |= self.before is _Before.GROUP
        self.put(python, _Before.REPETITION, width)

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
            hint = _INSTEAD.get(character, f"to match the letter write {character}")
            self.fail(f"\\{character} means the letter {character} here", hint=hint)
        self.put(re.escape(character), _Before.ATOM, 2)

    def bracket(self) -> None:
        """Parse ``[...]``. A ``]`` at the beginning and a ``-`` at either end are literal."""
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
        """Parse a class, a range or a character."""
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
            self.fail(f"the range {low}-{high} is reversed")
        return f"{re.escape(low)}-{re.escape(high)}"

    def character_class(self) -> str:
        found = _CLASS.match(self.source, self.at)
        if found is None or found[1] not in _CLASSES:
            self.fail("unknown character class", hint=f"known: {', '.join(_CLASSES)}")
        self.at = found.end()
        return _CLASSES[found[1]]

    def single(self, begin: int) -> str:
        """Parse one character of a set. A backslash is literal, and rejected before a letter as a probable mistake."""
        character = self.source[self.at : self.at + 1]
        following = self.source[self.at + 1 : self.at + 2]
        if not character:
            self.fail("bracket without its end", at=begin)
        if character == "[" and following in (".", "="):
            self.fail(f"[{following} {following}] is not supported")
        if character == "\\" and following.isalnum():
            self.fail("within brackets a backslash is literal", hint=_INSTEAD.get(following, ""))
        self.at += 1
        return character


def _why_not_repeat(translation: _Translation) -> str:
    if translation.before is _Before.REPETITION:
        return "there is no lazy or doubled repetition"
    if translation.source[max(translation.at - 1, 0) : translation.at + 1] == "(?":
        return "there are no (?...) groups"
    return f"to match the character write \\{translation.source[translation.at]}"
