"""The directives of FileCheck as values, and the mistakes that a person can make in them."""

from dataclasses import dataclass
from enum import Enum

from filecheck.ops import UOp


class ChecksError(Exception):
    """A line of ``checks`` that is wrong; line and column count from 1."""

    def __init__(self, line: int, column: int, message: str, hint: str = "") -> None:
        super().__init__(f"{line}:{column}: {message}" + (f" ({hint})" if hint else ""))
        self.line = line
        self.column = column
        self.message = message
        self.hint = hint


class Kind(Enum):
    """The directives, by the word that a person writes."""

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
    """Where the pattern begins; line and column count from 1."""
    literal: bool
    count: int
    """How often it must match: 1 but for CHECK-COUNT."""
    parts: tuple[UOp, ...]
    ambiguous: bool
    spans_lines: bool

    @property
    def positive(self) -> bool:
        """Whether it asks for something, rather than forbidding it."""
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
"""Directives that do not move the place from which the next one looks; LLVM does not count them as a previous match."""
