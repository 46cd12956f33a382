"""Reduces a document with problems to the part that can be checked, so that one pass finds problems of form and of meaning.

Misspelt keys are read as the keys that they resemble. Parts that do not fit the schema are cut out. The cuts are recorded as gaps: a
problem that may be a consequence of a gap is not reported (``without_follow_ups``).
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.core.diagnostics import Diagnostic
from runner.language.read import schema, schema_words
from runner.language.read.document import DataPath, Document, Mark
from runner.language.read.follow_ups import MEANT, NEAR, similarity
from runner.language.read.kinds import Kind
from runner.language.read.source import recognised


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """The part of a document that fits its schema. ``document`` is None if nothing can be checked."""

    document: Document | None
    problems: tuple[Diagnostic, ...] = ()
    cuts: frozenset[DataPath] = frozenset()
    """The cut parts, by their paths in the file. Missing keys are included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """Values for required keys: if such a key is missing, the rest of its map can still be checked."""

    depth: int
    """The depth of the maps with these keys in the document."""
    values: Mapping[str, Any]


_NOTHING = Fill(depth=0, values={})


def readable(document: Document, kind: Kind, fill: Fill = _NOTHING) -> Readable:
    """Return the part of a document that can be checked, and the problems of the rest."""
    if not document.problems and schema.fits(kind.name)(document.data):
        return Readable(document=document)
    if not document.problems and not recognised(document.path, document.content, kind, document.data):
        return Readable(document=None, problems=tuple(_unrecognised(document, kind)))
    if not isinstance(document.data, dict):
        return Readable(document=None, problems=(*document.problems, *_root_problems(document, kind)))
    return _Repair(document, kind, fill).done()


def _unrecognised(document: Document, kind: Kind) -> Iterator[Diagnostic]:
    """Yield the problems of an unrecognised file, without quoting it."""
    found = "a list" if isinstance(document.data, list) else "text or nothing"
    is_map = isinstance(document.data, dict)
    yield document.problem((), f"is not {kind.article}" + ("" if is_map else f": expected a map, found {found}"), kind.form)
    if is_map:
        # a key that is none of its own, and resembles none, is not quoted: the file may be of another kind
        told = (one for one in schema.describe(document.data, kind.name) if _is_missing(one) or _is_misspelt(one))
        yield from (document.problem(path, message, hint, key=key) for path, message, hint, key in told)


def _is_missing(piece: tuple[DataPath, str, str, bool]) -> bool:
    return not piece[0] and "needs the key" in piece[1]


def _is_misspelt(piece: tuple[DataPath, str, str, bool]) -> bool:
    return len(piece[0]) == 1 and piece[1].startswith("unknown key") and piece[2].startswith("did you mean")


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
        """The path in the file of each moved value of the repaired document."""

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
            # a misspelt key is not missing
            found = [one for one in found if "needs " not in one[1] or (one[0], one[1]) in still or one[0] in renamed]
            problems += self._positioned([one for one in after if any(one[0][: len(path)] == path for path in renamed)])
        problems += [self.source.problem(path, message, hint, key=key) for path, message, hint, key in found]
        while wrong := schema.describe(self.document.data, self.kind.name):
            if not self._mend(wrong):
                return Readable(document=None, problems=tuple(problems))
        if ("steps",) in self.cuts and (self.source.is_whole or "expect" not in self.document.data):
            self._edit({("steps",): []}, {})  # otherwise the spec would have the short form
        return Readable(document=self.document, problems=tuple(dict.fromkeys(problems)), cuts=frozenset(self._all_cuts()))

    def _positioned(self, found: Sequence[schema_words.Problem]) -> list[Diagnostic]:
        return [self.document.problem(path, message, hint, key=key) for path, message, hint, key in found]

    def _is_unread(self, problem: schema_words.Problem) -> bool:
        """Whether a missing part may be in the unreadable part of the file."""
        path, message, _, _ = problem
        if "needs " not in message and "is empty" not in message:
            return False
        return (not path and not self.source.is_whole) or any(cut[: len(path)] == path for cut in self.cuts)

    def _all_cuts(self) -> Iterator[DataPath]:
        yield from self.cuts
        if not self.source.is_whole:
            yield from ((key,) for key in self.kind.keys if key not in self.document.data)

    def _rename(self, found: Sequence[schema_words.Problem]) -> set[DataPath]:
        """Rename misspelt keys to the keys that they resemble; return their new paths."""
        names: dict[DataPath, str] = {}
        for path, message, hint, key in found:
            meant = MEANT.search(hint)
            if key and message.startswith("unknown ") and meant and self._is_similar(path, meant[1]) and path not in names:
                names[path] = meant[1]
        if not names:
            return set()
        self._edit({}, names)
        return {(*path[:-1], name) for path, name in names.items()}

    def _is_similar(self, path: DataPath, meant: str) -> bool:
        siblings = self.document.value(path[:-1])
        return meant not in siblings and similarity(str(path[-1]), meant) >= NEAR

    def _mend(self, wrong: Sequence[schema_words.Problem]) -> bool:
        """Cut the invalid parts, or add missing required keys; return False if nothing would be left."""
        values: dict[DataPath, Any] = {}
        cuts: set[DataPath] = set()
        for path, message, _, _ in wrong:
            missing = _MISSING.search(message)
            if missing and missing[1] in self.fill.values and len(path) == self.fill.depth:
                values[(*path, missing[1])] = self.fill.values[missing[1]]
            else:
                # without 'set' the key 'when' would be read as an option
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
        """Return a path with the indices of the file, before list entries were cut."""
        return self.origins.get(path, path)

    def _edit(self, values: Mapping[DataPath, Any], names: Mapping[DataPath, str | None]) -> None:
        editor = _Editor(self.document, values, names, self.origins)
        self.document, self.origins = editor.edited(), editor.origins


_MISSING = re.compile(r" needs the key '([^']*)'")


class _Editor:
    """Copies a document without some paths, with renamed keys and added values."""

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
            return {name: self._copy(item, (*old, key), (*new, name)) for key, item, name in self._remaining(value.items(), old)}
        if isinstance(value, list):
            items = self._remaining(enumerate(value), old)
            return [self._copy(item, (*old, key), (*new, index)) for index, (key, item, _) in enumerate(items)]
        return value

    def _remaining(self, items: Iterable[tuple[Any, Any]], path: DataPath) -> Iterator[tuple[Any, Any, Any]]:
        for key, item in items:
            name = self.names.get((*path, key), key)
            if name is not None:
                yield key, item, name


def edited(document: Document, cuts: Collection[DataPath], values: Mapping[DataPath, Any] | None = None) -> Document:
    """Return a document without the values at some paths, and with other values added."""
    return _Editor(document, values or {}, dict.fromkeys(cuts), {}).edited()
