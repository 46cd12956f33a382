"""The settings of reporters."""

from dataclasses import dataclass

from runner.record.run_folder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSetup:
    """The folder of the reported run, and the options that change reports."""

    folder: RunFolder
    junit_flavour: str = "default"
    page: str = ""
    """The name of the HTML report in the folder; empty where none is written."""
