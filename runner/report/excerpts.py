"""The lines of a spec around a position, with line numbers and a caret, as a compiler shows them.

A file is shown only if it is the one that the run read: it may have been saved since, and a case may have replaced it.
"""

import hashlib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from runner.machine.redaction import redacted
from runner.machine.scratch import open_untrusted
from runner.model.diagnostics import Position
from runner.model.escaping import line as escaped

Source: TypeAlias = Callable[[Position], Sequence[str]]
"""Returns the lines to show for a position; none where there is nothing to show."""

WIDTH = 120
"""Columns of a shown line, without its number; the rest is cut."""

_LARGEST = 4 << 20
_MARK = "..."


def no_source(position: Position) -> Sequence[str]:
    """Show nothing."""
    return ()


class Excerpts:
    """Shows positions in files whose digests are known (``Source``)."""

    def __init__(self, digests: Mapping[str, str], width: int = WIDTH) -> None:
        self._digests = digests
        self._width = width
        self._read: dict[str, Sequence[str]] = {}

    def __call__(self, position: Position) -> Sequence[str]:
        """Return the line of a position, the line above it, and a caret."""
        if position.file not in self._read:
            self._read[position.file] = self._lines(position.file)
        lines = self._read[position.file]
        if (position.line, position.column) == (1, 1) or not 0 < position.line <= len(lines):
            return ()
        return excerpt(lines, position.line, position.column, self._width)

    def _lines(self, file: str) -> Sequence[str]:
        digest = self._digests.get(file)
        if digest is None:
            return ()
        try:
            with open_untrusted(Path(file)) as stream:
                data = stream.read(_LARGEST)
        except (OSError, ValueError):
            return ()
        return data.decode("utf-8-sig", "replace").split("\n") if hashlib.sha256(data).hexdigest() == digest else ()


def excerpt(lines: Sequence[str], line: int, column: int, width: int = WIDTH) -> list[str]:
    """Return the numbered line, the line above it, and a line with a caret under the column. Nothing in it drives a terminal."""
    digits = max(len(str(line)), 4)
    text = lines[line - 1].rstrip("\r")
    before, after = _shown(text[: column - 1]), _shown(text[column - 1 :])
    if columns(before) > width - width // 4:  # the caret stays visible
        before = _MARK + cut_to(before[::-1], width // 2)[::-1]
    shown = _fitted(before + after, width)
    above = [f" {line - 1:{digits}} | {_fitted(_shown(lines[line - 2]), width)}".rstrip()] if line > 1 else []
    return [*above, f" {line:{digits}} | {shown}".rstrip(), f" {'':{digits}} | {' ' * columns(before)}^"]


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: East Asian wide characters take two, marks that combine none."""
    return sum(0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _shown(text: str) -> str:
    return redacted(escaped(text))


def _fitted(text: str, width: int) -> str:
    return text if columns(text) <= width else cut_to(text, width - len(_MARK)) + _MARK


def cut_to(text: str, width: int) -> str:
    """Return the beginning of a text that takes at most ``width`` columns."""
    used = 0
    for index, char in enumerate(text):
        used += columns(char)
        if used > width:
            return text[:index]
    return text
