"""The first stages as one: from paths to cases, or every problem of every file."""

import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner.core.conditions import BadRange, Surroundings
from runner.core.diagnostics import Diagnostic, InvalidSpecs, did_you_mean, errors
from runner.core.model import Case
from runner.language.backends import Backends, read_backends
from runner.language.check.covers import covers_problems
from runner.language.check.spec import check
from runner.language.check.templates import check_backends, check_templates
from runner.language.expand.cases import duplicate_ids, expand
from runner.language.expand.options import SECTIONS
from runner.language.names.once_per_process import spy_warnings
from runner.language.names.torch_names import NameTables
from runner.language.read import substitution
from runner.language.read.anatomy import Anatomy, take_apart, with_document
from runner.language.read.document import DataPath, Document
from runner.language.read.doubts import Region, believed, doubts_of, gaps_of, sections_with
from runner.language.read.files import DefaultsReader, SpecFile, SpecPath, discover
from runner.language.read.kinds import SPEC
from runner.language.read.repair import Fill, edited, readable
from runner.language.read.source import read_partly
from runner.language.read.templates import TemplateError
from runner.language.read.tree import link_problem
from runner.system.capabilities import Machine
from runner.system.installed_torch import installed_torch, release


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Everything that was read: the cases, and the files that they came from."""

    cases: tuple[Case, ...]
    backends: Backends
    documents: tuple[Document, ...]
    """The files that were read: specs with their defaults."""

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of each file, by its name as shown."""
        return {document.file: document.digest for document in self.documents}


def load(paths: Sequence[Path], backend_files: Sequence[Path] = (), known: Surroundings | None = None) -> Suite:
    """Read, validate and expand; raise ``InvalidSpecs`` with every problem of every file, or ``UsageError``."""
    problems: list[Diagnostic] = []
    with _without_collector():
        return load_specs(discover(paths, problems), backend_files, known, problems)


def inspect(paths: Sequence[Path], backend_files: Sequence[Path] = ()) -> "Inspection":
    """Like ``load``, and never raises ``InvalidSpecs``."""
    problems: list[Diagnostic] = []
    with _without_collector():
        return _inspect(discover(paths, problems), backend_files, None, problems)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Look for no cycles while reading: nearly all that is made is kept, and with many cases it would be looked through again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What was read, and what is wrong with it. With errors some of the cases are missing."""

    suite: Suite
    problems: tuple[Diagnostic, ...]


def load_specs(
    specs: Sequence[SpecPath], backend_files: Sequence[Path], known: Surroundings | None, problems: list[Diagnostic] | None = None
) -> Suite:
    """Like ``load``, for files whose areas are known; ``problems`` are those of finding them."""
    found = _inspect(specs, backend_files, known, [] if problems is None else problems)
    if wrong := errors(found.problems):
        raise InvalidSpecs(wrong)
    return found.suite


def _inspect(
    specs: Sequence[SpecPath], backend_files: Sequence[Path], known: Surroundings | None, problems: list[Diagnostic]
) -> Inspection:
    parts = _read_all(specs, problems)
    backends = read_backends(backend_files, problems)
    installed = installed_torch()
    names = NameTables.load(installed)
    here = known or surroundings_of(installed.version if installed else None, None)
    cases: list[Case] = []
    wrong_backends = check_backends(backends, names)
    problems.extend(wrong_backends)
    for part in parts:
        problems.extend(_check_part(part, cases, _Shared(backends=backends, names=names, here=here, is_sound=not wrong_backends)))
    problems.extend(duplicate_ids(cases))
    documents = tuple(document for part in parts for document in (*part.anatomy.spec.defaults, part.anatomy.document))
    return Inspection(suite=Suite(cases=tuple(cases), backends=backends, documents=documents), problems=tuple(problems))


@dataclass(frozen=True, slots=True)
class _Part:
    """A spec, or what could be read of it."""

    anatomy: Anatomy
    gaps: frozenset[str]
    """What is missing of it and of its defaults."""
    doubts: tuple[Region, ...]
    """Expectations of which a part is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """What all specs are held against."""

    backends: Backends
    names: NameTables
    here: Surroundings
    is_sound: bool
    """Whether the options of all backends are in order."""


def _check_part(part: _Part, cases: list[Case], shared: _Shared) -> list[Diagnostic]:
    """Return what is wrong with the meaning of a spec, and add its cases."""
    anatomy, gaps = _on_known_backends(part, shared.backends)
    if anatomy is None:
        return list(part.anatomy.problems)
    found = believed(_meaning(anatomy, shared), gaps, part.doubts)
    if "steps" in anatomy.data and "expect" in anatomy.data:
        found = _with_short_form(part, found, anatomy, shared)
    if gaps or part.doubts or errors(found):
        return [*found, *_problems_of_cases(anatomy, found, gaps, cases, shared)]
    return [*found, *_expand_into(cases, anatomy, shared)]


def _meaning(anatomy: Anatomy, shared: _Shared) -> list[Diagnostic]:
    found = check(anatomy, shared.backends, shared.names)
    return [*found, *check_templates(anatomy, shared.backends, found), *spy_warnings(anatomy, shared.backends)]


def _with_short_form(part: _Part, found: Sequence[Diagnostic], anatomy: Anatomy, shared: _Shared) -> list[Diagnostic]:
    """Add what is wrong with an ``expect`` that stands beside ``steps``, where nothing else reads it."""
    document = edited(anatomy.document, [("steps",)])
    gaps = part.gaps | gaps_of([("steps",), ("expect",)])
    others = believed(_meaning(take_apart(replace(anatomy.spec, document=document)), shared), gaps, part.doubts)
    own = [problem for problem in others if "expect" in sections_with(anatomy.document, [problem])]
    return [*believed(found, gaps_of([("expect",)])), *(problem for problem in own if problem not in found)]


def _on_known_backends(part: _Part, backends: Backends) -> tuple[Anatomy | None, frozenset[str]]:
    """Return a spec without the backends that cannot be used because their own definition is wrong; None when nothing is known."""
    anatomy, gaps = part.anatomy, part.gaps
    named = anatomy.data["backends"]
    lost: list[DataPath] = [("backends", index) for index, name in enumerate(named) if name in backends.broken]
    if not backends.is_whole:
        gaps |= {"files of backends"}
        lost += [("backends", i) for i, name in enumerate(named) if name not in backends.names and not did_you_mean(name, backends.by_name)]
    if not lost:
        return anatomy, gaps
    known = next(iter(backends.by_name), None)
    if known is None:
        return None, gaps
    filled: dict[DataPath, Any] = {("backends",): [known]} if len(lost) == len(named) else {}
    return with_document(anatomy, edited(anatomy.document, lost, filled)), gaps | {"backends"}


_OF_CASES = frozenset(["summary", "covers", "tags", "backends", "matrix", "exclude", "requires", "control", *SECTIONS])
"""What the problems of expanding a spec depend on."""

_OF_POINTS = frozenset(["matrix", "part of matrix", "exclude"])
"""What the points of the matrix depend on, besides the backends."""


def _problems_of_cases(
    anatomy: Anatomy, found: Sequence[Diagnostic], gaps: frozenset[str], cases: list[Case], shared: _Shared
) -> list[Diagnostic]:
    """Return what is wrong with the cases of a spec that has other problems: its sound sections are expanded without the others."""
    wrong = sections_with(anatomy.document, found)
    named = anatomy.data["backends"]
    unknown = [("backends", index) for index, name in enumerate(named) if name not in shared.backends.by_name]
    if "backends" in gaps or len(unknown) == len(named):
        return []
    kept = _OF_CASES - (wrong - {"backends"}) - gaps
    if (wrong | gaps) & _OF_POINTS:
        # what has no template is the same at every point
        templated = {str(path[0]) for path, _ in substitution.occurrences(anatomy.data)}
        kept, cases = kept - _OF_POINTS - templated, []
    summary: dict[DataPath, Any] = {("summary",): _FILL["summary"]} if "summary" not in kept else {}
    document = edited(anatomy.document, [*unknown, *((key,) for key in anatomy.data if key not in kept)], summary)
    bare = take_apart(SpecFile(document=document, area=anatomy.spec.area, name=anatomy.spec.name, defaults=anatomy.spec.defaults))
    try:
        return believed(_expand_into(cases, bare, shared), gaps | wrong)
    except (BadRange, TemplateError):
        return []  # of defaults or of a backend, where it is reported


def surroundings_of(torch_version: str | None, machine: Machine | None) -> Surroundings:
    """Return what conditions may ask about before a backend is chosen."""
    return Surroundings(
        backends=frozenset(),
        device="",
        torch=release(torch_version) if torch_version else None,
        python=sys.version_info[:3],
        vendor=machine.vendor if machine else None,
        arch=machine.arch if machine else None,
    )


_FILL = {"summary": "no summary", "backends": ["cpu"]}
"""Stands for keys that a spec lacks, so that the others are checked."""


def _read_all(specs: Sequence[SpecPath], problems: list[Diagnostic]) -> list[_Part]:
    defaults = DefaultsReader()
    parts: list[_Part] = []
    for spec in specs:
        inherited = defaults.of(spec)
        refused = link_problem(spec.path, spec.tree) if os.path.islink(spec.path) else None
        if refused is not None:
            problems.append(refused)
            continue
        try:
            document = read_partly(spec.path)
        except InvalidSpecs as error:
            problems.extend(error.diagnostics)
            continue
        found = readable(document, SPEC, Fill(depth=0, values=_FILL))
        problems.extend(found.problems)
        if found.document is not None:
            anatomy = take_apart(SpecFile(document=found.document, area=spec.area, name=spec.path.stem, defaults=inherited))
            gaps = gaps_of(found.cuts, document.data) | defaults.gaps(spec)
            parts.append(_Part(anatomy, gaps, tuple(doubts_of(document, found.cuts))))
    problems.extend(defaults.problems)
    return parts


def _expand_into(cases: list[Case], anatomy: Anatomy, shared: _Shared) -> list[Diagnostic]:
    try:
        expanded = expand(anatomy, shared.backends, shared.names, shared.here)
    except InvalidSpecs as error:
        return list(error.diagnostics)
    except (BadRange, TemplateError):
        if shared.is_sound:
            raise
        return []
    cases.extend(expanded)
    return list(covers_problems(anatomy.document, expanded))
