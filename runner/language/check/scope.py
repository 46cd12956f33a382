"""The names of a case and the moment from which each is available, for all places of a spec that use names.

A place belongs to a moment in the life of a case: while ``let`` makes a value, when the options are set, in a step, after a step. All
places may use the names that are available at their moment.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from runner.core import template_form
from runner.core.diagnostics import Diagnostic, unknown
from runner.language.check.functions import prelude_names, required_packages
from runner.language.read import python
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath, Document
from runner.vocabulary.expectations.base import EAGER, OUTPUT
from runner.vocabulary.steps import COMPILED, StepKind

Moment = tuple[int, int]
"""A phase of a case, and a number in it; moments are ordered."""

INPUTS = "inputs"

PRELUDE: Moment = (0, 0)
FUNCTIONS: Moment = (1, 0)
AFTER_LET: Moment = (3, 0)
READY: Moment = (4, 0)
"""Functions, values and inputs exist, and options with references are set; no step has run."""


def making(index: int) -> Moment:
    """Return the moment at which the value of ``let`` with this index is made."""
    return (2, index)


def before(step: int) -> Moment:
    """Return the moment at which the arguments of a step are resolved."""
    return (5, step)


def after(step: int) -> Moment:
    """Return the moment at which the expectations of a step are measured."""
    return (5, step + 1)


@dataclass(frozen=True, slots=True)
class Binding:
    """The moment from which a name is available, and the hint for earlier uses."""

    since: Moment
    origin: str


class Scope:
    """The names of one spec."""

    def __init__(self, anatomy: Anatomy) -> None:
        self._document = anatomy.document
        self._prelude = prelude_names(anatomy)
        self._required = required_packages(anatomy)
        self._params = [*anatomy.data.get("matrix", {}), "backend", "device"]
        self._bindings: dict[str, Binding] = {}
        for name, binding in _bindings(anatomy, self._prelude):
            first = self._bindings.setdefault(name, binding)
            if binding.since < first.since:
                self._bindings[name] = binding

    def names(self, moment: Moment) -> list[str]:
        """Return the names that are available at a moment."""
        return [name for name, binding in self._bindings.items() if binding.since <= moment]

    def problem(self, name: str, moment: Moment, *, without: Iterable[str] = ()) -> tuple[str, str] | None:
        """Return (message, hint) for a name or a dotted path that is not available at a moment; None if only the worker can decide."""
        first, _, rest = name.partition(".")
        binding = self._bindings.get(first)
        if first in without:
            return f"'{first}' cannot be named here", "these options are needed to make it; use a function of the prelude or a value of let"
        if first == "params" and rest and binding is not None and not binding.origin:
            key = rest.split(".")[0]
            return None if key in self._params else unknown("matrix key", key, self._params)
        if binding is not None and binding.since <= moment:
            return self._dotted_problem(name) if first == "torch" and rest else None
        if "*" in self._prelude:
            return None
        if binding is not None:
            return f"the name '{first}' is not available yet", binding.origin
        if rest and python.is_installed(first):
            return self._dotted_problem(name)
        return unknown("name", first, [known for known in self.names(moment) if known not in without])

    def _dotted_problem(self, name: str) -> tuple[str, str] | None:
        return None if name.split(".")[0] in self._required else python.find_name(name, self._prelude)

    def reference_problems(
        self, value: object, path: DataPath, moment: Moment, *, without: Iterable[str] = (), document: Document | None = None
    ) -> Iterator[Diagnostic]:
        """Yield a problem for each ``{ref: NAME}`` below ``path``, of the spec or of its defaults, whose name is not there at a moment."""
        for place, text in references(value, path):
            found = None if template_form.is_template(text) else self.problem(str(text), moment, without=without)
            if found is not None:
                yield (document or self._document).problem(place, *found, code="unknown-name")


_GIVEN = ("torch", "params")


def parts_of_case(anatomy: Anatomy) -> list[str]:
    """Return the names of parts of the case: its functions, the compiled function, its arguments."""
    return [*anatomy.functions, *([COMPILED] if anatomy.functions else []), INPUTS]


def _bindings(anatomy: Anatomy, prelude: Iterable[str]) -> Iterator[tuple[str, Binding]]:
    for name in (*_GIVEN, *sorted(prelude)):
        yield name, Binding(PRELUDE, "")
    for name in anatomy.functions:
        yield name, Binding(FUNCTIONS, "functions are made after the prelude")
    for index, name in enumerate(anatomy.data.get("let", {})):
        line = anatomy.document.position(("let", name), key=True).line
        yield name, Binding(making(index + 1), f"let makes it at line {line}, and it can be used only after that")
    if anatomy.functions:
        yield COMPILED, Binding(READY, "the compiled function is made after let and the inputs")
    yield INPUTS, Binding(READY, "the inputs are made after let")
    yield from _results(anatomy)


def _results(anatomy: Anatomy) -> Iterator[tuple[str, Binding]]:
    above: list[StepKind] = []
    for index, step in enumerate(anatomy.steps):
        line = anatomy.document.position(step.path, key=True).line
        if (name := step.parsed.bound) is not None:
            yield name, Binding(after(index), f"it is the result of the step at line {line}, and it can be used only after that")
        if step.traits.has_result:
            yield OUTPUT, Binding(after(index), f"the first step with a result stands at line {line}")
        if step.parsed.why_no_reference(above) is None:
            yield EAGER, Binding(after(index), f"the first step with an eager reference stands at line {line}")
        above.append(step.parsed)


@functools.lru_cache(maxsize=4)
def scope_of(anatomy: Anatomy) -> Scope:
    """Return the names of a spec."""
    return Scope(anatomy)


def references(value: object, path: DataPath) -> Iterator[tuple[DataPath, str]]:
    """Yield the path and name of every ``{ref: NAME}``; what stands below ``value`` is data."""
    if isinstance(value, Mapping):
        if set(value) == {"ref"}:
            yield (*path, "ref"), value["ref"]
            return
        for key, item in value.items():
            if key != "value":
                yield from references(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from references(item, (*path, index))
