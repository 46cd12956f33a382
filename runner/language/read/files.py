"""Finds spec files: which files are specs, their root, the defaults that they inherit, and the tree of files that may be read.

The tree is the project of a path (the nearest folder above it with ``.git``, else with ``pyproject.toml``, else with ``backends.yaml``).
Outside of a project it is the path's own folder. Files that are installed with the package are trusted.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from runner.core.diagnostics import Diagnostic, InvalidSpecs, Position, UsageError, one_line, shown_path
from runner.language.read.document import DEFAULTS as DEFAULTS_KIND
from runner.language.read.document import PROFILE, Document
from runner.language.read.schema import read_formed
from runner.language.read.source import read_bytes
from runner.system.data_dirs import folder

MARKS = (".git", "pyproject.toml", "backends.yaml")
"""Files that mark the folder of a project, the strongest mark first."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The files below a folder. ``root`` is its real path; None if all files are trusted."""

    root: Path | None

    def holds(self, path: Path) -> bool:
        """Whether a path leads to a place in the tree, after links are resolved."""
        return self.root is None or Path(os.path.realpath(path)).is_relative_to(self.root)

    def refusal(self, path: Path, what: str = "this file") -> Diagnostic:
        """Return the problem of a path that leads out of the tree, without the target, because the link may belong to another user."""
        hint = "put a copy there instead of the link, or name the real path on the command line"
        message = f"{what} is reached through a link that leads out of {shown_path(self.root or path)}"
        return Diagnostic(position=Position(file=shown_path(path)), message=message, hint=hint, code="leads-out")


def link_problem(path: Path, tree: Tree) -> Diagnostic | None:
    """Return a problem for a file that is a link out of the tree."""
    return tree.refusal(path) if os.path.islink(path) and not tree.holds(path) else None


def is_project(place: Path) -> bool:
    """Whether a folder is the root of a project. The home folder and the root of the file system never are."""
    return _may_be_project(place) and any(os.path.exists(place / mark) for mark in MARKS)


def _may_be_project(place: Path) -> bool:
    return place != place.parent and str(place) != os.path.realpath(os.path.expanduser("~"))


def tree_of(root: Path) -> Tree:
    """Return the tree of a given folder, or of the folder of a given file."""
    real = Path(os.path.realpath(root))
    if real.is_relative_to(shipped := folder("specs").resolve()) and shipped.parent.name == "_data":
        return Tree(None)
    above = [place for place in (real, *real.parents) if _may_be_project(place)]
    for mark in MARKS:
        for place in above:
            if os.path.exists(place / mark):
                return Tree(place)
    return Tree(real)


# -- specs and their defaults -----------------------------------------------------------------------------------------


DEFAULTS = "_defaults.yaml"
SUFFIXES = (".yaml", ".yml")
_NO_SPECS = ("backends", "waivers")
"""Names of files beside specs that are not specs."""
_PROFILES = "profiles"
"""The name of a folder beside specs whose profiles are not specs. Any other file in it is read as a spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecPath:
    """A spec file and the root of its area."""

    path: Path
    root: Path

    @property
    def area(self) -> str:
        """The folder below the root; empty for the root."""
        parent = self.path.parent.relative_to(self.root).as_posix()
        return "" if parent == "." else parent

    @property
    def tree(self) -> Tree:
        """The files that may be read for this spec."""
        return tree_of(self.root)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFile:
    """A parsed spec: its document and the defaults that it inherits, outermost first."""

    document: Document
    area: str
    name: str
    defaults: tuple[Document, ...] = ()


def discover(paths: Sequence[Path], problems: list[Diagnostic]) -> list[SpecPath]:
    """Return the spec files below the paths, or the shipped specs without paths; raise ``UsageError`` for a path without specs.

    Unreadable folders and names that are invalid in an id become problems. A shipped spec has the same area for every path that leads to
    it, so that its id never changes.
    """
    shipped = folder("specs").resolve()
    found: dict[str, SpecPath] = {}  # by text: the hash of a path takes longer than everything else here
    before = len(problems)
    for path in paths or [shipped]:
        _must_name_specs(path)
        absolute = Path(os.path.abspath(path))
        inside = absolute.resolve().is_relative_to(shipped)
        root = shipped if inside else absolute if path.is_dir() else absolute.parent
        place = absolute.resolve() if inside else absolute
        files = list(_walk(place, (), tree_of(root), problems)) if path.is_dir() else [place]
        if path.is_dir() and not files and len(problems) == before:
            raise UsageError(f"no spec below {path}: specs are files that end in .yaml")
        for file in files:
            # the first path that leads to a file determines its area
            found.setdefault(os.fspath(file), SpecPath(path=file, root=root))
    problems.extend(problem for spec in found.values() if (problem := _name_problem(spec)) is not None)
    return list(found.values())


def is_spec_file(path: Path, root: Path) -> bool:
    """Return whether ``discover`` takes this file for a spec when it reads the folder ``root``."""
    inner = path.relative_to(root).parts
    if path.suffix not in SUFFIXES or path.stem in _NO_SPECS or any(part.startswith((".", "_")) for part in inner):
        return False
    return not (path.parent.name == _PROFILES and is_profile(path))


def files_of_defaults(spec: SpecPath) -> list[Path]:
    """Return the files of defaults that apply to a spec where they exist, innermost first."""
    return [above / DEFAULTS for above in folders_of(spec.path.parent, spec.root)]


def names_shipped(paths: Sequence[Path]) -> bool:
    """Whether the paths include all shipped specs."""
    shipped = folder("specs").resolve()
    return not paths or any(path.resolve() == shipped for path in paths)


def is_profile(path: Path) -> bool:
    """Whether a file has the keys of a profile."""
    try:
        return PROFILE.recognises(read_bytes(path).decode("utf-8-sig", "replace"))
    except InvalidSpecs:
        return False  # reported when it is read as a spec


def _must_name_specs(path: Path) -> None:
    try:
        is_there, is_file = path.exists(), path.is_file()
    except OSError as error:
        raise UsageError(f"cannot access {one_line(str(path))}: {error.strerror}") from error
    if not is_there:
        raise UsageError(f"no such file or folder: {one_line(str(path))}")
    if is_file and path.name == DEFAULTS:
        raise UsageError(f"{one_line(str(path))} contains defaults and is not a spec: name its folder")
    if is_file and path.stem in _NO_SPECS:
        raise UsageError(f"{one_line(str(path))} is not a spec; use --{path.stem} for such files")
    if is_file and path.suffix in SUFFIXES and path.parent.name == _PROFILES and is_profile(path):
        raise UsageError(f"{one_line(str(path))} is a profile and not a spec; use --profile {one_line(str(path))}")


_MEANT_IN_IDS = re.compile(r"[][*?,=%]")
"""Characters with a meaning in an id or in a glob over ids."""


def _name_problem(spec: SpecPath) -> Diagnostic | None:
    # as text: ``relative_to`` takes longer than everything else that is done for a spec that did not change
    name = os.fspath(spec.path).removeprefix(os.fspath(spec.root))
    if name.isprintable() and _MEANT_IN_IDS.search(name) is None:
        return None
    special = next((char for char in name if not char.isprintable() or _MEANT_IN_IDS.match(char)), None)
    if special is None:
        return None
    message = f"the character {special!a} in the name of a spec"
    return Diagnostic(
        position=Position(file=shown_path(spec.path)),
        message=message,
        hint="the name is part of the ids of its cases: rename the file",
        code="file-name",
    )


def _walk(directory: Path, above: tuple[Path, ...], tree: Tree, problems: list[Diagnostic]) -> Iterator[Path]:
    real = directory.resolve()
    if real in above:
        position = Position(file=shown_path(directory))
        problems.append(
            Diagnostic(position=position, message="this folder is a link to one above it", hint="remove the link", code="folder-loop")
        )
        return
    if above and not tree.holds(real):
        problems.append(tree.refusal(directory, "this folder"))
        return
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError as error:
        position = Position(file=shown_path(directory))
        problems.append(
            Diagnostic(position=position, message=f"cannot be read: {error.strerror}", hint="check its permissions", code="unreadable-file")
        )
        return
    for entry in entries:
        if entry.name.startswith((".", "_")):
            continue
        stem, suffix = os.path.splitext(entry.name)
        if suffix in SUFFIXES and stem not in _NO_SPECS:
            path = directory / entry.name
            if directory.name == _PROFILES and is_profile(path):
                continue
            yield path  # files and folders alike: a folder with this name is reported when it is read
        elif os.path.isdir(entry.path):
            yield from _walk(directory / entry.name, (*above, real), tree, problems)


class Inherited(NamedTuple):
    """The defaults of a folder."""

    documents: tuple[Document, ...]
    """Outermost first, each after the defaults that it extends."""
    files: tuple[Path, ...]
    """All files that were read, with those that have a problem."""
    is_sound: bool
    """Whether none has a problem."""


@dataclass(slots=True)
class DefaultsReader:
    """Reads the defaults of specs, each file once."""

    problems: list[Diagnostic] = field(default_factory=list)
    _read: dict[Path, Document | None] = field(default_factory=dict)
    """By real path; None for a file with a problem."""
    _inherited: dict[Path, Inherited] = field(default_factory=dict)
    """By folder."""
    _files: list[Path] = field(default_factory=list)
    """The files of the folder that is being read."""

    def of(self, spec: SpecPath) -> Inherited:
        """Return the defaults of a spec."""
        directory = spec.path.parent
        if directory not in self._inherited:
            self._files.clear()
            chain: list[Document] = []
            # dangling links too: unreadable files are reported
            files = [above / DEFAULTS for above in reversed(list(folders_of(directory, spec.root))) if os.path.lexists(above / DEFAULTS)]
            are_sound = [
                self._add(file, (), spec.tree, chain) if (problem := link_problem(file, spec.tree)) is None else self._refuse(problem)
                for file in files
            ]
            self._inherited[directory] = Inherited(tuple(chain), tuple(self._files), all(are_sound))
        return self._inherited[directory]

    def _add(self, path: Path, through: tuple[Path, ...], tree: Tree, chain: list[Document]) -> bool:
        """Add a file after the file that it extends; return whether neither has a problem."""
        self._files.append(path)
        document = self._document(path)
        if document is None or document in chain:
            return document is not None
        base = document.data.get("extends")
        if base is not None:
            target = Path(os.path.realpath(path.parent / base.replace("\0", "")))
            walked = (*through, Path(os.path.realpath(path)))
            problem = _extends_problem(document, base, target, walked, tree)
            if problem is not None:
                return self._refuse(problem)
            if not self._add(target, walked, tree, chain):
                return False
        chain.append(document)
        return True

    def _document(self, path: Path) -> Document | None:
        key = Path(os.path.realpath(path))
        if key not in self._read:
            self._read[key] = read_formed(path, DEFAULTS_KIND, self.problems)
        return self._read[key]

    def _refuse(self, problem: Diagnostic) -> bool:
        if problem not in self.problems:
            self.problems.append(problem)
        return False


def _extends_problem(document: Document, base: str, target: Path, walked: tuple[Path, ...], tree: Tree) -> Diagnostic | None:
    path = ("extends",)
    if not tree.holds(target):
        # checked before existence, so that the message does not reveal whether a file outside exists
        hint = "defaults can only extend files of their own project: copy the file there"
        return document.problem(path, f"'{base}' leads out of {shown_path(tree.root or target)}", hint, code="leads-out")
    if target in walked:
        loop = " -> ".join(shown_path(step) for step in (*walked, target))
        return document.problem(path, f"defaults that loop: {loop}", "remove one of the extends", code="defaults-loop")
    if not os.path.lexists(target):
        return document.problem(path, f"no such file: {base}", "the path is relative to this file", code="no-such-file")
    return None


def folders_of(directory: Path, root: Path, is_root: Callable[[Path], bool] = is_project) -> Iterator[Path]:
    """Yield the folders whose defaults apply in ``directory``, innermost first.

    The last one is the folder of the project (with .git, pyproject.toml or backends.yaml), so the result is the same for every given path.
    Outside of a project it is the given root, so that files of other users further up are not used.
    """
    chain = [directory, *directory.parents]
    marked = next((index for index, place in enumerate(chain) if is_root(place)), None)
    last = marked if marked is not None else chain.index(root)
    yield from chain[: last + 1]
