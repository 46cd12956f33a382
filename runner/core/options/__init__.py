"""The command line as frozen values, one class for each command. Only ``cli/parser.py`` builds them; no other room sees argparse.

A field has the name of its option, with underscores. The parser owns the defaults.
"""

from collections.abc import Mapping
from typing import TypeAlias

from runner.core.options.executing import AuditOptions, ExecutionOptions, RunOptions, ShrinkOptions, WatchOptions
from runner.core.options.fleet import NodeOptions, PlanOptions
from runner.core.options.runs import (
    DiffOptions,
    DoctorOptions,
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
    "AuditOptions",
    "BlessOptions",
    "DiffOptions",
    "DoctorOptions",
    "ExecutionOptions",
    "ExplainOptions",
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
]

Options: TypeAlias = (
    RunOptions
    | AuditOptions
    | BlessOptions
    | LintOptions
    | MergeOptions
    | DiffOptions
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
    "doctor": DoctorOptions,
    "report": ReportOptions,
    "waive": WaiveOptions,
    "submit": SubmitOptions,
    "verify": VerifyOptions,
    "new": NewOptions,
    "schema": SchemaOptions,
    "lsp": LspOptions,
    "watch": WatchOptions,
    "node": NodeOptions,
    "plan": PlanOptions,
}
"""The class of each command's options."""
