"""The Python files of a torch, in a folder or in a wheel."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runner.core.diagnostics import UsageError

VERSION_FILE = "version.py"
_OF_TORCH = "_inductor/config.py"
"""A file that distinguishes torch's package from other folders with a version.py."""


class Source(Protocol):
    """Torch's Python files, by their paths below the package ``torch``."""

    @property
    def label(self) -> str:
        """The name in messages."""

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes; None if there is no such file."""

    def below(self, folder: str) -> Iterator[str]:
        """Yield the Python files of a folder and its subfolders."""


@dataclass(frozen=True, slots=True)
class Folder:
    """An installed torch, or a checkout."""

    root: Path
    label: str

    def read(self, path: str) -> bytes | None:
        file = self.root / path
        return file.read_bytes() if file.is_file() else None

    def below(self, folder: str) -> Iterator[str]:
        return (file.relative_to(self.root).as_posix() for file in sorted((self.root / folder).rglob("*.py")))


class Wheel:
    """A wheel, or any zip archive with ``torch/`` in it."""

    def __init__(self, path: Path) -> None:
        import zipfile  # only the generator of tables needs it

        self.label = path.name
        try:
            self._archive = zipfile.ZipFile(path)
        except zipfile.BadZipFile as problem:
            raise UsageError(f"{path} is not a wheel: {problem}") from problem
        self._names = sorted(self._archive.namelist())

    def read(self, path: str) -> bytes | None:
        try:
            return self._archive.read(f"torch/{path}")
        except KeyError:
            return None

    def below(self, folder: str) -> Iterator[str]:
        prefix = f"torch/{folder}/"
        return (name.removeprefix("torch/") for name in self._names if name.startswith(prefix) and name.endswith(".py"))


def open_source(path: Path) -> Source:
    """Return the torch in ``path``: its package folder, the parent of that folder, or a wheel."""
    if path.is_file():
        return Wheel(path)
    for root in (path, path / "torch"):
        if (root / VERSION_FILE).is_file() and (root / _OF_TORCH).is_file():
            return Folder(root, root.name)
    raise UsageError(f"{path} contains no torch: {VERSION_FILE} or {_OF_TORCH} is missing")


def read(source: Source, path: str) -> bytes:
    """Return the bytes of a file that every torch has; raise ``UsageError`` if it is missing."""
    text = source.read(path)
    if text is None:
        raise UsageError(f"{source.label} has no torch/{path}")
    return text


def parse(source: Source, path: str) -> ast.Module:
    """Return the syntax tree of a file that every torch has; raise ``UsageError`` if it cannot be parsed."""
    try:
        return ast.parse(read(source, path))
    except SyntaxError as problem:
        raise UsageError(f"torch/{path} of {source.label} is not valid for this Python version: {problem}") from problem


_HOLDERS = (ast.stmt, ast.ExceptHandler, ast.match_case)


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a tree at every depth. Expressions hold none, and are most of a tree: they are not walked."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, _HOLDERS):
            yield from statements(node)
