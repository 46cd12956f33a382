"""A backend as a value: how a case is compiled, on which device, what its compiler claims and
declares, and the proof that it ran.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch_conformance.model.case import Requirement
from torch_conformance.model.diagnostics import Position
from torch_conformance.model.document import Document
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.expectations.expectation_base import Range

if TYPE_CHECKING:
    from torch_conformance.matching.filecheck import CheckFile
    from torch_conformance.vocabulary.expectations.served import Served


@frozen
class Choices:
    """Autotuning choices that must have been timed: at least ``least`` with a matching name and
    class.
    """

    match: str
    least: int
    of_class: str = ""
    """Empty for any class."""

    def __str__(self) -> str:
        of_class = f" of a class matching /{self.of_class}/" if self.of_class else ""
        return f"at least {self.least} timed choices matching /{self.match}/{of_class}"


@frozen
class Serves:
    """The inductor backends that must have won each operation of a group, and at least one."""

    group: str
    """A key of ``model.observation.GROUPS``."""
    by: tuple[str, ...]

    def __str__(self) -> str:
        return f"each {self.group} served by {' or '.join(self.by)}"


@frozen
class Calls:
    """How often a function of the vendor's runtime must be called around each compiled call."""

    of: str
    least: int = 1

    def __str__(self) -> str:
        return (
            f"at least {self.least} call{'' if self.least == 1 else 's'} of {self.of} in each "
            "compiled call"
        )


@frozen
class Proof:
    """The evidence that a backend ran."""

    graphs: Range | None = None
    """Graphs of inductor; none for a compiler other than inductor whose entry does not speak of
    them.
    """
    service: Any = None
    """For a compiler other than inductor: what it must compute itself of each call, as ``served``
    is written.
    """
    calls: Calls | None = None
    """For a compiler other than inductor: what of its runtime must be called."""
    code: str = ""
    """FileCheck directives on the generated code; empty for none."""
    choices: Choices | None = None
    serves: tuple[Serves, ...] = ()

    @property
    def checks(self) -> "CheckFile":
        """The directives, read where a case is judged by them: most runs have no such backend."""
        from torch_conformance.matching.filecheck import parse

        return parse(self.code)

    @property
    def served(self) -> "Served | None":
        """The expectation of each call."""
        if self.service is None:
            return None
        from torch_conformance.vocabulary.expectations.served import Served

        return Served.parse(self.service)


INDUCTOR = "inductor"
"""The compiler of a backend that names none."""


@frozen
class Claims:
    """What a compiler says that it does; a case that asks for more is UNAVAILABLE."""

    trains: bool = True
    """Whether its answers have gradients."""
    dynamic: bool = True
    dtypes: frozenset[str] = frozenset()
    """The types that it computes; empty for all."""
    file: Document | None = None
    """The file of the operators that it computes; None for all."""
    operators: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """These, by type, as the ids of the operator suite have them."""


@dataclass(frozen=True, slots=True)
class ExpectedCell:
    """A known gap: an operator and a type whose cell of the support table is not a right answer of
    the compiler.
    """

    state: str
    """``by-aten``, ``wrong`` or ``raised``."""
    operator: str
    type: str
    issue: str
    position: Position


@frozen
class Declared:
    """What a compiler declares that it does otherwise than eager: its cases are judged by it."""

    precision: Mapping[str, str] = field(default_factory=dict)
    """By dtype, the format that its products are computed in."""
    random: bool = False
    """Whether it draws numbers of its own: their distributions are compared."""
    layout: bool = False
    """Whether its results have strides of its own."""

    @property
    def words(self) -> Sequence[str]:
        """The same in words."""
        products = (f"products of {dtype} in {form}" for dtype, form in self.precision.items())
        return [
            *products,
            *["random numbers of its own"] * self.random,
            *["strides of its own"] * self.layout,
        ]


@frozen
class Backend:
    """One backend.

    ``joins`` are the backends that it joins directly; ``names`` are its own name and those of all
    joined backends.
    """

    name: str
    summary: str
    device: str
    names: frozenset[str]
    joins: tuple[str, ...] = ()
    only_tags: frozenset[str] = frozenset()
    """Tags that select specs of joined backends: a spec needs one of them.

    Empty: all specs are selected.
    """
    requires: tuple[Requirement, ...]
    compiles: bool
    module: str = ""
    """The module that registers its device or its compiler with torch; empty where torch brings
    both.
    """
    forks: bool = True
    """Whether its module works in a fork of a process with torch; else each case gets a new
    process.
    """
    proof: Proof
    claims: Claims = Claims()
    declared: Declared = Declared()
    expected: tuple[Document | None, Sequence[ExpectedCell]] = (None, ())
    """The file of known gaps, and these."""
    document: Document
    settings: Mapping[str, Any]
    """config, dynamo_config, env, torch and compile, as written."""

    @property
    def compiler(self) -> str:
        """The name that torch.compile knows its compiler by."""
        return compiler_of(self.settings)

    @property
    def has_graphs(self) -> bool:
        """Whether its proof allows a compiled graph."""
        return self.proof.graphs is None or self.proof.graphs.most != 0

    @property
    def asked(self) -> str:
        """What is compiled with, and what each call must show, in words."""
        served = self.proof.served.expected if self.proof.served else ""
        return "; ".join(
            filter(
                None,
                [
                    f"compile.backend {self.compiler}",
                    served,
                    str(self.proof.calls or ""),
                    *self.declared.words,
                ],
            )
        )

    @property
    def position(self) -> Position:
        """The position of its definition."""
        return self.document.position((self.name,), key=True)


def compiler_of(settings: Mapping[str, Any]) -> str:
    """Return the compiler that the entry of a backend names."""
    written = settings.get("compile", {})
    return str(written.get("backend", INDUCTOR)) if isinstance(written, Mapping) else INDUCTOR
