"""A case as ``list`` and ``validate`` show it: what a cache keeps of a spec that did not change."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedCase:
    """A case without what only its execution needs. The fields are those of ``Case``."""

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


def as_rows(cases: Sequence[ListedCase]) -> Mapping[str, Json] | None:
    """Return the cases of one spec as JSON; None if JSON would not give them back.

    What the cases have in common stands once: a row has its number.
    """
    kinds: dict[object, int] = {}
    common: list[Json] = []
    rows: list[Json] = []
    for case in cases:
        if not _is_json(case.params):
            return None
        kind = (case.summary, case.covers, case.tags, case.requires, case.missing_names, case.target, case.on_request, case.of_source)
        if kind not in kinds:
            kinds[kind] = len(common)
            required = [[one.name, one.argument, one.position.file, one.position.line, one.position.column] for one in case.requires]
            common.append([case.summary, case.covers, case.tags, required, *kind[4:]])
        place = case.position
        rows.append([case.id, place.line, place.column, case.backend, case.params, kinds[kind]])
    first = cases[0] if cases else None
    head = [] if first is None else [first.spec, first.area, first.name, first.position.file]
    return {"head": head, "common": common, "rows": rows}


def from_rows(spec: Mapping[str, Json]) -> Iterator[ListedCase]:
    """Yield the cases of ``as_rows``."""
    if not spec["rows"]:
        return
    file, area, name, shown = spec["head"]
    common = [_common(*kind) for kind in spec["common"]]
    for id_, line, column, backend, params, kind in spec["rows"]:
        yield ListedCase(
            id=id_,
            spec=file,
            area=area,
            name=name,
            position=Position(file=shown, line=line, column=column),
            backend=backend,
            params=params,
            **common[kind],
        )


def _common(
    summary: str,
    covers: Iterable[str],
    tags: Iterable[str],
    requires: Iterable[Sequence[Json]],
    missing: Iterable[str],
    target: str,
    on_request: bool,
    of_source: bool,
) -> dict[str, Json]:
    required = (
        Requirement(name=name, argument=argument, position=Position(file=file, line=line, column=column))
        for name, argument, file, line, column in requires
    )
    return {
        "summary": summary,
        "covers": tuple(covers),
        "tags": tuple(tags),
        "requires": tuple(required),
        "missing_names": tuple(missing),
        "target": target,
        "on_request": on_request,
        "of_source": of_source,
    }


def _is_json(value: object) -> bool:
    """Whether JSON gives a value back as it is: no tuple, and no key that is not text."""
    match value:
        case None | bool() | int() | float() | str():
            return True
        case list():
            return all(map(_is_json, value))
        case dict():
            return all(type(key) is str and _is_json(part) for key, part in value.items())
    return False


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
