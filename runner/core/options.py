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
    junit_flavour: str = "default"
    ctrf: Path | None = None
    sarif: Path | None = None
    code_quality: Path | None = None
    badge: Path | None = None
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
    history: Path | None = None
    """The file of the history; None for the default."""
    order: str = "longest-first"
    last_failed: bool = False
    """Select what failed in the run ``latest``; ``check`` turns it into ``failed_in`` with that run's id."""
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
class MergeOptions:
    """The options of ``merge``."""

    runs: tuple[str, ...]
    out: Path | None
    junit: Path | None
    junit_flavour: str = "default"
    ctrf: Path | None = None
    sarif: Path | None = None
    code_quality: Path | None = None
    badge: Path | None = None
    github: str = "auto"
    json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """The options of ``diff``."""

    before: str
    after: str
    map_backend: tuple[str, ...]
    """``A=B``: a backend of the first run, and one of the second."""
    fail_on: tuple[str, ...]
    """Words with commas between them."""
    slower: float
    code: bool
    html: Path | None
    json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions:
    """The options of ``history``."""

    action: str
    targets: tuple[str, ...]
    """Runs to add, a glob of cases to show, or the file of the page."""
    history: Path | None
    """The file of the history; None for the default."""
    limit: int
    json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The options of ``export``."""

    run: str
    junit: Path | None
    junit_flavour: str = "default"
    ctrf: Path | None = None
    sarif: Path | None = None
    code_quality: Path | None = None
    badge: Path | None = None


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
class ReportOptions:
    """The options of ``report``."""

    run: str
    open: bool


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
    | DiffOptions
    | HistoryOptions
    | ValidateOptions
    | ListOptions
    | ExplainOptions
    | ReproOptions
    | DoctorOptions
    | ReportOptions
    | WaiveOptions
    | SubmitOptions
    | VerifyOptions
    | ExportOptions
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
    "diff": DiffOptions,
    "history": HistoryOptions,
    "doctor": DoctorOptions,
    "report": ReportOptions,
    "waive": WaiveOptions,
    "submit": SubmitOptions,
    "verify": VerifyOptions,
    "export": ExportOptions,
    "watch": WatchOptions,
}
"""The class of each command's options."""

REPORT_FILES = ("ctrf", "sarif", "code_quality", "badge")
"""The fields that name the file of a report, besides ``junit``. ``report/formats`` has what writes each."""


def option_of(field: str) -> str:
    """Return the option of a field: ``--code-quality``."""
    return f"--{field.replace('_', '-')}"


def report_files(options: RunOptions | MergeOptions | ExportOptions) -> dict[str, Path]:
    """Return the files of reports that options name, ``--junit`` first, by their option."""
    found = {option_of(name): getattr(options, name) for name in ("junit", *REPORT_FILES)}
    return {option: path for option, path in found.items() if path is not None}
