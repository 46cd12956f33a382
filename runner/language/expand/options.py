"""Merges options: defaults < spec < backend, with the origin of each. A conflict is an error that names both positions."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.core.case import Option
from runner.core.conditions import Surroundings, holds
from runner.core.diagnostics import Diagnostic
from runner.core.protocol import Json
from runner.language.backends import Backend
from runner.language.read import matrix, substitution, templates
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath, Document


@dataclass(frozen=True, slots=True)
class FilledSpec:
    """The values of a spec at a point. Templates over facts are not evaluated yet (``substitution.Deferred``)."""

    anatomy: Anatomy
    data: Mapping[str, Any]

    def __contains__(self, section: str) -> bool:
        return section in self.data

    def at(self, path: DataPath) -> Json:
        """Return the value at a path."""
        found: Any = self.data
        for key in path:
            found = found[key]
        return found

    def section(self, name: str) -> Json:
        """Return a section as written; None if the spec does not have it."""
        return self.data.get(name)

    def named(self, section: str) -> Mapping[str, Json]:
        """Return a section that maps names to values."""
        found: Mapping[str, Json] = self.data.get(section, {})
        return found

    def listed(self, section: str) -> tuple[Any, ...]:
        """Return a section that is a list."""
        return tuple(self.data.get(section, ()))

    @property
    def summary(self) -> str:
        """What the spec claims."""
        return str(self.data["summary"])

    @property
    def timeout(self) -> float | None:
        """The spec's deadline in seconds; None if it sets none."""
        return self.data.get("timeout")


def fill(anatomy: Anatomy, found: Mapping[DataPath, templates.Template], point: matrix.Point) -> FilledSpec:
    """Return a spec with its templates evaluated at a point."""
    data: Any = anatomy.data
    names = point.names
    for path, template in found.items():
        value = substitution.Deferred(template, names) if template.is_deferred else template.evaluate(names)
        data = substitution.replaced(data, path, value)
    return FilledSpec(anatomy, data)


# -- options ---------------------------------------------------------------------------------------------------------


SECTIONS = ("config", "dynamo_config", "functorch_config", "env", "torch", "compile")
"""The sections that are merged."""

OVERRIDABLE = ("config", "dynamo_config", "functorch_config")
"""The sections that may be a list whose entries may have ``override: true``."""


def merge(filled: FilledSpec, backend: Backend, here: Surroundings, section: str) -> tuple[dict[str, Option], list[Diagnostic]]:
    """Return the options of a section for one case, and its conflicts."""
    anatomy = filled.anatomy
    merged: dict[str, Option] = {}
    for document in anatomy.spec.defaults:
        merged.update(_filled(_layer(document, document.data.get(section), (section,), "defaults", here), backend))
    spec = _layer(anatomy.document, filled.section(section), (section,), "spec", here)
    merged.update(spec)
    own = _filled(
        _layer(backend.document, backend.settings.get(section), (backend.name, section), f"backend {backend.name}", here), backend
    )
    conflicts = []
    for name, option in own.items():
        mine = spec.get(name)
        if mine is not None and mine.override:
            continue
        if mine is not None and mine.value != option.value:
            conflicts.append(_conflict(section, name, mine, option))
        merged[name] = option
    return merged, conflicts


def layer_names(backend: Backend) -> dict[str, str]:
    """Return the names for templates outside a spec, except for facts: such files have no matrix."""
    return {"backend": backend.name, "device": backend.device}


def _filled(found: dict[str, Option], backend: Backend) -> dict[str, Option]:
    names = layer_names(backend)
    return {name: replace(option, value=substitution.filled(option.value, names)) for name, option in found.items()}


def _conflict(section: str, name: str, mine: Option, other: Option) -> Diagnostic:
    here, there = (json.dumps(option.value, default=str) for option in (mine, other))
    message = f"{section} {name} is {here} here and {there} in the {other.layer} ({other.position})"
    return Diagnostic(position=mine.position, message=message, hint=_way_out(section, name, here, other), code="conflicting-options")


def _way_out(section: str, name: str, value: str, other: Option) -> str:
    if section in OVERRIDABLE:
        return f"if the spec means it, write {section}: [{{set: {{{name}: {value}}}, override: true}}]"
    return f"leave {name} out of the spec, or exclude the {other.layer}: exclude: [{{{other.layer.replace(' ', ': ')}, reason: ...}}]"


def _layer(document: Document, given: object, path: DataPath, layer: str, here: Surroundings) -> dict[str, Option]:
    found: dict[str, Option] = {}
    if isinstance(given, dict):
        for name, value in given.items():
            found[name] = Option(value, document.position((*path, name), key=True), layer)
    for index, entry in enumerate(given if isinstance(given, list) else []):
        if "set" not in entry:
            found.update(_layer(document, entry, (*path, index), layer, here))
        elif holds(entry.get("when"), here):
            inner = _layer(document, entry["set"], (*path, index, "set"), layer, here)
            override = entry.get("override") is True
            found.update({name: Option(option.value, option.position, layer, override) for name, option in inner.items()})
    return found


def patch(filled: FilledSpec, here: Surroundings) -> dict[str, dict[str, Option]]:
    """Return the options that ``control`` sets for one case, by section."""
    given, document = filled.named("control"), filled.anatomy.document
    found = {section: _layer(document, given.get(section), ("control", section), "control", here) for section in SECTIONS}
    return {section: options for section, options in found.items() if options}


def values(options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the plain values."""
    return {name: option.value for name, option in options.items()}
