"""LLVM FileCheck: which lines a text must contain, in which order, and which it must not contain.

``parse`` turns the lines of ``checks`` into directives and rejects probable typing errors; ``run`` matches them against a text. Both are
pure: they print nothing and touch no files.

The ``filecheck`` package supplies the parts of a pattern (``ops``) and compiles them to a regular expression (``compiler``). Its parser and
its matcher are not used. The parser skips unknown lines. The matcher prints, ends the region of a CHECK-NOT after the next match instead of
before it, ignores the last character, and accepts a CHECK-NEXT on the line of the previous match. None of this can be switched off.

Verdicts are LLVM's. Errors here, although LLVM accepts them: only CHECK-NOTs, patterns that match any text, variables that may be empty or
are used before their definition, numeric substitution, ``\\d`` etc., ``.*`` outside of ``{{ }}``, a ``}}`` without its ``{{``,
two directives on one line, and a line without a directive.
"""

from collections.abc import Sequence

from runner.model.matching.filecheck.directives import CheckFile, ChecksError, Directive, Kind, canonical
from runner.model.matching.filecheck.explaining import TAB, CheckOutcome, describe
from runner.model.matching.filecheck.matching import Matcher
from runner.model.matching.filecheck.reading import parse

__all__ = ["CheckFile", "CheckOutcome", "ChecksError", "Directive", "EmptyText", "Kind", "parse", "passes", "run"]


class EmptyText(Exception):
    """The text is blank, so a verdict about it would be vacuous."""


def passes(checks: CheckFile, text: str, *, seconds: float = 5.0) -> bool:
    """Whether the directives match a text: the verdict of ``run`` alone, without the search for an explanation. The same errors."""
    return _matcher(text).run(checks, seconds) is None


def run(checks: CheckFile, text: str, *, seconds: float = 5.0, numbers: Sequence[int] = ()) -> CheckOutcome:
    """Match a text; raise ``EmptyText`` for a blank text and ``PatternTooSlow`` after ``seconds``.

    ``numbers`` are the line numbers to show, if the text is a part of another one. The time limit works only in the main thread.
    """
    matcher = _matcher(text)
    mismatch = matcher.run(checks, seconds)
    if mismatch is None:
        return CheckOutcome(passed=True)
    return describe(mismatch, matcher, text.replace("\r\n", "\n").expandtabs(TAB).rstrip("\n").split("\n"), numbers)


def _matcher(text: str) -> Matcher:
    if not text.strip():
        raise EmptyText("the text is blank")
    return Matcher(text=canonical(text.replace("\r\n", "\n")))
