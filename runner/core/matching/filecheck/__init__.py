"""LLVM's FileCheck over a text: what stands in it, in which order, and what may not.

``parse`` turns the lines of ``checks`` into directives and refuses whatever a person may have mistyped; ``run`` judges
a text by them. Both are pure: nothing is printed, and no file is read or written.

The ``filecheck`` package gives the parts of a pattern (``ops``) and makes an expression of them (``compiler``). Its parser
and its matcher are not used. The parser skips what it does not know. The matcher prints, ends the region of a
CHECK-NOT after the next match instead of before it, never looks at the last character, and lets CHECK-NEXT pass over a
match on the same line; each is woven into the whole.

Verdicts are LLVM's. What LLVM takes but a person hardly means is an error here: CHECK-NOTs alone, patterns that any text
satisfies, variables that may be empty or are used before they are defined, numeric substitution, ``\\d`` and its like,
``.*`` outside of ``{{ }}``, a ``}}`` without its ``{{``, two directives on one line, a line that is no directive.
"""

from collections.abc import Sequence

from runner.core.matching.filecheck.directives import CheckFile, ChecksError, Directive, Kind
from runner.core.matching.filecheck.explaining import TAB, CheckOutcome, describe
from runner.core.matching.filecheck.expressions import canonical
from runner.core.matching.filecheck.matching import Matcher, Mismatch
from runner.core.matching.filecheck.reading import parse
from runner.core.matching.time_limit import time_limit

__all__ = ["CheckFile", "CheckOutcome", "ChecksError", "Directive", "EmptyText", "Kind", "directives", "parse", "run"]


class EmptyText(Exception):
    """The text holds nothing but blanks: a verdict about it would be vacuous."""


def directives(checkfile: CheckFile) -> tuple[Directive, ...]:
    """Return the directives in the order of their lines."""
    return checkfile.directives


def run(checkfile: CheckFile, text: str, *, seconds: float = 5.0, numbers: Sequence[int] = ()) -> CheckOutcome:
    """Judge a text; raise ``EmptyText`` for one without content and ``PatternTooSlow`` when time runs out.

    ``numbers`` are those by which its lines are shown, where it is a part of another text. Like every time limit it works in the main
    thread only.
    """
    if not text.strip():
        raise EmptyText("there is no text to look at")
    original = text.replace("\r\n", "\n")
    matcher = Matcher(text=canonical(original))
    try:
        with time_limit(seconds):
            matcher.run(checkfile.directives)
    except Mismatch as mismatch:
        return describe(mismatch, matcher, original.expandtabs(TAB).rstrip("\n").split("\n"), numbers)
    return CheckOutcome(held=True)
