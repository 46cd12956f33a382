"""Waivers as text: drafts that a person completes, their place in an existing file, and a file without some waivers.

Files are changed as text, so that comments and everything else in them stay as they are.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.core.diagnostics import InvalidSpecs, UsageError
from runner.core.protocol import Json
from runner.language.read.document import WAIVERS, Document
from runner.language.read.source import parse
from runner.language.text_edits import patch

FILL_IN = "FILL-IN"
"""What a person must replace: a waiver with it is not valid."""

_HEAD = "# Known failures. 'torch-conformance validate --waivers FILE' checks this file.\n"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS = ("true", "false", "null", "yes", "no", "on", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A waiver that is to be written."""

    cases: str
    signatures: tuple[Mapping[str, str], ...]
    reason: str
    issue: str
    until: str
    when: Mapping[str, Json] = field(default_factory=dict)


def entry_of(draft: Draft, indent: int = 2) -> str:
    """Return the lines of a draft, as an entry of the list of waivers."""
    failure = draft.signatures[0] if len(draft.signatures) == 1 else list(draft.signatures)
    values: dict[str, Json] = {"cases": draft.cases, "when": draft.when, "failure": failure}
    values |= {"reason": draft.reason, "issue": draft.issue, "until": draft.until}
    lines = [f"{name}: {_scalar(value)}" for name, value in values.items() if value or name != "when"]
    pad = " " * indent
    return "\n".join([f"{pad}- {lines[0]}", *(f"{pad}  {line}" for line in lines[1:])]) + "\n"


def _scalar(value: Json) -> str:
    """Return a value as YAML: JSON, without quotes where a word needs none. Other than ASCII is escaped."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(str(key))}: {_scalar(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_scalar, value)) + "]"
    return json.dumps(value)


def document_of(drafts: Sequence[Draft]) -> str:
    """Return a new file of waivers."""
    return _HEAD + "waivers:\n" + "".join(map(entry_of, drafts)) if drafts else _HEAD + "waivers: []\n"


# -- an existing file -------------------------------------------------------------------------------------------------


def appended(document: Document, drafts: Sequence[Draft]) -> str:
    """Return the text of a file of waivers with drafts at its end; raise ``UsageError`` for a file in which text has no place for them."""
    text = document.content.decode("utf-8-sig")
    entries = document.data.get("waivers") if isinstance(document.data, dict) else None
    if not isinstance(entries, list):
        raise UsageError(f"{document.file}: has no list below 'waivers' (write waivers: [] in it)")
    if entries:
        indent = _dash(document, 0, text.splitlines())
        if indent is None:
            raise UsageError(f"{document.file}: its list is written in brackets (write each waiver on lines of its own, after '- ')")
        new = _with_end(text) + "".join(entry_of(draft, indent) for draft in drafts)
    else:
        new = re.sub(r"^waivers:[ \t]*\[[ \t]*\]", lambda _: "waivers:", _with_end(text), count=1, flags=re.MULTILINE)
        new += "".join(map(entry_of, drafts))
    _must_be(document, new, [*entries, *(None for _ in drafts)])
    return new


def _with_end(text: str) -> str:
    return text if text.endswith("\n") or not text else text + "\n"


def _must_be(document: Document, text: str, expected: Sequence[Any]) -> None:
    """Raise ``UsageError`` unless a text has these waivers and no others; None stands for any."""
    try:
        found = parse(text, path=document.path, kind=WAIVERS).data["waivers"]
    except (InvalidSpecs, KeyError, TypeError):
        found = None
    same = isinstance(found, list) and len(found) == len(expected)
    if not same or any(old is not None and old != new for old, new in zip(expected, found or (), strict=True)):
        raise UsageError(f"{document.file}: the waivers cannot be changed as text (change them by hand)")


def _dash(document: Document, index: int, lines: Sequence[str]) -> int | None:
    """Return the indentation of an entry that stands on lines of its own; None for one in brackets."""
    position = document.position(("waivers", index))
    before = lines[position.line - 1][: position.column - 1] if position.line <= len(lines) else ""
    found = re.fullmatch(r"([ ]*)-[ ]+", before)
    return len(found[1]) if found else None


# -- without some waivers ---------------------------------------------------------------------------------------------


def removal_patch(document: Document, indices: Collection[int]) -> str:
    """Return the unified diff that removes entries; raise ``UsageError`` where they do not stand on lines of their own."""
    text = document.content.decode("utf-8")
    lines = text.splitlines(keepends=True)
    gone: set[int] = set()
    for index in indices:
        dash = _dash(document, index, [line.rstrip("\r\n") for line in lines])
        if dash is None:
            where = document.position(("waivers", index))
            raise UsageError(f"{where}: this waiver stands in brackets (remove it by hand)")
        gone.update(_lines_of(lines, document.position(("waivers", index)).line - 1, dash))
    entries = document.data["waivers"]
    kept = [line for number, line in enumerate(lines) if number not in gone]
    if len(set(indices)) == len(entries):
        kept = [re.sub(r"^waivers:(?=\s*(#.*)?$)", "waivers: []", line) for line in kept]
    _must_be(document, "".join(kept), [entry for index, entry in enumerate(entries) if index not in indices])
    return patch(document, "".join(kept))


def _lines_of(lines: Sequence[str], first: int, dash: int) -> range:
    """Return the lines of an entry, and those of a comment above it that no other entry follows."""
    end = first + 1
    while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > dash):
        end += 1
    while end > first + 1 and not lines[end - 1].strip():
        end -= 1
    follows = lines[end].strip() if end < len(lines) else ""
    start = first
    while start > 0 and lines[start - 1].strip().startswith("#") and _indent(lines[start - 1]) >= dash > 0:
        start -= 1
    is_shared = follows.startswith("-")  # the comment is also about the entry below
    return range(first if is_shared else start, end)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
