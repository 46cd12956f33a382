"""A parsed YAML file: its data, and the position of every key and value."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.core.diagnostics import Diagnostic, Position

DataPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """The position of a value (line and column from 1) and, for a scalar, its text and style in the file."""

    line: int
    column: int
    raw: str | None = None
    style: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A YAML file as data. ``marks`` and ``key_marks`` are keyed by the path of keys and indices to a value."""

    path: Path
    file: str
    data: Any
    marks: dict[DataPath, Mark]
    key_marks: dict[DataPath, Mark]
    content: bytes = b""
    """The file's bytes."""
    problems: tuple[Diagnostic, ...] = ()
    """Parts that could not be read; ``data`` is the rest."""
    unread: tuple[DataPath, ...] = ()
    """Paths of values that could not be read."""
    is_whole: bool = True
    """False if the file could be parsed only in part: ``data`` has the complete top-level keys before that place."""

    @property
    def digest(self) -> str:
        """The sha256 of the file."""
        import hashlib

        return hashlib.sha256(self.content).hexdigest()

    def position(self, path: DataPath, *, key: bool = False) -> Position:
        """Return the position of ``path``, or of the nearest enclosing value if it has none."""
        for end in range(len(path), -1, -1):
            table = self.key_marks if key and end == len(path) else self.marks
            mark = table.get(path[:end]) or self.marks.get(path[:end])
            if mark is not None:
                return Position(file=self.file, line=mark.line, column=mark.column)
        return Position(file=self.file)

    def value(self, path: DataPath) -> Any:
        """Return the value at ``path``."""
        value = self.data
        for key in path:
            value = value[key]
        return value

    def problem(self, path: DataPath, message: str, hint: str = "", *, key: bool = False, code: str = "meaning") -> Diagnostic:
        """Return a diagnostic at ``path`` (at its key when ``key``)."""
        return Diagnostic(position=self.position(path, key=key), message=message, hint=hint, code=code)
