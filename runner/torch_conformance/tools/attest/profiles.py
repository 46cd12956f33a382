"""Profiles: which cases a backend must pass, in levels, and which waivers may excuse a failure.

A profile is read without specs (``read_profile``), then its cases are looked for (``cases_of``);
``with_profile`` gives the options of ``run --profile`` its files, and the commands that run nothing
ask whether a machine could execute the required cases (``prospect_of``).
"""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from torch_conformance.language.backends import read_named
from torch_conformance.language.check.spec import condition_problems
from torch_conformance.language.load import Suite, load
from torch_conformance.language.read.document import PROFILE
from torch_conformance.language.torch_names import committed_tables
from torch_conformance.language.waivers import load_waivers
from torch_conformance.machine import capabilities
from torch_conformance.machine.cache_dirs import folder
from torch_conformance.machine.capabilities import Machine
from torch_conformance.machine.installed_torch import installed_torch, release
from torch_conformance.matching.patterns import Ids, glob
from torch_conformance.model.case import Availability, Case, CaseId
from torch_conformance.model.conditions import BadRange, Surroundings, VersionRange, as_list, holds
from torch_conformance.model.diagnostics import (
    Diagnostic,
    InvalidSpecs,
    UsageError,
    one_line,
    shown_path,
    unknown,
)
from torch_conformance.model.document import DataPath
from torch_conformance.model.header import PermittedWaiver, ProfileLevel, ProfileRecord
from torch_conformance.model.values import frozen
from torch_conformance.model.waivers import Waiver, WaiverFiles
from torch_conformance.optional.options import REFUSED, RunOptions, Selection
from torch_conformance.plan.case_ledger import NAME, compare, read_ledger
from torch_conformance.plan.profile import Entry, Profile, Resolved
from torch_conformance.plan.selection import no_case, requested
from torch_conformance.plan.worker_plan import digest_of
from torch_conformance.run.preparation import roots_of
from torch_conformance.tools.attest.conformance import LEVELS, not_required, wrong_torch

SHIPPED = "shipped"
"""The word for the specs and the waivers of the package."""

ANY = "any"
"""The word for the backend of ``--backend``, whatever its compiler."""

_REFERENCE = "cpu"
"""The shipped backend whose cases are in the digest of a profile for any compiler."""


def shipped_profiles() -> Mapping[str, Path]:
    """Return the files of the shipped profiles by name."""
    return {
        path.stem: path
        for path in sorted(
            (folder("specs") / "profiles").glob("*.yaml"), key=lambda path: path.stem
        )
    }


def find_profile(name: str) -> Path:
    """Return the file of a shipped profile, or the path itself; raise ``UsageError`` for a name
    that is neither.
    """
    shipped = shipped_profiles()
    if name in shipped:
        return shipped[name]
    if os.sep in name or name.endswith((".yaml", ".yml")):
        return Path(name)
    message, hint = unknown("profile", one_line(name), shipped)
    raise UsageError(f"--profile: {message} ({hint}; or name a file: ./{one_line(name)}.yaml)")


def read_profile(name: str) -> Profile:
    """Read a profile by its name or path; raise ``InvalidSpecs`` with all its problems, or
    ``UsageError``.
    """
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
        hint = (
            "add required: [{cases: GLOB}] to a level: a profile that requires nothing states "
            "nothing"
        )
        problems.append(
            document.problem(("levels",), "the profile requires no case", hint, key=True)
        )
    entries: list[Entry] = []
    is_for_any = data.get("backend") == ANY
    levels = [level for level in LEVELS if level in data["levels"]]
    for kind in ("required", "optional"):
        for level in levels:
            for index, entry in enumerate(data["levels"][level].get(kind, ())):
                place = ("levels", level, kind, index)
                if not entry.keys() & {"cases", "tag"}:
                    hint = (
                        "add cases: GLOB or tag: NAME; cases: '*' names every case that is not on "
                        "request"
                    )
                    problems.append(document.problem(place, "this entry names no cases", hint))
                if kind == "optional" and "when" in entry:
                    message = "an optional case needs no condition: it changes no statement"
                    problems.append(
                        document.problem((*place, "when"), message, "remove when", key=True)
                    )
                usual = {"backend": [] if is_for_any else data.get("backend", []), **entry}
                cases, tags, backends, left_out = (
                    tuple(as_list(usual.get(key, [])))
                    for key in ("cases", "tag", "backend", "except")
                )
                entries.append(
                    Entry(
                        level, kind, cases, tags, backends, left_out, usual.get("when", {}), place
                    )
                )
    if problems:
        raise InvalidSpecs(problems)

    def located(path: str) -> Path:
        """Return a path of the profile, relative to its folder, as the working folder sees it."""
        return Path(os.path.normpath(document.path.parent / path.replace("\0", "")))

    specs = data.get("specs", [SHIPPED])
    shipped = shipped_profiles().get(data["profile"], document.path)
    return Profile(
        name=data["profile"],
        version=data["version"]
        if os.path.samefile(shipped, document.path)
        else f"{data['version']} (not the shipped one)",
        summary=data["summary"],
        torch=data["torch"],
        specs=()
        if specs == [SHIPPED]
        else tuple(
            Path(shown_path(folder("specs"))) if path == SHIPPED else located(path)
            for path in specs
        ),
        backends=tuple(map(located, data.get("backends", []))),
        permitted=tuple(
            folder("specs") / "waivers.yaml"
            if permission["file"] == SHIPPED
            else located(permission["file"])
            for permission in data.get("waivers", [])
        ),
        levels=tuple(levels),
        entries=tuple(entries),
        document=document,
        most_waived={
            name: data["levels"][name].get("most_waived", data.get("most_waived", {}))
            for name in levels
        },
        most_by_aten=data.get("most_by_aten", 100),
        is_for_any=is_for_any,
    )


def for_compiler(profile: Profile, backends: Sequence[str]) -> Profile:
    """Return a profile with the backend of ``--backend`` where it is for any compiler; raise
    ``UsageError`` unless there is just one.
    """
    if not profile.is_for_any:
        return profile
    if len(backends) != 1:
        hint = "name yours in run or list: --backends FILE --backend NAME"
        raise UsageError(
            f"--profile {profile.name}: it is for one backend of any compiler, and "
            f"{len(backends)} are named ({hint})"
        )
    return replace(_of_backends(profile, backends), compiler=backends[0])


def _of_backends(profile: Profile, backends: Sequence[str]) -> Profile:
    entries = (replace(entry, backends=tuple(backends)) for entry in profile.entries)
    return replace(profile, entries=tuple(entries))


def cases_of(profile: Profile, suite: Suite, waivers: WaiverFiles | None = None) -> Resolved:
    """Return the cases and waivers of a profile; raise ``InvalidSpecs`` with a problem for each
    entry that names nothing. Without ``waivers``, those of the profile are read.

    What a level requires is optional in none; each case is in one level. A lost case is named as it
    would be if it were there, so that who deletes a spec does not make the profile easier.
    """
    waivers = waivers or load_waivers(profile.waivers, suite.backends)
    document = profile.document
    problems = list(condition_problems(document, ("levels",), suite.backends))
    compiler = suite.backends.by_name.get(profile.compiler)
    if profile.compiler and compiler is None:
        message, hint = unknown("backend", one_line(profile.compiler), suite.backends.by_name)
        raise UsageError(f"{message} ({hint})")
    if compiler is not None and compiler.proof.served is None:
        what = (
            f"{profile.name} asks who computed each operator, and the proof of '{compiler.name}' "
            "does not measure it"
        )
        hint = "add served: all to it, or served: {allow: [aten.NAME]}"
        raise InvalidSpecs(
            [compiler.document.problem((compiler.name, "proof"), what, hint, key=True)]
        )
    default = {
        case.spec for case in suite.cases if not case.on_request
    }  # where a case of a spec runs by default, its others count too
    cases = [
        replace(case, on_request=False) if case.on_request and case.spec in default else case
        for case in suite.cases
    ]
    tags = frozenset(tag for case in suite.cases for tag in case.tags)
    cases += _lost(profile, suite)
    indexes: dict[tuple[str, ...], Ids] = {}
    levels_by_id: dict[str, tuple[str, str]] = {}
    """Level and kind of each case, by its id."""
    conditions: dict[str, Mapping[str, Any]] = {}
    for entry in profile.entries:
        of_backends = [
            case for case in cases if not entry.backends or case.backend in entry.backends
        ]
        suffix = f" of {', '.join(entry.backends)}" if entry.backends else ""
        own_ids = indexes.setdefault(entry.backends, Ids(case.id for case in of_backends))
        matched, left_out = (
            {text: own_ids.matching(text) for text in globs}
            for globs in (entry.cases, entry.left_out)
        )
        wrong = [
            (key, index, *unknown(key, name, allowed))
            for key, names, allowed in (
                ("tag", entry.tags, tags),
                ("backend", entry.backends, suite.backends.by_name),
            )
            for index, name in enumerate(names)
            if name not in allowed
        ]
        for index, text in enumerate(entry.cases):
            if of_backends and not matched[text]:
                message, _, hint = no_case(text, own_ids).partition(": ")
                wrong.append(("cases", index, message + suffix, hint))
        for index, text in enumerate(entry.left_out):
            if not left_out[text]:
                message = f"'{one_line(text)}' leaves out nothing: no case{suffix} matches it"
                wrong.append(("except", index, message, "correct the glob, or remove it"))
        if wrong:
            problems += [
                document.problem(_place(profile, entry, key, index), message, hint)
                for key, index, message, hint in wrong
            ]
            continue
        inside, outside = (set().union(*ids.values()) for ids in (matched, left_out))
        remaining = [
            case
            for case in of_backends
            if (not entry.cases or case.id in inside)
            and case.id not in outside
            and (not entry.tags or not set(entry.tags).isdisjoint(case.tags))
        ]
        ids = [
            str(case.id)
            for case in requested(remaining, cases, Selection(select=entry.cases, tag=entry.tags))
        ]
        new = [case_id for case_id in ids if case_id not in levels_by_id]
        if not ids:
            hint = "list --select GLOB --backend NAME shows which cases there are"
            problems.append(
                document.problem(entry.place, f"this entry names no case{suffix}", hint)
            )
        elif not new:
            level, _ = levels_by_id[ids[0]]
            first = f"{one_line(ids[0])} in {level}"
            message = f"all {len(ids)} cases of this entry are named already: {first}"
            hint = "remove the entry, or the one above that names them"
            problems.append(document.problem(entry.place, message, hint))
        levels_by_id.update(dict.fromkeys(new, (entry.level, entry.kind)))
        if entry.when:
            conditions |= dict.fromkeys(new, entry.when)
    if problems:
        raise InvalidSpecs(problems)
    files = set(map(os.path.realpath, profile.permitted))
    permitted_names = {
        read.file for read in waivers.documents if os.path.realpath(read.path) in files
    }
    permitted = tuple(
        waiver for waiver in waivers.waivers if waiver.position.file in permitted_names
    )
    keys = [
        PermittedWaiver(cases=waiver.cases, issue=waiver.issue, until=waiver.until.isoformat())
        for waiver in permitted
    ]
    not_shipped = {
        key
        for key, waiver in zip(keys, permitted, strict=True)
        if waiver.position.file in waivers.user_files
    }
    ids_of = {
        (level, kind): tuple(
            case_id for case_id, place in levels_by_id.items() if place == (level, kind)
        )
        for level in profile.levels
        for kind in ("required", "optional")
    }
    record = ProfileRecord(
        name=profile.name,
        version=profile.version,
        file=document.file,
        digest="",
        torch=profile.torch,
        levels=tuple(
            ProfileLevel(
                name=name,
                **{kind: ids_of[name, kind] for kind in ("required", "optional")},
                most_waived=profile.most_waived[name].get("percent", 2),
                most_waived_because=profile.most_waived[name].get("reason", ""),
            )
            for name in profile.levels
        ),
        conditions=conditions,
        waivers=tuple(replace(key, is_shipped=key not in not_shipped) for key in keys),
        most_by_aten=profile.most_by_aten,
        without_waivers=_without_waivers(
            profile, ids_of[profile.levels[0], "required"], suite, permitted
        ),
        compiler=profile.compiler,
        proof="" if compiler is None else compiler.asked,
    )
    digests = {
        str(case.id): digest_of(case)
        for case in suite.cases
        if case.id in levels_by_id or (profile.compiler and case.backend == _REFERENCE)
    }
    record = replace(record, digest=digest_of_requirements(record, digests))
    return Resolved(
        profile=profile,
        suite=suite,
        record=record,
        cases=tuple(case for case in suite.cases if case.id in levels_by_id),
        waivers=replace(waivers, waivers=permitted),
    )


def _without_waivers(
    profile: Profile, required: Sequence[str], suite: Suite, permitted: Sequence[Waiver]
) -> str:
    """Return the minors of torch with which no permitted waiver can hold for these cases, of those
    that the profile is for and this program knows; empty where a waiver holds with none.

    A waiver that holds only for a part of the machines counts.
    """
    ids = set(required)
    cases = {
        str(case.id): suite.backends.by_name[case.backend] for case in suite.cases if case.id in ids
    }
    waived = [
        (waiver, backend)
        for waiver in permitted
        for case_id, backend in cases.items()
        if glob(waiver.cases).fullmatch(case_id)
    ]
    minors = {
        minor: release(names.version)
        for minor, names in committed_tables().items()
        if VersionRange.parse(profile.torch).holds(release(names.version))
    }
    free = [
        minor
        for minor, torch in minors.items()
        if not any(
            holds(
                {
                    word: text
                    for word, text in (waiver.when or {}).items()
                    if word in ("torch", "backend")
                },
                Surroundings(backends=backend.names, device=backend.device, torch=torch),
            )
            for waiver, backend in waived
        )
    ]
    return "" if len(free) == len(minors) else ", ".join(free) or "none"


def digest_of_requirements(record: ProfileRecord, digests: Mapping[str, str]) -> str:
    """Return the sha256 of what a profile requires, from the digest of each case by its id.

    That of a profile for any compiler is the same for each: a case that the reference backend has
    too is that one.
    """
    required = []
    for level in record.levels:
        for case_id in level.required:
            same = case_id.replace(f"[backend={record.compiler}", f"[backend={_REFERENCE}", 1)
            listed_id = same if record.compiler and same in digests else case_id
            required.append((listed_id, level.name, digests.get(listed_id, "lost")))
    required.sort()
    limits = [record.most_by_aten, *(level.most_waived for level in record.levels)]
    whole = [record.torch, limits, required, dict(record.conditions)]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _lost(profile: Profile, suite: Suite) -> Iterator[Case]:
    """Yield a case for each id that a ledger of the profile's specs lists and no spec has any more,
    with its backend and the tags that it may have had.

    They are those of its spec's other cases; where the spec is gone, those of its folder; where
    that is gone too, all.
    """
    paths = [path.resolve() for path in profile.specs]
    for root in roots_of(profile.specs):
        ledger = root / NAME
        for case_id in (
            compare(read_ledger(ledger), root, suite.cases).gone if ledger.is_file() else ()
        ):
            spec = case_id.partition("[")[0]
            if paths and not any(
                f"{root / spec}.yaml" == str(path) or (root / spec).is_relative_to(path)
                for path in paths
            ):
                continue  # the profile never named it
            of_spec = [
                case for case in suite.cases if f"{case.area}/{case.name}".lstrip("/") == spec
            ]
            near = (
                of_spec
                or [case for case in suite.cases if case.area == spec.rpartition("/")[0]]
                or suite.cases
            )
            backend = re.search(r"\[backend=([^],]+)", case_id)
            yield replace(
                near[0],
                id=CaseId(case_id),
                backend=backend[1] if backend else "",
                tags=tuple(tag for case in near for tag in case.tags),
                on_request=False,
            )


def _place(profile: Profile, entry: Entry, key: str, index: int) -> DataPath:
    written = profile.document.value(entry.place)
    if key not in written:  # the profile's own key
        return (key, index) if isinstance(profile.document.data.get(key), list) else (key,)
    return (*entry.place, key, index) if isinstance(written[key], list) else (*entry.place, key)


# -- run --profile ---------------------------------------------------------------------------------


def with_profile(options: RunOptions, name: str) -> tuple[RunOptions, Profile]:
    """Return the options with the files of the profile, and the profile; raise ``UsageError`` for
    options that do not go with it.
    """
    profile = for_compiler(read_profile(name), options.backend)
    for option, (default, reason) in REFUSED.items():
        if getattr(options, option) != default and not (option == "backend" and profile.is_for_any):
            word = "PATH" if option == "paths" else f"--{option.replace('_', '-')}"
            raise UsageError(
                f"--profile {one_line(name)}: {word} does not go with it: {reason} (remove {word})"
            )
    installed = installed_torch()
    if installed and (why := wrong_torch(profile.torch, release(installed.version))):
        raise UsageError(
            f"--profile {profile.name}: {why} (install one of these versions, or name another "
            "profile)"
        )
    permitted = set(map(os.path.realpath, profile.permitted))
    if other := [path for path in options.waivers if os.path.realpath(path) not in permitted]:
        hint = f"write another profile with a permission: waivers: [{{file: {other[0].name}}}]"
        raise UsageError(
            f"--profile {profile.name}: it does not permit the waivers of "
            f"{shown_path(other[0])} ({hint})"
        )
    return replace(
        options,
        paths=profile.specs,
        backends=_once([*profile.backends, *options.backends]),
        waivers=_once([*profile.waivers, *options.waivers]),
    ), profile


def _once(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the paths, each file once."""
    return tuple({os.path.realpath(path): path for path in reversed(paths)}.values())[::-1]


@frozen
class Prospect:
    """Whether a machine could execute every required case of a profile."""

    required: int
    possible: int
    """How many required cases can run here."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """How many required cases this machine cannot run, by reason."""
    uncertain: Mapping[str, int] = field(default_factory=dict)
    """Why only the run can decide: how many cases have each reason."""
    problem: str = ""
    """Why no run here is possible, whatever the cases: a torch that the profile is not for."""
    not_required: Mapping[str, int] = field(default_factory=dict)
    """How many more cases are required under a condition that fails here, by reason."""

    @property
    def can_be_complete(self) -> bool | None:
        """Whether a run here can be complete; None where only the run can know."""
        if self.missing or self.problem or not self.required:
            return False
        return None if self.uncertain else True


def prospect_of_cases(verdicts: Iterable[tuple[Availability, str]]) -> Prospect:
    """Return what becomes of cases with these availabilities and reasons."""
    by_kind: dict[Availability, Counter[str]] = {kind: Counter() for kind in Availability}
    for kind, reason in verdicts:
        by_kind[kind][reason] += 1
    return Prospect(
        required=sum(counts.total() for counts in by_kind.values()),
        possible=by_kind[Availability.YES].total(),
        missing=dict(by_kind[Availability.NO].most_common()),
        uncertain=dict(by_kind[Availability.UNKNOWN].most_common()),
    )


def load_profile(
    name: str,
    paths: Sequence[Path],
    backend_files: Sequence[Path],
    backends: Sequence[str] | None = (),
) -> Resolved:
    """Load a profile and its specs; raise ``UsageError`` where ``paths`` are named too, and
    ``InvalidSpecs`` for what is wrong with the files.

    With None in place of the chosen ``backends``, a profile for any compiler has the cases of all.
    """
    if paths:
        raise UsageError(
            f"--profile {one_line(name)}: PATH does not go with it: the profile names its "
            "specs (remove PATH)"
        )
    profile = read_profile(name) if backends is None else for_compiler(read_profile(name), backends)
    files = tuple(dict.fromkeys([*profile.backends, *backend_files]))
    return cases_of(profile, load(profile.specs, files))


def levels_of(record: ProfileRecord) -> dict[str, dict[str, Any]]:
    """Return the level of each case of a profile, as ``--json`` has it."""
    return {
        case_id: {"level": level.name, "required": kind == "required"}
        for kind in ("optional", "required")
        for level in record.levels
        for case_id in getattr(level, kind)
    }


def load_shipped(suite: Suite) -> Iterator[Resolved]:
    """Yield the shipped profiles, with the shipped specs as they were loaded.

    Those for any compiler have the cases of a compiler for the CPU.
    """
    for profile in map(read_profile, shipped_profiles()):
        if profile.is_for_any:
            profile = _of_backends(profile, (_REFERENCE,))
        yield cases_of(profile, suite)


def prospect_of(resolved: Resolved, machine: Machine) -> Prospect:
    """Return whether a machine could execute what a profile requires."""
    lost = Availability.NO, "lost: no spec has this case"
    availability = {}
    for case in resolved.cases:
        verdict = capabilities.availability_of(case, machine)
        availability[str(case.id)] = verdict.availability, verdict.reason
    record = resolved.record
    shown = {**machine.builds, "torch": machine.torch, "arch": machine.arch, "gpus": machine.gpus}
    facts = {
        "python": ".".join(map(str, machine.python)),
        **{name: str(value) for name, value in shown.items() if value is not None},
    }
    spared = not_required(record, [facts])
    outlook = prospect_of_cases(
        availability.get(case_id, lost) for case_id in record.required if case_id not in spared
    )
    return replace(
        outlook,
        not_required=Counter(spared.values()),
        problem=wrong_torch(record.torch, machine.release),
    )


def lines_of(record: ProfileRecord, outlook: Prospect) -> Iterator[str]:
    """Yield the profile, how many cases each level has, and whether a run here could be
    complete.
    """
    yield ""
    yield (
        f"profile {record.name} {record.version}, for torch {record.torch}, sha256 {record.digest}"
    )
    for level in record.levels:
        yield f"  {level.name}  {len(level.required)} required, {len(level.optional)} optional"
    if record.without_waivers:
        yield f"  {record.levels[0].name} without waivers: with torch {record.without_waivers}"
    words = {
        True: "a run here can be complete",
        False: "a run here is INCOMPLETE",
        None: "only a run here can show whether it is complete",
    }
    perhaps = sum(outlook.uncertain.values())
    counts = f"{outlook.possible} can run here" + (f", {perhaps} perhaps" if perhaps else "")
    yield f"  {words[outlook.can_be_complete]}: of {outlook.required} required cases {counts}"
    if outlook.problem:
        yield f"  {one_line(outlook.problem)}"
    for word, reasons in (
        ("perhaps", outlook.uncertain),
        ("unavailable", outlook.missing),
        ("not required", outlook.not_required),
    ):
        yield from (f"  {count:5}  {word}: {one_line(reason)}" for reason, count in reasons.items())
