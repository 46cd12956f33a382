"""The table of commands: the options of each, what it does, and examples. ``commands/NAME``, here or in a tool, is its module."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.model.optional import is_there

PROGRAM = "torch-conformance"


@dataclass(frozen=True, slots=True)
class Command:
    """A row of the table."""

    place: str
    """The module within ``runner`` and the class of its options, which are imported when they are used."""
    does: str
    """On one line, for the list of commands."""
    text: str
    """Above its options."""
    examples: Sequence[tuple[str, str]]
    """Arguments, and what they do."""
    package: str = "cli.commands"
    """Where its module is, within ``runner``."""

    @property
    def options(self) -> Any:
        """The class of its options."""
        module, _, name = self.place.partition(":")
        return getattr(importlib.import_module(f"runner.{module}"), name)


COMMANDS: Mapping[str, Command] = {
    "validate": Command(
        "cli.commands.validate:ValidateOptions",
        "print every problem of every spec",
        "Print every problem of every file, one line each.",
        (("validate specs/padding", "one folder"), ("validate --json", "what conformance.yaml names, for programs")),
    ),
    "list": Command(
        "cli.commands.list:ListOptions",
        "show the expanded cases",
        "Show the cases that the specs expand to, and whether each can run here.",
        (
            ("list specs/padding", "its cases, and why some cannot run here"),
            ("list --backend rocm --json", "the cases of a backend, for programs"),
            ("list --coverage", "which upstream tests the specs cover"),
        ),
    ),
    "run": Command(
        "model.options:RunOptions",
        "run cases and report",
        "Run cases with torch.compile, judge them, and report the results.",
        (
            ("run specs/padding --backend cpu", "one folder on one backend"),
            ("run --select 'padding/*' --fail-fast", "the cases with these ids, until one fails"),
            ("run --require cuda --junit report.xml", "for CI: a machine without CUDA is an error"),
            ("run --resume latest", "go on with a run that was interrupted"),
        ),
    ),
    "audit": Command(
        "run.auditing:AuditOptions",
        "print the expectations that could not have failed",
        "Judge recorded observations again with changed facts (mutants): an expectation that still passes could not have failed. PATHs are "
        "run first.",
        (("audit latest", "a recorded run"), ("audit specs/padding --run", "run the specs, and their controls")),
    ),
    "merge": Command(
        "model.options:MergeOptions",
        "join the runs of shards",
        "Join the runs of all shards of one selection into one run, with its journal, report and evidence. Refuses missing and duplicate "
        "shards, and shards with another selection, torch or machine; prints one line for each problem.",
        (("merge shard-1 shard-2 --out whole", "two shards of one selection"),),
    ),
    "report": Command(
        "cli.commands.report:ReportOptions",
        "write the reports of a run again",
        "Write the HTML report of a recorded run again, from its journal and the files beside it: index.html in the run's folder, and the "
        "folder 'report', which the page loads. With --junit, write the JUnit report too. Nothing is run or judged: exit 0 says that the "
        "files were written.",
        (
            ("report latest --open", "write the page of the latest run again, and open it"),
            ("report latest --junit report.xml", "the JUnit report of a recorded run too"),
        ),
    ),
    "diff": Command(
        "cli.commands.diff:DiffOptions",
        "compare two recorded runs",
        "Compare two recorded runs, case by case: what broke, was fixed, is new or gone, is no longer executed, or fails in "
        "another way. Exit 0: compared; 1: a change of --fail-on was found; 2: a run cannot be read; 4: no case has a result in both runs.",
        (("diff 20260301T120000Z-1a2b3c latest --fail-on broken,gone", "what changed between two runs"),),
    ),
}
"""The commands of the core."""

TOOLS = ("author", "vendor")
"""The tools with commands."""

EXAMPLES: Sequence[tuple[str, str]] = (
    ("validate specs/padding", "every problem, with line and column"),
    ("run specs/padding --backend cpu", "run, judge, report"),
    ("watch specs/padding", "again, whenever a file is saved"),
    ("run --help", "the options of a command"),
)
"""Examples of the program."""


def commands() -> Mapping[str, Command]:
    """Return every command: those of the core, and those of each tool that was installed."""
    tables = [importlib.import_module(f"runner.tools.{tool}.commands").COMMANDS for tool in TOOLS if is_there(tool)]
    return {name: command for table in (COMMANDS, *tables) for name, command in table.items()}


def examples_of(name: str = "") -> str:
    """Return the examples of a command, or of the program, as text."""
    examples = (COMMANDS if name in COMMANDS else commands())[name].examples if name else EXAMPLES
    width = max(len(arguments) for arguments, _ in examples)
    return "\n".join(["examples:", *(f"  {PROGRAM} {arguments:{width}}  # {does}" for arguments, does in examples)])
