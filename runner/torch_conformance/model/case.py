"""A case, as ``language.expand`` makes it of a spec.

Frozen values; every later stage reads them by their attributes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NewType

from torch_conformance.model.conditions import Surroundings, holds
from torch_conformance.model.diagnostics import Position
from torch_conformance.model.expectation import Expectation
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen, values_of

CaseId = NewType("CaseId", str)
"""``area/spec-name[backend=cpu,dtype=float32]``."""


@frozen
class Requirement:
    """One entry of ``requires``: a capability and its argument (None when it takes none)."""

    name: str
    argument: str | None
    position: Position

    def __str__(self) -> str:
        return self.name if self.argument is None else f"{self.name} {self.argument}"


@frozen
class CodeBlock:
    """Python written in a spec.

    ``line`` is the line of the YAML file (from 1) on which the first line of ``text`` is.
    """

    name: str
    file: str
    line: int
    text: str
    exact: bool = True
    """False where YAML folds lines, so that only the first line's number is true."""


@frozen
class Step:
    """One step of a case: its kind, its arguments (plain data), what is expected after it."""

    kind: str
    arguments: Mapping[str, Json]
    expectations: tuple["Expected", ...]
    position: Position
    repeat: int = 1
    """How often it is carried out, one after the other; its expectations are judged after the last.
    """
    when: Mapping[str, Json] | None = None
    """Where it is carried out; None for everywhere."""
    rank: int | None = None
    """Which of several processes carries it out: each has a step of its own. None for the case's
    own process.
    """

    def runs(self, surroundings: Surroundings) -> bool:
        """Whether it is carried out here."""
        return holds(self.when, surroundings)


@frozen
class Expected:
    """An expectation with its place in the spec.

    ``check`` is of a class in ``vocabulary.expectations``.
    """

    kind: str
    check: Expectation
    position: Position
    leaves: Mapping[str, Position] = field(default_factory=dict)
    """The place of each key of its body: a counter's line is more than the expectation's."""
    body: Json = None
    """Its arguments as the spec has them, for people."""
    weak: str = ""
    """Why it may also hold for changed facts; empty where it may not."""
    is_varied: bool = False
    """Whether it is another one at another point of the matrix."""

    def place(self, leaf: str) -> Position:
        """Return the place of a leaf, else the key that it is below (``KEY word``), else the
        expectation itself.
        """
        return self.leaves.get(leaf) or self.leaves.get(leaf.partition(" ")[0], self.position)


@frozen
class Control:
    """A patch of a case under which its expectations must fail."""

    patch: Mapping[str, Mapping[str, Json]]
    """By section, what is set otherwise."""
    fails: tuple[str, ...]
    """Kinds of which one expectation each must fail; when empty, any expectation."""
    position: Position


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a section with where it was set: by the defaults, the spec or the backend."""

    value: Json
    position: Position
    layer: str
    override: bool = False

    @property
    def origin(self) -> str:
        """Where it was set, in words."""
        return f"{self.layer}, {self.position}"


class Availability(Enum):
    """Whether a case can run here."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    """Only the run can know."""


@frozen
class WrittenFunction:
    """A function whose Python is in the spec."""

    block: CodeBlock
    entry: str | None
    """The name of what is compiled; None where the spec has a problem, and never runs."""


@frozen
class Settings:
    """The options of a case by section, merged from defaults, spec and backend.

    A value may be a template over facts.
    """

    config: Mapping[str, Json] = field(default_factory=dict)
    dynamo_config: Mapping[str, Json] = field(default_factory=dict)
    functorch_config: Mapping[str, Json] = field(default_factory=dict)
    env: Mapping[str, Json] = field(default_factory=dict)
    torch: Mapping[str, Json] = field(default_factory=dict)
    compile: Mapping[str, Json] = field(default_factory=dict)

    @property
    def by_section(self) -> Mapping[str, Mapping[str, Json]]:
        """Each section by its name, in the order of the language."""
        return values_of(self)

    def patched(self, patch: Mapping[str, Mapping[str, Json]]) -> "Settings":
        """Return the settings with the options of a control in the place of their own."""
        options_of = {
            section: options for section, options in patch.items() if section in self.by_section
        }
        return replace(
            self,
            **{
                section: {**self.by_section[section], **options}
                for section, options in options_of.items()
            },
        )


@frozen
class CaseBody:
    """What a worker needs to carry a case out, apart from its steps.

    ``plan.worker_plan`` writes it as the plan's JSON.
    """

    settings: Settings
    preludes: tuple[CodeBlock, ...] = ()
    """The Python of the defaults, outermost first, then the spec's own."""
    functions: Mapping[str, WrittenFunction | Json] = field(default_factory=dict)
    """By name; any other value is the map that describes it: a module of torch, a
    path of the library.
    """
    let: Mapping[str, Json] = field(default_factory=dict)
    """Values by name, each as an input is written."""
    spies: Mapping[str, Json] = field(default_factory=dict)
    handlers: Mapping[str, Json] = field(default_factory=dict)
    dead: tuple[str, ...] = ()
    """Names of which an expectation says that nothing holds them any more."""
    inputs: tuple[Json, ...] = ()
    context: tuple[Json, ...] = ()
    """The contexts that calls run in, as the spec has them."""
    services: tuple[str, ...] = ()
    timeout: float | None = None
    """Seconds, where the spec says how many."""
    isolation: str = "case"
    """``case``: a fork of a zygote; ``process``: a new Python."""
    compiles: bool
    """Whether its backend compiles anything."""

    @property
    def blocks(self) -> tuple[CodeBlock, ...]:
        """The Python of its preludes and functions."""
        return (
            *self.preludes,
            *(
                function.block
                for function in self.functions.values()
                if isinstance(function, WrittenFunction)
            ),
        )


@frozen
class Group:
    """Cases of which only some may run at a time on one machine."""

    name: str
    file: str
    """The file that declares it: groups of two files share no bound."""
    most: int


@frozen
class Case:
    """A spec expanded for one backend and one point of its matrix."""

    id: CaseId
    spec: str
    """The YAML file as shown to people: relative to the working folder where that is possible."""
    area: str
    name: str
    position: Position
    summary: str
    covers: tuple[str, ...]
    tags: tuple[str, ...]
    backend: str
    device: str
    params: Mapping[str, Json]
    requires: tuple[Requirement, ...]
    body: CaseBody
    steps: tuple[Step, ...]
    seed_key: str
    """What its random numbers depend on: its spec and its point of the matrix, and no backend."""
    challenge: str = ""
    """The text of --challenge, on which they depend too."""
    missing_names: tuple[str, ...] = ()
    """Config, counter and metric names that only another torch has, each as a reason."""
    options: Mapping[str, Mapping[str, Option]] = field(default_factory=dict)
    """For people: the options of each section with where they were set."""
    control: Control | None = None
    exclusive: bool = False
    """Whether its spec says that nothing else may run while it runs."""
    group: Group | None = None
    retries: int | None = None
    """How many more times its spec lets it run after a failure; None where ``--retries`` says."""
    on_request: bool = False
    """Whether it runs only when its path, tag or id selects it."""
    because: str = ""
    """Why it is on request; empty where its spec does not say."""
    target: str = ""
    """The GPU that it is compiled for and not executed on (``model.targets``); empty for a case
    that is executed.
    """
    module: str = ""
    """The module that a worker imports for its device; empty for a device that torch brings."""
    left_out: tuple[Step, ...] = ()
    """Its bench steps, where this run times nothing: they stood below ``steps``."""
