"""From a profile as written to the cases that it names, and the waivers that it permits: what a run of the profile records.

``with_profile`` gives the options of ``run --profile`` its files, and refuses those that do not go with it.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.language.load import Suite
from runner.language.read.document import DataPath
from runner.language.waivers import WaiverFiles
from runner.machine.installed_torch import installed_torch, release
from runner.model.case import Case
from runner.model.conditions import VersionRange
from runner.model.conformance import PermittedWaiver, ProfileLevel, ProfileRecord
from runner.model.diagnostics import Diagnostic, InvalidSpecs, UsageError, one_line, shown_path, unknown
from runner.model.matching.patterns import glob
from runner.model.options import REFUSED, RunOptions
from runner.plan.case_ledger import NAME, compare, read_ledger
from runner.plan.selection import requested, unmatched
from runner.run.earlier_runs import roots_of
from runner.tools.vendor.profile_file import Entry, Profile, read_profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A profile with its cases."""

    record: ProfileRecord
    cases: tuple[Case, ...]
    """The cases that it names, required and optional, in the order in which they were loaded."""
    waivers: WaiverFiles
    """The files that were read, with the permitted waivers alone."""


def cases_of(profile: Profile, suite: Suite, waivers: WaiverFiles) -> Resolved:
    """Return the cases and waivers of a profile; raise ``InvalidSpecs`` with a problem for each entry that names nothing.

    What a level requires is optional in none; each case is in one level. A lost case is named as it would be if it were there, so that
    who deletes a spec does not make the profile easier.
    """
    document = profile.document
    problems: list[Diagnostic] = []
    usual = [case for case in suite.cases if not case.on_request]
    tags = frozenset(tag for case in suite.cases for tag in case.tags)
    lost = _lost(profile, suite)
    named: dict[str, tuple[str, str]] = {}
    """Level and kind of each case, by its id."""
    for entry in profile.entries:
        own = [case for case in suite.cases if not entry.backends or case.backend in entry.backends]
        of = f" of {', '.join(entry.backends)}" if entry.backends else ""
        matched, left_out = ({text: _matching(text, own) for text in globs} for globs in (entry.cases, entry.left_out))
        before = len(problems)
        for key, names, known in (("tag", entry.tags, tags), ("backend", entry.backends, suite.backends.by_name)):
            for index, name in enumerate(names):
                if name not in known:
                    problems.append(document.problem(_place(profile, entry, key, index), *unknown(key, name, known)))
        for index, text in enumerate(entry.cases):
            if own and not matched[text] and not any(map(glob(text).fullmatch, lost)):
                message, _, hint = unmatched([text], own)[0].partition(": ")
                problems.append(document.problem(_place(profile, entry, "cases", index), message + of, hint))
        for index, text in enumerate(entry.left_out):
            if not left_out[text]:
                message = f"'{one_line(text)}' leaves out nothing: no case{of} matches it"
                problems.append(document.problem(_place(profile, entry, "except", index), message, "correct the glob, or remove it"))
        if len(problems) > before:
            continue
        inside, outside = ({case.id for cases in by_glob.values() for case in cases} for by_glob in (matched, left_out))
        kept = [case for case in own if (not entry.cases or case.id in inside) and case.id not in outside]
        kept = [case for case in kept if not entry.tags or not set(entry.tags).isdisjoint(case.tags)]
        ids = [str(case.id) for case in requested(kept, usual, paths=(), globs=entry.cases, tags=entry.tags)]
        for case_id, tags_then in lost.items():
            is_inside, is_outside = (any(glob(text).fullmatch(case_id) for text in globs) for globs in (entry.cases, entry.left_out))
            has_backend = any(re.search(rf"\[backend={re.escape(name)}[],]", case_id) for name in entry.backends)
            has_tag = not tags_then.isdisjoint(entry.tags)
            if (is_inside or not entry.cases) and not is_outside and (has_backend or not entry.backends) and (has_tag or not entry.tags):
                ids.append(case_id)
        new = [case_id for case_id in ids if case_id not in named]
        if not ids:
            hint = "list --select GLOB --backend NAME shows which cases there are"
            problems.append(document.problem(entry.place, f"this entry names no case{of}", hint))
        elif not new:
            message = f"all {len(ids)} cases of this entry are named already: {one_line(ids[0])} in {named[ids[0]][0]}"
            problems.append(document.problem(entry.place, message, "remove the entry, or the one above that names them"))
        named.update(dict.fromkeys(new, (entry.level, entry.kind)))
    if problems:
        raise InvalidSpecs(problems)
    files = set(map(os.path.realpath, profile.permitted))
    permitted_names = {read.file for read in waivers.documents if os.path.realpath(read.path) in files}
    permitted = tuple(waiver for waiver in waivers.waivers if waiver.position.file in permitted_names)
    ids_of = {
        (level, kind): tuple(case_id for case_id, place in named.items() if place == (level, kind))
        for level in profile.levels
        for kind in ("required", "optional")
    }
    record = ProfileRecord(
        name=profile.name,
        version=profile.version,
        file=document.file,
        digest=document.digest,
        torch=profile.torch,
        levels=tuple(
            ProfileLevel(name=level, required=ids_of[level, "required"], optional=ids_of[level, "optional"]) for level in profile.levels
        ),
        waivers=tuple(PermittedWaiver(cases=waiver.cases, issue=waiver.issue, until=waiver.until.isoformat()) for waiver in permitted),
    )
    cases = tuple(case for case in suite.cases if case.id in named)
    return Resolved(record=record, cases=cases, waivers=replace(waivers, waivers=permitted))


def _lost(profile: Profile, suite: Suite) -> dict[str, frozenset[str]]:
    """Return the ids that a ledger beside the profile's specs lists and no spec has any more, with the tags that each may have had.

    They are those of its spec's other cases; where the spec is gone, those of its folder; where that is gone too, all.
    """
    lost: dict[str, frozenset[str]] = {}
    paths = [path.resolve() for path in profile.specs]
    for root in roots_of(profile.specs):
        ledger = root / NAME
        for case_id in compare(read_ledger(ledger), suite.cases).gone if ledger.is_file() else ():
            spec = case_id.partition("[")[0]
            if paths and not any(f"{root / spec}.yaml" == str(path) or (root / spec).is_relative_to(path) for path in paths):
                continue  # the profile never named it
            of_spec = [case for case in suite.cases if f"{case.area}/{case.name}".lstrip("/") == spec]
            near = of_spec or [case for case in suite.cases if case.area == spec.rpartition("/")[0]] or suite.cases
            lost[case_id] = frozenset(tag for case in near for tag in case.tags)
    return lost


def _matching(text: str, cases: Sequence[Case]) -> list[Case]:
    """Return the cases that a glob matches. Most ids are left out by the literal pieces of the glob, which is faster than a match."""
    for piece in reversed([piece for piece in re.split(r"[*?]", text) if piece]):
        cases = [case for case in cases if piece in case.id]
    pattern = glob(text)
    return [case for case in cases if pattern.fullmatch(case.id)]


def _place(profile: Profile, entry: Entry, key: str, index: int) -> DataPath:
    written = profile.document.value(entry.place)
    if key not in written:  # the profile's own key
        return (key, index) if isinstance(profile.document.data.get(key), list) else (key,)
    return (*entry.place, key, index) if isinstance(written[key], list) else (*entry.place, key)


# -- run --profile ------------------------------------------------------------------------------------------------


def with_profile(options: RunOptions, name: str) -> tuple[RunOptions, Profile]:
    """Return the options with the files of the profile, and the profile; raise ``UsageError`` for options that do not go with it."""
    for option, (default, reason) in REFUSED.items():
        if getattr(options, option) != default:
            word = "PATH" if option == "paths" else f"--{option.replace('_', '-')}"
            raise UsageError(f"--profile {one_line(name)}: {word} does not go with it: {reason} (remove {word})")
    profile = read_profile(name)
    installed = installed_torch()
    if installed is not None and not VersionRange.parse(profile.torch).holds(release(installed.version)):
        raise UsageError(
            f"--profile {profile.name}: {profile.name} {profile.version} is for torch {profile.torch}, and torch {installed.version} is "
            "installed (install one of these versions, or name another profile)"
        )
    permitted = set(map(os.path.realpath, profile.permitted))
    if other := [path for path in options.waivers if os.path.realpath(path) not in permitted]:
        raise UsageError(
            f"--profile {profile.name}: it does not permit the waivers of {shown_path(other[0])} (write another profile with a permission: "
            f"waivers: [{{file: {other[0].name}}}])"
        )
    files = _once([*profile.backends, *options.backends])
    return replace(options, paths=profile.specs, backends=files, waivers=_once([*profile.waivers, *options.waivers])), profile


def _once(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the paths, each file once."""
    return tuple({os.path.realpath(path): path for path in reversed(paths)}.values())[::-1]
