"""The files that may be read for a given path: those of its tree. Links that lead out of the tree are rejected.

The tree is the project of the path (the nearest folder above it with ``.git``, else with ``pyproject.toml``, else with ``backends.yaml``).
Outside of a project it is the path's own folder. Files that are installed with the package are trusted.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from runner.core.diagnostics import Diagnostic, Position, shown_path
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
        return Diagnostic(position=Position(file=shown_path(path)), message=message, hint=hint)


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
