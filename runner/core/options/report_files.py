"""The files of reports that ``run``, ``merge`` and ``export`` write where they are named."""

from dataclasses import dataclass
from pathlib import Path

REPORT_FILES = ("ctrf", "sarif", "code_quality", "badge")
"""The fields that name the file of a report, besides ``junit``. ``report/formats`` has what writes each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    """Where reports are written, and in which form. Each field is an option of its own on the command line and in the journal."""

    junit: Path | None = None
    """For ``run`` and ``merge``, None is ``junit.xml`` in the run's folder."""
    junit_flavour: str = "default"
    ctrf: Path | None = None
    sarif: Path | None = None
    code_quality: Path | None = None
    badge: Path | None = None

    def by_option(self) -> dict[str, Path]:
        """Return the files that are named, ``--junit`` first, by their option."""
        found = {option_of(name): getattr(self, name) for name in ("junit", *REPORT_FILES)}
        return {option: path for option, path in found.items() if path is not None}


def option_of(field: str) -> str:
    """Return the option of a field: ``--code-quality``."""
    return f"--{field.replace('_', '-')}"
