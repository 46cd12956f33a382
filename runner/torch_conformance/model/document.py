"""A parsed YAML file as a value: its data, and the position of every key and value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch_conformance.model.diagnostics import Diagnostic, Position
from torch_conformance.model.protocol import Json

DataPath = tuple[str | int, ...]


class Mark(NamedTuple):
    """The position of a value (line and column from 1) and, for a scalar, its text and style in the
    file.
    """

    line: int
    column: int
    raw: str | None = None
    style: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Document:
    """A YAML file as data, compared by identity.

    ``marks`` and ``key_marks`` are keyed by the path of keys and indices to a value.
    """

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
    origins: Mapping[DataPath, tuple["Document", DataPath]] = field(default_factory=dict)
    """Where parts of ``data`` were read, of those that this file does not have at their paths."""
    rows: tuple["Document", ...] = ()
    """The files of rows that this file names: ``data`` has what they hold."""
    is_whole: bool = True
    """False if the file could be parsed only in part: ``data`` has the complete top-level keys
    before that place.
    """

    @property
    def digest(self) -> str:
        """The sha256 of the file."""
        import hashlib

        return hashlib.sha256(self.content).hexdigest()

    def position(self, path: DataPath, *, key: bool = False) -> Position:
        """Return the position of ``path``, or of the nearest enclosing value if it has none."""
        source, place = self.origin(path)
        if source is not self:
            return source.position(place, key=key)
        for end in range(len(path), -1, -1):
            table = self.key_marks if key and end == len(path) else self.marks
            if (mark := table.get(path[:end]) or self.marks.get(path[:end])) is not None:
                return Position(file=self.file, line=mark.line, column=mark.column)
        return Position(file=self.file)

    def origin(self, path: DataPath) -> tuple["Document", DataPath]:
        """Return the file that the value at ``path`` was read from, and its path there."""
        for end in range(len(path), 0, -1) if self.origins else ():
            if (origin := self.origins.get(path[:end])) is not None:
                return origin[0], (*origin[1], *path[end:])
        return self, path

    def value(self, path: DataPath) -> Json:
        """Return the value at ``path``."""
        value = self.data
        for key in path:
            value = value[key]
        return value

    def diagnostic(
        self,
        path: DataPath,
        problem: Diagnostic | str,
        /,
        *,
        key: bool = False,
        **arguments: str | int,
    ) -> Diagnostic:
        """Return a problem, or that of a code, at ``path`` (at its key when ``key``)."""
        unplaced = Diagnostic.of(problem, **arguments) if isinstance(problem, str) else problem
        return unplaced.at(self.position(path, key=key))

    def problem(
        self,
        path: DataPath,
        message: str,
        hint: str = "",
        *,
        key: bool = False,
        code: str = "meaning",
    ) -> Diagnostic:
        """Return a problem whose text is that of another part of the program, as ``diagnostic``
        does.
        """
        return self.diagnostic(path, code, key=key, message=message, hint=hint)
