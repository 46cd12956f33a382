"""The problems of a file as an editor shows it: those of ``validate``, at the same positions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from runner.core.diagnostics import Diagnostic, InvalidSpecs, Severity, UsageError, shown_path
from runner.language.load import inspect_buffer
from runner.language.read.files import DEFAULTS
from runner.language.read.kinds import DEFAULTS as KIND
from runner.language.read.schema import form_problems
from runner.language.read.source import BUFFERS, read_partly

OTHERS = frozenset(["backends", "waivers"])
"""Names of files beside specs that are not specs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem with its place in the text: line and column from 0, the column in UTF-16 units, as editors count."""

    line: int
    start: int
    end: int
    message: str
    is_error: bool


def problems_of(path: Path, text: str, backends: Sequence[Path] = (), others: Mapping[Path, str] = MappingProxyType({})) -> list[Problem]:
    """Return the problems of a file whose content is ``text``. The file on the disk is not read and need not exist.

    ``others`` are further files that the editor shows, by their absolute paths: a spec inherits from them as they are there.
    """
    content = _encoded(text)
    token = BUFFERS.set({other: _encoded(shown) for other, shown in others.items()})
    try:
        found = _of_defaults(path, content) if path.name == DEFAULTS else list(inspect_buffer(path, content, backends).problems)
    except InvalidSpecs as error:
        found = list(error.diagnostics)
    except UsageError as error:
        return [Problem(line=0, start=0, end=1, message=str(error), is_error=True)]
    finally:
        BUFFERS.reset(token)
    lines = text.split("\n")
    return [_placed(problem, lines, shown_path(path)) for problem in sorted(set(found))]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def is_spec(path: Path) -> bool:
    """Whether a file is one that ``validate`` reads as a spec or as defaults."""
    return path.suffix in (".yaml", ".yml") and path.stem not in OTHERS and path.parent.name != "profiles"


def _of_defaults(path: Path, content: bytes) -> list[Diagnostic]:
    token = BUFFERS.set({**BUFFERS.get(), path.absolute(): content})
    try:
        return form_problems(read_partly(path, KIND), KIND)
    finally:
        BUFFERS.reset(token)


def _placed(problem: Diagnostic, lines: Sequence[str], file: str) -> Problem:
    said = problem.message + (f" ({problem.hint})" if problem.hint else "")
    is_error = problem.severity is Severity.ERROR
    if problem.position.file != file:
        return Problem(line=0, start=0, end=1, message=f"{problem.position}: {said}", is_error=is_error)
    number = min(max(problem.position.line - 1, 0), max(len(lines) - 1, 0))
    line = lines[number] if lines else ""
    column = min(max(problem.position.column - 1, 0), len(line))
    word = len(line[column:].split(" ", 1)[0].rstrip("\r,]}")) or 1
    return Problem(line=number, start=units(line[:column]), end=units(line[: column + word]), message=said, is_error=is_error)


def units(text: str) -> int:
    """Return the length of a text in UTF-16 units."""
    return len(text) + sum(ord(char) > 0xFFFF for char in text)


def characters(line: str, wanted: int) -> int:
    """Return the index in a line of a place that is given in UTF-16 units."""
    passed = 0
    for index, char in enumerate(line):
        if passed >= wanted:
            return index
        passed += 2 if ord(char) > 0xFFFF else 1
    return len(line)
