"""The options of the commands that execute cases: ``run``, ``audit``, ``shrink``, ``watch``."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOptions:
    """How cases are executed: what ``run`` and ``audit`` have in common."""

    jobs: str
    timeout: float
    timeout_factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(ExecutionOptions):
    """The options of ``run``. The journal's header records all of them."""

    paths: tuple[Path, ...]
    backends: tuple[Path, ...]
    waivers: tuple[Path, ...]
    backend: tuple[str, ...]
    select: tuple[str, ...]
    tag: tuple[str, ...] = ()
    shard: str | None
    memory_limit: str
    shuffle: int | str | None
    """A seed, or ``random``."""
    out: Path | None
    junit: Path | None = None
    """None is ``junit.xml`` in the run's folder."""
    junit_flavour: str = "default"
    github: str = "auto"
    """``on``, ``off``, or ``auto``: on where ``GITHUB_ACTIONS`` is ``true``."""
    require: tuple[str, ...]
    bench: bool
    min_executed: int
    fail_fast: bool
    retries: int
    repeat: int
    flaky: str
    resume: str | None
    profile: str | None = None
    """The name of a shipped profile, or the file of one."""
    against: str | None = None
    """A run whose executed cases are compared with this one's."""
    order: str = "longest-first"
    last_failed: bool = False
    """Select what failed in the run ``latest``; ``check`` turns it into ``failed_in`` with that run's id."""
    shard_by: str = "id"
    """How ``shard`` divides: ``id`` or ``label``."""
    executor: str = "local"
    """``local``, or ``ray``: the nodes of a lab."""
    address: str | None = None
    """The head of the Ray cluster."""
    lab: Path | None = None
    """The file of the lab, which the nodes that joined must match."""
    failed_in: str | None = None
    """A run: its failed cases are selected."""

    @property
    def lets_flaky_pass(self) -> bool:
        """Whether a FLAKY case does not fail the run."""
        return self.flaky == "pass"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions(ExecutionOptions):
    """The options of ``audit``."""

    targets: tuple[str, ...]
    run: bool
    json: bool
    backends: tuple[Path, ...]
    backend: tuple[str, ...]
    select: tuple[str, ...]
    tag: tuple[str, ...] = ()
    shard: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrinkOptions(ExecutionOptions):
    """The options of ``shrink``."""

    case: str
    paths: tuple[Path, ...]
    backends: tuple[Path, ...]
    out: Path
    seconds: float
    tries: int
    no_stage: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The options of ``watch``. Its runs have the defaults of ``run`` for the others."""

    paths: tuple[Path, ...]
    backends: tuple[Path, ...]
    waivers: tuple[Path, ...]
    backend: tuple[str, ...]
    select: tuple[str, ...]
    tag: tuple[str, ...]
    jobs: str
    timeout: float
    timeout_factor: float
