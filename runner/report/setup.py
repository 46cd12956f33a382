"""What reporters are made from."""

from dataclasses import dataclass
from pathlib import Path

from runner.record.run_folder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSetup:
    """The folder of the run that is reported, and the options that change what a report says."""

    folder: RunFolder
    min_executed: int = 1
    lets_flaky_pass: bool = False
    object_cache: Path | None = None
    """The folder that compiled objects may be served from."""
