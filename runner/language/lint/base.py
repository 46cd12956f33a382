"""What the rules share: findings, and the specs and waivers that they look at."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from runner.core.case import Case
from runner.core.diagnostics import Position
from runner.language.backends import Backends
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import Document
from runner.language.waivers import WaiverFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule says of one place."""

    rule: str
    position: Position
    message: str
    hint: str

    @property
    def order(self) -> tuple[Position, str, str]:
        """By place, then by rule."""
        return self.position, self.rule, self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A spec with its cases."""

    anatomy: Anatomy
    cases: tuple[Case, ...]

    @property
    def document(self) -> Document:
        """Its own file."""
        return self.anatomy.document

    @property
    def id(self) -> str:
        """Its area and name, as in the ids of its cases."""
        spec = self.anatomy.spec
        return f"{spec.area}/{spec.name}" if spec.area else spec.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is linted."""

    specs: tuple[Spec, ...]
    backends: Backends
    waivers: WaiverFiles
    whole: bool
    """Whether all shipped specs are among them: only then shipped waivers are compared with the cases."""
    is_complete: Callable[[Document], bool] = lambda _: False
    """Whether every spec that inherits a file of defaults is among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule: what it finds, why that is unsound, and what it does not find."""

    id: str
    summary: str
    why: str
    bad: str
    """Lines of YAML with a finding; of a spec, unless a comment in them says of what."""
    good: str
    """The same without the finding."""
    check: Callable[[Scene], Iterable[Finding]]
