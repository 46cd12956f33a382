"""Finds the templates of a spec and replaces them by values."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from runner.language.read import templates
from runner.language.read.document import DataPath
from runner.model import template_form
from runner.vocabulary.steps import STEPS, TRITON

SECTIONS = frozenset(
    ["summary", "covers", "requires", "config", "dynamo_config", "functorch_config", "env", "torch", "context", "function", "functions"]
    + ["let", "spies", "handlers", "inputs", "compile", "steps", "expect", "timeout", "control", TRITON]
)
"""The top-level keys in whose values ``{{`` begins a template."""

_PATTERNS = (
    ("filecheck",),
    ("filecheck", "checks"),
    ("raises", "match"),
    ("raises", "cause", "match"),
    ("text", "matches"),
    ("log", "matches"),
    ("graph", "checks"),
    ("guards", "checks"),
    ("guards", "matches"),
    ("recompiles", "reason", "matches"),
    ("graph_breaks", "reason", "matches"),
)
"""Patterns in expectations. ``{{`` belongs to FileCheck there."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """A template that uses facts. It is evaluated on the machine that runs the case."""

    template: templates.Template
    names: Mapping[str, Any]

    def __str__(self) -> str:
        return self.template.text


def occurrences(data: Any) -> Iterator[tuple[DataPath, str]]:
    """Yield the path and text of every template of a spec."""
    for section, value in data.items():
        if section in SECTIONS:
            yield from templates_below(value, (section,))


def patterns(data: Any) -> Iterator[str]:
    """Yield the regular expressions and FileCheck directives in the expectations of a spec, which take no templates."""
    for path, text in _texts(data, ()):
        if _is_pattern(path):
            yield text


def _texts(value: Any, path: DataPath) -> Iterator[tuple[DataPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(item, (*path, key))


def templates_below(value: Any, path: DataPath) -> Iterator[tuple[DataPath, str]]:
    """Yield the path and text of every template in the value at ``path``."""
    return ((place, text) for place, text in _texts(value, path) if "{{" in text and not _is_code(place))


def _is_code(path: DataPath) -> bool:
    of_step = path[0] == "steps" and len(path) == 4 and path[2] in STEPS and STEPS[str(path[2])].traits.python == path[3]
    return of_step or path in _PYTHON_OF_SECTIONS or (path[0] == "functions" and len(path) == 2) or _is_pattern(path)


def _is_pattern(path: DataPath) -> bool:
    # below expect: [..., expect, INDEX, kind, key]
    return any(path[-len(words) :] == words and path[-len(words) - 2 : -len(words) - 1] == ("expect",) for words in _PATTERNS)


_PYTHON_OF_SECTIONS = (("function",), (TRITON, "source"), ("control", TRITON, "source"))


def replaced(data: Any, path: DataPath, value: Any) -> Any:
    """Return ``data`` with ``value`` at ``path``. Nothing is changed in place; parts off the path are shared."""
    if not path:
        return value
    copy: Any = list(data) if isinstance(data, list) else dict(data)
    copy[path[0]] = replaced(data[path[0]], path[1:], value)
    return copy


def filled(value: Any, names: Mapping[str, Any]) -> Any:
    """Return ``value`` with every template evaluated with ``names``, or deferred if it uses facts."""
    if template_form.is_template(value):
        template = templates.parse(value)
        return Deferred(template, names) if template.is_deferred else template.evaluate(names)
    if isinstance(value, dict):
        return {key: filled(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, names) for item in value]
    return value


def resolve_facts(value: Any, facts: Mapping[str, Any]) -> Any:
    """Return ``value`` with every deferred template evaluated; raise ``templates.TemplateError``."""
    return _without_deferred(value, lambda deferred: deferred.template.evaluate({**deferred.names, templates.DEFERRED_NAME: facts}))


def as_text(value: Any) -> Any:
    """Return ``value`` with every deferred template as its text, for messages and digests."""
    return _without_deferred(value, str)


def _without_deferred(value: Any, value_of: Callable[[Deferred], Any]) -> Any:
    if isinstance(value, Deferred):
        return value_of(value)
    if isinstance(value, dict):
        return {key: _without_deferred(item, value_of) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_deferred(item, value_of) for item in value]
    return value
