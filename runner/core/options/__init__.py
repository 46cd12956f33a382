"""The command line as frozen values, one class for each command. Only ``cli/parser.py`` builds them; no other room sees argparse.

A field has the name of its option, with underscores. The parser owns the defaults.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from runner.core.options.executing import AuditOptions, ExecutionOptions, RunOptions, ShrinkOptions, WatchOptions
from runner.core.options.fleet import NodeOptions, PlanOptions
from runner.core.options.runs import (
    DiffOptions,
    DoctorOptions,
    ExportOptions,
    HistoryOptions,
    MergeOptions,
    ReportOptions,
    SubmitOptions,
    VerifyOptions,
    WaiveOptions,
)
from runner.core.options.specs import (
    BlessOptions,
    ExplainOptions,
    LintOptions,
    ListOptions,
    LspOptions,
    NewOptions,
    ReproOptions,
    SchemaOptions,
    ValidateOptions,
)

__all__ = [
    "OPTIONS",
    "REPORT_FILES",
    "AuditOptions",
    "BlessOptions",
    "DiffOptions",
    "DoctorOptions",
    "ExecutionOptions",
    "ExplainOptions",
    "ExportOptions",
    "HistoryOptions",
    "LintOptions",
    "ListOptions",
    "LspOptions",
    "MergeOptions",
    "NewOptions",
    "NodeOptions",
    "Options",
    "PlanOptions",
    "ReportOptions",
    "ReproOptions",
    "RunOptions",
    "SchemaOptions",
    "ShrinkOptions",
    "SubmitOptions",
    "ValidateOptions",
    "VerifyOptions",
    "WaiveOptions",
    "WatchOptions",
    "option_of",
    "report_files",
]

Options: TypeAlias = (
    RunOptions
    | AuditOptions
    | BlessOptions
    | LintOptions
    | MergeOptions
    | DiffOptions
    | HistoryOptions
    | ValidateOptions
    | ListOptions
    | ExplainOptions
    | ReproOptions
    | ShrinkOptions
    | DoctorOptions
    | ReportOptions
    | WaiveOptions
    | SubmitOptions
    | VerifyOptions
    | ExportOptions
    | NewOptions
    | SchemaOptions
    | LspOptions
    | WatchOptions
    | NodeOptions
    | PlanOptions
)

OPTIONS: Mapping[str, type[Options]] = {
    "validate": ValidateOptions,
    "list": ListOptions,
    "run": RunOptions,
    "explain": ExplainOptions,
    "repro": ReproOptions,
    "shrink": ShrinkOptions,
    "audit": AuditOptions,
    "bless": BlessOptions,
    "lint": LintOptions,
    "merge": MergeOptions,
    "diff": DiffOptions,
    "history": HistoryOptions,
    "doctor": DoctorOptions,
    "report": ReportOptions,
    "waive": WaiveOptions,
    "submit": SubmitOptions,
    "verify": VerifyOptions,
    "export": ExportOptions,
    "new": NewOptions,
    "schema": SchemaOptions,
    "lsp": LspOptions,
    "watch": WatchOptions,
    "node": NodeOptions,
    "plan": PlanOptions,
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
