"""From a profile as written to the cases that it names, and the waivers that it permits: what a run of the profile records.

A case that the ledger beside the specs lists, that no spec has any more and that no line of the ledger gives a reason for, is lost. An
entry names it as it would name it if it were there, so that a lost case cannot make a profile easier.

``with_profile`` gives the options of ``run --profile`` its files, and refuses those that do not go with it.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from runner.core.case import Case
from runner.core.conditions import VersionRange
from runner.core.conformance import PermittedWaiver, ProfileLevel, ProfileRecord
from runner.core.diagnostics import Diagnostic, InvalidSpecs, UsageError, one_line, shown_path, unknown
from runner.core.globs import glob
from runner.core.options import RunOptions
from runner.language.backends import Backends
from runner.language.load import Suite
from runner.language.profiles import Entry, Permission, Profile, read_profile
from runner.language.read.document import DataPath
from runner.language.waivers import OUTSIDE_OF_EXPECTATIONS, Waiver, WaiverFiles
from runner.plan.case_ledger import compare, ledgers_of, read_ledger
from runner.plan.selection import requested, unmatched
from runner.system.installed_torch import installed_torch, release
from runner.vocabulary.expectations import EXPECTATIONS

Matches: TypeAlias = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """An id that an entry can name: of a case, or lost."""

    id: str
    backend: str
    tags: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A profile with its cases."""

    record: ProfileRecord
    cases: tuple[Case, ...]
    """The cases that it names, required and optional, in the order in which they were loaded."""
    waivers: WaiverFiles
    """The files that were read, with the permitted waivers alone."""


def resolve(profile: Profile, cases: Sequence[Case], backends: Backends, waivers: WaiverFiles, lost: Iterable[str] = ()) -> Resolved:
    """Return the cases and waivers of a profile; raise ``InvalidSpecs`` with a problem for each entry that names nothing."""
    problems: list[Diagnostic] = []
    levels = _levels(profile, _Suite(cases, backends, lost), problems)
    permitted = _permitted(profile, waivers, problems)
    if problems:
        raise InvalidSpecs(problems)
    record = ProfileRecord(
        name=profile.name,
        version=profile.version,
        file=profile.document.file,
        digest=profile.document.digest,
        torch=profile.torch,
        levels=levels,
        waivers=tuple(PermittedWaiver(cases=one.cases, issue=one.issue, until=one.until.isoformat()) for one in permitted),
    )
    named = {case_id for level in levels for case_id in (*level.required, *level.optional)}
    files = WaiverFiles(waivers=permitted, documents=waivers.documents, given=waivers.given)
    return Resolved(record=record, cases=tuple(case for case in cases if case.id in named), waivers=files)


class _Suite:
    """The cases and lost ids among which entries choose."""

    def __init__(self, cases: Sequence[Case], backends: Backends, lost: Iterable[str]) -> None:
        self.cases = cases
        self.usual = [case for case in cases if not case.on_request]
        self.backends = backends
        self.tags = frozenset(tag for case in cases for tag in case.tags)
        self.lost = [_lost(case_id, cases) for case_id in lost]


def _lost(case_id: str, cases: Sequence[Case]) -> Named:
    """Return a lost id, with the tags of its spec's other cases; where the spec is gone, with those of all specs of its folder."""
    spec = case_id.partition("[")[0]
    area = spec.rpartition("/")[0]
    of_spec = [case for case in cases if f"{case.area}/{case.name}".lstrip("/") == spec]
    near = of_spec or [case for case in cases if case.area == area]
    backend = re.search(r"\[backend=([^,\]]*)", case_id)
    return Named(id=case_id, backend=backend[1] if backend else "", tags=frozenset(tag for case in near for tag in case.tags))


# -- levels ---------------------------------------------------------------------------------------------------------


def _levels(profile: Profile, suite: _Suite, problems: list[Diagnostic]) -> tuple[ProfileLevel, ...]:
    """Return the ids of each level. What a level requires is optional in none; each id is in one level."""
    named: dict[str, tuple[str, str]] = {}
    for kind in ("required", "optional"):
        for level in profile.levels:
            for entry in level.required if kind == "required" else level.optional:
                own = [case for case in suite.cases if not entry.backends or case.backend in entry.backends]
                matched = {text: _matching(text, own) for text in entry.cases}
                if wrong := list(_entry_problems(profile, entry, suite, own, matched)):
                    problems += wrong
                    continue
                ids = _ids(entry, suite, own, matched)
                new = [case_id for case_id in ids if case_id not in named]
                named.update(dict.fromkeys(new, (level.name, kind)))
                if not ids:
                    hint = "list --select GLOB --backend NAME shows which cases there are"
                    problems.append(profile.document.problem(entry.place, f"this entry names no case{_of(entry.backends)}", hint))
                elif not new:
                    message = f"all {len(ids)} cases of this entry are named already: {one_line(ids[0])} in {named[ids[0]][0]}"
                    problems.append(profile.document.problem(entry.place, message, "remove the entry, or the one above that names them"))

    def ids_of(level: str, kind: str) -> tuple[str, ...]:
        return tuple(case_id for case_id, place in named.items() if place == (level, kind))

    return tuple(
        ProfileLevel(name=level.name, required=ids_of(level.name, "required"), optional=ids_of(level.name, "optional"))
        for level in profile.levels
    )


def _matching(text: str, cases: Sequence[Case]) -> list[Case]:
    """Return the cases that a glob matches. Most ids are left out by the literal pieces of the glob, which is faster than a match."""
    for piece in reversed([piece for piece in re.split(r"[*?]", text) if piece]):
        cases = [case for case in cases if piece in case.id]
    pattern = glob(text)
    return [case for case in cases if pattern.fullmatch(case.id)]


def _ids(entry: Entry, suite: _Suite, own: Sequence[Case], matched: Mapping[str, Sequence[Case]]) -> list[str]:
    """Return the ids that an entry names, those of lost cases last.

    ``own`` are the cases of its backends, ``matched`` those of them that each of its globs matches.
    """
    left_out = [glob(text).fullmatch for text in entry.left_out]
    named = {case.id for found in matched.values() for case in found}
    cases = [case for case in own if (not matched or case.id in named) and _is_kept(entry, left_out, case.id, case.tags)]
    ids = [str(case.id) for case in requested(cases, suite.usual, paths=(), globs=entry.cases, tags=entry.tags)]
    globs = [glob(text).fullmatch for text in entry.cases]
    lost = [one for one in suite.lost if not entry.backends or one.backend in entry.backends]
    lost = [one for one in lost if not globs or any(match(one.id) for match in globs)]
    return ids + [one.id for one in lost if _is_kept(entry, left_out, one.id, one.tags)]


def _is_kept(entry: Entry, left_out: Sequence[Matches], case_id: str, tags: Iterable[str]) -> bool:
    return (not entry.tags or not set(entry.tags).isdisjoint(tags)) and not any(match(case_id) for match in left_out)


def _of(backends: Sequence[str]) -> str:
    return f" of {', '.join(backends)}" if backends else ""


def _entry_problems(
    profile: Profile, entry: Entry, suite: _Suite, own: Sequence[Case], matched: Mapping[str, Sequence[Case]]
) -> Iterator[Diagnostic]:
    """Yield the unknown names of an entry, and its globs that match nothing."""
    document = profile.document
    for key, names, known in (("tag", entry.tags, suite.tags), ("backend", entry.backends, suite.backends.by_name)):
        for index, name in enumerate(names):
            if name not in known:
                yield document.problem(_place(profile, entry.place, key, index), *unknown(key, name, known))
    for index, text in enumerate(entry.cases):
        if own and not matched[text] and not any(map(glob(text).fullmatch, (one.id for one in suite.lost))):
            message, _, hint = unmatched([text], own)[0].partition(": ")
            yield document.problem(_place(profile, entry.place, "cases", index), message + _of(entry.backends), hint)
    for index, text in enumerate(entry.left_out):
        if not any(map(glob(text).fullmatch, (case.id for case in own))):
            message = f"'{one_line(text)}' leaves out nothing: no case{_of(entry.backends)} matches it"
            yield document.problem(_place(profile, entry.place, "except", index), message, "correct the glob, or remove it")


def _place(profile: Profile, place: DataPath, key: str, index: int) -> DataPath:
    entry = profile.document.value(place)
    if key not in entry:  # the profile's own key
        return (key, index) if isinstance(profile.document.data.get(key), list) else (key,)
    return (*place, key, index) if isinstance(entry[key], list) else (*place, key)


# -- waivers --------------------------------------------------------------------------------------------------------


def _permitted(profile: Profile, files: WaiverFiles, problems: list[Diagnostic]) -> tuple[Waiver, ...]:
    """Return the waivers that some permission names, in the order of the files."""
    permitted: set[int] = set()
    for one in profile.permissions:
        own = _of_file(one, files)
        problems.extend(_permission_problems(profile, one, own))
        permitted |= {id(waiver) for waiver in own if _is_permitted(one, waiver)}
    return tuple(waiver for waiver in files.waivers if id(waiver) in permitted)


def _of_file(permission: Permission, files: WaiverFiles) -> list[Waiver]:
    real = os.path.realpath(permission.file)
    names = {document.file for document in files.documents if os.path.realpath(document.path) == real}
    return [waiver for waiver in files.waivers if waiver.position.file in names]


def _is_permitted(permission: Permission, waiver: Waiver) -> bool:
    if permission.ids and waiver.id not in permission.ids:
        return False
    return not permission.types or all(signature.type in permission.types for signature in waiver.failures)


def _permission_problems(profile: Profile, permission: Permission, own: Sequence[Waiver]) -> Iterator[Diagnostic]:
    document = profile.document
    known = {waiver.id for waiver in own if waiver.id}
    for index, name in enumerate(permission.ids):
        if name not in known:
            yield document.problem((*permission.place, "ids", index), *unknown("waiver", name, known))
    kinds = (*EXPECTATIONS, *OUTSIDE_OF_EXPECTATIONS)
    for index, name in enumerate(permission.types):
        if name not in kinds:
            yield document.problem((*permission.place, "types", index), *unknown("type of failure", name, kinds))


# -- run --profile ------------------------------------------------------------------------------------------------

_SELECTS = "the profile selects its cases"
_DECIDES = "the profile says what must be executed"
_AGAIN = "a case of a profile runs once"

REFUSED: Mapping[str, tuple[object, str]] = {
    "paths": ((), _SELECTS),
    "backend": ((), _SELECTS),
    "select": ((), _SELECTS),
    "tag": ((), _SELECTS),
    "last_failed": (False, _SELECTS),
    "failed_in": (None, _SELECTS),
    "require": ((), _DECIDES),
    "min_executed": (1, _DECIDES),
    "retries": (0, _AGAIN),
    "flaky": ("fail", _AGAIN),
}
"""Options of ``run`` that do not go with ``--profile``: the default of each, and the reason."""


def with_profile(options: RunOptions, name: str) -> tuple[RunOptions, Profile]:
    """Return the options with the files of the profile, and the profile; raise ``UsageError`` for options that do not go with it."""
    for option, (default, reason) in REFUSED.items():
        if getattr(options, option) != default:
            word = "PATH" if option == "paths" else f"--{option.replace('_', '-')}"
            raise UsageError(f"--profile {one_line(name)}: {word} does not go with it: {reason} (remove {word})")
    profile = read_profile(name)
    check_torch(profile)
    if other := [path for path in options.waivers if not _permits(profile, path)]:
        raise UsageError(
            f"--profile {profile.name}: it does not permit the waivers of {shown_path(other[0])} (write another profile with a permission: "
            f"waivers: [{{file: {other[0].name}}}])"
        )
    files = _once([*profile.backends, *options.backends])
    return replace(options, paths=profile.specs, backends=files, waivers=_once([*profile.waivers, *options.waivers])), profile


def check_torch(profile: Profile) -> None:
    """Raise ``UsageError`` if the installed torch is not one that the profile is for."""
    installed = installed_torch()
    if installed is not None and not VersionRange.parse(profile.torch).holds(release(installed.version)):
        raise UsageError(
            f"--profile {profile.name}: {profile.name} {profile.version} is for torch {profile.torch}, and torch {installed.version} is "
            "installed (install one of these versions, or name another profile)"
        )


def _permits(profile: Profile, path: Path) -> bool:
    return os.path.realpath(path) in {os.path.realpath(permission.file) for permission in profile.permissions}


def _once(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the paths, each file once."""
    return tuple({os.path.realpath(path): path for path in reversed(paths)}.values())[::-1]


def cases_of(profile: Profile, suite: Suite, waivers: WaiverFiles) -> Resolved:
    """Return the cases of a profile, and those that a ledger lists and the specs have lost; raise ``InvalidSpecs``."""
    ledgers = map(read_ledger, ledgers_of(profile.specs))
    lost = [case_id for ledger in ledgers for case_id in compare(ledger, suite.cases).gone]
    return resolve(profile, suite.cases, suite.backends, waivers, lost)
