"""Templates in the place of a list or a map: ``inputs: "{{ row.inputs }}"``.

The checks of a spec need lists and maps there. They look at the spec with the values of its first case (``as_first_case``), and again with
those of each other case (``templates``).
"""

from collections.abc import Iterator

from runner.core import template_form
from runner.language.backends import Backends
from runner.language.check.spec import matrix_problems
from runner.language.read import matrix, schema, substitution, templates
from runner.language.read.anatomy import Anatomy, with_data
from runner.language.read.document import DataPath

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


def as_first_case(anatomy: Anatomy, backends: Backends) -> Anatomy | None:
    """Return a spec with the templates for lists and maps evaluated for its first case; None where one has no such value.

    The check of all cases finds out why.
    """
    places = list(_places(anatomy))
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
        if template_form.is_template(value) or schema.describe_at(data, "spec", path):
            return None
    return with_data(anatomy, data)


def _names_of_first_case(anatomy: Anatomy, backends: Backends) -> dict[str, object]:
    if any(matrix_problems(anatomy, backends)):
        return {}
    axes, _ = matrix.axes(anatomy.document)
    chosen = backends.of(anatomy.data["backends"], anatomy.tags)
    point = next(matrix.points(anatomy.document, axes, chosen), None)
    return {} if point is None else dict(point.names)
