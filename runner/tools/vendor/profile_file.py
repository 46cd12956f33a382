"""Profiles as data: which cases a backend must pass, in levels, and which waivers may excuse a failure.

Reading a profile needs no specs. ``tools.vendor.profile_cases`` finds the cases that it names.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.language.backends import read_named
from runner.language.read.document import PROFILE, DataPath, Document
from runner.machine.cache_dirs import folder
from runner.model.conditions import BadRange, VersionRange, as_list
from runner.model.conformance import LEVELS
from runner.model.diagnostics import Diagnostic, InvalidSpecs, UsageError, one_line, shown_path, unknown

SHIPPED = "shipped"
"""The word for the specs and the waivers of the package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Cases of a level. Every key that is not empty must hold."""

    level: str
    kind: str
    """``required`` or ``optional``."""
    cases: tuple[str, ...]
    tags: tuple[str, ...]
    backends: tuple[str, ...]
    left_out: tuple[str, ...]
    place: DataPath
    """Where it stands in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A profile as written. Paths of files are as a command in the working folder names them."""

    name: str
    version: str
    summary: str
    torch: str
    specs: tuple[Path, ...]
    """Paths for ``load``; empty for the shipped specs alone."""
    backends: tuple[Path, ...]
    permitted: tuple[Path, ...]
    """The files of waivers that it permits."""
    levels: tuple[str, ...]
    """The names of its levels, the most important one first."""
    entries: tuple[Entry, ...]
    """Those that are required first, each kind in the order of the levels."""
    document: Document

    @property
    def waivers(self) -> tuple[Path, ...]:
        """The permitted files of waivers. The shipped file is left out: every run reads it already."""
        shipped = os.path.realpath(_shipped_waivers())
        return tuple(dict.fromkeys(file for file in self.permitted if os.path.realpath(file) != shipped))


def _shipped_waivers() -> Path:
    """Return the file of the shipped waivers."""
    return folder("specs") / "waivers.yaml"


def shipped_profiles() -> Mapping[str, Path]:
    """Return the files of the shipped profiles by name."""
    return {path.stem: path for path in sorted((folder("specs") / "profiles").glob("*.yaml"), key=lambda path: path.stem)}


def find_profile(name: str) -> Path:
    """Return the file of a shipped profile, or the path itself; raise ``UsageError`` for a name that is neither."""
    shipped = shipped_profiles()
    if name in shipped:
        return shipped[name]
    if os.sep in name or name.endswith((".yaml", ".yml")):
        return Path(name)
    message, hint = unknown("profile", one_line(name), shipped)
    raise UsageError(f"--profile: {message} ({hint}; or name a file: ./{one_line(name)}.yaml)")


def read_profile(name: str) -> Profile:
    """Read a profile by its name or path; raise ``InvalidSpecs`` with all its problems, or ``UsageError``."""
    problems: list[Diagnostic] = []
    document = read_named(find_profile(name), PROFILE, problems)
    if document is None:
        raise InvalidSpecs(problems)
    data = document.data
    try:
        VersionRange.parse(data["torch"])
    except BadRange as error:
        problems.append(document.problem(("torch",), str(error)))
    if not any("required" in level for level in data["levels"].values()):
        hint = "add required: [{cases: GLOB}] to a level: a profile that requires nothing states nothing"
        problems.append(document.problem(("levels",), "the profile requires no case", hint, key=True))
    entries: list[Entry] = []
    levels = [level for level in LEVELS if level in data["levels"]]
    for kind in ("required", "optional"):
        for level in levels:
            for index, entry in enumerate(data["levels"][level].get(kind, ())):
                place = ("levels", level, kind, index)
                if not entry.keys() & {"cases", "tag"}:
                    hint = "add cases: GLOB or tag: NAME; cases: '*' names every case that is not on request"
                    problems.append(document.problem(place, "this entry names no cases", hint))
                usual = {"backend": data.get("backend", []), **entry}
                cases, tags, backends, left_out = (tuple(as_list(usual.get(key, []))) for key in ("cases", "tag", "backend", "except"))
                entries.append(Entry(level=level, kind=kind, cases=cases, tags=tags, backends=backends, left_out=left_out, place=place))
    if problems:
        raise InvalidSpecs(problems)

    def beside(path: str) -> Path:
        """Return a path of the profile, relative to its folder, as the working folder sees it."""
        return Path(os.path.normpath(document.path.parent / path.replace("\0", "")))

    specs = data.get("specs", [SHIPPED])
    return Profile(
        name=data["profile"],
        version=data["version"],
        summary=data["summary"],
        torch=data["torch"],
        specs=() if specs == [SHIPPED] else tuple(Path(shown_path(folder("specs"))) if path == SHIPPED else beside(path) for path in specs),
        backends=tuple(map(beside, data.get("backends", []))),
        permitted=tuple(
            _shipped_waivers() if permission["file"] == SHIPPED else beside(permission["file"]) for permission in data.get("waivers", [])
        ),
        levels=tuple(levels),
        entries=tuple(entries),
        document=document,
    )
