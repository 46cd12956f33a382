"""From paths to spec files: which files are specs, below which root, and which defaults each inherits."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.diagnostics import Diagnostic, InvalidSpecs, Position, UsageError
from runner.folders import folder
from runner.language import schema
from runner.language.source import Document, read, shown

DEFAULTS = "_defaults.yaml"
SUFFIXES = (".yaml", ".yml")
_NO_SPECS = ("backends", "waivers")
"""Names of files beside specs that are no specs."""

_PROJECT_MARKS = (".git", "pyproject.toml", "backends.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecPath:
    """A spec file and the folder below which its area is counted."""

    path: Path
    root: Path

    @property
    def area(self) -> str:
        """The folder below the root; empty at its top."""
        parent = self.path.parent.relative_to(self.root).as_posix()
        return "" if parent == "." else parent


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFile:
    """A spec as read: its document and the defaults that it inherits, the outermost first."""

    document: Document
    area: str
    name: str
    defaults: tuple[Document, ...] = ()


def discover(paths: Sequence[Path]) -> list[SpecPath]:
    """Return every spec file below the paths, the shipped specs when there are none; raise ``InvalidSpecs`` or ``UsageError``.

    A file below the shipped specs has the same area however its path was given, so that its id never changes.
    """
    shipped = folder("specs").resolve()
    found: dict[Path, SpecPath] = {}
    problems: list[Diagnostic] = []
    for path in paths or [shipped]:
        if not path.exists():
            raise UsageError(f"no such file or folder: {path}")
        absolute = path.absolute()
        inside = absolute.resolve().is_relative_to(shipped)
        root = shipped if inside else absolute if path.is_dir() else absolute.parent
        place = absolute.resolve() if inside else absolute
        files = list(_walk(place, (), problems)) if path.is_dir() else [place]
        if path.is_dir() and not files and not problems:
            raise UsageError(f"no spec below {path}: specs are files that end in .yaml")
        found.update({file: SpecPath(path=file, root=root) for file in files})
    if problems:
        raise InvalidSpecs(problems)
    return list(found.values())


def _walk(directory: Path, above: tuple[Path, ...], problems: list[Diagnostic]) -> Iterator[Path]:
    real = directory.resolve()
    if real in above:
        position = Position(file=shown(directory))
        problems.append(Diagnostic(position=position, message="this folder is a link to one above it", hint="remove the link"))
        return
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError as error:
        position = Position(file=shown(directory))
        problems.append(Diagnostic(position=position, message=f"cannot be read: {error.strerror}", hint="check its permissions"))
        return
    for entry in entries:
        path = directory / entry.name
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir():
            yield from _walk(path, (*above, real), problems)
        elif path.suffix in SUFFIXES and path.stem not in _NO_SPECS:
            yield path


@dataclass
class DefaultsReader:
    """Reads each defaults file once and collects what is wrong with them."""

    problems: list[Diagnostic] = field(default_factory=list)
    _read: dict[Path, Document | None] = field(default_factory=dict)
    _chains: dict[Path, tuple[Document, ...]] = field(default_factory=dict)

    def of(self, spec: SpecPath) -> tuple[Document, ...]:
        """Return the defaults of a spec, the outermost folder's first, each after what it extends."""
        directory = spec.path.parent
        if directory not in self._chains:
            chain: list[Document] = []
            for above in reversed(list(_folders(directory, spec.root))):
                if (above / DEFAULTS).exists():
                    self._add(above / DEFAULTS, (), chain)
            self._chains[directory] = tuple(chain)
        return self._chains[directory]

    def _add(self, path: Path, through: tuple[Path, ...], chain: list[Document]) -> None:
        document = self._document(path)
        if document is None or document in chain:
            return
        base = document.data.get("extends")
        if base is not None:
            target = (path.parent / base).resolve()
            walked = (*through, path.resolve())
            if target in walked:
                loop = " -> ".join(shown(step) for step in (*walked, target))
                self._problem(document.problem(("extends",), f"defaults that loop: {loop}", "remove one of the extends"))
            elif not target.is_file():
                self._problem(document.problem(("extends",), f"no such file: {base}", "the path is relative to this file"))
            else:
                self._add(target, walked, chain)
        chain.append(document)

    def _document(self, path: Path) -> Document | None:
        path = path.resolve()
        if path not in self._read:
            self._read[path] = None
            try:
                document = read(path)
            except InvalidSpecs as error:
                self.problems.extend(error.diagnostics)
                return None
            found = schema.problems(document, "defaults")
            self.problems.extend(found)
            self._read[path] = None if found else document
        return self._read[path]

    def _problem(self, problem: Diagnostic) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def _folders(directory: Path, root: Path) -> Iterator[Path]:
    """Yield the folders whose defaults hold in ``directory``, innermost first.

    They end at the folder of a project (one with .git, pyproject.toml or backends.yaml), so that it does not matter which
    path was given; outside of any, at the root that was given: a stranger's file further up must not be taken.
    """
    chain = [directory, *directory.parents]
    marked = next((index for index, place in enumerate(chain) if any((place / mark).exists() for mark in _PROJECT_MARKS)), None)
    last = marked if marked is not None else chain.index(root)
    yield from chain[: last + 1]
