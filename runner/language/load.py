"""Loads specs: from paths to cases, or all problems of all files."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.core.case import Case
from runner.core.conditions import BadRange, Surroundings
from runner.core.diagnostics import Diagnostic, InvalidSpecs, errors
from runner.core.targets import BACKEND, SIMULATED
from runner.language.backends import Backends, read_backends
from runner.language.check.spec import check, clashing_keys, covers_problems, matrix_problems, named_backends, unused_key_problems
from runner.language.check.templates import as_first_case, check_backends, check_templates
from runner.language.check.values import spy_warnings
from runner.language.expand.cases import expand
from runner.language.names.tables import NameTables
from runner.language.read.anatomy import Anatomy, take_apart
from runner.language.read.document import SPEC, Document
from runner.language.read.files import DefaultsReader, SpecFile, SpecPath, discover, link_problem
from runner.language.read.matrix import TARGETS
from runner.language.read.schema import form_problems
from runner.language.read.source import read_partly
from runner.language.read.templates import TemplateError
from runner.system.capabilities import Machine
from runner.system.installed_torch import InstalledTorch, installed_torch, release
from runner.vocabulary.steps import TRITON

_AS_IT_IS: Mapping[Path, bytes] = {}
"""Every spec is read from its file."""


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
    return inspect_specs(discover(paths, problems), backend_files, known, problems, torch=torch).valid().suite


def inspect(paths: Sequence[Path], backend_files: Sequence[Path] = ()) -> "Inspection":
    """Like ``load``, but never raises ``InvalidSpecs``."""
    problems: list[Diagnostic] = []
    return inspect_specs(discover(paths, problems), backend_files, None, problems)


def load_specs(
    specs: Sequence[SpecPath], backend_files: Sequence[Path], known: Surroundings | None, texts: Mapping[Path, bytes] = _AS_IT_IS
) -> Suite:
    """Like ``load``, for files with known areas; ``texts`` are as for ``inspect_specs``."""
    return inspect_specs(specs, backend_files, known, texts=texts).valid().suite


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The readable part of the specs, and their problems. If there are errors, some cases are missing."""

    suite: Suite
    problems: tuple[Diagnostic, ...]
    anatomies: tuple[Anatomy, ...] = ()
    """The specs as they were read, each split into its parts."""

    def valid(self) -> "Inspection":
        """Return itself; raise ``InvalidSpecs`` if there are errors."""
        if wrong := errors(self.problems):
            raise InvalidSpecs(wrong)
        return self


def inspect_specs(
    specs: Sequence[SpecPath],
    backend_files: Sequence[Path] = (),
    known: Surroundings | None = None,
    problems: Sequence[Diagnostic] = (),
    *,
    texts: Mapping[Path, bytes] = _AS_IT_IS,
    torch: InstalledTorch | None = None,
) -> Inspection:
    """Read all files, then check the meaning of those whose form is right, and of which every file that they use has the right form.

    ``problems`` are those of finding the files. ``texts`` are read in the place of the specs at these paths: changes that are not written.
    """
    problems = [*problems]
    defaults = DefaultsReader()
    read = (_read_spec(spec, defaults, problems, texts.get(spec.path)) for spec in specs)
    anatomies = tuple(anatomy for anatomy in read if anatomy is not None)
    problems.extend(defaults.problems)
    backends = read_backends(backend_files, problems)
    installed = torch or installed_torch()
    names = NameTables.load(installed)
    wrong_options = check_backends(backends, names)
    problems.extend(wrong_options)
    context = _Context(
        backends=backends,
        names=names,
        here=known or surroundings_of(installed.version if installed else None, None),
        is_valid=not wrong_options,
    )
    cases: list[Case] = []
    for anatomy in anatomies:
        problems.extend(_check_spec(anatomy, cases, context))
    problems.extend(duplicate_ids(cases))
    documents = tuple(document for anatomy in anatomies for document in (*anatomy.spec.defaults, anatomy.document))
    suite = Suite(cases=tuple(cases), backends=backends, documents=documents)
    return Inspection(suite=suite, problems=tuple(problems), anatomies=anatomies)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """What the checks of all specs share."""

    backends: Backends
    names: NameTables
    here: Surroundings
    is_valid: bool
    """Whether the options of all backends are valid."""


def _read_spec(spec: SpecPath, defaults: DefaultsReader, problems: list[Diagnostic], content: bytes | None) -> Anatomy | None:
    """Read a spec, or ``content`` in its place, and add its problems of form; None where it, or a file of its defaults, has any."""
    inherited = defaults.of(spec)
    refused = link_problem(spec.path, spec.root)
    if refused is not None:
        problems.append(refused)
        return None
    try:
        document = with_offline_backend(read_partly(spec.path, content=content))
    except InvalidSpecs as error:
        problems.extend(error.diagnostics)
        return None
    own = form_problems(document, SPEC)
    problems.extend(own)
    if own or not inherited.is_sound:
        return None
    return take_apart(SpecFile(document=document, area=spec.area, name=spec.path.stem, defaults=inherited.documents))


def _check_spec(anatomy: Anatomy, cases: list[Case], context: _Context) -> list[Diagnostic]:
    """Return the problems of meaning of a spec, and add its cases."""
    backends = context.backends
    if any(map(backends.is_unsettled, named_backends(anatomy.data))):
        return list(anatomy.problems)
    found = _meaning(anatomy, context)
    if errors(found):
        return found
    try:
        expanded = expand(anatomy, backends, context.names, context.here)
    except InvalidSpecs as error:
        return [*found, *error.diagnostics]
    except (BadRange, TemplateError):
        if context.is_valid:
            raise
        return found
    cases.extend(expanded)
    return [*found, *covers_problems(anatomy.document, expanded)]


def _meaning(anatomy: Anatomy, context: _Context) -> list[Diagnostic]:
    backends, names = context.backends, context.names
    if clashes := list(clashing_keys(anatomy)):
        return [*anatomy.problems, *clashes]
    shown = as_first_case(anatomy, backends)
    found = [*anatomy.problems, *(matrix_problems(anatomy, backends) if shown is None else check(shown, backends, names))]
    found += unused_key_problems(anatomy)
    return [*found, *check_templates(anatomy, backends, names, found), *spy_warnings(anatomy, backends)]


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
            problems.append(Diagnostic(position=case.position, message=message, hint="rename one of the files", code="repeated-id"))
    return problems
