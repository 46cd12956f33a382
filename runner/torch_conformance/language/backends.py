"""Reads the files of backends, and says which backends run a spec."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_conformance.language.read.document import (
    BACKENDS,
    CLAIMS,
    EXPECTED,
    Kind,
)
from torch_conformance.language.read.python_source import find_name, is_installed, missing_module
from torch_conformance.language.read.spec_files import link_problem
from torch_conformance.language.read.spec_schema import read_formed
from torch_conformance.language.torch_names import operator_problems
from torch_conformance.machine.cache_dirs import folder
from torch_conformance.machine.capabilities import CAPABILITIES
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.matching.patterns import Ids, check_pattern
from torch_conformance.model import devices
from torch_conformance.model.case import Requirement
from torch_conformance.model.conditions import as_list, is_template
from torch_conformance.model.diagnostics import (
    Diagnostic,
    InvalidSpecs,
    one_of,
    unknown_word,
)
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.header import DECLARES
from torch_conformance.vocabulary.backend import (
    INDUCTOR,
    Backend,
    Calls,
    Choices,
    Claims,
    Declared,
    ExpectedCell,
    Proof,
    Serves,
    compiler_of,
)
from torch_conformance.vocabulary.expectations.expectation_base import (
    BadExpectation,
    parse_count,
)

_OF_TORCH = (INDUCTOR, "eager", "aot_eager")
"""The compilers that every torch knows: no worker is asked for them."""


@dataclass(frozen=True, eq=False)
class Backends:
    """All backends of the run, in file order."""

    by_name: Mapping[str, Backend]
    broken: tuple[Backend, ...] = ()
    """Those that join a name that cannot be joined; they are not in ``by_name``."""
    is_whole: bool = True
    """False if the form of a file is wrong; it may define any name."""

    @property
    def names(self) -> frozenset[str]:
        """All defined names, valid or not."""
        return frozenset([*self.by_name, *(backend.name for backend in self.broken)])

    def of(self, names: Sequence[str], tags: Iterable[str] = ()) -> list[Backend]:
        """Return the backends of a spec with these ``tags`` that names ``names``, in order and
        without duplicates; none if a name is unknown or invalid.
        """
        tags_of_spec = frozenset(tags)
        backends: dict[str, Backend] = {}
        for name in names if self.by_name.keys() >= {*names} else ():
            backends.setdefault(name, self.by_name[name])
            for backend in self.by_name.values():
                if (
                    backend.name not in backends
                    and name in backend.names
                    and self._runs(backend, name, tags_of_spec)
                ):
                    backends[backend.name] = backend
        return list(backends.values())

    def _runs(self, backend: Backend, name: str, tags: frozenset[str]) -> bool:
        if backend.name == name:
            return True
        if backend.only_tags and not backend.only_tags & tags:
            return False
        return any(self._runs(self.by_name[other], name, tags) for other in backend.joins)


def load_backends(extra: Sequence[Path] = ()) -> Backends:
    """Read the shipped backends and those of ``extra`` files; raise ``InvalidSpecs`` with all
    problems of all files.
    """
    problems: list[Diagnostic] = []
    backends = read_backends(extra, problems)
    if problems:
        raise InvalidSpecs(problems)
    return backends


def read_backends(extra: Sequence[Path], problems: list[Diagnostic]) -> Backends:
    """Read the shipped backends and those of ``extra`` files whose form is right, and add the
    problems of all.
    """
    files = [
        read_named(path, BACKENDS, problems) for path in (folder("specs") / "backends.yaml", *extra)
    ]
    is_whole = None not in files
    documents: dict[str, Document] = {}
    """The file of each backend."""
    for document in filter(None, files):
        for name in document.data:
            if name in documents:
                first = str(documents[name].position((name,), key=True))
                problems.append(
                    document.diagnostic(
                        (name,), "repeated-backend", key=True, name=name, first=first
                    )
                )
            documents.setdefault(name, document)
    joins: dict[str, list[str]] = {
        name: document.data[name].get("joins", []) for name, document in documents.items()
    }
    backends: list[Backend] = []
    broken: set[str] = set()
    for name, document in documents.items():
        body = document.data[name]
        for index, other in enumerate(joins[name]):
            path: DataPath = (name, "joins", index)
            if other not in joins and is_whole:
                problems.append(document.diagnostic(path, unknown_word("backend", other, joins)))
            elif name in _reach(other, joins):
                problems.append(document.diagnostic(path, "backend-loop", name=name, other=other))
            else:
                continue
            broken.add(name)
        if "only_tags" in body and not joins[name]:
            problems.append(
                document.diagnostic((name, "only_tags"), "only-tags-without-joins", key=True)
            )
            broken.add(name)
        device, module, compiler = body["device"], body.get("module"), compiler_of(body)
        kind = devices.kind_of(device)
        requires: list[Requirement] = []
        if module is not None and (missing := missing_module(module)) is not None:
            problems.append(document.diagnostic((name, "module"), missing))
        if module is None and kind not in devices.WITHOUT_MODULE:
            brought = one_of(devices.WITHOUT_MODULE)
            problems.append(
                document.diagnostic(
                    (name, "device"), "device-without-module", device=kind, brought=brought
                )
            )
        elif module is not None and kind in devices.WITHOUT_MODULE and compiler == INDUCTOR:
            problems.append(
                document.diagnostic((name, "module"), "module-of-a-known-device", device=kind)
            )
        elif module is not None and kind not in devices.WITHOUT_MODULE:
            vendor = str(devices.VendorDevice(kind, module))
            requires.append(
                Requirement(
                    name="device", argument=vendor, position=document.position((name, "device"))
                )
            )
        elif compiler not in _OF_TORCH:
            argument = str(devices.VendorCompiler(compiler, module or ""))
            requires.append(
                Requirement(
                    name="compiler",
                    argument=argument,
                    position=document.position((name, "compile", "backend")),
                )
            )
        backend = Backend(
            name=name,
            summary=body["summary"],
            device=device,
            names=frozenset(_reach(name, joins)),
            joins=tuple(joins[name]),
            only_tags=frozenset(body.get("only_tags", [])),
            requires=(
                *requires,
                *read_requirements(
                    document, (name, "requires"), body.get("requires", []), problems
                ),
            ),
            module=module or "",
            forks=body.get("fork", True),
            compiles=body.get("compiles", True),
            proof=_proof(document, name, problems, is_shipped=document is files[0]),
            claims=_claims(document, name, problems)
            if body.keys() & {"trains", "dynamic", "dtypes", "claims"}
            else Claims(),
            declared=Declared(
                precision=body.get("precision", {}),
                random="random" in body,
                layout="layout" in body,
            ),
            expected=_expected(document, name, problems),
            document=document,
            settings={
                key: body[key]
                for key in ("config", "dynamo_config", "env", "torch", "compile")
                if key in body
            },
        )
        backends.append(backend)
    sound = {
        backend.name: backend
        for backend in backends
        if not backend.names & broken and backend.names <= joins.keys()
    }
    return Backends(
        sound, tuple(backend for backend in backends if backend.name not in sound), is_whole
    )


def declarations(backends: Iterable[Backend]) -> dict[str, str]:
    """Return what backends declare, as the header of a run has it and every report shows it."""
    return {
        f"{backend.name}{DECLARES}": "; ".join(backend.declared.words)
        for backend in sorted(backends, key=lambda backend: backend.name)
        if backend.declared.words
    }


def unknown_compilers(backends: Iterable[Backend], answers: Mapping[str, str]) -> list[Diagnostic]:
    """Return the problems of backends whose compiler torch does not know, by what a worker answered
    when it had imported their modules.
    """
    problems = []
    for backend in backends:
        for need in backend.requires:
            answer = answers.get(need.argument or "", "") if need.name == "compiler" else ""
            if answer.startswith(devices.UNKNOWN_COMPILER):
                registered = answer.removeprefix(devices.UNKNOWN_COMPILER).split()
                problem = unknown_word("compiler", backend.compiler, registered)
                problems.append(
                    backend.document.diagnostic((backend.name, "compile", "backend"), problem)
                )
    return problems


def read_named(path: Path, kind: Kind, problems: list[Diagnostic]) -> Document | None:
    """Read a file of the command line and add its problems; return it if its form is right.

    Links out of its folder's tree are rejected.
    """
    if (problem := link_problem(path, path.parent.absolute())) is not None:
        problems.append(problem)
        return None
    return read_formed(path, kind, problems)


def _reach(name: str, joins: Mapping[str, list[str]]) -> set[str]:
    """Return a backend and all that it joins, directly or through others."""
    names: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in names:
            names.add(current)
            waiting.extend(joins.get(current, []))
    return names


def _file_of_entry(
    document: Document, name: str, key: str, kind: Kind, problems: list[Diagnostic]
) -> Document | None:
    """Return the file that an entry names with a key; None where it names none, or a wrong one."""
    if (written := document.data[name].get(key)) is None:
        return None
    path = document.path.parent / written
    if not os.path.lexists(path):
        problems.append(document.diagnostic((name, key), "no-claims-file", path=written))
        return None
    return read_named(path, kind, problems)


def _labels_of(
    file: Document, place: DataPath, globs: Iterable[str], problems: list[Diagnostic]
) -> list[str]:
    """Return the operators of the suite that globs of a file name, and add the globs that name
    none.
    """
    from torch_conformance.language.operators import labels  # few entries have such a file

    operators, matching = Ids(sorted(labels())), list[str]()
    is_map = isinstance(file.value(place), dict)
    for index, text in enumerate(globs):
        matches = operators.matching(text)
        matching += matches
        if not matches:
            near = operators.nearest(text.removeprefix("aten."))
            problem = file.diagnostic(
                (*place, text if is_map else index), "unclaimable", key=is_map, name=text, near=near
            )
            problems.append(problem)
    return matching


def _expected(
    document: Document, name: str, problems: list[Diagnostic]
) -> tuple[Document | None, list[ExpectedCell]]:
    cells: list[ExpectedCell] = []
    if (file := _file_of_entry(document, name, "expected", EXPECTED, problems)) is not None:
        for dtype, states in file.data.items():
            for state, operators in states.items():
                place = (dtype, state)
                for index, text in enumerate(operators):
                    issue = operators[text] if isinstance(operators, dict) else state
                    at = file.position((*place, text if isinstance(operators, dict) else index))
                    cells += [
                        ExpectedCell(state, label, dtype, issue, at)
                        for label in _labels_of(file, place, [text], [])
                    ]
                _labels_of(file, place, operators, problems)
    return file, cells


def _claims(document: Document, name: str, problems: list[Diagnostic]) -> Claims:
    body = document.data[name]
    operators: dict[str, frozenset[str]] = {}
    if (file := _file_of_entry(document, name, "claims", CLAIMS, problems)) is not None:
        for dtype, globs in file.data.items():
            operators[dtype] = frozenset(_labels_of(file, (dtype,), globs, problems))
    stated = {key: body[key] for key in ("trains", "dynamic") if key in body}
    return Claims(
        **stated, dtypes=frozenset(body.get("dtypes", ())), operators=operators, file=file
    )


def _proof(document: Document, name: str, problems: list[Diagnostic], *, is_shipped: bool) -> Proof:
    body, path = document.data[name], (name, "proof")
    if "proof" not in body:
        if body.get("compiles", True):
            problems.append(document.diagnostic((name,), "no-proof", key=True, name=name))
        return Proof()
    proof = body["proof"]
    choices, graphs = proof.get("choices", {}), None
    for key in ("match", "class"):
        if key in choices and (reason := check_pattern(choices[key])):
            problems.append(
                document.diagnostic((*path, "choices", key), "bad-pattern", reason=reason)
            )
            return Proof()
    calls = proof.get("calls", {})
    if (
        calls
        and is_installed(calls["of"].partition(".")[0])
        and (missing := find_name(calls["of"], set())) is not None
    ):
        problems.append(document.diagnostic((*path, "calls", "of"), missing))
    served = proof.get("served")
    if isinstance(served, dict) and (torch := installed_torch()) is not None:
        allow, place = served.get("allow", ()), (*path, "served", "allow")
        by_type = allow if isinstance(allow, dict) else {"": allow}
        for dtype, names in by_type.items():
            below = (*place, dtype) if dtype else place
            problems.extend(operator_problems(document, below, names, torch.root))
    is_measured = bool(calls) or "served" in proof
    usual = {"min": 1} if compiler_of(body) == INDUCTOR else 0
    try:
        graphs = (
            parse_count(proof.get("graphs", usual)) if is_measured or "graphs" in proof else None
        )
    except BadExpectation as error:
        problems.append(
            document.problem((*path, *error.path), str(error), error.hint, code="expectation")
        )
        return Proof()
    if "code" in proof and not is_shipped and (problem := _problem_of_checks(proof["code"])):
        problems.append(document.problem((*path, "code"), *problem, code="expectation"))
        return Proof()
    return Proof(
        graphs=graphs,
        service=served,
        calls=Calls(of=calls["of"], least=calls.get("min", 1)) if calls else None,
        code=proof.get("code", ""),
        choices=Choices(
            match=choices["match"], least=choices.get("min", 1), of_class=choices.get("class", "")
        )
        if choices
        else None,
        serves=tuple(
            Serves(group=group, by=tuple(as_list(by)))
            for group, by in proof.get("serves", {}).items()
        ),
    )


def _problem_of_checks(text: str) -> tuple[str, str] | None:
    """Return message and hint for directives that cannot be read or fit any code; None for others.

    Those of the shipped file are tested.
    """
    from torch_conformance.matching.filecheck import ChecksError, parse
    from torch_conformance.vocabulary.expectations.texts import check_specific_checks

    try:
        check_specific_checks(parse(text))
    except ChecksError as error:
        return error.message, error.hint
    except BadExpectation as error:
        return str(error), error.hint
    return None


def read_requirements(
    document: Document,
    path: DataPath,
    entries: Sequence[Any],
    problems: list[Diagnostic],
    *,
    templated: bool = False,
    filled: bool = False,
) -> tuple[Requirement, ...]:
    """Read a ``requires`` list that fits the schema.

    Unknown capabilities and invalid arguments become problems.

    With ``templated``, entries with a template are left out: they are read at each point of the
    matrix. Where templates are ``filled``, an empty name or argument requires nothing.
    """
    requirements = []
    for index, entry in enumerate(entries):
        name, argument = next(iter(entry.items())) if isinstance(entry, dict) else (entry, None)
        if templated and is_template(argument if isinstance(entry, dict) else name):
            continue
        if filled and "" in (name, argument):
            continue
        place = (*path, index, name) if isinstance(entry, dict) else (*path, index)
        text = None if argument is None else str(argument)
        if (capability := CAPABILITIES.get(name)) is None:
            problem = document.diagnostic(
                place, unknown_word("capability", name, CAPABILITIES), key=isinstance(entry, dict)
            )
        elif capability.takes and (text is None or isinstance(argument, bool | list | dict)):
            problem = document.diagnostic(
                place, "capability-without-argument", name=name, example=capability.takes
            )
        elif not capability.takes and text is not None:
            problem = document.diagnostic(place, "capability-with-argument", name=name)
        elif text is not None and (reason := capability.check(text)):
            problem = document.problem(place, reason, code="capability-argument")
        else:
            requirements.append(
                Requirement(name=name, argument=text, position=document.position(place))
            )
            continue
        problems.append(problem)
    return tuple(requirements)
