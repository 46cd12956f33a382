"""Merges options: defaults < spec < backend, with the origin of each. A conflict is an error that names both positions."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runner.core.case import Option
from runner.core.conditions import Surroundings, holds
from runner.core.diagnostics import Diagnostic
from runner.language.backends import Backend
from runner.language.read import matrix, substitution, templates
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath, Document


def fill(anatomy: Anatomy, found: Mapping[DataPath, templates.Template], point: matrix.Point) -> Anatomy:
    """Return a spec with its templates evaluated at a point; those over facts are not evaluated yet (``substitution.Deferred``)."""
    data: Any = anatomy.data
    names = point.names
    for path, template in found.items():
        value = substitution.Deferred(template, names) if template.is_deferred else template.evaluate(names)
        data = substitution.replaced(data, path, value)
    if not found:
        return anatomy
    return replace(anatomy, spec=replace(anatomy.spec, document=replace(anatomy.document, data=data)))


# -- options ---------------------------------------------------------------------------------------------------------


SECTIONS = ("config", "dynamo_config", "functorch_config", "env", "torch", "compile")
"""The sections that are merged."""

OVERRIDABLE = ("config", "dynamo_config", "functorch_config")
"""The sections that may be a list whose entries may have ``override: true``."""


def merge(filled: Anatomy, backend: Backend, here: Surroundings, section: str) -> tuple[dict[str, Option], list[Diagnostic]]:
    """Return the options of a section for one case, and its conflicts."""
    merged: dict[str, Option] = {}
    for document in filled.spec.defaults:
        merged.update(_filled(_layer(document, document.data.get(section), (section,), "defaults", here), backend))
    spec = _layer(filled.document, filled.data.get(section), (section,), "spec", here)
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
    hint = f"leave {name} out of the spec, or exclude the {other.layer}: exclude: [{{{other.layer.replace(' ', ': ')}, reason: ...}}]"
    if section in OVERRIDABLE:
        hint = f"if the spec means it, write {section}: [{{set: {{{name}: {here}}}, override: true}}]"
    return Diagnostic(position=mine.position, message=message, hint=hint, code="conflicting-options")


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


def patch(filled: Anatomy, here: Surroundings) -> dict[str, dict[str, Option]]:
    """Return the options that ``control`` sets for one case, by section."""
    given, document = filled.data.get("control", {}), filled.document
    found = {section: _layer(document, given.get(section), ("control", section), "control", here) for section in SECTIONS}
    return {section: options for section, options in found.items() if options}


def values(options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the plain values."""
    return {name: option.value for name, option in options.items()}
