"""Checks names of options, counters and metrics: at least one torch version must have each."""

import json
from collections.abc import Iterator

from runner.core import template_form
from runner.core.diagnostics import Diagnostic, did_you_mean
from runner.language.names.tables import NameKind, NameTables
from runner.language.read import substitution
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath, Document
from runner.vocabulary.expectations.base import allows_zero, is_unlisted

OPTION_KINDS = {
    "config": NameKind.INDUCTOR_CONFIG,
    "dynamo_config": NameKind.DYNAMO_CONFIG,
    "functorch_config": NameKind.FUNCTORCH_CONFIG,
}
"""The sections of options, with their kinds of names."""

GUARD_FILTER = "guard_filter_fn"
"""An entry of ``compile: {options: ...}`` that is no option of Inductor: torch.compile takes it out, in each torch since 2.11."""

_AOTI = "use_aoti"
_FILTER_HINT = "write {ref: NAME}: a function that takes the guards and returns for each whether it is kept"


def name_problems(anatomy: Anatomy, tables: NameTables) -> list[Diagnostic]:
    """Return the problems of unknown names, and of counters that may not be expected to be 0."""
    problems: list[Diagnostic] = []
    for document, path, kind, name, unlisted in used_names(anatomy):
        in_compile = path[-2:-1] == ("options",)
        if in_compile and name == GUARD_FILTER:
            continue
        problem = (_problem_in_compile if in_compile else name_problem)(tables, kind, name)
        if problem is not None and not unlisted:
            problems.append(document.problem(path, *problem, key=True, code="unknown-name"))
        elif kind is NameKind.COUNTER and not unlisted and allows_zero(document.value(path)):
            found = tables.lookup(kind, name)
            if found.by_pattern:
                message = f"the counter '{name}' may not be expected to be 0: its name is made at run time, and a misspelt one is always 0"
                problems.append(document.problem(path, message, found.hint or "expect at least 1", key=True, code="cannot-fail"))
    return problems


def value_problems(anatomy: Anatomy, tables: NameTables) -> Iterator[Diagnostic]:
    """Yield the problems of invalid values of options and of unknown modes. Values of templates are checked at each point."""
    for document in (*anatomy.spec.defaults, anatomy.document):
        above: tuple[DataPath, ...] = ((), ("control",)) if document is anatomy.document else ((),)
        for path in above:
            given = document.data if not path else document.data.get("control", {})
            for section in OPTION_KINDS:
                yield from section_problems(document, given.get(section), (*path, section), section, tables)
            compile_ = given.get("compile", {})
            yield from section_problems(document, compile_.get("options"), (*path, "compile", "options"), "config", tables)
            options = compile_.get("options")
            guards = options.get(GUARD_FILTER) if isinstance(options, dict) else None
            if guards is not None and not template_form.is_template(guards) and (found := filter_problem(guards)) is not None:
                yield document.problem((*path, "compile", "options", GUARD_FILTER), *found, code="option-value")
            mode = compile_.get("mode")
            found = None if template_form.is_template(mode) else tables.mode_problem(mode)
            if found is not None:
                yield document.problem((*path, "compile", "mode"), *found, code="option-value")


def filter_problem(value: object) -> tuple[str, str] | None:
    """Return message and hint for a filter of guards that is no reference."""
    if isinstance(value, dict) and set(value) == {"ref"}:
        return None
    return f"compile option {GUARD_FILTER} is {json.dumps(value, default=str)[:_LONGEST]}", _FILTER_HINT


_LONGEST = 60
"""Characters of a value in a message."""


def section_problems(document: Document, options: object, path: DataPath, section: str, tables: NameTables) -> Iterator[Diagnostic]:
    """Return the values of a section of options that are none of their options."""
    for place, name in option_names(options, path):
        value = document.value(place)
        found = value_problem(tables, OPTION_KINDS[section], name, value)
        if found is not None:
            yield document.problem(place, *found, code="option-value")


def value_problem(tables: NameTables, kind: NameKind, name: str, value: object) -> tuple[str, str] | None:
    """Return message and hint for a value that an option does not take; references and templates are let through."""
    if isinstance(value, substitution.Deferred) or (isinstance(value, dict) and set(value) == {"ref"}):
        return None
    if next(substitution.templates_below(value, ("config",)), None) is not None:
        return None
    return tables.value_problem(kind, name, value)


def name_problem(tables: NameTables, kind: NameKind, name: str) -> tuple[str, str] | None:
    """Return message and hint for a name that no torch has; None for a known name."""
    found = tables.lookup(kind, name)
    if found.known:
        return None
    if kind is NameKind.COUNTER:
        message = f"unknown counter '{name}'" if "." in name else f"the counter '{name}' has no namespace"
        return message, f"{found.hint}; a counter outside the tables needs unlisted: true"
    if name == "when" and kind is not NameKind.METRIC:
        return "a condition without 'set'", f"write a list: {kind.value}: [{{when: {{...}}, set: {{...}}}}]"
    if name == GUARD_FILTER:
        return f"unknown {_KIND_WORDS[kind]} '{name}'", f"it is an option of torch.compile: compile: {{options: {{{name}: {{ref: NAME}}}}}}"
    return f"unknown {_KIND_WORDS[kind]} '{name}'", found.hint or "no torch since 2.11 has it"


def _problem_in_compile(tables: NameTables, kind: NameKind, name: str) -> tuple[str, str] | None:
    """Return message and hint for an unknown name among the options of ``torch.compile``."""
    if name == _AOTI:
        return f"'{name}' in the options of compile", "torch.compile then calls AOTInductor, which specs do not cover: remove it"
    found = name_problem(tables, kind, name)
    near = did_you_mean(name, [GUARD_FILTER])
    return (found[0], near) if found is not None and near else found


_KIND_WORDS = {
    NameKind.INDUCTOR_CONFIG: "config",
    NameKind.DYNAMO_CONFIG: "dynamo_config",
    NameKind.FUNCTORCH_CONFIG: "functorch_config",
    NameKind.COUNTER: "counter",
    NameKind.METRIC: "metric",
}


def used_names(anatomy: Anatomy) -> Iterator[tuple[Document, DataPath, NameKind, str, bool]]:
    """Yield every option, counter and metric of a spec: document, path, kind, name, and whether it is marked as unlisted."""
    for document in (*anatomy.spec.defaults, anatomy.document):
        for section, kind in OPTION_KINDS.items():
            for path, name in option_names(document.data.get(section), (section,)):
                yield document, path, kind, name, False
    document = anatomy.document
    control = anatomy.data.get("control", {})
    for section, kind in OPTION_KINDS.items():
        for path, name in option_names(control.get(section), ("control", section)):
            yield document, path, kind, name, False
    for above, compile_ in ((("compile",), anatomy.data.get("compile", {})), (("control", "compile"), control.get("compile", {}))):
        for name in compile_.get("options", {}):
            yield document, (*above, "options", name), NameKind.INDUCTOR_CONFIG, name, False
    for path, kind, name, count in _judged(anatomy):
        yield document, path, kind, name, is_unlisted(count)


def judged_names(anatomy: Anatomy) -> Iterator[tuple[NameKind, str, bool]]:
    """Yield every counter and metric of a spec: kind, name, and whether it is marked as unlisted."""
    yield from ((kind, name, is_unlisted(count)) for _, kind, name, count in _judged(anatomy))


def _judged(anatomy: Anatomy) -> Iterator[tuple[DataPath, NameKind, str, object]]:
    kinds = {"counter": NameKind.COUNTER, "metric": NameKind.METRIC}
    for step in anatomy.steps:
        for expectation in step.expectations:
            if expectation.kind in kinds:
                for name, count in expectation.body.items():
                    yield (*expectation.path, name), kinds[expectation.kind], name, count


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
