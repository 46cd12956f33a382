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
from torch_conformance.vocabulary.expectations.expectation_base import allows_zero, is_unlisted
from torch_conformance.vocabulary.expectations.served import OF_OPERATORS

GUARD_FILTER = "guard_filter_fn"
"""An entry of ``compile: {options: ...}`` that is no option of Inductor: torch.compile takes it
out, in each torch since 2.11.
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
        path, options = (*above, "compile", "options"), compile_.get("options")
        for name in options if isinstance(options, dict) else ():
            if name == GUARD_FILTER:
                problem = (
                    None if conditions.is_template(options[name]) else filter_problem(options[name])
                )
                is_key = False
            else:
                problem, is_key = name_problem(tables, "config", name), True
                if name == _AOTI:
                    problem = Diagnostic.of("aoti-option", name=name)
                elif problem is not None and nearest(name, [GUARD_FILTER]):
                    problem = Diagnostic.of(
                        "unknown-option", kind="config", name=name, near=GUARD_FILTER
                    )
            if problem is not None:
                yield document.diagnostic((*path, name), problem, key=is_key)
            elif (problem := value_problem(tables, "config", name, options[name])) is not None:
                yield document.diagnostic((*path, name), problem)
            elif (problem := late_problem(tables, "config", name)) is not None:
                yield document.diagnostic((*path, name), problem, key=True)
        mode = compile_.get("mode")
        if not conditions.is_template(mode) and (problem := tables.mode_problem(mode)) is not None:
            yield document.diagnostic((*above, "compile", "mode"), problem)
    for expectation in (
        expectation
        for step in anatomy.steps
        for expectation in step.expectations
        if expectation.kind in OF_OPERATORS
    ):
        body, path = expectation.body, expectation.path
        lists = (
            {(*path, key): body.get(key, ()) for key in ("allow", "operators")}
            if isinstance(body, dict)
            else {path: body}
        )
        for place, operators in lists.items():
            if (
                tables.installed is not None
                and isinstance(operators, list)
                and not any(map(conditions.is_template, operators))
            ):
                yield from operator_problems(
                    anatomy.document, place, operators, tables.installed.root
                )
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
    """Return the problem of a filter of guards that is no reference."""
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
    if lookup.known:
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
    for step in anatomy.steps:
        for expectation in step.expectations:
            for name, count in (
                expectation.body.items() if expectation.kind in (COUNTER, METRIC) else ()
            ):
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
