"""Checks ``when:``: valid ranges, known names, and conditions that can hold."""

from collections.abc import Iterator, Mapping
from typing import Any

from runner.core.conditions import BadRange, VersionRange, as_list
from runner.core.diagnostics import Diagnostic, one_of, unknown
from runner.language.backends import Backends
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath, Document


def all_condition_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of conditions in a spec and its defaults."""
    for document in anatomy.spec.defaults:
        yield from condition_problems(document, (), backends)
    yield from condition_problems(anatomy.document, (), backends)
    if any(name not in backends.by_name for name in anatomy.data["backends"]):
        return
    chosen = backends.of(anatomy.data["backends"], anatomy.tags)
    possible = {"backend": {name for one in chosen for name in one.names}, "device": {_kind(one.device) for one in chosen}}
    for path, when in _find_conditions(anatomy.data, ()):
        for word, names in possible.items():
            given = as_list(when.get(word, []))
            if given and all(name in _known(word, backends) and name not in names for name in given):
                hint = f"the spec has {one_of(names)}"
                message = f"this condition never holds: no backend of the spec {'is' if word == 'backend' else 'is on'} {one_of(given)}"
                yield anatomy.document.problem((*path, word), message, hint)


def named_backends(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the backends that a spec names: its own, and those of conditions and exclusions."""
    yield from data["backends"]
    for below in (*(when for _, when in _find_conditions(data, ())), *data.get("exclude", [])):
        yield from map(str, as_list(below.get("backend", [])))


def condition_problems(document: Document, path: DataPath, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of conditions below ``path``: invalid ranges and unknown names."""
    for place, when in _find_conditions(document.value(path), path):
        for word in ("torch", "python"):
            if word in when:
                try:
                    VersionRange.parse(when[word])
                except BadRange as error:
                    yield document.problem((*place, word), str(error))
        for word in ("backend", "device", "vendor"):
            known = _known(word, backends)
            for index, name in enumerate(as_list(when.get(word, []))):
                if name not in known:
                    end = (word, index) if isinstance(when[word], list) else (word,)
                    yield document.problem((*place, *end), *unknown(word, str(name), known))


VENDORS = ("amd", "intel", "nvidia")


def _known(word: str, backends: Backends) -> set[str]:
    if word == "vendor":
        return set(VENDORS)
    return set(backends.names) if word == "backend" else {_kind(backend.device) for backend in backends.by_name.values()}


def _kind(device: str) -> str:
    return device.split(":")[0]


def _find_conditions(value: object, path: DataPath) -> Iterator[tuple[DataPath, Mapping[str, Any]]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "when" and isinstance(item, dict):
                yield (*path, key), item
            else:
                yield from _find_conditions(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_conditions(item, (*path, index))
