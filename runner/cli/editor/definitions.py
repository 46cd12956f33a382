"""Where the prelude defines a name: in the buffer, or in the defaults of its folder and of those above."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.cli.editor.problems import units
from runner.core.diagnostics import InvalidSpecs
from runner.language.read.files import DEFAULTS
from runner.language.read.source import read_bytes
from runner.language.read.tree import is_project


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The place of a definition: line and column from 0, the column in UTF-16 units."""

    name: str
    path: Path
    line: int
    column: int


def definition_of(word: str, path: Path, lines: Sequence[str]) -> Definition | None:
    """Return where a name of Python, or the first part of a dotted one, is defined."""
    name = word.partition(".")[0]
    if not name.isidentifier():
        return None
    found = _in(name, path, lines)
    for folder in path.parents:
        if found is not None:
            return found
        file = folder / DEFAULTS
        if file != path and file.is_file():
            found = _in(name, file, _lines(file))
        if is_project(folder):
            break
    return found


def _in(name: str, path: Path, lines: Sequence[str]) -> Definition | None:
    pattern = re.compile(rf"^\s*(?:(?:def|class)\s+(?P<made>{name})\b|(?P<assigned>{name})\s*(?:=(?!=)|:\s))")
    found: Definition | None = None
    for number, line in enumerate(lines):
        match = pattern.match(line[:1000])
        if match is None:
            continue
        column = units(line[: match.start("made") if match.group("made") else match.start("assigned")])
        place = Definition(name=name, path=path, line=number, column=column)
        if match.group("made"):
            return place
        found = found or place
    return found


def _lines(file: Path) -> list[str]:
    try:
        return read_bytes(file).decode("utf-8", "replace").split("\n")
    except InvalidSpecs:
        return []
