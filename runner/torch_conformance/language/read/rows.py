"""Rows of a matrix that lie in another file: YAML, JSON, CSV, or a text with a value on each line.

They become part of the spec's data and keep their own positions. Reading executes nothing.
"""

import csv
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch_conformance.language.read.document import ROWS
from torch_conformance.language.read.matrix import KEY, MAX_POINTS
from torch_conformance.language.read.spec_files import SpecPath, is_within, tree_of
from torch_conformance.language.read.yaml_source import decoded, read_bytes, read_partly, resolve
from torch_conformance.model.diagnostics import (
    Diagnostic,
    InvalidSpecs,
    Position,
    nearest,
    one_of,
    shown_path,
)
from torch_conformance.model.document import DataPath, Document, Mark
from torch_conformance.model.protocol import Json

_SUFFIXES = (".csv", ".json", ".txt", ".yaml", ".yml")
_SEPARATORS = ",;\t"

Tables = dict[str, Document | None]
"""The files of rows that were read, by their real paths; None for one with a problem."""


def _references(data: Json) -> Iterator[tuple[str, str | int, str]]:
    """Yield the files of rows that a spec names: section, key or index, name."""
    for section in ("matrix", "include") if isinstance(data, dict) else ():
        value = data.get(section)
        entries = enumerate(value) if isinstance(value, list) else ()
        for key, entry in value.items() if isinstance(value, dict) else entries:
            if isinstance(entry, dict) and entry.keys() == {"file"}:
                yield section, key, str(entry["file"])


def files_named(spec: Path) -> list[Path]:
    """Return the files of rows that a spec names, also where another part of it is invalid."""
    try:
        content = read_bytes(spec)
        data = read_partly(spec, content=content).data if b"file" in content else None
    except InvalidSpecs:
        return []
    return [_sibling(spec, name) for *_, name in _references(data)]


def _sibling(spec: Path, name: str) -> Path:
    return Path(os.path.normpath(spec.parent / name))


def with_rows(
    document: Document, spec: SpecPath, tables: Tables, problems: list[Diagnostic]
) -> Document:
    """Return a spec with the rows of the files that it names, and add the problems of these
    files.
    """
    references = list(_references(document.data))
    if not references and "include" not in document.data:
        return document
    matrix, included = dict(document.data.get("matrix", {})), list[Any]()
    origins: dict[DataPath, tuple[Document, DataPath]] = {}
    read: dict[str, Document] = {}

    def rows_of(section: str, key: str | int) -> list[tuple[Any, Document, DataPath]]:
        """Return the rows of one file, each with its place."""
        name = next(name for *place, name in references if place == [section, key])
        table = _table(document, spec, (section, key, "file"), name, tables, problems)
        if table is None:
            return []
        read[table.file] = table
        return [(row, table, (number,)) for number, row in enumerate(table.data)]

    places = {(section, key) for section, key, _ in references}
    for key in [key for key in matrix if ("matrix", key) in places]:
        rows = rows_of("matrix", key)
        matrix[key] = [row for row, *_ in rows]
        for number, (_, source, path) in enumerate(rows):
            origins["matrix", key, number] = source, path
    for index, entry in enumerate(document.data.get("include", ())):
        place = ("include", index)
        rows = rows_of(*place) if place in places else [(entry, document, place)]
        for row, source, path in rows:
            if not isinstance(row, dict) or not row:
                problems.append(source.diagnostic(path, "row-without-keys"))
                continue
            origins["include", len(included)] = source, path
            included.append(row)
    for key in () if matrix else (included or [{}])[0]:
        source, path = origins["include", 0]
        if not KEY.fullmatch(key):
            problems.append(source.diagnostic((*path, key), "column-is-no-key", word=key))
        matrix[key], origins["matrix", key] = [], (source, (*path, key))
    data = {**document.data, "matrix": matrix}
    if included:
        data["include"] = included
    return replace(document, data=data, origins=origins, rows=tuple(read.values()))


def _table(
    document: Document,
    spec: SpecPath,
    place: DataPath,
    name: str,
    tables: Tables,
    problems: list[Diagnostic],
) -> Document | None:
    """Return the rows of a file; None where it has a problem, which is added once."""
    path, tree = _sibling(spec.path, name), tree_of(spec.root)
    real = os.path.realpath(path)
    if os.path.splitext(name)[1] not in _SUFFIXES:
        problem = document.diagnostic(place, "no-file-of-rows", name=name, of=one_of(_SUFFIXES))
    elif not is_within(path, tree):
        tree_name = shown_path(tree or path)
        problem = document.diagnostic(place, "rows-out-of-the-tree", name=name, tree=tree_name)
    elif not path.exists():
        near = nearest(path.name, os.listdir(path.parent)) if path.parent.is_dir() else ""
        problem = document.diagnostic(place, "rows-not-there", name=name, near=near)
    else:
        if real not in tables:
            try:
                tables[real] = _read(path)
            except InvalidSpecs as error:
                tables[real] = None
                problems.extend(error.diagnostics)
        return tables[real]
    problems.append(problem)
    return None


def _read(path: Path) -> Document:
    """Read a file of rows; raise ``InvalidSpecs``."""
    content = read_bytes(path, article=ROWS.article)
    if path.suffix in (".csv", ".txt"):
        table = _of_text(decoded(content, path, ROWS), path, content)
    else:
        table = read_partly(path, ROWS, content)
    problems = list(table.problems)
    if not problems and not (isinstance(table.data, list) and table.data):
        problems.append(table.diagnostic((), "no-list-of-rows", form=ROWS.form))
    elif not problems and len(table.data) > MAX_POINTS:
        problems.append(table.diagnostic((MAX_POINTS,), "too-many-rows", most=f"{MAX_POINTS:,}"))
    if problems:
        raise InvalidSpecs(problems)
    return table


def _of_text(text: str, path: Path, content: bytes) -> Document:
    """Return the rows of CSV, whose first line names the columns, or the lines of a text. Their
    values are plain scalars of YAML.
    """
    rows: list[Any] = []
    marks: dict[DataPath, Mark] = {}
    problems: list[Diagnostic] = []
    file, line = shown_path(path), 0

    def fail(code: str, **arguments: str | int) -> None:
        problem = Diagnostic.of(code, **arguments)
        problems.append(problem.at(Position(file=file, line=line, column=1)))

    def scalar(raw: str, place: DataPath) -> Json:
        marks[place] = Mark(line, 1, raw.strip(), "")
        try:
            return resolve(raw.strip())
        except ValueError:
            return fail("yaml-long-number")

    lines = text.splitlines()
    if path.suffix == ".txt":
        for row in lines:
            line += 1
            if row.strip() and not row.lstrip().startswith("#"):
                rows.append(scalar(row, (len(rows),)))
    else:
        separator = next((char for char in _SEPARATORS if char in "".join(lines[:1])), ",")
        reader = csv.reader(
            text.splitlines(keepends=True), delimiter=separator, strict=True, skipinitialspace=True
        )
        names: list[str] | None = None
        try:
            # a row with a line end within quotes has the position of its first line
            for cells in reader:
                line, ends = line + 1, reader.line_num
                if names is None:
                    names = [cell.strip() for cell in cells]
                    for name in dict.fromkeys(names):
                        if not name or names.count(name) > 1:
                            fail("bad-column", name=name)
                elif len(cells) not in (0, len(names)):
                    fail("other-columns", count=len(cells), columns=len(names))
                elif cells:
                    place = (len(rows),)
                    row_marks = zip(names, cells, strict=True)
                    rows.append({name: scalar(cell, (*place, name)) for name, cell in row_marks})
                    marks[place] = Mark(line, 1)
                line = ends
                if problems or len(rows) > MAX_POINTS:
                    break
        except csv.Error as error:
            line += 1
            fail("csv-syntax", problem=str(error))
    return Document(
        path=path,
        file=file,
        data=rows,
        marks=marks,
        key_marks={},
        content=content,
        problems=tuple(problems),
    )
