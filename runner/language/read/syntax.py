"""Diagnostics for invalid YAML and invalid bytes: positions, hints, and messages without quotations."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from runner.core.diagnostics import Diagnostic, InvalidSpecs, Position, shown_path

_QUOTED = re.compile(r"'.*'|but found .*|byte 0x[0-9a-f]+|U\+[0-9A-F]+", re.DOTALL)


def unquoted(problem: Diagnostic) -> Diagnostic:
    """Return a problem without its quotations of the file. Messages of libyaml's C parser and all hints are fixed texts."""
    fixed = problem.message.startswith("YAML syntax: ") and hasattr(yaml, "CSafeLoader")
    message = problem.message if fixed else _QUOTED.sub("...", problem.message)
    return replace(problem, message=message)


def line_column(data: bytes, offset: int) -> tuple[int, int]:
    """Return line and column, from 1, of an offset in bytes."""
    start = data.rfind(b"\n", 0, offset) + 1
    return data.count(b"\n", 0, offset) + 1, len(data[start:offset].decode("utf-8", "replace")) + 1


def failure(path: Path, message: str, hint: str, line: int = 1, column: int = 1) -> InvalidSpecs:
    """Return the exception for one problem of a file."""
    position = Position(file=shown_path(path), line=line, column=column)
    return InvalidSpecs([Diagnostic(position=position, message=message, hint=hint)])


FOREIGN_BREAK = re.compile("[\x85\u2028\u2029]")


ESCAPES = {"\x85": r"\N", "\u2028": r"\L", "\u2029": r"\P"}


def place(text: str, offset: int) -> tuple[int, int]:
    """Return line and column, from 1, of an offset in characters."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def syntax_problem(file: str, text: str, error: yaml.YAMLError) -> Diagnostic:
    """Return the diagnostic of an error of PyYAML."""
    if isinstance(error, yaml.reader.ReaderError):
        return _reader_problem(file, text, error)
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    position = Position(file=file, line=line, column=column)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    if "tab" in problem.split() or ("cannot start any token" in problem and "\t" in _line(text, line)[column - 1 : column]):
        return Diagnostic(position=position, message="a tab cannot indent YAML", hint="use spaces")
    templated = "{{" in _line(text, line) or "{{" in _line(text, line - 1)
    return Diagnostic(position=position, message=f"YAML syntax: {problem}", hint=QUOTE if templated else _syntax_hint(problem, error))


QUOTE = 'put quotes around it: "{{ ... }}"'


_SYNTAX_HINTS = {
    "end of stream": "the quoted text from line {} has no closing quote",
    "',' or ']'": "the list from line {} has no ']', or a ',' is missing",
    "',' or '}'": "the map from line {} has no '}}', or a ',' is missing",
    "escape": "in double quotes a backslash begins an escape: write \\\\, or use single quotes",
    "comment or line break": "the text begins on the line below the | or >",
    "directive": "remove the line that begins with %",
    "mapping values": "check the indentation, and put quotes around a value that contains ': '",
    "alphabetic or numeric": "put quotes around a value that begins with * or &",
    "cannot start any token": "put quotes around a value that begins with a special character",
}
"""Hints by a part of libyaml's message. ``{}`` is the first line of the unclosed part."""


def _syntax_hint(problem: str, error: yaml.YAMLError) -> str:
    context = getattr(error, "context_mark", None)
    hint = next((hint for words, hint in _SYNTAX_HINTS.items() if words in problem), "check the indentation and the quotes")
    return hint.format(context.line + 1 if context else "?")


def _reader_problem(file: str, text: str, error: Any) -> Diagnostic:
    line, column = place(text, max(int(getattr(error, "position", 0)), 0))
    hint = "write it as an escape in a double-quoted string"
    return Diagnostic(position=Position(file=file, line=line, column=column), message="YAML syntax: a control character", hint=hint)


def _line(text: str, number: int) -> str:
    lines = text.split("\n")
    return lines[number - 1] if 1 <= number <= len(lines) else ""
