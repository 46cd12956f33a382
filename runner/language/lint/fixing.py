"""``--fix``: files with the safe changes of findings. What must stay equal is compared by who writes them."""

from collections.abc import Iterable, Iterator

from runner.language.lint.base import Fix
from runner.language.read.document import Document
from runner.language.read.kinds import SPEC, WAIVERS
from runner.language.read.repair import edited
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
    data = edited(document, removed, dict(values)).data
    return changed(document, edits, data, WAIVERS if "waivers" in document.data else SPEC)
