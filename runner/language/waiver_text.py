"""Waivers as text: drafts that a person completes, their place in an existing file, and a file without some waivers.

Files are changed as text, so that comments and everything else in them stay as they are.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.core.diagnostics import InvalidSpecs, UsageError
from runner.core.protocol import Json
from runner.language.flow import flow
from runner.language.read.document import WAIVERS, Document
from runner.language.read.source import parse
from runner.language.text_edits import patch

FILL_IN = "FILL-IN"
"""What a person must replace: a waiver with it is not valid."""

_HEAD = "# Known failures. 'torch-conformance validate --waivers FILE' checks this file.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A waiver that is to be written."""

    cases: str
    signatures: tuple[Mapping[str, Json], ...]
    reason: str
    issue: str
    until: str
    when: Mapping[str, Json] = field(default_factory=dict)


def entry_of(draft: Draft, indent: int = 2) -> str:
    """Return the lines of a draft, as an entry of the list of waivers."""
    failure = draft.signatures[0] if len(draft.signatures) == 1 else list(draft.signatures)
    values: dict[str, object] = {"cases": draft.cases, "when": draft.when, "failure": failure}
    values |= {"reason": draft.reason, "issue": draft.issue, "until": draft.until}
    lines = [f"{name}: {flow(value)}" for name, value in values.items() if value or name != "when"]
    pad = " " * indent
    return "\n".join([f"{pad}- {lines[0]}", *(f"{pad}  {line}" for line in lines[1:])]) + "\n"


def document_of(drafts: Sequence[Draft]) -> str:
    """Return a new file of waivers."""
    return _HEAD + "waivers:\n" + "".join(map(entry_of, drafts)) if drafts else _HEAD + "waivers: []\n"


# -- an existing file -------------------------------------------------------------------------------------------------


def appended(document: Document, drafts: Sequence[Draft]) -> str:
    """Return the text of a file of waivers with drafts at its end; raise ``UsageError`` for a file in which text has no place for them."""
    text = document.content.decode("utf-8-sig")
    text += "" if text.endswith("\n") or not text else "\n"
    entries = document.data.get("waivers") if isinstance(document.data, dict) else None
    if not isinstance(entries, list):
        raise UsageError(f"{document.file}: has no list below 'waivers' (write waivers: [] in it)")
    indent = _indent_of(document, 0) if entries else 2
    if indent is None:
        raise UsageError(f"{document.file}: its list is written in brackets (write each waiver on lines of its own, after '- ')")
    if not entries:
        text = re.sub(r"^waivers:[ \t]*\[[ \t]*\]", lambda _: "waivers:", text, count=1, flags=re.MULTILINE)
    text += "".join(entry_of(draft, indent) for draft in drafts)
    _must_be(document, text, entries, len(drafts))
    return text


def _must_be(document: Document, text: str, expected: Sequence[Any], more: int = 0) -> None:
    """Raise ``UsageError`` unless a text has these waivers, and after them so many others."""
    try:
        waivers = parse(text, path=document.path, kind=WAIVERS).data["waivers"]
    except (InvalidSpecs, KeyError, TypeError):
        waivers = None
    if not isinstance(waivers, list) or len(waivers) != len(expected) + more or waivers[: len(expected)] != [*expected]:
        raise UsageError(f"{document.file}: the waivers cannot be changed as text (change them by hand)")


def _indent_of(document: Document, index: int) -> int | None:
    """Return the indentation of an entry that stands on lines of its own; None for one in brackets."""
    position = document.position(("waivers", index))
    lines = document.content.decode("utf-8-sig").splitlines()
    before = lines[position.line - 1][: position.column - 1] if position.line <= len(lines) else ""
    dash = re.fullmatch(r"([ ]*)-[ ]+", before)
    return len(dash[1]) if dash else None


# -- without some waivers ---------------------------------------------------------------------------------------------


def removal_patch(document: Document, indices: Collection[int]) -> str:
    """Return the unified diff that removes entries; raise ``UsageError`` where they do not stand on lines of their own."""
    lines = document.content.decode("utf-8").splitlines(keepends=True)
    indents = [len(line) - len(line.lstrip(" ")) for line in lines]
    removed: set[int] = set()
    for index in indices:
        position = document.position(("waivers", index))
        indent = _indent_of(document, index)
        if indent is None:
            raise UsageError(f"{position}: this waiver stands in brackets (remove it by hand)")
        start = position.line - 1
        end = start + 1
        while end < len(lines) and (not lines[end].strip() or indents[end] > indent):
            end += 1
        while end > start + 1 and not lines[end - 1].strip():
            end -= 1
        # a comment above the entry goes with it, unless another entry follows: it is also about that one
        if end == len(lines) or not lines[end].strip().startswith("-"):
            while start > 0 and lines[start - 1].strip().startswith("#") and indents[start - 1] >= indent > 0:
                start -= 1
        removed.update(range(start, end))
    entries = document.data["waivers"]
    kept = [line for number, line in enumerate(lines) if number not in removed]
    if len(set(indices)) == len(entries):
        kept = [re.sub(r"^waivers:(?=\s*(#.*)?$)", "waivers: []", line) for line in kept]
    _must_be(document, "".join(kept), [entry for index, entry in enumerate(entries) if index not in indices])
    return patch(document, "".join(kept))
