"""Detects waiver files of a wrong form: one message with the right form replaces many schema errors."""

from dataclasses import replace
from typing import Any

from runner.core.diagnostics import Diagnostic, did_you_mean
from runner.language.read.document import DataPath, Document, Mark
from runner.language.read.kinds import WAIVERS
from runner.language.read.source import recognised

KEYS = frozenset(["id", "cases", "when", "failure", "reason", "issue", "until"])
"""The keys of a waiver."""


def wrong_form(document: Document) -> tuple[Diagnostic | None, Document | None]:
    """Return the problem of a file with a wrong form, and the document if its waivers can be read anyway.

    The message quotes nothing, because the file may contain anything.
    """
    data = document.data
    if isinstance(data, list) and _are_waivers(data) and recognised(document.path, document.content, WAIVERS):
        hint = f"write 'waivers:' in the first line, and indent the list: {WAIVERS.form}"
        return document.problem((), "a list of waivers without the key 'waivers'", hint), _below_key(document)
    found = _form(data)
    if found is None:
        return None, document
    if not document.is_whole:  # the keys after the place that cannot be parsed are unknown
        return document.problems[-1], None
    path, message = found
    return document.problem(path, message, WAIVERS.form), None


def _form(data: object) -> tuple[DataPath, str] | None:
    """Return where a file stops to have the form of a waiver file, and what is there; None where it has it."""
    expected = "a waiver file is a map with the key 'waivers'"
    if not isinstance(data, dict):
        return (), f"{expected}, found {_found(data)}"
    if "waivers" not in data:
        if did_you_mean("waivers", map(str, data), cutoff=0.7):
            return None
        keyed = all(isinstance(value, dict | str) for value in data.values())
        return (), f"{expected}, found a map {'by case or by name' if keyed else 'with other keys'}"
    return _form_of_entries(data["waivers"])


def _form_of_entries(entries: object) -> tuple[DataPath, str] | None:
    if not isinstance(entries, list):
        return ("waivers",), f"'waivers' is a list with an entry for each waiver, found {_found(entries)}"
    texts = [index for index, entry in enumerate(entries) if not isinstance(entry, dict)]
    if entries and len(texts) == len(entries):
        return ("waivers", 0), f"each waiver is a map, found a list of {len(entries)} entries that are not maps"
    if entries and not _are_waivers(entries):
        return ("waivers", 0), "no entry has a key of a waiver"
    return None


def _are_waivers(entries: list[Any]) -> bool:
    """Whether some entry has a key of a waiver or a similar key."""
    keys = {str(key) for entry in entries if isinstance(entry, dict) for key in entry}
    return any(key in KEYS or did_you_mean(key, KEYS, cutoff=0.8) for key in keys)


def _found(value: object) -> str:
    match value:
        case dict():
            return "a map"
        case list():
            return "a list"
        case None:
            return "nothing: write [] for no waiver"
    return "text" if isinstance(value, str) else "a number, true or false"


def _below_key(document: Document) -> Document:
    """Return the document with its list below the key ``waivers``."""
    marks: dict[DataPath, Mark] = {("waivers", *path): mark for path, mark in document.marks.items()}
    keys: dict[DataPath, Mark] = {("waivers", *path): mark for path, mark in document.key_marks.items()}
    return replace(document, data={"waivers": document.data}, marks={**marks, (): document.marks[()]}, key_marks=keys)
