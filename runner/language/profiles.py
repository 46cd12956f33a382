"""Profiles as data: which cases a backend must pass, in levels, and which waivers may excuse a failure.

Reading a profile needs no specs. ``plan.profile_cases`` finds the cases that it names.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.core.conditions import BadRange, VersionRange, as_list
from runner.core.conformance import LEVELS
from runner.core.diagnostics import Diagnostic, InvalidSpecs, Position, UsageError, one_line, shown_path, unknown
from runner.language.backends import read_named
from runner.language.read.document import PROFILE, DataPath, Document
from runner.system.data_dirs import folder

SHIPPED = "shipped"
"""The word for the specs and the waivers of the package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Cases of a level. Every key that is not empty must hold."""

    cases: tuple[str, ...]
    tags: tuple[str, ...]
    backends: tuple[str, ...]
    left_out: tuple[str, ...]
    place: DataPath
    """Where it stands in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level as written."""

    name: str
    required: tuple[Entry, ...]
    optional: tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """Waivers of one file that the profile permits. Without ``ids`` and ``types``: all of them."""

    file: Path
    ids: tuple[str, ...]
    types: tuple[str, ...]
    place: DataPath


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
    permissions: tuple[Permission, ...]
    levels: tuple[Level, ...]
    document: Document

    @property
    def waivers(self) -> tuple[Path, ...]:
        """The files of waivers that it permits, without the shipped one, which every run reads."""
        shipped = os.path.realpath(shipped_waivers())
        return tuple(dict.fromkeys(one.file for one in self.permissions if os.path.realpath(one.file) != shipped))

    @property
    def position(self) -> Position:
        """The position of its name."""
        return self.document.position(("profile",), key=True)


def shipped_waivers() -> Path:
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
    problems += () if document is None else _problems(document)
    if problems or document is None:
        raise InvalidSpecs(problems)
    return _profile(document)


def _problems(document: Document) -> Iterator[Diagnostic]:
    """Yield what is wrong with a profile without its specs: a range, entries that name nothing, nothing that is required."""
    levels = document.data["levels"]
    try:
        VersionRange.parse(document.data["torch"])
    except BadRange as error:
        yield document.problem(("torch",), str(error))
    for name, level in levels.items():
        for kind, entries in level.items():
            for index, entry in enumerate(entries):
                if not entry.keys() & {"cases", "tag"}:
                    hint = "add cases: GLOB or tag: NAME; cases: '*' names every case that is not on request"
                    yield document.problem(("levels", name, kind, index), "this entry names no cases", hint)
    if not any("required" in level for level in levels.values()):
        hint = "add required: [{cases: GLOB}] to a level: a profile that requires nothing states nothing"
        yield document.problem(("levels",), "the profile requires no case", hint, key=True)


def _profile(document: Document) -> Profile:
    data = document.data
    usual = as_list(data.get("backend", []))
    specs = data.get("specs", [SHIPPED])

    def beside(path: str) -> Path:
        """Return a path of the profile, relative to its folder, as the working folder sees it."""
        return Path(os.path.normpath(document.path.parent / path.replace("\0", "")))

    def entries(level: str, kind: str) -> tuple[Entry, ...]:
        return tuple(
            Entry(
                cases=tuple(as_list(entry.get("cases", []))),
                tags=tuple(as_list(entry.get("tag", []))),
                backends=tuple(as_list(entry.get("backend", usual))),
                left_out=tuple(as_list(entry.get("except", []))),
                place=("levels", level, kind, index),
            )
            for index, entry in enumerate(data["levels"][level].get(kind, ()))
        )

    return Profile(
        name=data["profile"],
        version=data["version"],
        summary=data["summary"],
        torch=data["torch"],
        specs=() if specs == [SHIPPED] else tuple(Path(shown_path(folder("specs"))) if path == SHIPPED else beside(path) for path in specs),
        backends=tuple(map(beside, data.get("backends", []))),
        permissions=tuple(
            Permission(
                file=shipped_waivers() if permission["file"] == SHIPPED else beside(permission["file"]),
                ids=tuple(permission.get("ids", ())),
                types=tuple(permission.get("types", ())),
                place=("waivers", index),
            )
            for index, permission in enumerate(data.get("waivers", []))
        ),
        levels=tuple(
            Level(name=name, required=entries(name, "required"), optional=entries(name, "optional"))
            for name in LEVELS
            if name in data["levels"]
        ),
        document=document,
    )
