"""The words that may stand at a place of a spec, each with what it means."""

import functools
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from runner.language.names._name_table import CONFIG_FILES
from runner.language.names.described import described
from runner.language.names.published import schema
from runner.language.read.schema import definition as definition_of
from runner.language.read.schema import resolved
from runner.system.installed_torch import installed_torch

Words = Mapping[str, str]


@cache
def names() -> Mapping[str, Any]:
    """Return the definitions of the schema of names."""
    found: Mapping[str, Any] = schema()["$defs"]
    return found


@cache
def _schema(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = resolved(name)
    return found


def words_at(keys: Sequence[str]) -> Words:
    """Return the words that may follow below the keys around a place."""
    if not keys:
        return _properties(_schema("spec"))
    for key in reversed(keys):
        if key in _TABLES:
            return _TABLES[key]()
    return {}


def _properties(found: Mapping[str, object]) -> dict[str, str]:
    properties = found.get("properties", {})
    assert isinstance(properties, Mapping)
    return {name: str(part.get("description", "")) for name, part in properties.items() if isinstance(part, Mapping)}


def options(section: str) -> Words:
    """Return the options of a section, with type, default and comment."""
    known = names()[f"{section}_names"]["properties"]
    return {name: option_text(section, name) for name in known}


def option_text(section: str, name: str) -> str:
    """Return what is known of an option: the versions of torch that have it, its default and its comment in torch's source."""
    entry = names()[f"{section}_names"]["properties"].get(name)
    if entry is None:
        return ""
    torch = installed_torch()
    found = described(torch.root, section).get(name) if torch else None
    if found is None:
        return str(entry["description"])
    kind = f": {found.annotation}" if found.annotation else ""
    return "\n".join(part for part in (f"{name}{kind} = {found.default}", found.text, str(entry["description"])) if part)


def _kinds(name: str, definition: str) -> dict[str, str]:
    return _properties(definition_of(name, definition))


def _enumerated(definition: str) -> dict[str, str]:
    entry = names()[definition]
    found = [word for part in entry.get("anyOf", []) if isinstance(part, Mapping) for word in part.get("enum", [])]
    return {str(word): str(entry.get("description", "")) for word in found if word is not None}


def _capabilities() -> dict[str, str]:
    entry = names()["capability"]
    plain = [word for part in entry["else"]["anyOf"] for word in part.get("enum", [])]
    taking = {name: str(part["description"]) for name, part in entry["then"]["properties"].items()}
    return {**dict.fromkeys(plain, "a capability"), **taking}


_TABLES: Mapping[str, Callable[[], Words]] = {
    **{section: functools.partial(options, section) for section in CONFIG_FILES},
    "counter": lambda: _properties(names()["counter"]),
    "metric": lambda: _properties(names()["metric"]),
    "backends": lambda: _enumerated("backend"),
    "requires": _capabilities,
    "mode": lambda: _enumerated("mode"),
    "backend": lambda: _enumerated("dynamo_backend"),
    "to": lambda: _enumerated("compared"),
    "expect": lambda: _kinds("expectations", "expectation"),
    "steps": lambda: _kinds("steps", "step"),
    "inputs": lambda: _kinds("inputs", "input"),
    "compile": lambda: _kinds("common", "compile"),
    "context": lambda: dict.fromkeys(("no_grad", "enable_grad", "inference_mode", "autocast", "ref"), "a context of each call"),
}
"""The words below each key."""


def meaning(keys: Sequence[str], word: str) -> str:
    """Return what a word means at a place; empty when nothing is known of it."""
    for key in (*reversed(keys), ""):
        if key in CONFIG_FILES:
            return option_text(key, word)
        table = words_at([key] if key else [])
        if word in table:
            return f"{word}: {table[word]}"
    return ""
