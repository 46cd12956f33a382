"""The directives of FileCheck as values, the error for invalid ``checks``, and the regular expression of a directive.

The parts of a pattern and their compiler are those of the ``filecheck`` package.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from filecheck.compiler import compile_uops
from filecheck.ops import RE, Capture, CheckOp, Literal, Subst, UOp
from filecheck.options import Options

_OPTIONS = Options(match_filename="", strict_whitespace=True)
"""Options for the library. Blanks are normalised here, before the library gets the text."""
_EMPTY_LINE = re.compile(r"\n$", re.MULTILINE)
_RUN_OF_BLANKS = re.compile(r"[ \t]{2,}|\t")


class ChecksError(Exception):
    """An invalid line of ``checks``; line and column count from 1."""

    def __init__(self, line: int, column: int, message: str, hint: str = "") -> None:
        super().__init__(f"{line}:{column}: {message}" + (f" ({hint})" if hint else ""))
        self.line = line
        self.column = column
        self.message = message
        self.hint = hint


class Kind(Enum):
    """The kinds of directives, by the word in the text."""

    CHECK = "CHECK"
    NEXT = "CHECK-NEXT"
    SAME = "CHECK-SAME"
    NOT = "CHECK-NOT"
    DAG = "CHECK-DAG"
    LABEL = "CHECK-LABEL"
    EMPTY = "CHECK-EMPTY"
    COUNT = "CHECK-COUNT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Directive:
    """One line of ``checks``."""

    kind: Kind
    pattern: str
    """As written, without the blanks around it."""
    line: int
    column: int
    """The start of the pattern; line and column count from 1."""
    literal: bool
    count: int
    """The required number of matches; 1 except for CHECK-COUNT."""
    parts: tuple[UOp, ...]
    ambiguous: bool
    spans_lines: bool

    def __str__(self) -> str:
        count = f"-{self.count}" if self.kind is Kind.COUNT else ""
        return f"{self.kind.value}{count}{'{LITERAL}' if self.literal else ''}: {self.pattern}".rstrip()


CheckFile = tuple[Directive, ...]
"""Parsed ``checks``, in line order."""

ADJACENT = (Kind.NEXT, Kind.SAME, Kind.EMPTY)
FLOATING = (Kind.DAG, Kind.NOT)
"""Directives that do not move the start of the next search. LLVM does not count them as a previous match."""


def canonical(text: str) -> str:
    """Replace each run of blanks by one space, as FileCheck does in checks and text."""
    return _RUN_OF_BLANKS.sub(" ", text)


def compile_pattern(directive: Directive, variables: Mapping[str, str]) -> re.Pattern[str]:
    """Compile a directive, with its variables replaced by text or by named groups.

    The library is given no variables: it finds its captures by counting parentheses, and counts wrong.
    """
    if directive.kind is Kind.EMPTY:
        return _EMPTY_LINE
    parts = list(without_variables(directive.parts, variables))
    return compile_uops(CheckOp("CHECK", "CHECK", directive.pattern, directive.line, parts), {}, _OPTIONS)[0]


def without_variables(parts: Iterable[UOp], variables: Mapping[str, str]) -> Iterator[UOp]:
    """Yield the parts with each variable as its text, or as a named group where it is defined."""
    names: set[str] = set()
    for part in parts:
        match part:
            case Capture(name=name, pattern=pattern):
                names.add(name)
                yield RE(f"(?P<{group_name(name)}>{pattern})")
            case Subst(variable=name) if name in names:
                yield RE(f"(?P={group_name(name)})")
            case Subst(variable=name):
                yield Literal(variables[name])
            case _:
                yield part


def group_name(variable: str) -> str:
    """Return the name of the group of a variable. A variable may begin with a dollar sign."""
    return f"global_{variable[1:]}" if variable.startswith("$") else f"local_{variable}"
