"""Checks templates: syntax, names, allowed places, and whether their values are valid in these places."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from runner.language.backends import Backends
from runner.language.check.functions import device_problems
from runner.language.check.names import option_problems
from runner.language.check.spec import check_values, condition_problems, matrix_problems, process_problems, requirement_problems
from runner.language.check.steps import expectation_problems, named_value_problems
from runner.language.names.scan import CONFIG_FILES
from runner.language.names.tables import NameTables
from runner.language.read import matrix, spec_schema, templates
from runner.language.read.anatomy import Anatomy, with_data
from runner.language.read.document import DataPath, Document, mapped
from runner.model import conditions
from runner.model.diagnostics import Diagnostic, unknown_word
from runner.vocabulary.steps import TRITON

_OF_A_BACKEND = frozenset(["backend", "device"])
"""The names, besides ``facts``, for templates in files that many specs share."""


def check_templates(anatomy: Anatomy, backends: Backends, names: NameTables, known: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Return all problems of a spec's templates and of their values in steps. ``known`` are the problems without their values."""
    document = anatomy.document
    problems = [problem for layer in anatomy.defaults for problem in layer_problems(layer, ())]
    parsed: dict[DataPath, templates.Template] = {}
    axes, _ = matrix.axes(document)
    own_names = {*_OF_A_BACKEND, *(axis.key for axis in axes)}
    for path, template in _parsed(document, templates.occurrences(document.data), problems):
        unknown_names = sorted(template.names - own_names - {templates.DEFERRED_NAME})
        for name in unknown_names:
            problems.append(document.diagnostic(path, unknown_word("name", name, own_names, place="a template")))
        if template.is_deferred:
            problems.extend(_deferred_problems(document, path))
            if spec_schema.containers_at(document.data, "spec", path):
                problems.append(document.diagnostic(path, "facts-for-a-list"))
        elif not unknown_names:
            parsed[path] = template
    if not parsed or any(matrix_problems(anatomy, backends)):
        return problems
    reported = {*known, *problems}
    for point, problem in _point_problems(anatomy, backends, names, parsed):
        if problem not in reported:
            bracket = point.bracket if len(point.bracket) <= _LONGEST else f"{point.bracket[:_LONGEST]}...]"
            arguments = [(name, value.replace(_INERT, "{{") if isinstance(value, str) else value) for name, value in problem.arguments]
            problems.append(replace(problem, arguments=(*arguments, ("point", bracket))))
    return problems


_LONGEST = 200


def _parsed(
    document: Document, occurrences: Iterator[tuple[DataPath, str]], problems: list[Diagnostic]
) -> Iterator[tuple[DataPath, templates.Template]]:
    for path, text in occurrences:
        try:
            yield path, templates.parse(text)
        except templates.TemplateError as error:
            problems.append(document.diagnostic(path, error.problem))


def _deferred_problems(document: Document, path: DataPath) -> Iterator[Diagnostic]:
    """Yield a problem for a template with facts in a place that is judged, printed or used as a seed before the machine is known."""
    if path[0] in ("summary", "covers", "requires") or "expect" in path or path[-2:] == ("torch", "seed"):
        yield document.diagnostic(path, "facts-before-the-machine")


# -- files shared by many specs -------------------------------------------------------------------------------------------


def layer_problems(document: Document, path: DataPath) -> Iterator[Diagnostic]:
    """Return the problems of the templates in defaults, or in the backend at ``path``."""
    problems: list[Diagnostic] = []
    occurrences = ((((*path, *place), text)) for place, text in templates.occurrences(document.value(path)))
    for place, template in _parsed(document, occurrences, problems):
        if template.is_deferred:
            problems.extend(_deferred_problems(document, place))
        for name in sorted(template.names - _OF_A_BACKEND - {templates.DEFERRED_NAME}):
            problems.append(document.diagnostic(place, "name-in-a-shared-file", name=name))
    yield from dict.fromkeys(problems)


def check_backends(backends: Backends, names: NameTables) -> Iterator[Diagnostic]:
    """Yield the problems of the options of backends; ``load_backends`` has checked the rest."""
    for backend in (*backends.by_name.values(), *backends.broken):
        document, path = backend.document, (backend.name,)
        yield from layer_problems(document, path)
        yield from condition_problems(document, path, backends)
        yield from process_problems(document, path)
        for section in CONFIG_FILES:
            yield from option_problems(document, backend.settings.get(section), (*path, section), section, names)


# -- at each point of the matrix ------------------------------------------------------------------------------------


def _point_problems(
    anatomy: Anatomy, backends: Backends, names: NameTables, parsed: Mapping[DataPath, templates.Template]
) -> Iterator[tuple[matrix.Point, Diagnostic]]:
    """Yield the problems of the values of templates. A template is checked once for each combination of values of its names."""
    document = anatomy.document
    structural = {path for path in parsed if path[-1] in _OF_STRUCTURE or spec_schema.containers_at(document.data, "spec", path)}
    affects_steps = bool(structural) or any(path[0] in ("steps", "expect", TRITON) or path[-1] == "ref" for path in parsed)
    seen: set[tuple[DataPath, str]] = set()
    for point in matrix.points(document, matrix.axes(document)[0], backends.of(anatomy.data["backends"], anatomy.tags)):
        values: dict[DataPath, str] = {}
        for path, template in parsed.items():  # which device is one depends on the backend too
            named = sorted({*template.names, "backend"} if path[-1] == "device" else template.names)
            values[path] = repr([point.names.get(name) for name in named])
        fresh = [path for path in values if (path, values[path]) not in seen]
        if not fresh:
            continue
        seen.update(values.items())
        data = document.data
        problems: list[Diagnostic] = []
        for path in parsed if affects_steps else fresh:
            try:
                data = templates.replaced(data, path, _inert(parsed[path].evaluate(point.names)))
            except templates.TemplateError as error:
                problems.append(document.diagnostic(path, error.problem))
        filled = with_data(anatomy, data)
        if not problems:
            for path in fresh:
                problems.extend(spec_schema.diagnostics(document, spec_schema.describe(data, "spec", path)))
        if not problems:
            problems.extend(process_problems(filled.document, ()))
            if any(path[0] == "requires" for path in fresh):
                problems.extend(requirement_problems(filled))
            if among := [path for path in fresh if path[-1] == "device" or path in structural]:
                problems.extend(device_problems(filled, (point.backend,), among))
        if not problems and not structural.isdisjoint(fresh):
            problems.extend(check_values(filled, backends, names))
        elif not problems and affects_steps:
            problems.extend(named_value_problems(filled, backends))
            for expectation in (expectation for step in filled.steps for expectation in step.expectations):
                if (key := (expectation.path, repr(expectation.body))) not in seen:
                    seen.add(key)
                    problems.extend(expectation_problems(filled.document, expectation))
        yield from ((point, problem) for problem in problems)


# -- templates in the place of a list or a map: inputs: "{{ row.inputs }}" --------------------------------------------


_OF_STRUCTURE = ("repeat", "type")
"""Keys whose values are no lists and no maps, and that checks of a whole step or a whole list depend on."""

_INERT = "{\N{WORD JOINER}{"


def _inert(value: object) -> object:
    """Return a value in which nothing looks like a template: text that a template gave is text, also to the schema."""
    return mapped(value, lambda leaf: leaf.replace("{{", _INERT) if isinstance(leaf, str) else leaf)


def as_first_case(anatomy: Anatomy, backends: Backends) -> Anatomy | None:
    """Return a spec with the templates for lists and maps evaluated for its first case; None where one has no such value.

    The check of all cases finds out why.
    """
    places = [(path, text) for path, text in templates.occurrences(anatomy.data) if spec_schema.containers_at(anatomy.data, "spec", path)]
    if not places:
        return anatomy
    names: dict[str, object] = {}
    if not any(matrix_problems(anatomy, backends)):
        axes, _ = matrix.axes(anatomy.document)
        points = matrix.points(anatomy.document, axes, backends.of(anatomy.data["backends"], anatomy.tags))
        names = dict(next(points).names)
    data = anatomy.data
    for path, text in places:
        try:
            value = _inert(templates.parse(text).evaluate(names))
        except templates.TemplateError:
            return None
        data = templates.replaced(data, path, value)
        if conditions.is_template(value) or spec_schema.describe(data, "spec", path):
            return None
    return with_data(anatomy, data)
