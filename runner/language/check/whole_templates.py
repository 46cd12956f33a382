"""Templates in the place of a list or a map: ``inputs: "{{ row.inputs }}"``.

The checks of a spec need lists and maps there. They look at the spec with the values of its first case (``as_first_case``), and again with
those of each other case (``templates``).
"""

from collections.abc import Iterator
from dataclasses import replace

from runner.core import template_form
from runner.language.backends import Backends
from runner.language.check.spec import matrix_problems
from runner.language.read import matrix, schema, substitution, templates
from runner.language.read.anatomy import Anatomy, take_apart, with_data
from runner.language.read.document import DataPath
from runner.language.read.repair import edited

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


def as_written(text: str) -> str:
    """Return a message about an inert value with the value's own text."""
    return text.replace(_INERT, "{{")


def is_structural(data: object, path: DataPath) -> bool:
    """Whether the template at a path stands for a list or a map, or for something that checks of a list depend on."""
    return path[-1] in _OF_STRUCTURE or bool(schema.containers_at(data, "spec", path))


def _places(anatomy: Anatomy) -> Iterator[tuple[DataPath, str]]:
    for path, text in substitution.occurrences(anatomy.data):
        if schema.containers_at(anatomy.data, "spec", path):
            yield path, text


def as_first_case(anatomy: Anatomy, backends: Backends) -> tuple[Anatomy, tuple[DataPath, ...]]:
    """Return a spec with the templates for lists and maps evaluated for its first case, and the paths of those that have no such value.

    The latter are cut; their problems are found by the check of all cases.
    """
    places = list(_places(anatomy))
    if not places:
        return anatomy, ()
    names = _names_of_first_case(anatomy, backends)
    data, cuts = anatomy.data, []
    for path, text in places:
        try:
            value = inert(templates.parse(text).evaluate(names))
        except templates.TemplateError:
            cuts.append(_without_husk(path))
            continue
        filled = substitution.replaced(data, path, value)
        if template_form.is_template(value) or schema.describe_at(filled, "spec", path):
            cuts.append(_without_husk(path))
        else:
            data = filled
    shown = with_data(anatomy, data)
    if not cuts:
        return shown, ()
    return take_apart(replace(anatomy.spec, document=edited(shown.document, cuts))), tuple(cuts)


def _without_husk(path: DataPath) -> DataPath:
    """Return the path of the step or expectation whose arguments are cut: without them there is none."""
    is_of_step = path[0] == "steps" and len(path) == 3
    return path[:-1] if is_of_step or path[-3:-2] == ("expect",) else path


def _names_of_first_case(anatomy: Anatomy, backends: Backends) -> dict[str, object]:
    if any(matrix_problems(anatomy, backends)):
        return {}
    axes, _ = matrix.axes(anatomy.document)
    chosen = backends.of(anatomy.data["backends"], anatomy.tags)
    point = next(matrix.points(anatomy.document, axes, chosen), None)
    return {} if point is None else dict(point.names)
