"""Loads specs: from paths to cases, or all problems of all files."""

import functools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
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
    surroundings: Surroundings | None = None,
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
            specs,
            backend_files,
            surroundings,
            problems,
            torch=torch,
            programs_folder=programs_folder,
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
    surroundings: Surroundings | None,
    texts: Mapping[Path, bytes] | None = None,
) -> Suite:
    """Like ``load``, for files with known areas; ``texts`` are as for ``inspect_specs``."""
    return inspect_specs(specs, backend_files, surroundings, texts=texts).valid().suite


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
    surroundings: Surroundings | None = None,
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
    loader = _Loader(backend_files, surroundings, torch or installed_torch(), problems)
    return loader.inspection(list(specs), dict(texts or {}), programs_folder)


class _Loader:
    """What the specs of one call share, and what was read of them so far."""

    def __init__(
        self,
        backend_files: Sequence[Path],
        surroundings: Surroundings | None,
        torch: InstalledTorch | None,
        problems: Sequence[Diagnostic],
    ) -> None:
        self.problems = [*problems]
        self.backends = read_backends(backend_files, self.problems)
        self.names = NameTables(torch)
        if self.names.untested:
            _note_once(self.names.untested)
        of_options = list(check_backends(self.backends, self.names))
        self.problems.extend(of_options)
        self.has_invalid_backends = bool(of_options)
        self.surroundings = surroundings or surroundings_of(torch.version if torch else None, None)
        self.defaults = DefaultsReader()
        self.anatomies: list[Anatomy] = []
        self.cases: list[Case] = []
        self.tables: Tables = {}
        self.unformed: list[tuple[Path, Sequence[Diagnostic]]] = []
        """The problems of the form of each file."""
        self.sources: dict[str, Document] = {}

    def inspection(
        self, specs: list[SpecPath], texts: dict[Path, bytes], programs_folder: Path | None
    ) -> Inspection:
        """Read and check specs; the arguments are those of ``inspect_specs``."""
        for spec in specs:  # grows by the programs of a source
            inherited = self.defaults.of(spec)
            document = self._read(spec, texts.get(spec.path))
            if document is None or inherited is None:
                continue
            if PROGRAMS in document.data.get(SOURCE, {}):
                specs += self._programs(document, programs_folder or spec.path, texts)
                continue
            self.anatomies.append(take_apart(document, spec.area, inherited))
            self.problems += self._checked(self.anatomies[-1])
        # a file of rows in a folder of specs looks like a spec until a spec names it
        for path, of_file in self.unformed:
            self.problems += of_file if os.path.realpath(path) not in self.tables else ()
        self.problems += [*self.defaults.problems, *_repeated_ids(self.cases)]
        of_specs = (
            document
            for anatomy in self.anatomies
            for document in (*anatomy.defaults, anatomy.document, *anatomy.document.rows)
        )
        suite = Suite(
            cases=tuple(self.cases),
            backends=self.backends,
            documents=(*of_specs, *dict.fromkeys(self.sources.values())),
            sources={file: document.file for file, document in self.sources.items()},
        )
        return Inspection(
            suite=suite, problems=tuple(self.problems), anatomies=tuple(self.anatomies)
        )

    def _read(self, spec: SpecPath, content: bytes | None) -> Document | None:
        """Return a spec with its rows; None where its form is wrong."""
        if (refused := link_problem(spec.path, spec.root)) is not None:
            self.problems.append(refused)
            return None
        try:
            document = read_partly(spec.path, content=content)
        except InvalidSpecs as error:
            self.unformed.append((spec.path, error.diagnostics))
            return None
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
        self.unformed.append((spec.path, of_form))
        if of_form:
            return None
        before = len(self.problems)
        document = with_rows(document, spec, self.tables, self.problems)
        return document if len(self.problems) == before else None

    def _programs(
        self, document: Document, folder: Path, texts: dict[Path, bytes]
    ) -> list[SpecPath]:
        """Return the specs of a source of programs, and add the texts of those that no folder has
        yet.
        """
        from torch_conformance.language import programs

        of_source = programs.problems(document)
        self.problems += of_source
        if of_source:
            return []
        texts_of_files = programs.files_of(document, folder)
        texts.update({path: text for path, text in texts_of_files.items() if not path.exists()})
        self.sources.update(dict.fromkeys(map(shown_path, texts_of_files), document))
        return [SpecPath(path=path, root=path.parent) for path in texts_of_files]

    def _checked(self, anatomy: Anatomy) -> list[Diagnostic]:
        """Return the problems of a spec, and add the cases of one without errors."""
        backends, names, problems = self.backends, self.names, list(anatomy.problems)
        # with a problem in a file of backends, the meaning of a name is undecided
        is_undecided = any(
            name not in backends.by_name and (not backends.is_whole or name in backends.names)
            for name in named_backends(anatomy.document)
        )
        if not is_undecided:
            clashes = list(clashing_keys(anatomy))
            problems += clashes
            if not clashes:
                first_case = as_first_case(anatomy, backends)
                problems += (
                    matrix_problems(anatomy, backends)
                    if first_case is None
                    else check(first_case, backends, names)
                )
                problems += unused_key_problems(anatomy)
                problems += check_templates(anatomy, backends, names, problems)
            if not errors(problems):
                try:
                    expanded = expand(anatomy, backends, names, self.surroundings)
                    self.cases += expanded
                    problems += covers_problems(anatomy.document, expanded)
                except InvalidSpecs as error:
                    problems += error.diagnostics
                except (BadRange, TemplateError):
                    if not self.has_invalid_backends:
                        # the diagnostic of an invalid option of a backend is there already
                        raise
        return problems


def _repeated_ids(cases: Sequence[Case]) -> Iterator[Diagnostic]:
    """Yield a problem for each pair of specs that give one id."""
    first: dict[str, Case] = {}
    pairs: set[tuple[str, str]] = set()
    for case in cases:
        other = first.setdefault(case.id, case)
        if other.spec != case.spec and (other.spec, case.spec) not in pairs:
            pairs.add((other.spec, case.spec))
            problem = Diagnostic.of("repeated-id", id=case.id, other=other.spec)
            yield problem.at(case.position)


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
