"""Selection of cases by backend, by glob on ids, by tag, by request, and by shard; and of their
steps.

Only ``*`` and ``?`` are special in a glob, so that an id selects itself. A case with ``on_request``
is executed where a path, a tag or a glob names it. A path names it when it is its file, or a folder
with only such cases; a glob when it matches only such cases. So ``run`` of the shipped specs, and
``--select '*'``, leave it out. What follows ``!`` names nothing.
"""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch_conformance.language.backends import Backends, read_named
from torch_conformance.language.read.document import PROFILE, SETTINGS, SPEC
from torch_conformance.language.read.spec_files import discover, is_spec_file
from torch_conformance.language.read.yaml_source import read_bytes
from torch_conformance.machine.cache_dirs import folder
from torch_conformance.matching.patterns import Ids
from torch_conformance.model.case import Case, CaseId, Step
from torch_conformance.model.conditions import as_list
from torch_conformance.model.diagnostics import (
    Diagnostic,
    InvalidSpecs,
    UsageError,
    one_line,
    require_known,
    shown_path,
)
from torch_conformance.model.document import DataPath
from torch_conformance.optional.options import REFUSED, Selection
from torch_conformance.vocabulary.steps import SAMPLES

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

NOT = "!"
"""Stands before a tag, or a glob, that excludes cases."""


def read_shard(text: str) -> tuple[int, int]:
    """Read ``I/N``, the I-th of N shards, from 1; raise ``UsageError``."""
    match = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"'{text}' is not a shard: write I/N with I from 1 to N, for example 2/4")
    return int(match[1]), int(match[2])


def shards_of(
    cases: Sequence[Case], seconds: Mapping[str, float], count: int
) -> tuple[dict[CaseId, int], list[float]]:
    """Return the number of each case's shard, from 1, by id, and the seconds of each shard: they
    take about the same time.

    Only the selection, its ``seconds`` by id and ``count`` decide, so all machines that have these
    share the cases alike. A case without seconds counts as the median of its area, else of all
    cases, else as 1.
    """
    by_area: dict[str, list[float]] = {}
    for case in cases:
        if case.id in seconds:
            by_area.setdefault(case.area, []).append(seconds[case.id])
    usual = {area: _median(values) for area, values in by_area.items()}
    otherwise = _median([value for values in by_area.values() for value in values] or [1.0])
    # whole numbers: their sums do not depend on the order
    cost = {
        case.id: max(1, round(1000 * seconds.get(case.id, usual.get(case.area, otherwise))))
        for case in cases
    }
    whole, of_backends = [0] * count, [Counter[str]() for _ in range(count)]
    shards: dict[CaseId, int] = {}
    for case in sorted(cases, key=lambda case: (-cost[case.id], case.id)):
        # cases of one backend are spread too: a machine may lack the backend, and runs none of them
        index = min(
            range(count), key=lambda index: 4 * whole[index] + of_backends[index][case.backend]
        )
        shards[case.id] = index + 1
        whole[index] += cost[case.id]
        of_backends[index][case.backend] += cost[case.id]
    return shards, [total / 1000 for total in whole]


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def unmatched(globs: Sequence[str], cases: Sequence[Case]) -> list[str]:
    """Return a hint for each glob that matches no case, also for one after ``!``."""
    ids = Ids(case.id for case in cases)
    return [
        no_case(pattern, ids) + _where_shipped(pattern, ids)
        for pattern in (text.removeprefix(NOT) for text in globs)
        if not ids.matching(pattern)
    ]


def _where_shipped(pattern: str, ids: Ids) -> str:
    """Return which folder to name where a glob is for an area of shipped specs that was not
    read.
    """
    (area, slash, _), shipped = pattern.partition("/"), folder("specs")
    if not slash or ids.matching(f"{area}/*") or not (shipped / area).is_dir():
        return ""
    return f"; the shipped specs have '{one_line(area)}', and were not read: name {shipped}"


def no_case(pattern: str, ids: Ids) -> str:
    """Return that a glob matches none of these ids, with one that is like it."""
    problem = f"no case matches '{one_line(pattern)}'"
    if below := ids.matching(f"*/{pattern}"):
        return (
            f"{problem}: ids begin with their folder; '*/{one_line(pattern)}' matches "
            f"'{one_line(below[0])}'"
        )
    return f"{problem}: ids look like '{one_line(ids.nearest(pattern))}'" if ids.ids else problem


def select(cases: Sequence[Case], backends: Backends, selection: Selection) -> list[Case]:
    """Return the cases that match every given criterion; raise ``UsageError`` for a backend or a
    tag that does not exist.

    A tag or a glob after ``!`` excludes the cases that have it, or that it matches.
    """
    names, globs, tags = selection.backend, selection.select, selection.tag
    require_known("backend", names, backends.by_name)
    all_tags = {tag for case in cases for tag in case.tags} if tags else set()
    require_known("tag", [tag.removeprefix(NOT) for tag in tags], all_tags)
    included = {tag for tag in tags if not tag.startswith(NOT)}
    unwanted = {tag.removeprefix(NOT) for tag in tags if tag.startswith(NOT)}
    selected = [case for case in cases if not names or case.backend in names]
    if globs:
        positive, left_out = (
            [text.removeprefix(NOT) for text in globs if text.startswith(NOT) is out]
            for out in (False, True)
        )
        matching, without = _matching(positive, selected), _matching(left_out, selected)
        selected = [
            case
            for case in selected
            if (not positive or case.id in matching) and case.id not in without
        ]
    return [
        case
        for case in selected
        if (not included or not included.isdisjoint(case.tags)) and unwanted.isdisjoint(case.tags)
    ]


def _matching(globs: Sequence[str], cases: Sequence[Case]) -> frozenset[str]:
    ids = Ids(case.id for case in cases)
    return frozenset(case_id for pattern in globs for case_id in ids.matching(pattern))


def is_optional(step: Step) -> bool:
    """Whether a step runs under ``--bench`` only."""
    from torch_conformance.vocabulary.steps import (
        traits_of,
    )  # all kinds of steps: ``list`` needs none of them

    return traits_of(step).is_optional


def without_benches(case: Case) -> Case:
    """Return the case as it runs without ``--bench``.

    Bench steps are the last ones, so the other steps keep their numbers.
    """
    steps = tuple(step for step in case.steps if not is_optional(step))
    return (
        replace(case, steps=steps, left_out=(*case.steps[len(steps) :], *case.left_out))
        if len(steps) < len(case.steps)
        else case
    )


def why_nothing_selected(
    read: int, selection: Selection, *, shard: str | None, count: int | None = None
) -> str:
    """Return why no case is selected.

    ``read`` is the number of cases read, ``count`` that selected before sharding, where known.
    """
    if not read:
        return "no case is selected: the files that were read hold none"
    if count and shard:
        return (
            f"no case is selected: none of the {count} selected cases falls to shard {shard}; its "
            "run is recorded, so that it can be merged"
        )
    globs = selection.select
    filters = [
        *(f"--backend {name}" for name in selection.backend),
        *(f"--select {glob}" for glob in globs[:3]),
    ]
    filters += [f"(and {len(globs) - 3} more)"] if len(globs) > 3 else []
    filters += [f"--tag {tag}" for tag in selection.tag]
    filters += [f"--shard {shard}"] if shard else []
    return (
        f"no case is selected: none of the {read} cases that were read matches "
        f"{' '.join(filters) or 'the paths'} ('list' shows them)"
    )


def requested(
    cases: Sequence[Case],
    read: Sequence[Case],
    selection: Selection,
    *,
    paths: Sequence[Path] = (),
    sources: Mapping[str, str] = {},
) -> list[Case]:
    """Return the cases without those on request that nothing names.

    ``read`` are all cases that were read; ``sources`` has, by its file, the spec that a
    random program was made by.
    """
    if not any(case.on_request for case in cases):
        return list(cases)
    default = {case.spec for case in read if not case.on_request}
    read_files = {case.spec for case in read} if paths else ()
    files = {file: Path(sources.get(file, file)).resolve() for file in read_files}
    specs: set[str] = set()
    for path in map(Path.resolve, paths):
        below = [spec for spec, file in files.items() if file == path or path in file.parents]
        specs.update(below if path in files.values() or default.isdisjoint(below) else ())
    usual = Ids(case.id for case in read if not case.on_request)
    matching = _matching(
        [
            text
            for text in selection.select
            if not text.startswith(NOT) and not usual.matching(text)
        ],
        cases,
    )
    return [
        case
        for case in cases
        if not case.on_request
        or case.spec in specs
        or not set(selection.tag).isdisjoint(case.tags)
        or case.id in matching
    ]


def check_names(names: Sequence[str], backends: Backends) -> None:
    """Raise ``UsageError`` for a name that is neither a backend nor a capability."""
    from torch_conformance.machine.capabilities import CAPABILITIES  # ``list`` needs none of them

    allowed = [*backends.by_name, *CAPABILITIES]
    require_known("backend or capability", names, allowed, "--require")


# -- what is read where the command line names no specs --------------------------------------------

_FILES = ("paths", "backends", "waivers")

Options = TypeVar("Options", bound="DataclassInstance")


def with_settings(options: Options) -> Options:
    """Return options with what the command line leaves open, of ``conformance.yaml``; raise
    ``InvalidSpecs`` with its problems.

    | the command line names                | conformance.yaml | specs that are taken                                              |
    |---------------------------------------|------------------|-------------------------------------------------------------------|
    | paths, or a profile                   | any              | those; backends and waivers of the file where it names none       |
    | none                                  | there is one     | those of its profile where the command has one, else of its paths |
    | none                                  | none, or without | ``./specs``, or the spec files of the working folder              |
    | none, and the folder has no specs     | none, or without | the shipped ones; below the folder of a file, those of that folder|

    The file is that of the working folder, or of the nearest folder above it within the repository.
    """  # noqa: E501 - a table
    names = {field.name for field in fields(options)}
    root, words = Path(), dict[str, Any]()
    if (path := _settings_file()) is not None:
        root, words = path.parent, _read(path)
    values = {name: getattr(options, name) for name in names}
    from_file = [
        word
        for word in ("backends", "waivers")
        if word in names and word in words and not values[word]
    ]
    changes: dict[str, Any] = {word: _paths(words[word], root) for word in from_file}
    if "paths" in names and not (values["paths"] or values.get("profile") or values.get("resume")):
        # a selection, as --select, is made among the paths: it does not go with a profile
        is_whole = all(
            values.get(name, default) == default for name, (default, _) in REFUSED.items()
        )
        if "profile" in names & words.keys() and is_whole:
            file = root / words["profile"]
            changes["profile"] = str(file) if file.is_file() else words["profile"]
        elif "paths" in words:
            changes["paths"] = _paths(words["paths"], root)
        else:
            changes["paths"] = _own_specs(Path()) or (_own_specs(root) if root != Path() else ())
            if root != Path() and not changes["paths"]:
                raise UsageError(f"no specs here: name a path, or write paths in {path}")
    if values.get("profile") or "profile" in changes:
        changes.pop("waivers", None)  # a profile permits waivers of its own
    return replace(options, **changes)


def _settings_file() -> Path | None:
    """Return the settings of the working folder, or of the nearest folder above it: up to the root
    of the repository, and of this user, because a file may name modules that are imported.
    """
    parent = Path()
    for _ in Path.cwd().parts:
        path = parent / SETTINGS.file_name
        if os.path.lexists(path) and (parent == Path() or path.lstat().st_uid in (0, os.getuid())):
            return path
        if (parent / ".git").exists():
            return None
        parent /= ".."
    return None


def _paths(names: object, root: Path) -> tuple[Path, ...]:
    return tuple(root / name for name in as_list(names))


def _read(path: Path) -> dict[str, Any]:
    problems: list[Diagnostic] = []
    document = read_named(path, SETTINGS, problems)
    if document is None:
        raise InvalidSpecs(problems)
    for word in _FILES:
        value = document.data.get(word, [])
        for index, name in enumerate(as_list(value)):
            if not os.path.lexists(path.parent / name):
                place: DataPath = (word,) if value is name else (word, index)
                problems.append(
                    document.problem(
                        place, f"no such file or folder: {name}", "paths are relative to this file"
                    )
                )
    if problems:
        raise InvalidSpecs(problems)
    return dict(document.data)


def _own_specs(root: Path) -> tuple[Path, ...]:
    """Return ``specs`` of a folder, or the spec files in it; nothing for the folder of the shipped
    specs, or without any.
    """
    folder_of_specs = root / "specs"
    if folder_of_specs.is_dir():
        return (
            ()
            if folder_of_specs.resolve() == folder("specs").resolve()
            or not discover([folder_of_specs], [])
            else (folder_of_specs,)
        )
    paths = sorted(
        path for path in root.glob("*.y*ml") if path.is_file() and is_spec_file(path, root)
    )
    texts = ((path, read_bytes(path).decode("utf-8-sig", "replace")) for path in paths)
    return tuple(
        path for path, text in texts if SPEC.recognises(text) and not PROFILE.recognises(text)
    )


def taken(paths: Sequence[Path], count: int) -> str:
    """Return which specs a command takes, on one line."""
    if not paths:
        return (
            f"specs: the {count:,} shipped cases; name a path, or write {SETTINGS.file_name}, for "
            "your own"
        )
    shown = [
        shown_path(path) if path.is_absolute() or path.parts[:1] in ((), ("..",)) else f"./{path}"
        for path in paths
    ]
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return f"specs: {count:,} case{'' if count == 1 else 's'} of {', '.join(shown[:3])}{more}"


def is_of_operator(case: Case) -> bool:
    """Whether a case comes from torch's database of operators."""
    return [step.kind for step in case.steps] == [SAMPLES]
