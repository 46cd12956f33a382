"""The listed cases of specs as JSON, and back: the form that the cache of specs has.

Many specs have cases of the same kind: what a kind is stands once for all specs, and a case has its number. So most of 10,000 specs are a
few texts and numbers each, which are read quickly.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from runner.core.case import Requirement
from runner.core.diagnostics import Position
from runner.core.listed import ListedCase
from runner.core.protocol import Json

_Kind = tuple[str, tuple[str, ...], tuple[Requirement, ...], tuple[str, ...], str, bool, bool]
"""Backend, tags, requirements, missing names, target, whether it is on request, and whether it is of a source."""


class Kinds:
    """The kinds of cases in one file of the cache."""

    def __init__(self, written: Iterable[Sequence[Json]] = ()) -> None:
        self.written = [*written]
        """The kinds as JSON, in the order of their numbers."""
        self._read: dict[int, _Kind] = {}
        self._numbers: dict[_Kind, int] = {}

    def number(self, case: ListedCase) -> int:
        """Return the number of a case's kind, which is a new one if no case had it."""
        kind = (case.backend, case.tags, case.requires, case.missing_names, case.target, case.on_request, case.of_source)
        if not self._numbers:
            self._numbers = {self[number]: number for number in range(len(self.written))}
        if kind not in self._numbers:
            self._numbers[kind] = len(self.written)
            required = [[one.name, one.argument, one.position.file, one.position.line, one.position.column] for one in case.requires]
            self.written.append([case.backend, case.tags, required, *kind[3:]])
        return self._numbers[kind]

    def __getitem__(self, number: int) -> _Kind:
        if number not in self._read:
            self._read[number] = _kind(*self.written[number])
        return self._read[number]


def as_rows(cases: Sequence[ListedCase], kinds: Kinds) -> Mapping[str, Json] | None:
    """Return the cases of one spec as JSON; None if JSON would not give them back."""
    if not cases:
        return {"kinds": []}
    first = cases[0]
    shared = [(case.spec, case.area, case.name, case.position, case.summary) for case in cases]
    if any(one != shared[0] for one in shared) or not all(_is_json(case.params) for case in cases):
        return None
    place = first.position
    stem = f"{first.area}/{first.name}" if first.area else first.name
    if place.file != first.spec or not all(case.id.startswith(stem) for case in cases):
        return None
    return {
        "head": [first.spec, first.area, first.name, place.line, place.column, first.summary],
        "ids": [case.id.removeprefix(stem) for case in cases],
        "kinds": [kinds.number(case) for case in cases],
        **({"covers": [case.covers for case in cases]} if any(case.covers for case in cases) else {}),
        **({"params": [case.params for case in cases]} if any(case.params for case in cases) else {}),
    }


def from_rows(rows: Mapping[str, Json], kinds: Kinds) -> Iterator[ListedCase]:
    """Yield the cases of ``as_rows``."""
    if not rows["kinds"]:
        return
    spec, area, name, line, column, summary = rows["head"]
    place = Position(file=spec, line=line, column=column)
    stem = f"{area}/{name}" if area else name
    none: Sequence[Json] = [()] * len(rows["ids"])
    each = zip(rows["ids"], rows["kinds"], rows.get("covers", none), rows.get("params", none), strict=True)
    for end, number, covers, params in each:
        backend, tags, requires, missing, target, on_request, of_source = kinds[number]
        yield ListedCase(
            id=stem + end,
            spec=spec,
            area=area,
            name=name,
            position=place,
            backend=backend,
            params=params or {},
            summary=summary,
            covers=tuple(covers),
            tags=tags,
            requires=requires,
            missing_names=missing,
            target=target,
            on_request=on_request,
            of_source=of_source,
        )


def _kind(
    backend: str,
    tags: Iterable[str],
    requires: Iterable[Sequence[Json]],
    missing: Iterable[str],
    target: str,
    on_request: bool,
    of_source: bool,
) -> _Kind:
    required = (
        Requirement(name=name, argument=argument, position=Position(file=file, line=line, column=column))
        for name, argument, file, line, column in requires
    )
    return backend, tuple(tags), tuple(required), tuple(missing), target, on_request, of_source


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
