"""The parts of a spec: its blocks of Python, its functions, and its steps with their expectations.

Nothing is checked here.
"""

import ast
import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch_conformance.language.read import python_source
from torch_conformance.language.read.document import KEYS_OF_STEPS
from torch_conformance.model.case import CodeBlock
from torch_conformance.model.diagnostics import Diagnostic
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.expectation import Expectation
from torch_conformance.model.protocol import Json
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.steps import SAMPLES, SHORT_FORM, STEPS, TRITON
from torch_conformance.vocabulary.steps.step_base import ONLY, StepKind, Traits

SOURCE = "source"
"""The key of a spec whose cases come from elsewhere."""

PROGRAMS = "programs"
"""The key of a source of random programs, and the folder of a run that has their texts."""

KEYS_OF_SOURCE = ("op", "dtype")
"""The keys that the source adds to an id, after the backend."""


@dataclass(frozen=True)
class RawExpectation:
    """One expectation as written."""

    kind: str
    body: Any
    path: DataPath
    weak: str = ""
    """Why it may also hold for changed facts."""

    @functools.cached_property
    def parsed(self) -> Expectation:
        """Its arguments, as its kind reads them; raises ``BadExpectation``."""
        return EXPECTATIONS[self.kind].parse(self.body)


WEAK = "weak"
"""The key of an entry of ``expect`` that is not its kind."""


@dataclass(frozen=True)
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

    @functools.cached_property
    def parsed(self) -> StepKind:
        """Its arguments, as its kind reads them."""
        return STEPS[self.kind].parse(self.arguments)


@dataclass(frozen=True, slots=True)
class RawFunction:
    """One function as written: Python with its syntax tree (None after a syntax error), or a
    map.
    """

    name: str
    value: Any
    path: DataPath
    block: CodeBlock | None
    tree: ast.Module | None


@dataclass(frozen=True, slots=True, eq=False)
class Anatomy:
    """A spec split into its parts.

    Checks that need the same of it share what was computed, by its identity.
    """

    document: Document
    """The spec's own file."""
    area: str
    name: str
    defaults: tuple[Document, ...]
    """The files of defaults that it inherits, outermost first."""
    own_preludes: tuple[tuple[Document, RawFunction], ...]
    """The preludes with their files: those of the defaults, then that of the spec."""
    functions: Mapping[str, RawFunction]
    scripts: Mapping[DataPath, RawFunction]
    """The Python of script steps, by the step's path."""
    steps: tuple[RawStep, ...]
    problems: tuple[Diagnostic, ...]
    """Syntax errors of Python."""

    @property
    def expectations(self) -> list[RawExpectation]:
        """The expectations of all steps, in order."""
        return [expectation for step in self.steps for expectation in step.expectations]

    @property
    def preludes(self) -> tuple[CodeBlock, ...]:
        """The Python of the preludes."""
        return tuple(raw.block for _, raw in self.own_preludes if raw.block is not None)

    @property
    def prelude_trees(self) -> Mapping[str, ast.Module]:
        """The preludes that parse, by their files."""
        return {block.file: tree for _, path, block, tree in self.python if path == ("prelude",)}

    @property
    def python(self) -> list[tuple[Document, DataPath, CodeBlock, ast.Module]]:
        """All Python that parses, with its file and its path; preludes come first."""
        of_document = [
            (self.document, function)
            for function in (*self.functions.values(), *self.scripts.values())
        ]
        raws = (*self.own_preludes, *of_document)
        return [
            (file, raw.path, raw.block, raw.tree)
            for file, raw in raws
            if raw.block is not None and raw.tree is not None
        ]

    @property
    def data(self) -> Json:
        """The spec as plain data."""
        return self.document.data

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the defaults, outermost first, then the spec's own, without duplicates."""
        documents = (*self.defaults, self.document)
        return tuple(
            dict.fromkeys(tag for document in documents for tag in document.data.get("tags", []))
        )


def take_apart(document: Document, area: str, defaults: tuple[Document, ...] = ()) -> Anatomy:
    """Split a spec that fits the schema, with the defaults that it inherits, into its parts."""
    problems: list[Diagnostic] = []

    def python(file: Document, path: DataPath, name: str) -> RawFunction:
        return RawFunction(
            name, file.value(path), path, *python_source.parse(file, path, name, problems)
        )

    preludes = tuple(
        (file, python(file, ("prelude",), "prelude"))
        for file in (*defaults, document)
        if "prelude" in file.data
    )
    data = document.data
    places: list[tuple[str, DataPath, Any]] = (
        [(ONLY, ("function",), data["function"])] if "function" in data else []
    )
    places += [
        (name, ("functions", name), value) for name, value in data.get("functions", {}).items()
    ]
    functions = {
        name: python(document, path, name)
        if isinstance(value, str)
        else RawFunction(name, value, path, None, None)
        for name, path, value in places
    }
    steps = _steps(data)
    scripts = {
        step.path: python(document, (*step.path, step.traits.python), step.kind)
        for step in steps
        if step.traits.python
    }
    return Anatomy(
        document,
        area,
        document.path.stem,
        defaults,
        preludes,
        functions,
        scripts,
        steps,
        tuple(problems),
    )


def with_data(anatomy: Anatomy, data: object) -> Anatomy:
    """Return a spec with evaluated templates: the same positions, other values."""
    return replace(anatomy, document=replace(anatomy.document, data=data), steps=_steps(data))


def _steps(data: Json) -> tuple[RawStep, ...]:
    expectations = _expectations(data, ())
    if SOURCE in data:
        return (RawStep(SAMPLES, data[SOURCE]["opinfo"], (SOURCE, "opinfo"), expectations),)
    if TRITON in data:
        return (RawStep(TRITON, data[TRITON], (TRITON,), expectations),)
    if "steps" not in data:
        return (RawStep(SHORT_FORM, {}, ("expect",), expectations),)
    steps = []
    for index, step in enumerate(data["steps"]):
        kind = next(key for key in step if key not in KEYS_OF_STEPS)
        steps.append(
            RawStep(
                kind,
                step[kind],
                ("steps", index, kind),
                _expectations(step, ("steps", index)),
                step.get("when"),
            )
        )
    return tuple(steps)


def _expectations(step: Json, path: DataPath) -> tuple[RawExpectation, ...]:
    return tuple(
        RawExpectation(kind, body, (*path, "expect", index, kind), entry.get(WEAK, ""))
        for index, entry in enumerate(step.get("expect", []))
        for kind, body in entry.items()
        if kind != WEAK
    )


def stage_of(raw: RawExpectation) -> Json:
    """Return the stage that an expectation reads; None where it reads none."""
    return raw.body.get("stage") if raw.kind == "filecheck" and isinstance(raw.body, dict) else None
