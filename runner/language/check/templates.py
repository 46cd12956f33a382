"""Checks templates: syntax, names, allowed places, and whether their values are valid in these places."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.core import template_form
from runner.core.diagnostics import Diagnostic, unknown
from runner.language.backends import Backend, Backends
from runner.language.check.functions import device_problems
from runner.language.check.names import name_problem, option_names, section_problems
from runner.language.check.spec import check_values, condition_problems, matrix_problems, process_problems, requirement_problems
from runner.language.check.steps import expectation_problems, named_value_problems
from runner.language.names.name_table import CONFIG_FILES
from runner.language.names.tables import NameTables
from runner.language.read import matrix, schema, substitution, templates
from runner.language.read.anatomy import Anatomy, with_data
from runner.language.read.document import DataPath, Document
from runner.vocabulary.steps import TRITON

_OF_A_BACKEND = frozenset(["backend", "device"])
"""The names, besides ``facts``, for templates in files that many specs share."""


def check_templates(anatomy: Anatomy, backends: Backends, names: NameTables, found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Return all problems of a spec's templates and of their values in steps. ``found`` are the problems without their values."""
    document = anatomy.document
    problems: list[Diagnostic] = []
    for layer in anatomy.spec.defaults:
        problems.extend(layer_problems(layer, ()))
    parsed: dict[DataPath, templates.Template] = {}
    axes, _ = matrix.axes(document)
    known = {*_OF_A_BACKEND, *(axis.key for axis in axes)}
    for path, template in _parsed(document, substitution.occurrences(document.data), problems):
        unknown_names = sorted(template.names - known - {templates.DEFERRED_NAME})
        for name in unknown_names:
            message, hint = unknown("name", name, known)
            problems.append(document.problem(path, f"{message} in a template", hint, code="unknown-name"))
        if template.is_deferred:
            problems.extend(_deferred_problems(document, path))
            if schema.containers_at(document.data, "spec", path):
                problems.append(
                    document.problem(
                        path,
                        "a list or a map of facts",
                        "facts are texts and numbers: write them in its entries",
                        code="misplaced-template",
                    )
                )
        elif not unknown_names:
            parsed[path] = template
    if parsed and not any(matrix_problems(anatomy, backends)):
        chosen = backends.of(anatomy.data["backends"], anatomy.tags)
        points = _Points(anatomy, backends, names, parsed, [*found, *problems])
        problems.extend(problem for point in matrix.points(document, axes, chosen) for problem in points.problems(point))
    return problems


def _parsed(
    document: Document, found: Iterator[tuple[DataPath, str]], problems: list[Diagnostic]
) -> Iterator[tuple[DataPath, templates.Template]]:
    for path, text in found:
        try:
            yield path, templates.parse(text)
        except templates.TemplateError as error:
            problems.append(document.problem(path, str(error), error.hint, code="template"))


def _deferred_problems(document: Document, path: DataPath) -> Iterator[Diagnostic]:
    """Yield a problem for a template with facts in a place that is judged, printed or used as a seed before the machine is known."""
    if path[0] in ("summary", "covers", "requires") or "expect" in path or path[-2:] == ("torch", "seed"):
        hint = "use facts in options, inputs and arguments; use when: for expectations that depend on the machine"
        yield document.problem(path, "facts are known only on the machine that runs the case", hint, code="misplaced-template")


# -- files shared by many specs -------------------------------------------------------------------------------------------


def layer_problems(document: Document, path: DataPath) -> Iterator[Diagnostic]:
    """Return the problems of the templates in defaults, or in the backend at ``path``."""
    problems: list[Diagnostic] = []
    found = ((((*path, *place), text)) for place, text in substitution.occurrences(document.value(path)))
    for place, template in _parsed(document, found, problems):
        if template.is_deferred:
            problems.extend(_deferred_problems(document, place))
        for name in sorted(template.names - _OF_A_BACKEND - {templates.DEFERRED_NAME}):
            hint = "a file shared by many specs can use backend, device and facts"
            problems.append(document.problem(place, f"unknown name '{name}' in a template", hint, code="unknown-name"))
    yield from dict.fromkeys(problems)


def check_backends(backends: Backends, names: NameTables) -> list[Diagnostic]:
    """Return the problems of the options of backends; ``load_backends`` has checked the rest."""
    every = (*backends.by_name.values(), *backends.broken)
    return [problem for backend in every for problem in _backend_problems(backend, backends, names)]


def _backend_problems(backend: Backend, backends: Backends, names: NameTables) -> Iterator[Diagnostic]:
    document = backend.document
    yield from layer_problems(document, (backend.name,))
    yield from condition_problems(document, (backend.name,), backends)
    yield from process_problems(document, (backend.name,))
    for section in CONFIG_FILES:
        for path, name in option_names(backend.settings.get(section), (backend.name, section)):
            problem = name_problem(names, section, name)
            if problem is not None:
                yield document.problem(path, *problem, key=True, code="unknown-name")
        yield from section_problems(document, backend.settings.get(section), (backend.name, section), section, names)


# -- at each point of the matrix ------------------------------------------------------------------------------------


class _Points:
    """Checks the values of a spec's templates. A template is checked once for each combination of values of its names."""

    def __init__(
        self,
        anatomy: Anatomy,
        backends: Backends,
        names: NameTables,
        parsed: Mapping[DataPath, templates.Template],
        known: Iterable[Diagnostic],
    ) -> None:
        self.anatomy = anatomy
        self.backends = backends
        self.names = names
        self.parsed = parsed
        self.structural = frozenset(path for path in parsed if is_structural(anatomy.data, path))
        self.known = {(problem.position, problem.message) for problem in known}
        self.affects_steps = bool(self.structural) or any(path[0] in ("steps", "expect", TRITON) or path[-1] == "ref" for path in parsed)
        self.seen: set[tuple[Any, str]] = set()

    def problems(self, point: matrix.Point) -> list[Diagnostic]:
        names = point.names
        fresh = []
        for path, template in self.parsed.items():  # which device is one depends on the backend too
            named = sorted({*template.names, "backend"} if path[-1] == "device" else template.names)
            if self._is_new(path, [names.get(name) for name in named]):
                fresh.append(path)
        if not fresh:
            return []
        document = self.anatomy.document
        data = document.data
        found: list[Diagnostic] = []
        for path in self.parsed if self.affects_steps else fresh:
            try:
                data = substitution.replaced(data, path, inert(self.parsed[path].evaluate(names)))
            except templates.TemplateError as error:
                found.append(document.problem(path, str(error), error.hint, code="template"))
        if not found:
            for path in fresh:
                found.extend(schema.diagnostics(document, schema.describe(data, "spec", path)))
        filled = with_data(self.anatomy, data)
        if not found:
            found.extend(process_problems(filled.document, ()))
            if any(path[0] == "requires" for path in fresh):
                found.extend(requirement_problems(filled))
            if among := [path for path in fresh if path[-1] == "device" or path in self.structural]:
                found.extend(device_problems(filled, (point.backend,), among))
        if not found and self.affects_steps:
            is_whole = not self.structural.isdisjoint(fresh)
            found.extend(check_values(filled, self.backends, self.names) if is_whole else self._meaning(filled))
        return [_at(problem, point) for problem in found if (problem.position, problem.message) not in self.known]

    def _meaning(self, anatomy: Anatomy) -> Iterator[Diagnostic]:
        """Yield what is wrong with steps and expectations whose templates have become values."""
        yield from named_value_problems(anatomy, self.backends)
        for step in anatomy.steps:
            for expectation in step.expectations:
                if self._is_new(expectation.path, expectation.body):
                    yield from expectation_problems(anatomy.document, expectation)

    def _is_new(self, key: DataPath, value: object) -> bool:
        before = len(self.seen)
        self.seen.add((key, repr(value)))
        return len(self.seen) > before


def _at(problem: Diagnostic, point: matrix.Point) -> Diagnostic:
    message = problem.message.replace(_INERT, "{{")
    bracket = point.bracket if len(point.bracket) <= _LONGEST else f"{point.bracket[:_LONGEST]}...]"
    return replace(problem, message=f"{message} (at {bracket})")


_LONGEST = 200


# -- templates in the place of a list or a map: inputs: "{{ row.inputs }}" --------------------------------------------


_OF_STRUCTURE = ("repeat", "type")
"""Keys whose values are no lists and no maps, and that checks of a whole step or a whole list depend on."""

_INERT = "{\N{WORD JOINER}{"


def inert(value: object) -> object:
    """Return a value in which nothing looks like a template: text that a template gave is text, also to the schema."""
    if isinstance(value, str):
        return value.replace("{{", _INERT)
    if isinstance(value, dict):
        return {key: inert(item) for key, item in value.items()}
    return [inert(item) for item in value] if isinstance(value, list) else value


def is_structural(data: object, path: DataPath) -> bool:
    """Whether the template at a path stands for a list or a map, or for something that checks of a list depend on."""
    return path[-1] in _OF_STRUCTURE or bool(schema.containers_at(data, "spec", path))


def as_first_case(anatomy: Anatomy, backends: Backends) -> Anatomy | None:
    """Return a spec with the templates for lists and maps evaluated for its first case; None where one has no such value.

    The check of all cases finds out why.
    """
    places = [(path, text) for path, text in substitution.occurrences(anatomy.data) if schema.containers_at(anatomy.data, "spec", path)]
    if not places:
        return anatomy
    names = _names_of_first_case(anatomy, backends)
    data = anatomy.data
    for path, text in places:
        try:
            value = inert(templates.parse(text).evaluate(names))
        except templates.TemplateError:
            return None
        data = substitution.replaced(data, path, value)
        if template_form.is_template(value) or schema.describe(data, "spec", path):
            return None
    return with_data(anatomy, data)


def _names_of_first_case(anatomy: Anatomy, backends: Backends) -> dict[str, object]:
    if any(matrix_problems(anatomy, backends)):
        return {}
    axes, _ = matrix.axes(anatomy.document)
    chosen = backends.of(anatomy.data["backends"], anatomy.tags)
    point = next(matrix.points(anatomy.document, axes, chosen), None)
    return {} if point is None else dict(point.names)
