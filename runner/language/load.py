"""Loads specs: from paths to cases, or all problems of all files."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner.core.case import Case
from runner.core.conditions import BadRange, Surroundings
from runner.core.diagnostics import Diagnostic, InvalidSpecs, did_you_mean, errors
from runner.core.targets import BACKEND, SIMULATED
from runner.language.backends import Backends, read_backends
from runner.language.check.covers import covers_problems
from runner.language.check.matrix import unused_key_problems
from runner.language.check.spec import check
from runner.language.check.templates import check_backends, check_templates
from runner.language.check.whole_templates import as_first_case
from runner.language.expand.cases import expand
from runner.language.expand.options import SECTIONS
from runner.language.names.once_per_process import spy_warnings
from runner.language.names.torch_names import NameTables
from runner.language.read import substitution
from runner.language.read.anatomy import Anatomy, take_apart, with_document
from runner.language.read.document import DataPath, Document
from runner.language.read.files import DefaultsReader, SpecFile, SpecPath, discover
from runner.language.read.follow_ups import Region, gaps_of, sections_with, uncertain_regions, without_follow_ups
from runner.language.read.kinds import SPEC
from runner.language.read.matrix import TARGETS
from runner.language.read.repair import Fill, edited, readable
from runner.language.read.source import BUFFERS, read_partly
from runner.language.read.templates import TemplateError
from runner.language.read.tree import link_problem
from runner.system.capabilities import Machine
from runner.system.data_dirs import folder
from runner.system.installed_torch import InstalledTorch, installed_torch, release
from runner.vocabulary.steps import TRITON

_AS_IT_IS: Mapping[Path, bytes] = {}
"""Every spec is read from its file."""


OTHER_TORCH: ContextVar[InstalledTorch | None] = ContextVar("OTHER_TORCH", default=None)
"""The torch of another machine, for which specs are loaded; None for the installed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The result of loading: the cases, and the files that define them."""

    cases: tuple[Case, ...]
    backends: Backends
    documents: tuple[Document, ...]
    """The files of specs and of their defaults."""

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of each file, by its name in messages."""
        return {document.file: document.digest for document in self.documents}


def load(
    paths: Sequence[Path],
    backend_files: Sequence[Path] = (),
    known: Surroundings | None = None,
    torch: InstalledTorch | None = None,
) -> Suite:
    """Read, validate and expand; raise ``InvalidSpecs`` with all problems of all files, or ``UsageError``.

    ``torch`` is the one of another machine, whose names the specs are checked for; without it, it is the installed one.
    """
    problems: list[Diagnostic] = []
    token = OTHER_TORCH.set(torch)
    try:
        return load_specs(discover(paths, problems), backend_files, known, problems)
    finally:
        OTHER_TORCH.reset(token)


def inspect(paths: Sequence[Path], backend_files: Sequence[Path] = ()) -> "Inspection":
    """Like ``load``, but never raises ``InvalidSpecs``."""
    problems: list[Diagnostic] = []
    return _inspect(discover(paths, problems), backend_files, None, problems)


def inspect_buffer(path: Path, content: bytes, backend_files: Sequence[Path] = ()) -> "Inspection":
    """Like ``inspect`` for one file whose content an editor has; the file need not exist."""
    absolute = Path(os.path.abspath(path))
    shipped = folder("specs").resolve()
    root = shipped if absolute.resolve().is_relative_to(shipped) else absolute.parent
    token = BUFFERS.set({**BUFFERS.get(), absolute: content})
    try:
        return _inspect([SpecPath(path=absolute, root=root)], backend_files, None, [])
    finally:
        BUFFERS.reset(token)


def inspect_placed(specs: Sequence[SpecPath], backend_files: Sequence[Path] = ()) -> "Inspection":
    """Like ``inspect``, for files with known areas."""
    return _inspect(specs, backend_files, None, [])


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The readable part of the specs, and their problems. If there are errors, some cases are missing."""

    suite: Suite
    problems: tuple[Diagnostic, ...]
    anatomies: tuple[Anatomy, ...] = ()
    """The specs as they were read, each split into its parts."""


def load_specs(
    specs: Sequence[SpecPath],
    backend_files: Sequence[Path],
    known: Surroundings | None,
    problems: list[Diagnostic] | None = None,
    texts: Mapping[Path, bytes] = _AS_IT_IS,
) -> Suite:
    """Like ``load``, for files with known areas; ``problems`` are those of finding the files.

    ``texts`` are read in the place of the specs at these paths: changes that are not written yet.
    """
    return inspect_specs(specs, backend_files, known, problems, texts).suite


def inspect_specs(
    specs: Sequence[SpecPath],
    backend_files: Sequence[Path],
    known: Surroundings | None,
    problems: list[Diagnostic] | None = None,
    texts: Mapping[Path, bytes] = _AS_IT_IS,
) -> Inspection:
    """Like ``load_specs``, with the specs as they were read; raise ``InvalidSpecs``."""
    found = _inspect(specs, backend_files, known, [] if problems is None else problems, texts)
    if wrong := errors(found.problems):
        raise InvalidSpecs(wrong)
    return found


def _inspect(
    specs: Sequence[SpecPath],
    backend_files: Sequence[Path],
    known: Surroundings | None,
    problems: list[Diagnostic],
    texts: Mapping[Path, bytes] = _AS_IT_IS,
) -> Inspection:
    defaults = DefaultsReader()
    parts = [part for spec in specs if (part := read_part(spec, defaults, problems, texts.get(spec.path))) is not None]
    problems.extend(defaults.problems)
    shared = shared_of(read_backends(backend_files, problems), known, problems)
    cases: list[Case] = []
    for part in parts:
        problems.extend(check_part(part, cases, shared))
    problems.extend(duplicate_ids(cases))
    documents = tuple(document for part in parts for document in (*part.anatomy.spec.defaults, part.anatomy.document))
    suite = Suite(cases=tuple(cases), backends=shared.backends, documents=documents)
    return Inspection(suite=suite, problems=tuple(problems), anatomies=tuple(part.anatomy for part in parts))


@dataclass(frozen=True, slots=True)
class Part:
    """A spec, or its readable part."""

    anatomy: Anatomy
    gaps: frozenset[str]
    """The missing parts of it and of its defaults."""
    uncertain: tuple[Region, ...]
    """The regions of expectations with a missing part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The context for the checks of all specs."""

    backends: Backends
    names: NameTables
    here: Surroundings
    is_valid: bool
    """Whether the options of all backends are valid."""


def shared_of(backends: Backends, known: Surroundings | None, problems: list[Diagnostic]) -> Shared:
    """Return what the checks of all specs share, and add the problems of the options of the backends."""
    installed = OTHER_TORCH.get() or installed_torch()
    names = NameTables.load(installed)
    wrong = check_backends(backends, names)
    problems.extend(wrong)
    here = known or surroundings_of(installed.version if installed else None, None)
    return Shared(backends=backends, names=names, here=here, is_valid=not wrong)


def check_part(part: Part, cases: list[Case], shared: Shared) -> list[Diagnostic]:
    """Return the semantic problems of a spec, and add its cases."""
    anatomy, gaps = _on_known_backends(part, shared.backends)
    if anatomy is None:
        return list(part.anatomy.problems)
    found = without_follow_ups(_meaning(anatomy, shared), gaps, part.uncertain)
    if "steps" in anatomy.data and "expect" in anatomy.data:
        found = _with_short_form(part, found, anatomy, shared)
    if gaps or part.uncertain or errors(found):
        return [*found, *_problems_of_cases(anatomy, found, gaps, cases, shared)]
    return [*found, *_expand_into(cases, anatomy, shared)]


def _meaning(anatomy: Anatomy, shared: Shared) -> list[Diagnostic]:
    shown, cuts = as_first_case(anatomy, shared.backends)
    unused = unused_key_problems(anatomy, shared.backends)
    found = [*without_follow_ups(check(shown, shared.backends, shared.names), gaps_of(cuts, anatomy.data)), *unused]
    templated = check_templates(anatomy, shared.backends, shared.names, found)
    return [*found, *templated, *spy_warnings(anatomy, shared.backends)]


def _with_short_form(part: Part, found: Sequence[Diagnostic], anatomy: Anatomy, shared: Shared) -> list[Diagnostic]:
    """Add the problems of an ``expect`` beside ``steps``, which is ignored otherwise."""
    document = edited(anatomy.document, [("steps",)])
    gaps = part.gaps | gaps_of([("steps",), ("expect",)])
    others = without_follow_ups(_meaning(take_apart(replace(anatomy.spec, document=document)), shared), gaps, part.uncertain)
    own = [problem for problem in others if "expect" in sections_with(anatomy.document, [problem])]
    return [*without_follow_ups(found, gaps_of([("expect",)])), *(problem for problem in own if problem not in found)]


def _on_known_backends(part: Part, backends: Backends) -> tuple[Anatomy | None, frozenset[str]]:
    """Return a spec without backends with an invalid definition; None if no backend is left."""
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


_OF_CASES = frozenset(["summary", "covers", "tags", "backends", "targets", "matrix", "exclude", "requires", "control", *SECTIONS])
"""The keys that the expansion of a spec depends on."""

_OF_POINTS = frozenset(["matrix", "part of matrix", "exclude"])
"""The keys that the points of the matrix depend on, besides the backends."""


def _problems_of_cases(
    anatomy: Anatomy, found: Sequence[Diagnostic], gaps: frozenset[str], cases: list[Case], shared: Shared
) -> list[Diagnostic]:
    """Return the problems of the cases of a spec with other problems: only its valid sections are expanded."""
    wrong = sections_with(anatomy.document, found)
    named = anatomy.data["backends"]
    unknown = [("backends", index) for index, name in enumerate(named) if name not in shared.backends.by_name]
    if "backends" in gaps or "targets" in wrong | gaps or len(unknown) == len(named):
        return []
    valid = _OF_CASES - (wrong - {"backends"}) - gaps
    if (wrong | gaps) & _OF_POINTS:
        # values without templates are the same at every point
        templated = {str(path[0]) for path, _ in substitution.occurrences(anatomy.data)}
        valid, cases = valid - _OF_POINTS - templated, []
    summary: dict[DataPath, Any] = {("summary",): _FILL["summary"]} if "summary" not in valid else {}
    document = edited(anatomy.document, [*unknown, *((key,) for key in anatomy.data if key not in valid)], summary)
    bare = take_apart(SpecFile(document=document, area=anatomy.spec.area, name=anatomy.spec.name, defaults=anatomy.spec.defaults))
    try:
        return without_follow_ups(_expand_into(cases, bare, shared), gaps | wrong)
    except (BadRange, TemplateError):
        return []  # an error of defaults or of a backend, which is reported there


def surroundings_of(torch_version: str | None, machine: Machine | None) -> Surroundings:
    """Return the facts for conditions before a backend is selected."""
    return Surroundings(
        backends=frozenset(),
        device="",
        torch=release(torch_version) if torch_version else None,
        python=sys.version_info[:3],
        vendor=machine.vendor if machine else None,
        arch=machine.arch if machine else None,
    )


_FILL = {"summary": "no summary", "backends": ["cpu"]}
"""Values for missing keys of a spec, so that its other keys can be checked."""


def read_part(spec: SpecPath, defaults: DefaultsReader, problems: list[Diagnostic], content: bytes | None) -> Part | None:
    """Read a spec, or ``content`` in its place, and add its problems; None where nothing of it can be read."""
    inherited = defaults.of(spec)
    refused = link_problem(spec.path, spec.tree) if os.path.islink(spec.path) else None
    if refused is not None:
        problems.append(refused)
        return None
    try:
        document = read_partly(spec.path, content=content)
    except InvalidSpecs as error:
        problems.extend(error.diagnostics)
        return None
    found = readable(with_offline_backend(document), SPEC, Fill(depth=0, values=_FILL))
    problems.extend(found.problems)
    if found.document is None:
        return None
    anatomy = take_apart(SpecFile(document=found.document, area=spec.area, name=spec.path.stem, defaults=inherited))
    gaps = gaps_of(found.cuts, document.data) | defaults.gaps(spec)
    return Part(anatomy, gaps, tuple(uncertain_regions(document, found.cuts)))


def with_offline_backend(document: Document) -> Document:
    """Return a spec that names targets and no backend with the backend of such cases: later stages read one key."""
    data = document.data
    if not isinstance(data, dict) or TARGETS not in data or "backends" in data:
        return document
    place = {("backends",): document.marks[(TARGETS,)], ("backends", 0): document.marks[(TARGETS,)]}
    backend = BACKEND if TRITON in data else SIMULATED
    return replace(
        document, data={**data, "backends": [backend]}, marks={**document.marks, **place}, key_marks={**document.key_marks, **place}
    )


def _expand_into(cases: list[Case], anatomy: Anatomy, shared: Shared) -> list[Diagnostic]:
    try:
        expanded = expand(anatomy, shared.backends, shared.names, shared.here)
    except InvalidSpecs as error:
        return list(error.diagnostics)
    except (BadRange, TemplateError):
        if shared.is_valid:
            raise
        return []
    cases.extend(expanded)
    return list(covers_problems(anatomy.document, expanded))


def duplicate_ids(cases: Iterable[Case]) -> list[Diagnostic]:
    """Return a problem for each pair of files that share an id."""
    problems: list[Diagnostic] = []
    first: dict[str, Case] = {}
    reported: set[tuple[str, str]] = set()
    for case in cases:
        other = first.setdefault(case.id, case)
        if other.spec != case.spec and (other.spec, case.spec) not in reported:
            reported.add((other.spec, case.spec))
            message = f"the case id '{case.id}' stands in {other.spec} too"
            problems.append(Diagnostic(position=case.position, message=message, hint="rename one of the files"))
    return problems
