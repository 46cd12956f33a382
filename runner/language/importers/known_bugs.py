"""``known_bugs.yaml`` of rocBLAS and hipBLASLt: a list of calls of the library that fail, each with the arguments and the platforms."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner.core.diagnostics import Diagnostic, InvalidSpecs
from runner.language.backends import read_named
from runner.language.importers.base import MOST_ENTRIES, Imported, comment_above
from runner.language.read.document import DataPath, Document
from runner.language.read.kinds import Kind

TOP = "Known bugs"
PLATFORMS = "known_bug_platforms"
_PLATFORM = re.compile(r"gfx[0-9a-f]{3,5}")
_FORM = "write 'Known bugs:' and a list of maps: - {function: gemm_ex, a_type: f16_r, M: 3, known_bug_platforms: gfx90a}"

KIND = Kind(
    name="known-bugs",
    article="a known_bugs.yaml",
    keys=frozenset([TOP, "function", "name", "a_type", "b_type", "c_type", "transA", "transB", "M", "N", "K", PLATFORMS]),
    marks=frozenset([TOP, PLATFORMS, "a_type", "transA"]),
    least=1,
    form=_FORM,
)


def read(path: Path) -> list[Imported]:
    """Return the entries; raise ``InvalidSpecs`` with every problem of the file."""
    document = read_named(path, KIND)
    if problems := [*document.problems, *_problems(document)]:
        raise InvalidSpecs(problems)
    lines = document.content.decode("utf-8-sig").splitlines()
    return [_imported(document, index, entry, lines) for index, entry in enumerate(document.data[TOP])]


def _problems(document: Document) -> Iterator[Diagnostic]:
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get(TOP), list):
        yield document.problem((), f"has no list below '{TOP}'", _FORM)
        return
    if len(data[TOP]) > MOST_ENTRIES:
        yield document.problem((TOP,), f"has {len(data[TOP])} entries; at most {MOST_ENTRIES} are read", "split the file", key=True)
        return
    for index, entry in enumerate(data[TOP]):
        if isinstance(entry, dict) and entry:
            yield from _entry_problems(document, (TOP, index), entry)
        else:
            yield document.problem((TOP, index), "an entry is a map of fields", _FORM)


def _entry_problems(document: Document, path: DataPath, entry: dict[Any, Any]) -> Iterator[Diagnostic]:
    for name, value in entry.items():
        if not isinstance(name, str):
            yield document.problem(path, "the name of a field is text", _FORM)
        elif isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, dict | list) for one in value)):
            yield document.problem((*path, name), f"the field '{name}' is a number, a text or a list of them", _FORM)
    platforms = entry.get(PLATFORMS, "")
    if not isinstance(platforms, str):
        yield document.problem((*path, PLATFORMS), "platforms are text", f'write {PLATFORMS}: "gfx90a, gfx942"')
    for name in _platforms(platforms) if isinstance(platforms, str) else ():
        if not _PLATFORM.fullmatch(name):
            yield document.problem((*path, PLATFORMS), f"'{name}' is no platform", f'write {PLATFORMS}: "gfx90a, gfx942"')


def _platforms(text: str) -> list[str]:
    return [name for name in re.split(r"[,\s]+", text) if name]


def _imported(document: Document, index: int, entry: dict[str, Any], lines: list[str]) -> Imported:
    position = document.position((TOP, index))
    platforms = _platforms(entry.get(PLATFORMS, ""))
    what = " ".join(str(entry[name]) for name in ("name", "function") if name in entry)
    return Imported(
        fields=entry,
        position=position,
        when={"arch": platforms} if platforms else {},
        reason=f"known bug of the library: {what or 'a call'}",
        comment=comment_above(lines, position.line),
    )
