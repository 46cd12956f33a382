"""A case as ``list`` and ``validate`` show it: what a cache keeps of a spec that did not change."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from runner.core.case import Case, Requirement
from runner.core.diagnostics import Diagnostic, Position
from runner.core.protocol import Json


class Selectable(Protocol):
    """What the selection of cases asks about: a case, or one as it is listed."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def backend(self) -> str:
        """The name of its backend."""

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of its spec."""


class Placed(Protocol):
    """What a problem of two cases with one id asks about."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def spec(self) -> str:
        """Its file, as it is shown."""

    @property
    def position(self) -> Position:
        """Where its spec begins."""


class Requiring(Protocol):
    """What availability asks about."""

    @property
    def target(self) -> str:
        """The GPU that it is compiled for and not executed on."""

    @property
    def missing_names(self) -> tuple[str, ...]:
        """The names that only another torch has."""

    @property
    def requires(self) -> tuple[Requirement, ...]:
        """The capabilities that it requires."""


class ListedCase(NamedTuple):
    """A case without what only its execution needs. The fields are those of ``Case``.

    A tuple, because tens of thousands are made of the cache at once: a frozen dataclass takes five times as long to make.
    """

    id: str
    spec: str
    area: str
    name: str
    position: Position
    backend: str
    params: Mapping[str, Json]
    summary: str
    covers: tuple[str, ...]
    tags: tuple[str, ...]
    requires: tuple[Requirement, ...]
    missing_names: tuple[str, ...]
    target: str
    on_request: bool
    of_source: bool
    """Whether it is one of thousands that a source of cases gave."""


def listed(case: Case, *, of_source: bool) -> ListedCase:
    """Return a case as it is listed."""
    return ListedCase(
        id=case.id,
        spec=case.spec,
        area=case.area,
        name=case.name,
        position=case.position,
        backend=case.backend,
        params=case.params,
        summary=case.summary,
        covers=case.covers,
        tags=case.tags,
        requires=case.requires,
        missing_names=case.missing_names,
        target=case.target,
        on_request=case.on_request,
        of_source=of_source,
    )


def duplicate_ids(cases: Iterable[Placed]) -> list[Diagnostic]:
    """Return a problem for each pair of files that share an id."""
    problems: list[Diagnostic] = []
    first: dict[str, Placed] = {}
    reported: set[tuple[str, str]] = set()
    for case in cases:
        other = first.setdefault(case.id, case)
        if other.spec != case.spec and (other.spec, case.spec) not in reported:
            reported.add((other.spec, case.spec))
            message = f"the case id '{case.id}' stands in {other.spec} too"
            problems.append(Diagnostic(position=case.position, message=message, hint="rename one of the files"))
    return problems
