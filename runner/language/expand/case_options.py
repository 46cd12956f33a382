"""Merges options: defaults < spec < backend, with the origin of each. A conflict is an error that names both positions."""

import json
from dataclasses import replace

from runner.language.backends import Backend
from runner.language.read import substitution
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath, Document
from runner.model.case import Option
from runner.model.conditions import Surroundings, holds
from runner.model.diagnostics import Diagnostic

SECTIONS = ("config", "dynamo_config", "functorch_config", "env", "torch", "compile")
"""The sections that are merged."""

NEWER = ("name", "recompile_limit", "isolate_recompiles")
"""The arguments of ``torch.compile`` that the oldest torch with a table lacks."""

OVERRIDABLE = ("config", "dynamo_config", "functorch_config")
"""The sections that may be a list whose entries may have ``override: true``."""


def merge(filled: Anatomy, backend: Backend, around: Surroundings, section: str) -> tuple[dict[str, Option], list[Diagnostic]]:
    """Return the options of a section for one case, and its conflicts."""
    names, origin = names_of(backend), f"backend {backend.name}"
    inherited: dict[str, Option] = {}
    for document in filled.defaults:
        inherited |= layer_options(document, document.data.get(section), (section,), "defaults", around)
    spec = layer_options(filled.document, filled.data.get(section), (section,), "spec", around)
    own = layer_options(backend.document, backend.settings.get(section), (backend.name, section), origin, around)
    inherited, own = (
        {name: replace(option, value=substitution.filled(option.value, names)) for name, option in layer.items()}
        for layer in (inherited, own)
    )
    conflicts: list[Diagnostic] = []
    for name, option in own.items():
        mine = spec.get(name)
        if mine is None or mine.override or mine.value == option.value:
            continue
        value, other = (json.dumps(value, default=str) for value in (mine.value, option.value))
        message = f"{section} {name} is {value} here and {other} in the {origin} ({option.position})"
        hint = f"leave {name} out of the spec, or exclude the {origin}: exclude: [{{backend: {backend.name}, reason: ...}}]"
        if section in OVERRIDABLE:
            hint = f"if the spec means it, write {section}: [{{set: {{{name}: {value}}}, override: true}}]"
        conflicts.append(Diagnostic(position=mine.position, message=message, hint=hint, code="conflicting-options"))
    overridden = {name: option for name, option in spec.items() if option.override}
    return {**inherited, **spec, **own, **overridden}, conflicts


def names_of(backend: Backend) -> dict[str, str]:
    """Return the names for templates outside a spec, except for facts: such files have no matrix."""
    return {"backend": backend.name, "device": backend.device}


def layer_options(document: Document, value: object, path: DataPath, layer: str, around: Surroundings) -> dict[str, Option]:
    """Return the options of a section of one file whose conditions hold."""
    options: dict[str, Option] = {}
    if isinstance(value, dict):
        for name, setting in value.items():
            options[name] = Option(setting, document.position((*path, name), key=True), layer)
    for index, entry in enumerate(value if isinstance(value, list) else []):
        if "set" not in entry:
            options |= layer_options(document, entry, (*path, index), layer, around)
        elif holds(entry.get("when"), around):
            inner = layer_options(document, entry["set"], (*path, index, "set"), layer, around)
            override = entry.get("override") is True
            options |= {name: replace(option, override=override) for name, option in inner.items()}
    return options
