"""What can be checked of a file with parts of the wrong shape, so that one look finds the problems of form and of meaning.

Keys that are nearly right are read as what they nearly are, and what does not fit the schema is cut out. What is cut is
remembered as gaps: a problem that may only be there because of a gap is not reported (``believed``).
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.core.diagnostics import Diagnostic
from runner.language.read import schema, schema_words
from runner.language.read.document import DataPath, Document, Mark
from runner.language.read.doubts import MEANT, NEAR, likeness
from runner.language.read.kinds import Kind
from runner.language.read.source import recognised


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """The part of a document that fits its schema. ``document`` is None when nothing can be checked."""

    document: Document | None
    problems: tuple[Diagnostic, ...] = ()
    cuts: frozenset[DataPath] = frozenset()
    """What was cut, by its path in the file. A key that was missing is cut too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """Values for keys that must be there: where one is missing, what it belongs to can be checked all the same."""

    depth: int
    """How deep in the document the maps with these keys are."""
    values: Mapping[str, Any]


_NOTHING = Fill(depth=0, values={})


def readable(document: Document, kind: Kind, fill: Fill = _NOTHING) -> Readable:
    """Return what of a document can be checked, and the problems of the rest."""
    if not document.problems and schema.fits(kind.name)(document.data):
        return Readable(document=document)
    if not document.problems and not recognised(document.path, document.content, kind, document.data):
        return Readable(document=None, problems=tuple(_strange(document, kind)))
    if not isinstance(document.data, dict):
        return Readable(document=None, problems=(*document.problems, *_root_problems(document, kind)))
    return _Repair(document, kind, fill).done()


def _strange(document: Document, kind: Kind) -> Iterator[Diagnostic]:
    """Yield what is wrong with a file that may be anything: nothing of it is quoted."""
    found = "a list" if isinstance(document.data, list) else "text or nothing"
    is_map = isinstance(document.data, dict)
    yield document.problem((), f"does not look like {kind.article}" + ("" if is_map else f": expected a map, found {found}"), kind.form)
    if is_map:
        missing = (one for one in schema.describe(document.data, kind.name) if not one[0] and "needs the key" in one[1])
        yield from (document.problem(path, message, hint, key=key) for path, message, hint, key in missing)


def _root_problems(document: Document, kind: Kind) -> list[Diagnostic]:
    return schema.problems(document, kind.name) if document.is_whole and document.data is not None else []


class _Repair:
    """Repairs one document."""

    def __init__(self, document: Document, kind: Kind, fill: Fill) -> None:
        self.source = document
        self.kind = kind
        self.fill = fill
        self.cuts: set[DataPath] = set()
        self.document = document
        self.origins: dict[DataPath, DataPath] = {}
        """Where values of the repaired document stand in the file; those that did not move are left out."""

    def done(self) -> Readable:
        self._cut(path for path in self.source.unread if path)
        if () in self.source.unread:
            return Readable(document=None, problems=self.source.problems)
        found = schema.describe(self.document.data, self.kind.name)
        found = [problem for problem in found if not self._is_unread(problem)]
        problems = [*self.source.problems]
        renamed = self._rename(found)
        if renamed:
            after = schema.describe(self.document.data, self.kind.name)
            still = {(path, message) for path, message, _, _ in after}
            # what was only missing because its name was misspelt is not missing
            found = [one for one in found if "needs " not in one[1] or (one[0], one[1]) in still or one[0] in renamed]
            problems += self._positioned([one for one in after if any(one[0][: len(path)] == path for path in renamed)])
        problems += [self.source.problem(path, message, hint, key=key) for path, message, hint, key in found]
        while wrong := schema.describe(self.document.data, self.kind.name):
            if not self._mend(wrong):
                return Readable(document=None, problems=tuple(problems))
        if ("steps",) in self.cuts and (self.source.is_whole or "expect" not in self.document.data):
            self._edit({("steps",): []}, {})  # else it would seem to have the short form
        return Readable(document=self.document, problems=tuple(dict.fromkeys(problems)), cuts=frozenset(self._all_cuts()))

    def _positioned(self, found: Sequence[schema_words.Problem]) -> list[Diagnostic]:
        return [self.document.problem(path, message, hint, key=key) for path, message, hint, key in found]

    def _is_unread(self, problem: schema_words.Problem) -> bool:
        """Whether something is missing that may stand where the file could not be read."""
        path, message, _, _ = problem
        if "needs " not in message and "is empty" not in message:
            return False
        return (not path and not self.source.is_whole) or any(cut[: len(path)] == path for cut in self.cuts)

    def _all_cuts(self) -> Iterator[DataPath]:
        yield from self.cuts
        if not self.source.is_whole:
            yield from ((key,) for key in self.kind.keys if key not in self.document.data)

    def _rename(self, found: Sequence[schema_words.Problem]) -> set[DataPath]:
        """Read keys that are nearly right as what they nearly are; return their paths after that."""
        names: dict[DataPath, str] = {}
        for path, message, hint, key in found:
            meant = MEANT.search(hint)
            if key and message.startswith("unknown ") and meant and self._is_near(path, meant[1]) and path not in names:
                names[path] = meant[1]
        if not names:
            return set()
        self._edit({}, names)
        return {(*path[:-1], name) for path, name in names.items()}

    def _is_near(self, path: DataPath, meant: str) -> bool:
        beside = self.document.value(path[:-1])
        return meant not in beside and likeness(str(path[-1]), meant) >= NEAR

    def _mend(self, wrong: Sequence[schema_words.Problem]) -> bool:
        """Cut what does not fit, or fill in what is missing; False when nothing would be left."""
        values: dict[DataPath, Any] = {}
        cuts: set[DataPath] = set()
        for path, message, _, _ in wrong:
            missing = _MISSING.search(message)
            if missing and missing[1] in self.fill.values and len(path) == self.fill.depth:
                values[(*path, missing[1])] = self.fill.values[missing[1]]
            else:
                # without its options a condition would be one of the options
                cuts.add(path[:-1] if path[-1:] == ("set",) and isinstance(path[-2], int) else path)
        if () in cuts:
            return False
        self.cuts.update(values)
        self._cut(cuts, values)
        return True

    def _cut(self, paths: Iterable[DataPath], values: Mapping[DataPath, Any] | None = None) -> None:
        gone = set(paths)
        self.cuts.update(self._original(path) for path in gone)
        self._edit(values or {}, dict.fromkeys(gone))

    def _original(self, path: DataPath) -> DataPath:
        """Return a path by the indices of the file: entries of a list that were cut count."""
        return self.origins.get(path, path)

    def _edit(self, values: Mapping[DataPath, Any], names: Mapping[DataPath, str | None]) -> None:
        editor = _Editor(self.document, values, names, self.origins)
        self.document, self.origins = editor.edited(), editor.origins


_MISSING = re.compile(r" needs the key '([^']*)'")


class _Editor:
    """Copies a document: without some paths, with other names for some keys, with values added."""

    def __init__(
        self, document: Document, values: Mapping[DataPath, Any], names: Mapping[DataPath, str | None], before: Mapping[DataPath, DataPath]
    ) -> None:
        self.document = document
        self.values = values
        self.names = names
        self.before = before
        self.marks: dict[DataPath, Mark] = {}
        self.key_marks: dict[DataPath, Mark] = {}
        self.origins: dict[DataPath, DataPath] = {}

    def edited(self) -> Document:
        data = self._copy(self.document.data, (), ())
        for path, value in self.values.items():
            place = data
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
        return replace(self.document, data=data, marks=self.marks, key_marks=self.key_marks)

    def _copy(self, value: Any, old: DataPath, new: DataPath) -> Any:
        for table, copy in ((self.document.marks, self.marks), (self.document.key_marks, self.key_marks)):
            if old in table:
                copy[new] = table[old]
        origin = self.before.get(old, old)
        if origin != new:
            self.origins[new] = origin
        if isinstance(value, dict):
            return {name: self._copy(item, (*old, key), (*new, name)) for key, item, name in self._kept(value.items(), old)}
        if isinstance(value, list):
            kept = self._kept(enumerate(value), old)
            return [self._copy(item, (*old, key), (*new, index)) for index, (key, item, _) in enumerate(kept)]
        return value

    def _kept(self, items: Iterable[tuple[Any, Any]], path: DataPath) -> Iterator[tuple[Any, Any, Any]]:
        for key, item in items:
            name = self.names.get((*path, key), key)
            if name is not None:
                yield key, item, name


def edited(document: Document, cuts: Collection[DataPath], values: Mapping[DataPath, Any] | None = None) -> Document:
    """Return a document without the values at some paths, and with others in their place."""
    return _Editor(document, values or {}, dict.fromkeys(cuts), {}).edited()
