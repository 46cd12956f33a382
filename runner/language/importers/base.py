"""What an importer reads of a list of known failures of another project."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.core.diagnostics import Position
from runner.core.protocol import Json

_ISSUE = re.compile(r"https?://[^\s/]+/[^\s)\]},;'\"]+|\b[A-Z][A-Z0-9]{1,15}-[0-9]{1,9}\b|(?<![\w&])#[0-9]{1,9}\b")

MOST_ENTRIES = 20_000
"""The most entries that are read of one file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """One known failure of another project, with every field that it had."""

    fields: Mapping[str, Json]
    position: Position
    tests: tuple[str, ...] = ()
    """Names of upstream tests; empty for a form that names none."""
    when: Mapping[str, Json] = field(default_factory=dict)
    """The part of its condition that a waiver can say."""
    unsaid: str = ""
    """The part of its condition that a waiver cannot say; empty for none."""
    reason: str = ""
    comment: str = ""
    """Comments that stand with the entry, without their marks."""

    @property
    def issue(self) -> str:
        """The first link or ticket in its reason or comment; empty for none."""
        found = _ISSUE.search(f"{self.comment} {self.reason}")
        return found[0].rstrip(".") if found else ""


def comment_above(lines: list[str], line: int) -> str:
    """Return the comments of an entry that begins on a line (from 1): those above it without a gap, and that at the end of the line."""
    above: list[str] = []
    for text in reversed(lines[: line - 1]):
        if not text.strip().startswith("#"):
            break
        above.append(text.strip().lstrip("#").strip())
    after = re.search(r"\s#\s*(.*)$", lines[line - 1]) if 0 < line <= len(lines) else None
    return " ".join([*reversed(above), *([after[1].strip()] if after else [])])
