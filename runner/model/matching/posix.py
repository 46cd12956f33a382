"""Translates POSIX extended regular expressions, in LLVM's dialect, to Python."""

import re
import string
from typing import NamedTuple

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


class PosixPattern(NamedTuple):
    """A POSIX extended expression as a Python expression, for ``re.MULTILINE``."""

    python: str
    ambiguous: bool
    """Whether matches with one start may have several ends: POSIX takes the longest, Python may not."""
    spans_lines: bool
    """Whether a match may contain a newline."""


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


def from_posix(source: str) -> PosixPattern:
    """Translate a POSIX extended expression in the dialect of LLVM's FileCheck; raise ``BadPattern``.

    Differences from Python: there is no ``\\d`` and no lazy repetition, a backslash within brackets is literal, and ``.`` and ``[^...]``
    never match a newline. Syntax with another meaning in Python is rejected.
    """
    parts: list[str] = []
    groups: list[int] = []  # the offsets of the open groups
    previous = "nothing"  # the kind of the previous element, which decides what may follow: nothing, atom, group, anchor or repetition
    ambiguous = spans_lines = False
    at = 0
    while at < len(source):
        character, python, kind, end = source[at], re.escape(source[at]), "atom", at + 1
        if character in ")|" and previous == "nothing" and (groups or character == "|"):
            raise BadPattern("empty expression", at)
        match character:
            case "(":
                if len(groups) == _NESTING:
                    raise BadPattern("groups nested too deep", at)
                groups.append(at)
                python, kind = "(?:", "nothing"
            case ")":
                if not groups:
                    raise BadPattern("parenthesis without its beginning", at, "to match the character write \\)")
                groups.pop()
                python, kind = ")", "group"
            case "|":
                ambiguous = True
                python, kind = "|", "nothing"
            case "^" | "$":
                python, kind = character, "anchor"
            case "*" | "+" | "?":
                python, kind = character, "repetition"
            case "{" if source[at + 1 : at + 2].isdecimal():
                bounds = _BOUNDS.match(source, at)
                if bounds is None:
                    raise BadPattern("brace without its end", at, "a count before }} needs parentheses: {{(a{2})}}")
                low = int(bounds[1])
                if not low <= (int(bounds[3]) if bounds[3] else low) <= _REPETITIONS:
                    raise BadPattern(f"counts go from 0 to {_REPETITIONS}, the smaller one first", at)
                python, kind, end = bounds[0], "repetition", bounds.end()
            case "[":
                python, end = _bracket(source, at)
                spans_lines |= re.match(python, "\n") is not None
            case "\\":
                escaped = source[at + 1 : at + 2]
                if not escaped:
                    raise BadPattern("backslash at the end", at)
                if escaped.isdecimal():
                    raise BadPattern(f"no numbered reference \\{escaped}", at, "name it: [[NAME:...]], then [[NAME]]")
                if escaped.isalnum():
                    hint = _INSTEAD.get(escaped, f"to match the letter write {escaped}")
                    raise BadPattern(f"\\{escaped} means the letter {escaped} here", at, hint)
                python, end = re.escape(escaped), at + 2
            case ".":
                python = "."
        if kind == "repetition":
            if previous not in ("atom", "group"):
                hint = f"to match the character write \\{character}"
                if previous == "repetition":
                    hint = "there is no lazy or doubled repetition"
                elif source[max(at - 1, 0) : at + 1] == "(?":
                    hint = "there are no (?...) groups"
                raise BadPattern(f"'{character}' has nothing to repeat", at, hint)
            ambiguous |= previous == "group"
        parts.append(python)
        previous, at = kind, end
    if groups:
        raise BadPattern("parenthesis without its end", groups[-1])
    if previous == "nothing":
        raise BadPattern("empty expression", at)
    return PosixPattern("".join(parts), ambiguous, spans_lines)


def _bracket(source: str, begin: int) -> tuple[str, int]:
    """Translate the ``[...]`` at an offset; return it and the offset after it.

    A ``]`` at the beginning and a ``-`` at either end are literal. A backslash is literal too,
    and rejected before a letter as a probable mistake.
    """
    at = begin + 1
    inverse = r"^\n" if source.startswith("^", at) else ""
    at += bool(inverse)
    members = [f"\\{source[at]}"] if source.startswith(("]", "-"), at) else []
    at += len(members)
    while not source.startswith(("]", "-]"), at):
        if source.startswith("[:", at):
            known = _CLASS.match(source, at)
            if known is None or known[1] not in _CLASSES:
                raise BadPattern("unknown character class", at, f"known: {', '.join(_CLASSES)}")
            members.append(_CLASSES[known[1]])
            at = known.end()
            continue
        if source.startswith("-", at):
            raise BadPattern("a range without its beginning", at, "put - first or last")
        is_range = source.startswith("-", at + 1) and not source.startswith("-]", at + 1)
        for place in (at, at + 2) if is_range else (at,):
            character, following = source[place : place + 1], source[place + 1 : place + 2]
            if not character:
                raise BadPattern("bracket without its end", begin)
            if character == "[" and following in (".", "="):
                raise BadPattern(f"[{following} {following}] is not supported", place)
            if character == "\\" and following.isalnum():
                raise BadPattern("within brackets a backslash is literal", place, _INSTEAD.get(following, ""))
        if is_range and source[at + 2] < source[at]:
            raise BadPattern(f"the range {source[at]}-{source[at + 2]} is reversed", at + 3)
        members.append(f"{re.escape(source[at])}-{re.escape(source[at + 2])}" if is_range else re.escape(source[at]))
        at += 3 if is_range else 1
    if source.startswith("-", at):
        members.append("\\-")
        at += 1
    return f"[{inverse}{''.join(members)}]", at + 1
