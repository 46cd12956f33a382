"""Which files may be read: those of the tree around a path that was named. A link that leads out of it is refused.

The tree is the project that the path lies in (the nearest folder above it with ``.git``, else with ``pyproject.toml``, else
with ``backends.yaml``), outside of any project the path's own folder. What is installed with the package is trusted.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from runner.core.diagnostics import Diagnostic, Position, shown_path
from runner.system.data_dirs import folder

MARKS = (".git", "pyproject.toml", "backends.yaml")
"""What makes a folder a project's, the strongest mark first."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The files below a folder; ``root`` is its real path, None where every file is trusted."""

    root: Path | None

    def holds(self, path: Path) -> bool:
        """Whether a path leads to a place in the tree, through whatever links."""
        return self.root is None or Path(os.path.realpath(path)).is_relative_to(self.root)

    def refusal(self, path: Path, what: str = "this file") -> Diagnostic:
        """Return the problem of a path that leads out. Where it leads is not said: the link may be a stranger's."""
        hint = "put a copy there instead of the link, or name the real path on the command line"
        message = f"{what} is reached through a link that leads out of {shown_path(self.root or path)}"
        return Diagnostic(position=Position(file=shown_path(path)), message=message, hint=hint)


def link_problem(path: Path, tree: Tree) -> Diagnostic | None:
    """Return a problem for a file that is a link out of the tree."""
    return tree.refusal(path) if os.path.islink(path) and not tree.holds(path) else None


def is_project(place: Path) -> bool:
    """Whether a folder is a project's. Neither the home folder nor the root of the file system is one."""
    return _may_be_project(place) and any(os.path.exists(place / mark) for mark in MARKS)


def _may_be_project(place: Path) -> bool:
    return place != place.parent and str(place) != os.path.realpath(os.path.expanduser("~"))


def tree_of(root: Path) -> Tree:
    """Return the tree that belongs to a folder that was named, or to the folder of a file that was named."""
    real = Path(os.path.realpath(root))
    if real.is_relative_to(shipped := folder("specs").resolve()) and shipped.parent.name == "_data":
        return Tree(None)
    above = [place for place in (real, *real.parents) if _may_be_project(place)]
    for mark in MARKS:
        for place in above:
            if os.path.exists(place / mark):
                return Tree(place)
    return Tree(real)
