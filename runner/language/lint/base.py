"""What the rules share: findings, fixes, and the specs, waivers, profiles and facts that they look at."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from runner.core.case import Case
from runner.core.diagnostics import Position
from runner.language.backends import Backends
from runner.language.profiles import Profile
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath, Document
from runner.language.text_edits import Edit
from runner.language.waivers import WaiverFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A safe change of a file: a value that is removed or replaced, or an edit of its text that changes no value."""

    document: Document
    removed: DataPath | None = None
    value: tuple[DataPath, str] | None = None
    edit: Edit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a rule says of one place."""

    rule: str
    position: Position
    message: str
    hint: str
    fix: Fix | None = None

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
class Weakness:
    """An expectation of a recorded run that ``audit`` shows could not have failed."""

    position: Position
    kind: str
    leaf: str
    mutant: str
    case_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Closeness:
    """The greatest difference that a recorded run saw at a comparison with a tolerance."""

    position: Position
    atol: float
    observed: float
    cases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What the rules may know of a recorded run."""

    run: str
    weaknesses: tuple[Weakness, ...] = ()
    closeness: tuple[Closeness, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is linted."""

    specs: tuple[Spec, ...]
    backends: Backends
    waivers: WaiverFiles
    profiles: tuple[Profile, ...]
    whole: bool
    """Whether all shipped specs are among them: only then shipped waivers and profiles are compared with the cases."""
    is_complete: Callable[[Document], bool] = lambda _: False
    """Whether every spec that inherits a file of defaults is among them."""
    run: RunFacts | None = None

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The ids of all cases."""
        return tuple(str(case.id) for spec in self.specs for case in spec.cases)


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
    fixes: str = ""
    """What ``--fix`` does; empty where it does nothing."""
    needs_run: bool = False


Rules = Mapping[str, Rule]
