"""The directives of FileCheck as values, and the error for invalid ``checks``."""

from dataclasses import dataclass
from enum import Enum

from filecheck.ops import UOp


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

    @property
    def positive(self) -> bool:
        """Whether the directive requires a match instead of forbidding it."""
        return self.kind is not Kind.NOT

    def __str__(self) -> str:
        count = f"-{self.count}" if self.kind is Kind.COUNT else ""
        return f"{self.kind.value}{count}{'{LITERAL}' if self.literal else ''}: {self.pattern}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFile:
    """Parsed ``checks``."""

    directives: tuple[Directive, ...]


ADJACENT = (Kind.NEXT, Kind.SAME, Kind.EMPTY)
FLOATING = (Kind.DAG, Kind.NOT)
"""Directives that do not move the start of the next search. LLVM does not count them as a previous match."""
