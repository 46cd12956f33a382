"""Finds spec files: which files are specs, their root, the defaults that they inherit, and the tree
of files that may be read.

The tree is the project of a path (the nearest folder above it with ``.git``, else with
``pyproject.toml``, else with ``backends.yaml``). Outside of a project it is the path's own folder.
Files that are installed with the package are trusted.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch_conformance.language.read.document import DEFAULTS as DEFAULTS_KIND
from torch_conformance.language.read.document import PROFILE
from torch_conformance.language.read.spec_schema import read_formed
from torch_conformance.language.read.yaml_source import read_bytes
from torch_conformance.machine.cache_dirs import folder
from torch_conformance.model.diagnostics import (
    Diagnostic,
    InvalidSpecs,
    Position,
    UsageError,
    one_line,
    shown_path,
)
from torch_conformance.model.document import Document
from torch_conformance.model.values import frozen

MARKS = (".git", "pyproject.toml", "backends.yaml")
"""Files that mark the folder of a project, the strongest mark first."""


def tree_of(root: Path) -> Path | None:
    """Return the folder, without links, whose files may be read for those of ``root``; None if all
    files are trusted.
    """
    real = Path(os.path.realpath(root))
    if real.is_relative_to(shipped := folder("specs").resolve()) and shipped.parent.name == "_data":
        return None
    above = [place for place in (real, *real.parents) if _may_be_project(place)]
    return next((place for mark in MARKS for place in above if os.path.exists(place / mark)), real)


def _may_be_project(place: Path) -> bool:
    """Whether a folder may be the root of a project.

    The home folder and the root of the file system never are.
    """
    return place != place.parent and str(place) != os.path.realpath(os.path.expanduser("~"))


def is_within(path: Path, tree: Path | None) -> bool:
    """Whether a path, links followed, lies in a tree."""
    return tree is None or Path(os.path.realpath(path)).is_relative_to(tree)


def _refusal(path: Path, tree: Path | None, what: str) -> Diagnostic:
    """Return the problem of a path that leads out of a tree, without the target, because the link
    may belong to another user.
    """
    unplaced = Diagnostic.of("link-out-of-the-tree", what=what, tree=shown_path(tree or path))
    return unplaced.at(Position(file=shown_path(path)))


def link_problem(path: Path, root: Path) -> Diagnostic | None:
    """Return a problem for a file that is a link out of the tree of ``root``."""
    if not os.path.islink(path) or is_within(path, tree := tree_of(root)):
        return None
    return _refusal(path, tree, "file")


# -- specs and their defaults ----------------------------------------------------------------------


DEFAULTS = "_defaults.yaml"
SUFFIXES = (".yaml", ".yml")
_NO_SPECS = ("backends", "claims", "expected", "waivers", "conformance")
"""Names of files in folders of specs that are not specs."""
_PROFILES = "profiles"
"""The name of the folders of profiles. Any other file in such a folder is read as a spec."""
_MEANT_IN_IDS = "][*?,=%"
"""Characters with a meaning in an id or in a glob over ids."""


@frozen
class SpecPath:
    """A spec file and the root of its area."""

    path: Path
    root: Path

    @property
    def area(self) -> str:
        """The folder below the root; empty for the root."""
        parent = self.path.parent.relative_to(self.root).as_posix()
        return "" if parent == "." else parent


def discover(paths: Sequence[Path], problems: list[Diagnostic]) -> list[SpecPath]:
    """Return the spec files below the paths, or the shipped specs without paths; raise
    ``UsageError`` for a path without specs.

    Unreadable folders and names that are invalid in an id become problems. A shipped spec has the
    same area for every path that leads to it, so that its id never changes.
    """
    shipped = folder("specs").resolve()
    specs: dict[
        str, SpecPath
    ] = {}  # by text: the hash of a path takes longer than everything else here
    before = len(problems)
    for path in paths or [shipped]:
        path_text = one_line(str(path))
        try:
            is_there, is_file = path.exists(), path.is_file()
        except OSError as error:
            raise UsageError(f"cannot access {path_text}: {error.strerror}") from error
        if not is_there:
            raise UsageError(f"no such file or folder: {path_text}")
        if is_file and path.name == DEFAULTS:
            raise UsageError(f"{path_text} contains defaults and is not a spec: name its folder")
        if is_file and path.stem in _NO_SPECS:
            use = (
                "a run in its folder reads it"
                if path.stem == "conformance"
                else f"use --{path.stem} for such files"
            )
            raise UsageError(f"{path_text} is not a spec; {use}")
        if is_file and path.suffix in SUFFIXES and _is_profile(path):
            raise UsageError(f"{path_text} is a profile and not a spec; use --profile {path_text}")
        absolute = Path(os.path.abspath(path))
        inside = absolute.resolve().is_relative_to(shipped)
        root = shipped if inside else absolute if path.is_dir() else absolute.parent
        place = absolute.resolve() if inside else absolute
        files = list(_walk(place, (), tree_of(root), problems)) if path.is_dir() else [place]
        if path.is_dir() and not files and len(problems) == before:
            raise UsageError(f"no spec below {path}: specs are files that end in .yaml")
        for file in files:
            # the first path that leads to a file determines its area
            specs.setdefault(os.fspath(file), SpecPath(path=file, root=root))
    for name, spec in specs.items():
        # as text: ``relative_to`` takes longer than everything else that is done for a spec that
        # did not change
        inner = name.removeprefix(os.fspath(spec.root))
        if special := next(
            (char for char in inner if not char.isprintable() or char in _MEANT_IN_IDS), None
        ):
            unplaced = Diagnostic.of("character-in-a-file-name", character=ascii(special))
            problems.append(unplaced.at(Position(file=shown_path(spec.path))))
    return list(specs.values())


def is_spec_file(path: Path, root: Path) -> bool:
    """Return whether ``discover`` takes this file for a spec when it reads the folder ``root``."""
    is_hidden = any(part.startswith((".", "_")) for part in path.relative_to(root).parts)
    return (
        path.suffix in SUFFIXES
        and path.stem not in _NO_SPECS
        and not is_hidden
        and not _is_profile(path)
    )


def files_of_defaults(spec: SpecPath) -> list[Path]:
    """Return the files of defaults that apply to a spec where they exist, innermost first.

    The last one is in the folder of the project (with .git, pyproject.toml or backends.yaml), so
    the result is the same for every path on the command line. Outside of a project it is in the
    root of the spec, so that files of other users further up are not used.
    """
    files = []
    for place in spec.path.parents:
        files.append(place / DEFAULTS)
        if _may_be_project(place) and any(os.path.exists(place / mark) for mark in MARKS):
            return files
    return [file for file in files if file.is_relative_to(spec.root)]


def names_shipped(paths: Sequence[Path]) -> bool:
    """Whether the paths include all shipped specs."""
    shipped = folder("specs").resolve()
    return not paths or any(path.resolve() == shipped for path in paths)


def _is_profile(path: Path) -> bool:
    """Whether a file in a folder of profiles has the keys of one."""
    try:
        return path.parent.name == _PROFILES and PROFILE.recognises(
            read_bytes(path).decode("utf-8-sig", "replace")
        )
    except InvalidSpecs:
        return False  # reported when it is read as a spec


def _walk(
    directory: Path, above: tuple[Path, ...], tree: Path | None, problems: list[Diagnostic]
) -> Iterator[Path]:
    real = directory.resolve()
    position = Position(file=shown_path(directory))
    if real in above:
        problems.append(Diagnostic.of("folder-loop").at(position))
        return
    if above and not is_within(real, tree):
        problems.append(_refusal(directory, tree, "folder"))
        return
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError as error:
        problems.append(
            Diagnostic.of("unreadable-folder", reason=error.strerror or "").at(position)
        )
        return
    for entry in entries:
        path = directory / entry.name
        if entry.name.startswith((".", "_")):
            continue
        if path.suffix in SUFFIXES and path.stem not in _NO_SPECS:
            if not _is_profile(path):
                # files and folders alike: a folder with this name is reported when it is read
                yield path
        elif os.path.isdir(entry.path):
            yield from _walk(path, (*above, real), tree, problems)


@dataclass(slots=True)
class DefaultsReader:
    """Reads the defaults of specs, each file once."""

    problems: list[Diagnostic] = field(default_factory=list)
    _read: dict[str, Document | None] = field(default_factory=dict)
    """By real path; None for a file with a problem."""
    _inherited: dict[Path, tuple[Document, ...] | None] = field(default_factory=dict)
    """By folder."""

    def of(self, spec: SpecPath) -> tuple[Document, ...] | None:
        """Return the defaults of a spec, outermost first; None where a file of them has a
        problem.
        """
        directory = spec.path.parent
        if directory not in self._inherited:
            # dangling links are there too: unreadable files are reported
            files = [
                self._document(path, spec.root)
                for path in reversed(files_of_defaults(spec))
                if os.path.lexists(path)
            ]
            sound = tuple(filter(None, files))
            self._inherited[directory] = sound if len(sound) == len(files) else None
        return self._inherited[directory]

    def _document(self, path: Path, root: Path) -> Document | None:
        if (problem := link_problem(path, root)) is not None:
            self.problems += [] if problem in self.problems else [problem]
            return None
        real = os.path.realpath(path)
        if real not in self._read:
            self._read[real] = read_formed(path, DEFAULTS_KIND, self.problems)
        return self._read[real]
