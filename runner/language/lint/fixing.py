"""``--fix``: files with the safe changes of findings. What must stay equal is compared by who writes them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from runner.language.lint.base import Fix
from runner.language.read.document import SPEC, WAIVERS, DataPath, Document
from runner.language.text_edits import CannotEdit, Edit, Layout, changed


def fixed(fixes: Iterable[Fix]) -> Iterator[tuple[Document, Document | str]]:
    """Yield each file that has fixes, with the changed file, or why it is not changed."""
    by_file: dict[str, list[Fix]] = {}
    for fix in fixes:
        by_file.setdefault(fix.document.file, []).append(fix)
    for own in by_file.values():
        document = own[0].document
        try:
            yield document, _fixed(document, own)
        except CannotEdit as error:
            yield document, str(error)


def _fixed(document: Document, fixes: list[Fix]) -> Document:
    removed = [fix.removed for fix in fixes if fix.removed is not None]
    values = dict(fix.value for fix in fixes if fix.value is not None)
    layout = Layout(document)
    edits: list[Edit] = [layout.removal(path) for path in removed]
    edits += [layout.value(path, value) for path, value in values.items()]
    edits += [fix.edit for fix in fixes if fix.edit is not None]
    data = _edited(document.data, (), set(removed), values)
    return changed(document, edits, data, WAIVERS if "waivers" in document.data else SPEC)


def _edited(value: Any, path: DataPath, removed: Collection[DataPath], values: Mapping[DataPath, Any]) -> Any:
    """Return a copy of data without the values at some paths, and with other values at others."""
    if path in values:
        return values[path]
    if isinstance(value, dict):
        kept = {key: _edited(item, (*path, key), removed, values) for key, item in value.items() if (*path, key) not in removed}
        return kept | {place[-1]: item for place, item in values.items() if place[:-1] == path and place[-1] not in value}
    if isinstance(value, list):
        return [_edited(item, (*path, index), removed, values) for index, item in enumerate(value) if (*path, index) not in removed]
    return value
