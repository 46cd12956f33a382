"""The listed cases of one spec as JSON, and back: the form that the cache of specs has."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from runner.core.case import Requirement
from runner.core.diagnostics import Position
from runner.core.listed import ListedCase
from runner.core.protocol import Json


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
