"""Checks names of options, counters and metrics: at least one torch version must have each."""

import json
from collections.abc import Iterator

from runner.language.names.scan import CONFIG_FILES, COUNTER, METRIC
from runner.language.names.tables import NameTables
from runner.language.read import templates
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath, Document
from runner.model import conditions
from runner.model.diagnostics import Diagnostic, did_you_mean
from runner.vocabulary.expectations.expectation_base import allows_zero, is_unlisted

GUARD_FILTER = "guard_filter_fn"
"""An entry of ``compile: {options: ...}`` that is no option of Inductor: torch.compile takes it out, in each torch since 2.11."""

_AOTI = "use_aoti"


def name_problems(anatomy: Anatomy, tables: NameTables) -> Iterator[Diagnostic]:
    """Yield the problems of unknown names, and of counters that may not be expected to be 0."""
    layers = [(document, (), document.data) for document in (*anatomy.defaults, anatomy.document)]
    for document, above, settings in [*layers, (anatomy.document, ("control",), anatomy.data.get("control", {}))]:
        for section in CONFIG_FILES:
            for path, name in option_names(settings.get(section), (*above, section)):
                if (problem := name_problem(tables, section, name)) is not None:
                    yield document.problem(path, *problem, key=True, code="unknown-name")
        for name in settings.get("compile", {}).get("options", {}) if document is anatomy.document else ():
            problem = name_problem(tables, "config", name)
            if name == _AOTI:
                problem = f"'{name}' in the options of compile", "torch.compile then calls AOTInductor, which specs do not cover: remove it"
            elif problem is not None and (near := did_you_mean(name, [GUARD_FILTER])):
                problem = problem[0], near
            if problem is not None and name != GUARD_FILTER:
                yield document.problem((*above, "compile", "options", name), *problem, key=True, code="unknown-name")
    for kind, name, path in judged_names(anatomy):
        if (problem := name_problem(tables, kind, name)) is not None:
            yield anatomy.document.problem(path, *problem, key=True, code="unknown-name")
        elif kind == COUNTER and allows_zero(anatomy.document.value(path)) and (lookup := tables.lookup(kind, name)).by_pattern:
            message = f"the counter '{name}' may not be expected to be 0: its name is made at run time, and a misspelt one is always 0"
            yield anatomy.document.problem(path, message, lookup.hint or "expect at least 1", key=True, code="cannot-fail")


def value_problems(anatomy: Anatomy, tables: NameTables) -> Iterator[Diagnostic]:
    """Yield the problems of invalid values of options and of unknown modes. Values of templates are checked at each point."""
    layers = [(document, (), document.data) for document in (*anatomy.defaults, anatomy.document)]
    for document, above, settings in [*layers, (anatomy.document, ("control",), anatomy.data.get("control", {}))]:
        for section in CONFIG_FILES:
            yield from section_problems(document, settings.get(section), (*above, section), section, tables)
        path, options = (*above, "compile", "options"), settings.get("compile", {}).get("options")
        yield from section_problems(document, options, path, "config", tables)
        guards = options.get(GUARD_FILTER) if isinstance(options, dict) else None
        if guards is not None and not conditions.is_template(guards) and (problem := filter_problem(guards)) is not None:
            yield document.problem((*path, GUARD_FILTER), *problem, code="option-value")
        mode = settings.get("compile", {}).get("mode")
        if not conditions.is_template(mode) and (problem := tables.mode_problem(mode)) is not None:
            yield document.problem((*above, "compile", "mode"), *problem, code="option-value")


def filter_problem(value: object) -> tuple[str, str] | None:
    """Return message and hint for a filter of guards that is no reference."""
    if isinstance(value, dict) and set(value) == {"ref"}:
        return None
    hint = "write {ref: NAME}: a function that takes the guards and returns for each whether it is kept"
    return f"compile option {GUARD_FILTER} is {json.dumps(value, default=str)[:_LONGEST]}", hint


_LONGEST = 60
"""Characters of a value in a message."""


def section_problems(document: Document, options: object, path: DataPath, section: str, tables: NameTables) -> Iterator[Diagnostic]:
    """Yield the values of a section of options that none of their options takes."""
    for place, name in option_names(options, path):
        if (problem := value_problem(tables, section, name, document.value(place))) is not None:
            yield document.problem(place, *problem, code="option-value")


def value_problem(tables: NameTables, section: str, name: str, value: object) -> tuple[str, str] | None:
    """Return message and hint for a value that an option does not take; references and templates are let through."""
    if isinstance(value, templates.Deferred) or (isinstance(value, dict) and set(value) == {"ref"}):
        return None
    if next(templates.templates_below(value, ("config",)), None) is not None:
        return None
    return tables.value_problem(section, name, value)


def name_problem(tables: NameTables, kind: str, name: str) -> tuple[str, str] | None:
    """Return message and hint for a name that no torch has; None for a known name."""
    lookup = tables.lookup(kind, name)
    if lookup.known:
        return None
    if kind == COUNTER:
        message = f"unknown counter '{name}'" if "." in name else f"the counter '{name}' has no namespace"
        return message, f"{lookup.hint}; a counter outside the tables needs unlisted: true"
    if name == "when" and kind in CONFIG_FILES:
        return "a condition without 'set'", f"write a list: {kind}: [{{when: {{...}}, set: {{...}}}}]"
    if name == GUARD_FILTER:
        return f"unknown {kind} '{name}'", f"it is an option of torch.compile: compile: {{options: {{{name}: {{ref: NAME}}}}}}"
    return f"unknown {kind} '{name}'", lookup.hint or "no torch since 2.11 has it"


def judged_names(anatomy: Anatomy) -> Iterator[tuple[str, str, DataPath]]:
    """Yield kind, name and path of every counter and metric of a spec that must be in a table: that is not ``unlisted``."""
    for step in anatomy.steps:
        for expectation in step.expectations:
            for name, count in expectation.body.items() if expectation.kind in (COUNTER, METRIC) else ():
                if not is_unlisted(count):
                    yield expectation.kind, name, (*expectation.path, name)


def option_names(options: object, path: DataPath) -> Iterator[tuple[DataPath, str]]:
    """Yield path and name of each option of a config section, conditional or not."""
    if isinstance(options, dict):
        for name in options:
            yield (*path, name), name
    for index, entry in enumerate(options if isinstance(options, list) else []):
        inner = entry.get("set") if "set" in entry else entry
        place = (*path, index, "set") if "set" in entry else (*path, index)
        for name in inner:
            yield (*place, name), name
