"""Changes of YAML files as text: only the characters of a changed value are replaced, so comments, order and form stay as they are.

A changed text is parsed again and compared with the data that the change should give. So no text that comes from a run can add a key, end
a value or become a comment: such a change is refused. ``docs/design/judging.md`` says why no library writes the files.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from runner.language.flow import flow
from runner.language.read.document import SPEC, DataPath, Document, Kind
from runner.language.read.yaml_source import parse
from runner.model.diagnostics import InvalidSpecs


class CannotEdit(Exception):
    """A change that the text of the file has no place for; the message says why."""


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Characters of a text that are replaced."""

    start: int
    end: int
    text: str


_TABS = re.compile(r"(?<=[^ \t\n\r])[ \t]*\t[ \t]*")
"""White space with a tab after other text of a line; at the beginning of a line it may be the indentation of a text."""


def value_edit(document: Document, path: DataPath, value: object) -> Edit:
    """Return the edit that writes another value, in flow style; raise ``CannotEdit`` for a value on several lines."""
    # the loader in Python: its marks count characters. It refuses tabs between words, unlike libyaml and YAML 1.2
    text = _TABS.sub(lambda tabs: " " * len(tabs[0]), document.content.decode("utf-8"))
    node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    for key in path:
        if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
        else:
            entries = node.value if isinstance(node, yaml.MappingNode) else []
            node = next((entry for name, entry in entries if name.value == str(key)), None)
        if node is None:
            raise CannotEdit(f"there is no value at {key!r}")
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        raise CannotEdit("the value stands on several lines: change it by hand")
    return Edit(node.start_mark.index, node.end_mark.index, flow(value))


# -- a changed file ---------------------------------------------------------------------------------------------------


def changed(document: Document, edits: Iterable[Edit], data: Any, kind: Kind = SPEC) -> Document:
    """Return a file with edits; raise ``CannotEdit`` for those that overlap, and unless it then has exactly this data."""
    text = document.content.decode("utf-8")
    pieces: list[str] = []
    at = 0
    for edit in sorted(set(edits)):
        if edit.start < at:
            raise CannotEdit("two changes are at one place: change it by hand")
        pieces += [text[at : edit.start], edit.text]
        at = edit.end
    try:
        result = parse("".join([*pieces, text[at:]]), path=document.path, kind=kind)
    except (InvalidSpecs, UnicodeEncodeError) as error:
        raise CannotEdit("the changed text cannot be read: change it by hand") from error
    if repr(result.data) != repr(data):  # 1, 1.0 and true differ
        raise CannotEdit("the changed text would mean something else: change it by hand")
    return result


def patch(document: Document, text: str) -> str:
    """Return the unified diff of a file and its changed text, for ``git apply`` and ``patch -p1``."""
    name = document.file.replace("\\", "/").lstrip("/")
    name += "\t" if " " in name else ""  # as git does: 'patch' ends a name at a blank unless a tab follows it
    before, after = (version.splitlines(keepends=True) for version in (document.content.decode("utf-8"), text))
    changes = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in changes)
