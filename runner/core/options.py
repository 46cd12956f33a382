"""The command line as frozen values, one class for each command. Only ``cli/parser.py`` builds them; no other room sees argparse.

A field has the name of its option, with underscores. The parser owns the defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOptions:
    """How cases are executed: what ``run`` and ``audit`` have in common."""

    jobs: str
    timeout: float
    timeout_factor: float
    isolation: str
    share_across_folders: bool
    object_cache: Path | None
    """An empty path selects the default folder."""
    no_kept: bool
    service: tuple[str, ...] = ()
    """``NAME=HOST:PORT`` of each server that runs already."""


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
    junit: Path | None
    out: Path | None
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
class MergeOptions:
    """The options of ``merge``."""

    runs: tuple[str, ...]
    out: Path | None
    junit: Path | None
    json: bool


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
    """A ledger that is brought up to date."""
    because: str = ""
    """Why cases of it are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """The options of ``doctor``."""

    paths: tuple[Path, ...]
    backends: tuple[Path, ...]
    json: bool
    profile: str | None = None


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
class WaiveOptions:
    """The options of ``waive``."""

    targets: tuple[str, ...]
    """Runs; files with ``--from``."""
    form: str
    """``--from``: the form of the files."""
    to: Path | None
    remove: bool
    waivers: tuple[Path, ...]
    cases: str
    issue: str
    reason: str
    until: str
    type: str
    match: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """The options of ``submit``."""

    run: str
    format: str
    """The form of the submission."""
    out: Path | None
    key: Path | None
    """A private key."""
    dispatch: Path | None
    """What a CI relay sent."""
    artifact_url: str
    replace: bool
    json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """The options of ``verify``."""

    archive: Path
    profile: str | None
    specs: tuple[Path, ...]
    """Published files of the author of the archive."""
    key: Path | None
    """A public key."""
    json: bool


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


Options: TypeAlias = (
    RunOptions
    | AuditOptions
    | MergeOptions
    | ValidateOptions
    | ListOptions
    | ExplainOptions
    | ReproOptions
    | DoctorOptions
    | WaiveOptions
    | SubmitOptions
    | VerifyOptions
    | WatchOptions
)

OPTIONS: Mapping[str, type[Options]] = {
    "validate": ValidateOptions,
    "list": ListOptions,
    "run": RunOptions,
    "explain": ExplainOptions,
    "repro": ReproOptions,
    "audit": AuditOptions,
    "merge": MergeOptions,
    "doctor": DoctorOptions,
    "waive": WaiveOptions,
    "submit": SubmitOptions,
    "verify": VerifyOptions,
    "watch": WatchOptions,
}
"""The class of each command's options."""
