"""The parts of a spec: its blocks of Python, its functions, and its steps with their expectations. Nothing is checked here."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.core.case import CodeBlock
from runner.core.diagnostics import Diagnostic
from runner.language.read import python
from runner.language.read.document import DataPath, Document
from runner.language.read.files import SpecFile
from runner.vocabulary.steps import ONLY, SAMPLES, SHORT_FORM, STEPS, TRITON, StepKind, Traits

SOURCE = "source"
"""The key of a spec whose cases come from elsewhere."""

KEYS_OF_SOURCE = ("op", "dtype")
"""The keys that the source adds to an id, after the backend."""


@dataclass(frozen=True, slots=True)
class RawExpectation:
    """One expectation as written."""

    kind: str
    body: Any
    path: DataPath


BESIDE_KIND = ("expect", "when", "repeat")
"""The keys of a step beside its kind."""


@dataclass(frozen=True, slots=True)
class RawStep:
    """One step as written. A spec in the short form has one call."""

    kind: str
    arguments: Any
    path: DataPath
    expectations: tuple[RawExpectation, ...]
    when: Mapping[str, Any] | None = None

    @property
    def traits(self) -> Traits:
        """The traits of its kind."""
        return STEPS[self.kind].traits

    @property
    def parsed(self) -> StepKind:
        """Its arguments, as its kind reads them."""
        return STEPS[self.kind].parse(self.arguments)


@dataclass(frozen=True, slots=True)
class RawFunction:
    """One function as written: Python with its syntax tree (None after a syntax error), or a map."""

    name: str
    value: Any
    path: DataPath
    block: CodeBlock | None
    tree: ast.Module | None


@dataclass(frozen=True, slots=True, eq=False)
class Anatomy:
    """A spec split into its parts. Checks that need the same of it share what was computed, by its identity."""

    spec: SpecFile
    preludes: tuple[CodeBlock, ...]
    prelude_trees: Mapping[str, ast.Module]
    functions: Mapping[str, RawFunction]
    scripts: Mapping[DataPath, RawFunction]
    """The Python of script steps, by the step's path."""
    steps: tuple[RawStep, ...]
    problems: tuple[Diagnostic, ...]
    """Syntax errors of Python."""

    @property
    def document(self) -> Document:
        """The spec's own file."""
        return self.spec.document

    @property
    def data(self) -> Any:
        """The spec as plain data."""
        return self.spec.document.data

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the defaults, outermost first, then the spec's own, without duplicates."""
        documents = (*self.spec.defaults, self.document)
        return tuple(dict.fromkeys(tag for document in documents for tag in document.data.get("tags", [])))


def take_apart(spec: SpecFile) -> Anatomy:
    """Split a spec that fits the schema into its parts."""
    problems: list[Diagnostic] = []
    preludes: list[CodeBlock] = []
    trees: dict[str, ast.Module] = {}
    for document in (*spec.defaults, spec.document):
        if "prelude" in document.data:
            block = python.block_at(document, ("prelude",), "prelude")
            preludes.append(block)
            tree = _parse(document, ("prelude",), block, problems)
            if tree is not None:
                trees[block.file] = tree
    functions = {raw.name: raw for raw in _functions(spec.document, problems)}
    steps = tuple(_steps(spec.document.data))
    scripts = {step.path: _script(spec.document, step, problems) for step in steps if step.traits.python}
    return Anatomy(spec, tuple(preludes), trees, functions, scripts, steps, tuple(problems))


def with_data(anatomy: Anatomy, data: Any) -> Anatomy:
    """Return a spec with evaluated templates: the same positions, other values."""
    document = replace(anatomy.document, data=data)
    return replace(anatomy, spec=replace(anatomy.spec, document=document), steps=tuple(_steps(data)))


def _parse(document: Document, path: DataPath, block: CodeBlock, problems: list[Diagnostic]) -> ast.Module | None:
    parsed = python.parse(document, path, block)
    if parsed.problem is not None:
        problems.append(parsed.problem)
    return parsed.tree


def _functions(document: Document, problems: list[Diagnostic]) -> Iterator[RawFunction]:
    places: list[tuple[str, DataPath, Any]] = []
    if "function" in document.data:
        places.append((ONLY, ("function",), document.data["function"]))
    for name, value in document.data.get("functions", {}).items():
        places.append((name, ("functions", name), value))
    for name, path, value in places:
        if isinstance(value, str):
            block = python.block_at(document, path, name)
            yield RawFunction(name, value, path, block, _parse(document, path, block, problems))
        else:
            yield RawFunction(name, value, path, None, None)


def _script(document: Document, step: RawStep, problems: list[Diagnostic]) -> RawFunction:
    path = (*step.path, step.traits.python)
    block = python.block_at(document, path, step.kind)
    return RawFunction(step.kind, step.arguments[step.traits.python], path, block, _parse(document, path, block, problems))


def _steps(data: Any) -> Iterator[RawStep]:
    if SOURCE in data:
        yield RawStep(SAMPLES, data[SOURCE]["opinfo"], (SOURCE, "opinfo"), tuple(_expectations(data.get("expect", []), ("expect",))))
        return
    if TRITON in data:
        yield RawStep(TRITON, data[TRITON], (TRITON,), tuple(_expectations(data.get("expect", []), ("expect",))))
        return
    if "steps" not in data:
        yield RawStep(SHORT_FORM, {}, ("expect",), tuple(_expectations(data.get("expect", []), ("expect",))))
        return
    for index, step in enumerate(data["steps"]):
        kind = next(key for key in step if key not in BESIDE_KIND)
        path: DataPath = ("steps", index)
        yield RawStep(kind, step[kind], (*path, kind), tuple(_expectations(step.get("expect", []), (*path, "expect"))), step.get("when"))


def _expectations(entries: list[Any], path: DataPath) -> Iterator[RawExpectation]:
    for index, entry in enumerate(entries):
        kind, body = next(iter(entry.items()))
        yield RawExpectation(kind, body, (*path, index, kind))
