"""Mistakes of the user as values: what kind of problem, where, and what it is about.

Their texts are in ``problem_texts``.
"""

import difflib
import re
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from torch_conformance.model.escaping import line
from torch_conformance.model.problem_texts import text_of

one_line = line
"""For text that may quote untrusted input."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Position:
    """A place in a file; line and column count from 1."""

    file: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


_NOWHERE = Position(file="")


class Severity(StrEnum):
    """What a problem means for the exit code."""

    ERROR = "error"
    WARNING = "warning"
    """Printed only; it does not change the exit code."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Diagnostic:
    """One problem of one file.

    Programs decide by its code; message and hint are for people and follow from the rest.
    """

    position: Position = _NOWHERE
    code: str
    arguments: tuple[tuple[str, str | int], ...] = ()
    """What the text of the code speaks of, by name: ``word``, ``near``."""
    severity: Severity = Severity.ERROR

    @classmethod
    def of(cls, code: str, **arguments: str | int) -> "Diagnostic":
        """Return a problem whose place is added later."""
        return cls(code=code, arguments=tuple(arguments.items()))

    def at(self, position: Position) -> "Diagnostic":
        """Return the problem at its place."""
        return replace(self, position=position)

    @property
    def message(self) -> str:
        """What was read, and why it is wrong."""
        return text_of(self.code, dict(self.arguments))[0]

    @property
    def hint(self) -> str:
        """What is allowed, or what to type; may be empty."""
        return text_of(self.code, dict(self.arguments))[1]

    def __str__(self) -> str:
        prefix = "warning: " if self.severity is Severity.WARNING else ""
        return one_line(
            f"{self.position}: {prefix}{self.message}" + (f" ({self.hint})" if self.hint else "")
        )


def errors(problems: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return the problems that make a file invalid."""
    return [problem for problem in problems if problem.severity is Severity.ERROR]


class UsageError(Exception):
    """The command line asks for something impossible; exit code 2."""


class JournalAltered(Exception):
    """A recorded file was changed during the run, by a case or another program; exit code 1."""


class InvalidSpecs(Exception):
    """At least one file is invalid. Carries all problems of all files; exit code 2."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(sorted(set(diagnostics)))
        super().__init__(f"{len(self.diagnostics)} problems")


# -- words that are in no table --------------------------------------------------------------------


def nearest(word: str, choices: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return the choice that a word resembles most; empty where it resembles none.

    A short form has the first letter and the number of one choice, as fp32 of float32.
    """
    names = list(choices)
    for near in difflib.get_close_matches(word, names, n=3, cutoff=cutoff):
        is_alike = difflib.SequenceMatcher(None, word, near).ratio() >= _ALIKE
        first, other = (name.rpartition(".")[2].lstrip("-")[:1] for name in (word, near))
        if is_alike or first == other:
            return near
    number = re.findall("[0-9]+", word)
    short = [name for name in names if number and re.findall("[0-9]+", name) == number]
    same_initial = [name for name in short if name[:1] == word[:1]]
    return same_initial[0] if len(same_initial) == 1 else ""


_ALIKE = 0.75


def odd_character(text: str) -> str:
    """Return which character of a text is not ASCII, as where a letter only looks like another one;
    empty where none is.
    """
    for place, char in enumerate(text, start=1):
        if not char.isascii():
            name = unicodedata.name(char, "without a name")
            return f"character {place} is U+{ord(char):04X}, {name}"
    return ""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` for the nearest of ``choices``, or an empty string."""
    near = nearest(word, choices)
    return f"did you mean '{near}'?" if near else ""


def one_of(choices: Iterable[str], *, limit: int = 12, near: str = "") -> str:
    """Return the allowed words as sorted text; of more than ``limit``, those most like ``near``."""
    words = sorted(choices)
    likest = words
    if near and len(words) > limit:
        likest = sorted(
            words,
            key=lambda word: -difflib.SequenceMatcher(None, near.lower(), word.lower()).ratio(),
        )
    shown = ", ".join(sorted(likest[:limit]))
    return shown + (f", ... ({len(words)} in all)" if len(words) > limit else "")


def unknown_word(
    what: str, word: str, choices: Iterable[str], *, cutoff: float = 0.6, **more: str
) -> Diagnostic:
    """Return the problem ``unknown-WHAT`` of a word that is not among the choices."""
    names = list(choices)
    near = nearest(word, names, cutoff=cutoff)
    shortened = word if len(word) <= _LONGEST else word[:_LONGEST] + "..."
    return Diagnostic.of(
        f"unknown-{what}",
        word=shortened,
        near=near,
        allowed="" if near else one_of(names, near=word),
        odd=odd_character(word),
        **more,
    )


def unknown(what: str, word: str, choices: Iterable[str]) -> tuple[str, str]:
    """Return message and hint for a word that is not among the choices."""
    problem = unknown_word(what, word, choices)
    return problem.message, problem.hint


def require_known(
    what: str, names: Iterable[str], choices: Collection[str], option: str = ""
) -> None:
    """Raise ``UsageError`` for a name of a command line, or of an option of it, that is not among
    the choices.
    """
    for name in names:
        if name not in choices:
            message, hint = unknown(what, name, choices)
            raise UsageError(f"{option and f'{option}: '}{message} ({hint})")


_LONGEST = 100


def shown_path(path: Path) -> str:
    """Return ``path`` for messages: relative to the working folder if it is below it."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):  # elsewhere, or the working folder is gone
        return str(path)
