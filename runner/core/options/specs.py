"""The options of the commands that read or write specs."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateOptions:
    """The options of ``validate``."""

    paths: tuple[Path, ...]
    backends: tuple[Path, ...]
    waivers: tuple[Path, ...]
    json: bool
    profile: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """The options of ``list``."""

    paths: tuple[Path, ...]
    backends: tuple[Path, ...]
    backend: tuple[str, ...]
    select: tuple[str, ...]
    tag: tuple[str, ...] = ()
    shard: str | None
    coverage: bool
    json: bool
    profile: str | None = None
    against: Path | None = None
    """A ledger that must have no case that is gone."""
    update: Path | None = None
    """A ledger that is written again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """The options of ``explain``."""

    case: str
    paths: tuple[Path, ...]
    backends: tuple[Path, ...]
    sample: int | None = None
    """The number of one sample, for a case of torch's database of operators."""
    json: bool
    profile: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproOptions:
    """The options of ``repro``."""

    case: str
    paths: tuple[Path, ...]
    backends: tuple[Path, ...]
    sample: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOptions:
    """The options of ``new``."""

    area: Path
    name: str
    template: str
    backend: tuple[str, ...]
    from_python: str
    """``FILE``, ``FILE::TEST``, ``FILE::CLASS`` or ``FILE::CLASS::TEST``."""
    allow_partial: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaOptions:
    """The options of ``schema``."""

    with_torch: bool
    out: Path | None
    backends: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LspOptions:
    """The options of ``lsp``."""

    backends: tuple[Path, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LintOptions:
    """The options of ``lint``."""

    paths: tuple[Path, ...]
    backends: tuple[Path, ...]
    waivers: tuple[Path, ...]
    run: str | None
    """A recorded run, for the rules that need facts."""
    select: tuple[str, ...]
    """Ids of rules; empty for all."""
    ignore: tuple[str, ...]
    fix: bool
    json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BlessOptions:
    """The options of ``bless``."""

    targets: tuple[str, ...]
    """Runs."""
    all: bool
    """Whether ranges of passed cases are narrowed to what was observed."""
    write: bool
    json: bool
    backends: tuple[Path, ...]
    backend: tuple[str, ...]
    select: tuple[str, ...]
    tag: tuple[str, ...] = ()
