"""The options of the commands that read recorded runs, and of ``doctor``."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions:
    """The options of ``merge``."""

    runs: tuple[str, ...]
    out: Path | None
    junit: Path | None = None
    """None is ``junit.xml`` in the run's folder."""
    junit_flavour: str = "default"
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
class ReportOptions:
    """The options of ``report``."""

    run: str
    junit: Path | None
    """Where the JUnit report is written besides; None for nowhere."""
    junit_flavour: str
    open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiveOptions:
    """The options of ``waive``."""

    targets: tuple[str, ...]
    """Runs."""
    to: Path | None
    remove: bool
    waivers: tuple[Path, ...]
    issue: str
    reason: str
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """The options of ``submit``."""

    run: str
    out: Path | None
    key: Path | None
    """A private key."""
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
class DoctorOptions:
    """The options of ``doctor``."""

    paths: tuple[Path, ...]
    backends: tuple[Path, ...]
    json: bool
    profile: str | None = None
