"""Checks options, counters and metrics: at least one torch version must have each name, and take
the value of an option.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch_conformance.language.read import templates
from torch_conformance.language.read.anatomy import Anatomy
from torch_conformance.language.torch_names import (
    CONFIG_FILES,
    COUNTER,
    LONGEST_VALUE,
    METRIC,
    NameTables,
    operator_problems,
)
from torch_conformance.model import conditions
from torch_conformance.model.diagnostics import Diagnostic, Severity, nearest
from torch_conformance.model.document import DataPath, Document
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.expectations.expectation_base import allows_zero, is_unlisted

GUARD_FILTER = "guard_filter_fn"
"""An entry of ``compile: {options: ...}`` that torch.compile itself reads, since torch 2.11:
Inductor has no such option.
"""

_AOTI = "use_aoti"


def name_problems(anatomy: Anatomy, tables: NameTables) -> Iterator[Diagnostic]:
    """Yield the problems of unknown names, of values that no option takes, and of counters that may
    not be expected to be 0.
    """
    layers: list[tuple[Document, DataPath, Any]] = [
        (document, (), document.data) for document in (*anatomy.defaults, anatomy.document)
    ]
    layers.append((anatomy.document, ("control",), anatomy.data.get("control", {})))
    for document, above, settings in layers:
        for section in CONFIG_FILES:
            yield from option_problems(
                document, settings.get(section), (*above, section), section, tables
            )
        compile_ = settings.get("compile", {})
        yield from _compile_option_problems(
            document, compile_.get("options"), (*above, "compile", "options"), tables
        )
        mode = compile_.get("mode")
        if not conditions.is_template(mode) and (problem := tables.mode_problem(mode)) is not None:
            yield document.diagnostic((*above, "compile", "mode"), problem)
    if tables.installed is not None:
        for path, operators in _operator_lists(anatomy):
            yield from operator_problems(anatomy.document, path, operators, tables.installed.root)
    for kind, name, path in judged_names(anatomy):
        if (problem := name_problem(tables, kind, name)) is not None:
            yield anatomy.document.diagnostic(path, problem, key=True)
        elif (
            kind == COUNTER
            and allows_zero(anatomy.document.value(path))
            and (lookup := tables.lookup(kind, name)).by_pattern
        ):
            yield anatomy.document.diagnostic(
                path, "unlisted-counter-of-zero", key=True, name=name, **lookup.hints
            )


def _compile_option_problems(
    document: Document, options: object, path: DataPath, tables: NameTables
) -> Iterator[Diagnostic]:
    """Yield the problems of the ``options`` of ``compile``: those of Inductor, and what
    torch.compile reads in them itself.
    """
    if not isinstance(options, dict):
        return
    for name, value in options.items():
        if name == GUARD_FILTER:
            if not conditions.is_template(value) and (problem := filter_problem(value)) is not None:
                yield document.diagnostic((*path, name), problem)
        elif name == _AOTI:
            yield document.diagnostic((*path, name), "aoti-option", key=True, name=name)
        elif name_problem(tables, "config", name) is not None and nearest(name, [GUARD_FILTER]):
            yield document.diagnostic(
                (*path, name),
                "unknown-option",
                key=True,
                kind="config",
                name=name,
                near=GUARD_FILTER,
            )
        else:
            yield from option_problems(document, {name: value}, path, "config", tables)


def _operator_lists(anatomy: Anatomy) -> Iterator[tuple[DataPath, list[str]]]:
    """Yield each list of operators in an expectation, without those that have templates."""
    for expectation in anatomy.expectations:
        if not EXPECTATIONS[expectation.kind].records_operators:
            continue
        lists = {expectation.path: expectation.body}
        if isinstance(expectation.body, dict):
            lists = {
                (*expectation.path, key): expectation.body.get(key)
                for key in ("allow", "operators")
            }
        for place, operators in lists.items():
            if isinstance(operators, list) and not any(map(conditions.is_template, operators)):
                yield place, operators


def option_problems(
    document: Document, options: object, path: DataPath, section: str, tables: NameTables
) -> Iterator[Diagnostic]:
    """Yield the unknown names of a section of options, and the values that none of their options
    takes.
    """
    for place, name in option_names(options, path):
        if (problem := name_problem(tables, section, name)) is not None:
            yield document.diagnostic(place, problem, key=True)
        elif (problem := value_problem(tables, section, name, document.value(place))) is not None:
            yield document.diagnostic(place, problem)
        elif (problem := late_problem(tables, section, name)) is not None:
            yield document.diagnostic(place, problem, key=True)


def filter_problem(value: object) -> Diagnostic | None:
    """Return the problem of a filter of guards that is not a reference."""
    if isinstance(value, dict) and set(value) == {"ref"}:
        return None
    return Diagnostic.of(
        "no-guard-filter", name=GUARD_FILTER, value=json.dumps(value, default=str)[:LONGEST_VALUE]
    )


def value_problem(tables: NameTables, section: str, name: str, value: object) -> Diagnostic | None:
    """Return the problem of a value that an option does not take; references and templates are let
    through.
    """
    if isinstance(value, templates.Deferred) or (isinstance(value, dict) and set(value) == {"ref"}):
        return None
    if next(templates.templates_below(value, ("config",)), None) is not None:
        return None
    return tables.value_problem(section, name, value)


def late_problem(tables: NameTables, section: str, name: str) -> Diagnostic | None:
    """Return the warning of an option that torch reads for others while it is imported."""
    if section != "config" or not (others := tables.decided_at_import(name)):
        return None
    problem = Diagnostic.of("option-read-at-import", kind=section, name=name, others=others)
    return replace(problem, severity=Severity.WARNING)


def name_problem(tables: NameTables, kind: str, name: str) -> Diagnostic | None:
    """Return the problem of a name that no torch has; None for a known name."""
    lookup = tables.lookup(kind, name)
    if lookup.is_known:
        return None
    if kind == COUNTER:
        return Diagnostic.of(
            "unknown-counter" if "." in name else "counter-without-namespace",
            name=name,
            **lookup.hints,
        )
    if name == "when" and kind in CONFIG_FILES:
        return Diagnostic.of("condition-without-set", kind=kind)
    if name == GUARD_FILTER:
        return Diagnostic.of("guard-filter-as-option", kind=kind, name=name)
    return Diagnostic.of("unknown-option", kind=kind, name=name, **lookup.hints)


def judged_names(anatomy: Anatomy) -> Iterator[tuple[str, str, DataPath]]:
    """Yield kind, name and path of every counter and metric of a spec that must be in a table: that
    is not ``unlisted``.
    """
    for expectation in anatomy.expectations:
        if expectation.kind in (COUNTER, METRIC):
            for name, count in expectation.body.items():
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
