"""A spec with its templates evaluated at one point of its matrix."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runner.core.protocol import Json
from runner.language.read import matrix, substitution, templates
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath


@dataclass(frozen=True, slots=True)
class FilledSpec:
    """The values of a spec at a point. Templates over facts are not evaluated yet (``substitution.Deferred``)."""

    anatomy: Anatomy
    data: Mapping[str, Any]

    def __contains__(self, section: str) -> bool:
        return section in self.data

    def at(self, path: DataPath) -> Json:
        """Return the value at a path."""
        found: Any = self.data
        for key in path:
            found = found[key]
        return found

    def section(self, name: str) -> Json:
        """Return a section as written; None if the spec does not have it."""
        return self.data.get(name)

    def named(self, section: str) -> Mapping[str, Json]:
        """Return a section that maps names to values."""
        found: Mapping[str, Json] = self.data.get(section, {})
        return found

    def listed(self, section: str) -> tuple[Any, ...]:
        """Return a section that is a list."""
        return tuple(self.data.get(section, ()))

    @property
    def summary(self) -> str:
        """What the spec claims."""
        return str(self.data["summary"])

    @property
    def timeout(self) -> float | None:
        """The spec's deadline in seconds; None if it sets none."""
        return self.data.get("timeout")


def fill(anatomy: Anatomy, found: Mapping[DataPath, templates.Template], point: matrix.Point) -> FilledSpec:
    """Return a spec with its templates evaluated at a point."""
    data: Any = anatomy.data
    names = point.names
    for path, template in found.items():
        value = substitution.Deferred(template, names) if template.is_deferred else template.evaluate(names)
        data = substitution.replaced(data, path, value)
    return FilledSpec(anatomy, data)
