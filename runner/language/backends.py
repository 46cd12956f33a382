"""Backends as data: how a case is compiled, on which device, which other backends' specs it runs, and the proof that it ran."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from runner.core import devices
from runner.core.case import Requirement
from runner.core.conditions import as_list
from runner.core.diagnostics import Diagnostic, InvalidSpecs, Position, one_of, unknown
from runner.core.matching.filecheck import CheckFile, ChecksError
from runner.core.matching.filecheck import parse as parse_checks
from runner.core.matching.patterns import check_pattern
from runner.core.template_form import is_template
from runner.language.read.document import BACKENDS, DataPath, Document, Kind
from runner.language.read.files import link_problem, tree_of
from runner.language.read.python import missing_module
from runner.language.read.schema import read_formed
from runner.system.capabilities import CAPABILITIES
from runner.system.data_dirs import folder
from runner.vocabulary.expectations.base import BadExpectation, Count, parse_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Autotuning choices that must have been timed: at least ``least`` with a matching name and class."""

    match: str
    least: int
    of_class: str = ""
    """Empty for any class."""

    def __str__(self) -> str:
        of_class = f" of a class matching /{self.of_class}/" if self.of_class else ""
        return f"at least {self.least} timed choices matching /{self.match}/{of_class}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serves:
    """The inductor backends that must have won each operation of a group, and at least one."""

    group: str
    """A key of ``core.tuning.GROUPS``."""
    by: tuple[str, ...]

    def __str__(self) -> str:
        return f"each {self.group} served by {' or '.join(self.by)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The evidence that a backend ran."""

    graphs: Count | None = None
    code: CheckFile | None = None
    choices: Choices | None = None
    serves: tuple[Serves, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One backend. ``joins`` are the backends that it joins directly; ``names`` are its own name and those of all joined backends."""

    name: str
    summary: str
    device: str
    names: frozenset[str]
    joins: tuple[str, ...] = ()
    only_tags: frozenset[str] = frozenset()
    """Tags that select specs of joined backends: a spec needs one of them. Empty: all specs are selected."""
    requires: tuple[Requirement, ...]
    compiles: bool
    module: str = ""
    """The module that registers its device with torch; empty for a device that torch brings."""
    proof: Proof
    document: Document
    settings: Mapping[str, Any]
    """config, dynamo_config, env, torch and compile, as written."""

    @property
    def position(self) -> Position:
        """The position of its definition."""
        return self.document.position((self.name,), key=True)


@dataclass(frozen=True, eq=False)
class Backends:
    """All backends of the run, in file order."""

    by_name: Mapping[str, Backend]
    broken: tuple[Backend, ...] = ()
    """Those that join a name that cannot be joined; they are not in ``by_name``."""
    is_whole: bool = True
    """False if the form of a file is wrong; it may define any name."""

    def is_unsettled(self, name: str) -> bool:
        """Whether a problem of a file of backends leaves open what a name means."""
        return name not in self.by_name and (not self.is_whole or name in self.names)

    @property
    def names(self) -> frozenset[str]:
        """All defined names, valid or not."""
        return frozenset([*self.by_name, *(backend.name for backend in self.broken)])

    @cached_property
    def _joining(self) -> Mapping[str, tuple[Backend, ...]]:
        return {
            name: (backend, *(other for other in self.by_name.values() if other is not backend and name in other.names))
            for name, backend in self.by_name.items()
        }

    def of(self, names: Sequence[str], tags: Iterable[str] = ()) -> list[Backend]:
        """Return the backends of a spec with these ``tags`` that names ``names``, in order and without duplicates."""
        own = frozenset(tags)
        found = {backend.name: backend for name in names for backend in self._joining[name] if self._runs(backend, name, own)}
        return list(found.values())

    def _runs(self, backend: Backend, name: str, tags: frozenset[str]) -> bool:
        if backend.name == name:
            return True
        if backend.only_tags and not backend.only_tags & tags:
            return False
        return any(self._runs(self.by_name[other], name, tags) for other in backend.joins)


def load_backends(extra: Sequence[Path] = ()) -> Backends:
    """Read the shipped backends and those of ``extra`` files; raise ``InvalidSpecs`` with all problems of all files."""
    problems: list[Diagnostic] = []
    backends = read_backends(extra, problems)
    if problems:
        raise InvalidSpecs(problems)
    return backends


def read_backends(extra: Sequence[Path], problems: list[Diagnostic]) -> Backends:
    """Read the shipped backends and those of ``extra`` files whose form is right, and add the problems of all."""
    documents: list[Document] = []
    files = (folder("specs") / "backends.yaml", *extra)
    for path in files:
        document = read_named(path, BACKENDS, problems)
        documents.extend([document] if document is not None else [])
    return _build(documents, problems, is_whole=len(documents) == len(files))


def read_named(path: Path, kind: Kind, problems: list[Diagnostic]) -> Document | None:
    """Read a file of the command line and add its problems; return it if its form is right. Links out of its folder's tree are rejected."""
    problem = link_problem(path, tree_of(path.parent.absolute()))
    if problem is not None:
        problems.append(problem)
        return None
    return read_formed(path, kind, problems)


def _build(documents: Sequence[Document], problems: list[Diagnostic], *, is_whole: bool) -> Backends:
    places: dict[str, Document] = {}
    for document in documents:
        for name in document.data:
            if name in places:
                first = places[name].position((name,), key=True)
                problems.append(
                    document.problem(
                        (name,), f"the backend '{name}' is defined twice", f"it is first defined at {first}", key=True, code="repeated-name"
                    )
                )
            places.setdefault(name, document)
    joins = {name: list(document.data[name].get("joins", [])) for name, document in places.items()}
    built: dict[str, Backend] = {}
    broken: set[str] = set()
    for name, document in places.items():
        wrong_joins = list(_join_problems(document, name, joins, is_whole=is_whole))
        problems.extend(wrong_joins)
        built[name] = _backend(name, document, joins, problems)
        broken.update([name] if wrong_joins else [])
    lost = {name for name in joins if (reach := _reach(name, joins)) & broken or not reach <= joins.keys()}
    return Backends(
        by_name={name: backend for name, backend in built.items() if name not in lost},
        broken=tuple(backend for name, backend in built.items() if name in lost),
        is_whole=is_whole,
    )


def _join_problems(document: Document, name: str, joins: Mapping[str, list[str]], *, is_whole: bool) -> Iterator[Diagnostic]:
    """Yield the problems of a backend's joins. A file of a wrong form may define any name."""
    for index, other in enumerate(joins[name]):
        path: DataPath = (name, "joins", index)
        if other not in joins and is_whole:
            yield document.problem(path, *unknown("backend", other, joins), code="unknown-backend")
        elif name in _reach(other, joins):
            yield document.problem(path, f"'{name}' joins itself through '{other}'", "break the loop", code="backend-loop")
    if "only_tags" in document.data[name] and not joins[name]:
        message = "only_tags selects specs of joined backends, and this one joins none"
        yield document.problem((name, "only_tags"), message, "add joins: [NAME], or remove only_tags", key=True, code="misplaced-key")


def _reach(name: str, joins: Mapping[str, list[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting.extend(joins.get(current, []))
    return seen


def _backend(name: str, document: Document, joins: Mapping[str, list[str]], problems: list[Diagnostic]) -> Backend:
    body = document.data[name]
    return Backend(
        name=name,
        summary=body["summary"],
        device=body["device"],
        names=frozenset(_reach(name, joins)),
        joins=tuple(joins[name]),
        only_tags=frozenset(body.get("only_tags", [])),
        requires=(
            *_device_of(document, name, problems),
            *read_requirements(document, (name, "requires"), body.get("requires", []), problems),
        ),
        module=body.get("module", ""),
        compiles=body.get("compiles", True),
        proof=_proof(document, (name, "proof"), body, problems),
        document=document,
        settings={key: body[key] for key in ("config", "dynamo_config", "env", "torch", "compile") if key in body},
    )


def _device_of(document: Document, name: str, problems: list[Diagnostic]) -> tuple[Requirement, ...]:
    """Return the requirement of a device that a vendor's module registers; none for a device that torch brings."""
    body = document.data[name]
    device, module = body["device"], body.get("module")
    kind = devices.kind_of(device)
    if module is None:
        if kind not in devices.WITHOUT_MODULE:
            hint = f"torch brings {one_of(devices.WITHOUT_MODULE)}; module: NAME registers another device"
            problems.append(
                document.problem(
                    (name, "device"), f"'{kind}' is no device of torch itself, and no module registers it", hint, code="backend-device"
                )
            )
        return ()
    if kind in devices.WITHOUT_MODULE:
        message = f"torch itself brings the device '{kind}', so no module registers it"
        problems.append(
            document.problem(
                (name, "module"), message, "remove module, or name the device that the module registers", code="backend-device"
            )
        )
        return ()
    if (missing := missing_module(module)) is not None:
        problems.append(document.problem((name, "module"), *missing, code="unknown-name"))
    vendor = devices.VendorDevice(kind, module)
    return (Requirement(name="device", argument=str(vendor), position=document.position((name, "device"))),)


def _proof(document: Document, path: DataPath, body: Mapping[str, Any], problems: list[Diagnostic]) -> Proof:
    given = body.get("proof")
    if given is None:
        if body.get("compiles", True):
            hint = "add proof: {graphs: {min: 1}}, or compiles: false if it compiles nothing"
            problems.append(
                document.problem(path[:1], f"the backend '{path[0]}' has no proof that it ran", hint, key=True, code="no-proof")
            )
        return Proof()
    try:
        graphs = parse_count(given["graphs"]) if "graphs" in given else None
        code = _code(given["code"]) if "code" in given else None
        serves = tuple(Serves(group=group, by=tuple(as_list(by))) for group, by in given.get("serves", {}).items())
        return Proof(graphs=graphs, code=code, choices=_choices(given.get("choices")), serves=serves)
    except BadExpectation as error:
        problems.append(document.problem((*path, *error.path), str(error), error.hint, code="expectation"))
    except ChecksError as error:
        problems.append(document.problem((*path, "code"), error.message, error.hint, code="expectation"))
    return Proof()


def _code(given: str) -> CheckFile:
    from runner.vocabulary.expectations.texts import check_specific_checks

    checks = parse_checks(given)
    try:
        check_specific_checks(checks)
    except BadExpectation as error:
        raise BadExpectation(str(error), error.hint, path=("code",)) from error
    return checks


def _choices(given: Mapping[str, Any] | None) -> Choices | None:
    if given is None:
        return None
    for key in ("match", "class"):
        reason = check_pattern(given[key]) if key in given else None
        if reason is not None:
            raise BadExpectation(f"the pattern is not a regular expression: {reason}", path=("choices", key))
    return Choices(match=given["match"], least=given.get("min", 1), of_class=given.get("class", ""))


def read_requirements(
    document: Document, path: DataPath, given: Sequence[Any], problems: list[Diagnostic], *, templated: bool = False
) -> tuple[Requirement, ...]:
    """Read a ``requires`` list that fits the schema. Unknown capabilities and invalid arguments become problems.

    With ``templated``, entries with a template are left out: they are read at each point of the matrix.
    """
    found = []
    for index, entry in enumerate(given):
        name, argument = next(iter(entry.items())) if isinstance(entry, dict) else (entry, None)
        if templated and is_template(argument if isinstance(entry, dict) else name):
            continue
        place = (*path, index, name) if isinstance(entry, dict) else (*path, index)
        text = None if argument is None else str(argument)
        problem = _requirement_problem(name, text, is_plain=not isinstance(argument, bool | list | dict))
        if problem is not None:
            problems.append(document.problem(place, *problem, key=isinstance(entry, dict) and name not in CAPABILITIES, code="capability"))
            continue
        found.append(Requirement(name=name, argument=text, position=document.position(place)))
    return tuple(found)


def _requirement_problem(name: str, argument: str | None, *, is_plain: bool) -> tuple[str, str] | None:
    if name not in CAPABILITIES:
        return unknown("capability", name, CAPABILITIES)
    capability = CAPABILITIES[name]
    if capability.takes and (argument is None or not is_plain):
        return f"the capability '{name}' needs an argument that is text", f'write {{{name}: "{capability.takes}"}}'
    if not capability.takes and argument is not None:
        return f"the capability '{name}' takes no argument", f"write {name}"
    reason = capability.check(argument) if argument is not None else None
    return (reason, "") if reason else None
