"""Loads specs: from paths to cases, or all problems of all files."""

import functools
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from torch_conformance.language.backends import Backends, read_backends
from torch_conformance.language.check.spec import (
    as_first_case,
    check,
    check_backends,
    check_templates,
    clashing_keys,
    covers_problems,
    matrix_problems,
    named_backends,
    unused_key_problems,
)
from torch_conformance.language.expand import expand
from torch_conformance.language.read.anatomy import PROGRAMS, SOURCE, Anatomy, take_apart
from torch_conformance.language.read.document import SPEC
from torch_conformance.language.read.matrix import TARGETS
from torch_conformance.language.read.rows import Tables, with_rows
from torch_conformance.language.read.spec_files import (
    DefaultsReader,
    SpecPath,
    discover,
    link_problem,
)
from torch_conformance.language.read.spec_schema import form_problems
from torch_conformance.language.read.templates import TemplateError
from torch_conformance.language.read.yaml_source import read_partly
from torch_conformance.language.torch_names import NameTables
from torch_conformance.machine import output
from torch_conformance.machine.capabilities import Machine
from torch_conformance.machine.installed_torch import InstalledTorch, installed_torch, release
from torch_conformance.model.case import Case
from torch_conformance.model.conditions import BadRange, Surroundings
from torch_conformance.model.diagnostics import Diagnostic, InvalidSpecs, errors, shown_path
from torch_conformance.model.document import Document
from torch_conformance.model.targets import BACKEND, SIMULATED
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.steps import TRITON


@frozen
class Suite:
    """The result of loading: the cases, and the files that define them."""

    cases: tuple[Case, ...]
    backends: Backends
    documents: tuple[Document, ...]
    """The files of specs, of their defaults and of the rows that they name."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """By the file of a random program, the spec with its source."""

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of each file, by its name in messages."""
        return {document.file: document.digest for document in self.documents}

    def freeze(self) -> None:
        """Write the random programs that no folder has yet."""
        for document in self.documents:
            if document.file in self.sources and not document.path.exists():
                document.path.parent.mkdir(parents=True, exist_ok=True)
                document.path.write_bytes(document.content)


def load(
    paths: Sequence[Path],
    backend_files: Sequence[Path] = (),
    known: Surroundings | None = None,
    torch: InstalledTorch | None = None,
    programs_folder: Path | None = None,
) -> Suite:
    """Read, validate and expand; raise ``InvalidSpecs`` with all problems of all files, or
    ``UsageError``.

    ``torch`` is the one of another machine, whose names the specs are checked for; without it, it
    is the installed one. ``programs_folder`` is that of the texts of random programs.
    """
    problems: list[Diagnostic] = []
    specs = discover(paths, problems)
    return (
        inspect_specs(
            specs, backend_files, known, problems, torch=torch, programs_folder=programs_folder
        )
        .valid()
        .suite
    )


def inspect(paths: Sequence[Path], backend_files: Sequence[Path] = ()) -> "Inspection":
    """Like ``load``, but never raises ``InvalidSpecs``."""
    problems: list[Diagnostic] = []
    return inspect_specs(discover(paths, problems), backend_files, None, problems)


def load_specs(
    specs: Sequence[SpecPath],
    backend_files: Sequence[Path],
    known: Surroundings | None,
    texts: Mapping[Path, bytes] | None = None,
) -> Suite:
    """Like ``load``, for files with known areas; ``texts`` are as for ``inspect_specs``."""
    return inspect_specs(specs, backend_files, known, texts=texts).valid().suite


@frozen
class Inspection:
    """The readable part of the specs, and their problems.

    If there are errors, some cases are missing.
    """

    suite: Suite
    problems: tuple[Diagnostic, ...]
    anatomies: tuple[Anatomy, ...] = ()
    """The specs as they were read, each split into its parts."""

    def valid(self) -> "Inspection":
        """Return itself, and print the warnings; raise ``InvalidSpecs`` if there are errors."""
        if wrong := errors(self.problems):
            raise InvalidSpecs(wrong)
        for warning in self.problems:
            _note_once(str(warning))
        return self


def inspect_specs(
    specs: Sequence[SpecPath],
    backend_files: Sequence[Path] = (),
    known: Surroundings | None = None,
    problems: Sequence[Diagnostic] = (),
    *,
    texts: Mapping[Path, bytes] | None = None,
    torch: InstalledTorch | None = None,
    programs_folder: Path | None = None,
) -> Inspection:
    """Read each file, then check its meaning if its form is right, and that of every file that it
    uses.

    ``problems`` are those of finding the files. ``texts`` are read in the place of the specs at
    these paths: changes that are not written. Random programs that ``programs_folder`` has are
    read there, and others are files to be.
    """
    problems = [*problems]
    backends = read_backends(backend_files, problems)
    installed = torch or installed_torch()
    if (names := NameTables(installed)).untested:
        _note_once(names.untested)
    of_options = list(check_backends(backends, names))
    problems.extend(of_options)
    surroundings = known or surroundings_of(installed.version if installed else None, None)
    cases: list[Case] = []
    defaults = DefaultsReader()
    anatomies: list[Anatomy] = []
    tables: Tables = {}
    unformed: list[tuple[Path, Sequence[Diagnostic]]] = []
    sources: dict[str, Document] = {}
    texts, waiting = dict(texts or {}), list(specs)
    for spec in waiting:  # grows by the programs of a source
        inherited = defaults.of(spec)
        if (refused := link_problem(spec.path, spec.root)) is not None:
            problems.append(refused)
            continue
        try:
            document = read_partly(spec.path, content=texts.get(spec.path))
        except InvalidSpecs as error:
            unformed.append((spec.path, error.diagnostics))
            continue
        data = document.data
        if isinstance(data, dict) and TARGETS in data and "backends" not in data:
            # a spec that names targets and no backend gets the backend of such cases: later stages
            # read one key
            data = {**data, "backends": [BACKEND if TRITON in data else SIMULATED]}
            place = dict.fromkeys([("backends",), ("backends", 0)], document.marks[(TARGETS,)])
            document = replace(
                document,
                data=data,
                marks={**document.marks, **place},
                key_marks={**document.key_marks, **place},
            )
        of_form = form_problems(document, SPEC)
        unformed.append((spec.path, of_form))
        if not of_form:
            before = len(problems)
            document = with_rows(document, spec, tables, problems)
        if of_form or len(problems) > before or inherited is None:
            continue
        if PROGRAMS in document.data.get(SOURCE, {}):
            from torch_conformance.language import programs

            if not (of_source := programs.problems(document)):
                made = programs.files_of(document, programs_folder or spec.path)
                texts.update({path: text for path, text in made.items() if not path.exists()})
                sources.update(dict.fromkeys(map(shown_path, made), document))
                waiting += [SpecPath(path=path, root=path.parent) for path in made]
            problems += of_source
            continue
        anatomies.append(anatomy := take_apart(document, spec.area, inherited))
        own = list(anatomy.problems)
        unsettled = [
            name for name in named_backends(anatomy.document) if name not in backends.by_name
        ]
        # a problem of a file of backends leaves open what a name means
        if not any(not backends.is_whole or name in backends.names for name in unsettled):
            clashes = list(clashing_keys(anatomy))
            own += clashes
            if not clashes:
                first_case = as_first_case(anatomy, backends)
                own += (
                    matrix_problems(anatomy, backends)
                    if first_case is None
                    else check(first_case, backends, names)
                )
                own += unused_key_problems(anatomy)
                own += check_templates(anatomy, backends, names, own)
            if not errors(own):
                try:
                    expanded = expand(anatomy, backends, names, surroundings)
                    cases.extend(expanded)
                    own += covers_problems(anatomy.document, expanded)
                except InvalidSpecs as error:
                    own += error.diagnostics
                except (BadRange, TemplateError):
                    if not of_options:
                        # the diagnostic of an invalid option of a backend is there already
                        raise
        problems.extend(own)
    # a file of rows beside specs looks like a spec until a spec names it
    for path, of_file in unformed:
        problems.extend(of_file if os.path.realpath(path) not in tables else ())
    problems.extend(defaults.problems)
    first: dict[str, Case] = {}
    pairs: set[tuple[str, str]] = set()
    for case in cases:
        other = first.setdefault(case.id, case)
        if other.spec != case.spec and (other.spec, case.spec) not in pairs:
            pairs.add((other.spec, case.spec))
            problems.append(
                Diagnostic.of("repeated-id", id=case.id, other=other.spec).at(case.position)
            )
    of_specs = (
        document
        for anatomy in anatomies
        for document in (*anatomy.defaults, anatomy.document, *anatomy.document.rows)
    )
    suite = Suite(
        cases=tuple(cases),
        backends=backends,
        documents=(*of_specs, *dict.fromkeys(sources.values())),
        sources={file: document.file for file, document in sources.items()},
    )
    return Inspection(suite=suite, problems=tuple(problems), anatomies=tuple(anatomies))


_note_once = functools.cache(output.note)


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
