"""The first stages as one: from paths to cases, or every problem of every file."""

import contextlib
import gc
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.capabilities import Machine
from runner.conditions import Surroundings
from runner.diagnostics import Diagnostic, InvalidSpecs
from runner.language import schema
from runner.language.anatomy import Anatomy, take_apart
from runner.language.backends import Backends, load_backends
from runner.language.check import check
from runner.language.check_covers import covers_problems
from runner.language.check_templates import check_backends, check_templates
from runner.language.expand import duplicate_ids, expand
from runner.language.files import DefaultsReader, SpecFile, SpecPath, discover
from runner.language.names import NameTables
from runner.language.once import spy_warnings
from runner.language.source import Document, read
from runner.machine import installed_torch, release
from runner.model import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Everything that was read: the cases, and the files that they came from."""

    cases: tuple[Case, ...]
    backends: Backends
    documents: tuple[Document, ...]
    """The files that were read: specs with their defaults."""
    warnings: tuple[Diagnostic, ...] = ()
    """What is allowed, and probably not what its author means."""

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of each file, by its name as shown."""
        return {document.file: document.digest for document in self.documents}


def load(paths: Sequence[Path], backend_files: Sequence[Path] = (), known: Surroundings | None = None) -> Suite:
    """Read, validate and expand; raise ``InvalidSpecs`` with every problem of every file, or ``UsageError``."""
    problems: list[Diagnostic] = []
    with _without_collector():
        return load_specs(discover(paths, problems), backend_files, known, problems)


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


def load_specs(
    specs: Sequence[SpecPath], backend_files: Sequence[Path], known: Surroundings | None, problems: list[Diagnostic] | None = None
) -> Suite:
    """Like ``load``, for files whose areas are known; ``problems`` are those of finding them."""
    problems = [] if problems is None else problems
    anatomies = _read_all(specs, problems)
    backends = _backends(backend_files, problems)
    installed = installed_torch()
    names = NameTables.load(installed)
    here = known or surroundings_of(installed.version if installed else None, None)
    cases: list[Case] = []
    if backends is None:
        raise InvalidSpecs([*problems, *(problem for anatomy in anatomies for problem in anatomy.problems)])
    wrong_backends = check_backends(backends, names)
    problems.extend(wrong_backends)
    for anatomy in anatomies:
        found = check(anatomy, backends, names)
        found.extend(check_templates(anatomy, backends, is_sound=not found))
        problems.extend(found)
        if not found and not wrong_backends:
            problems.extend(_expand_into(cases, anatomy, backends, names, here))
    problems.extend(duplicate_ids(cases))
    if problems:
        raise InvalidSpecs(problems)
    documents = tuple(document for anatomy in anatomies for document in (*anatomy.spec.defaults, anatomy.document))
    warnings = tuple(sorted({warning for anatomy in anatomies for warning in spy_warnings(anatomy, backends)}))
    return Suite(cases=tuple(cases), backends=backends, documents=documents, warnings=warnings)


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


def _backends(files: Sequence[Path], problems: list[Diagnostic]) -> Backends | None:
    try:
        return load_backends(files)
    except InvalidSpecs as error:
        problems.extend(error.diagnostics)
    return None


def _read_all(specs: Sequence[SpecPath], problems: list[Diagnostic]) -> list[Anatomy]:
    defaults = DefaultsReader()
    anatomies: list[Anatomy] = []
    for spec in specs:
        inherited = defaults.of(spec)
        try:
            document = read(spec.path)
        except InvalidSpecs as error:
            problems.extend(error.diagnostics)
            continue
        found = schema.problems(document, "spec")
        problems.extend(found)
        if not found:
            file = SpecFile(document=document, area=spec.area, name=spec.path.stem, defaults=inherited)
            anatomy = take_apart(file)
            if defaults.are_whole(spec):
                anatomies.append(anatomy)
            else:
                # what the defaults would have brought is missing everywhere below: said once is enough
                problems.extend(anatomy.problems)
    problems.extend(defaults.problems)
    return anatomies


def _expand_into(cases: list[Case], anatomy: Anatomy, backends: Backends, names: NameTables, here: Surroundings) -> list[Diagnostic]:
    try:
        expanded = expand(anatomy, backends, names, here)
    except InvalidSpecs as error:
        return list(error.diagnostics)
    cases.extend(expanded)
    return list(covers_problems(anatomy.document, expanded))
