"""The command line: the table of commands, a parser of it and of the fields of options, the run of
a command, what its errors become.

No other package imports argparse. ``--help`` imports only these modules: dataclasses, pathlib and
typing would take longer than argparse. The module of a command, and what it needs, is imported when
the command runs.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import re
import sys

from torch_conformance import __version__
from torch_conformance.machine import output
from torch_conformance.machine.output import OUT_OF_SPACE, guarded
from torch_conformance.model.escaping import line
from torch_conformance.optional.tools import is_there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn

    from torch_conformance.model.outcomes import ExitCode
    from torch_conformance.optional.options import Reads

PROGRAM = "torch-conformance"


class Command:
    """A row of the table.

    ``place`` is the module within ``torch_conformance`` and the class of its options, which are
    imported when they are used; ``does`` one line for the list of commands; ``text`` is above its
    options; ``examples`` are arguments, and what they do. The ``function`` of that module gets
    the options, and returns the exit code.
    """

    def __init__(
        self,
        place: str,
        does: str,
        text: str,
        examples: Sequence[tuple[str, str]],
        function: str = "main",
    ) -> None:
        self.place = place
        self.does = does
        self.text = text
        self.examples = examples
        self.function = function

    def part(self, name: str) -> Any:
        """Return what its module has by a name."""
        return getattr(
            importlib.import_module(f"torch_conformance.{self.place.partition(':')[0]}"), name
        )

    @property
    def options(self) -> Any:
        """The class of its options."""
        return self.part(self.place.partition(":")[2])


COMMANDS: Mapping[str, Command] = {
    "validate": Command(
        "cli.validate:ValidateOptions",
        "print every problem of every spec",
        "Print every problem of every file, one line each.",
        (
            ("validate specs/padding", "one folder"),
            ("validate --json", "what conformance.yaml names, for programs"),
        ),
    ),
    "list": Command(
        "cli.list:ListOptions",
        "show the expanded cases",
        "Show the cases that the specs expand to, and whether each can run here.",
        (
            ("list specs/padding", "its cases, and why some cannot run here"),
            ("list --backend rocm --json", "the cases of a backend, for programs"),
            ("list --coverage", "which upstream tests the specs cover"),
        ),
    ),
    "run": Command(
        "cli.commands:RunOptions",
        "run cases and report",
        "Run cases with torch.compile, judge them, and report the results.",
        (
            ("run specs/padding --backend cpu", "one folder on one backend"),
            ("run --select 'padding/*' --fail-fast", "the cases with these ids, until one fails"),
            ("run --require cuda --junit report.xml", "for CI: a machine without CUDA is an error"),
            ("run --resume latest", "resume an interrupted run"),
        ),
        "run",
    ),
    "audit": Command(
        "run.auditing:AuditOptions",
        "print the expectations that cannot fail",
        "Judge recorded observations again with changed facts (mutants): an expectation that "
        "still passes cannot fail. PATHs are "
        "run first.",
        (
            ("audit latest", "a recorded run"),
            ("audit specs/padding --run", "run the specs, and their controls"),
        ),
    ),
    "merge": Command(
        "cli.commands:MergeOptions",
        "join the runs of shards",
        "Join the runs of all shards of one selection into one run, with its journal, report and "
        "evidence. Refuses missing and duplicate shards, and shards with another selection, torch "
        "or machine; prints one line for each problem.",
        (("merge shard-1 shard-2 --out whole", "two shards of one selection"),),
        "merge",
    ),
    "report": Command(
        "cli.commands:ReportOptions",
        "write the reports of a run again",
        "Write the HTML report of a recorded run again, from its journal and the files in its "
        "folder: index.html in the run's folder, and the "
        "folder 'report', which the page loads. With --junit, write the JUnit report too. "
        "Nothing is run or judged: exit 0 says that the "
        "files were written.",
        (
            ("report latest --open", "write the page of the latest run again, and open it"),
            ("report latest --junit report.xml", "the JUnit report of a recorded run too"),
        ),
        "report",
    ),
}
"""The commands of the core."""

TOOLS = ("author", "attest")
"""The tools with commands."""

EXAMPLES: Sequence[tuple[str, str]] = (
    ("validate specs/padding", "every problem, with line and column"),
    ("run specs/padding --backend cpu", "run, judge, report"),
    ("watch specs/padding", "again, whenever a file is saved"),
    ("run --help", "the options of a command"),
)
"""Examples of the program."""


def commands(name: str | None = None) -> Mapping[str, Command]:
    """Return every command: those of the core, and those of each tool that was installed. For the
    name of a command of the core no tool is loaded.
    """
    if name in COMMANDS:
        return COMMANDS
    tables = [
        importlib.import_module(f"torch_conformance.tools.{tool}.commands").COMMANDS
        for tool in TOOLS
        if is_there(tool)
    ]
    return {name: command for table in (COMMANDS, *tables) for name, command in table.items()}


def examples_of(name: str = "") -> str:
    """Return the examples of a command, or of the program, as text."""
    examples = commands(name)[name].examples if name else EXAMPLES
    width = max(len(arguments) for arguments, _ in examples)
    return "\n".join(
        [
            "examples:",
            *(f"  {PROGRAM} {arguments:{width}}  # {does}" for arguments, does in examples),
        ]
    )


# -- the parser ------------------------------------------------------------------------------------

_EPILOG = """conformance.yaml in the working folder, or above it in the repository, has the paths, backends, waivers and profile that a command line leaves out.
exit codes: 0 passed; 1 some case failed; 2 wrong usage or an invalid spec; 3 a bug of this program;
4 nothing was selected or executed, or a profile is INCOMPLETE; 130 interrupted. Output that cannot be written (disk full): 1"""  # noqa: E501 - text that is read by its lines


class _Formatter(argparse.HelpFormatter):
    """Keeps the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:\n") else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """Prints a usage error on one line; line breaks and control characters in the arguments are
    escaped.
    """

    def __init__(self, **more: Any) -> None:
        super().__init__(formatter_class=_Formatter, **more)

    def error(self, message: str) -> NoReturn:
        """Print usage and the problem, with the nearest allowed word; exit 2."""
        from torch_conformance.model.diagnostics import did_you_mean

        if no_choice := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message):
            hint = did_you_mean(no_choice[1], re.findall(r"[\w-]+", no_choice[2]))
            message += f" ({hint})" if hint else ""
        super().error(line(message))


def parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands, of the one that ``only`` names, or for the empty text of
    their names without options.
    """
    command_table = commands(only)
    top = Parser(
        prog=PROGRAM,
        description="Conformance tests of torch.compile, written in YAML.",
        epilog=f"{examples_of()}\n\n{_EPILOG}",
    )
    top.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    subparsers = top.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", required=True, parser_class=Parser
    )
    for name, command in command_table.items():
        if only in (None, "", name):
            subparser = subparsers.add_parser(
                name, help=command.does, description=command.text, epilog=examples_of(name)
            )
            if only != "":
                add_options(subparser, command.options)
    return top


def add_options(command: argparse.ArgumentParser, options: type) -> None:
    """Add the options of a class, as its fields say."""
    from torch_conformance.optional.options import written

    group_of = {
        name: group
        for title, names in getattr(options, "GROUPS", {}).items()
        for group in [command.add_argument_group(title)]
        for name in names.split()
    }
    for name, metadata in written(options).items():
        more = {
            key: value
            for key, value in metadata.items()
            if key not in ("word", "positional", "default")
        }
        if "type" in more:
            more["type"] = functools.partial(_read, more["type"])
        default = (
            list(metadata["default"]) if metadata.get("action") == "append" else metadata["default"]
        )
        group = group_of.get(name, command)
        if not metadata.get("positional"):
            group.add_argument(
                f"--{metadata.get('word', name.replace('_', '-'))}",
                dest=name,
                **more,
                default=default,
            )
        else:
            if "nargs" in metadata:
                more["default"] = default
            group.add_argument(name, **more)


def _read(reads: Reads, text: str) -> object:
    """Return a value for argparse, which prints the message of the exception."""
    try:
        return reads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def values_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of options, frozen."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in vars(arguments).items()
    }


def parse(argv: Sequence[str] | None = None) -> tuple[str, Any]:
    """Return the name of the command and its options; raise ``SystemExit`` for ``--help`` and for
    wrong usage.
    """
    words = sys.argv[1:] if argv is None else argv
    first = words[0] if words else ""
    command_table = commands(first)
    reader = parser(first if first in command_table else "")
    arguments, unknown = reader.parse_known_args(words)
    values = values_of(arguments)
    command: Command = command_table[name := values.pop("command")]
    if unknown:
        from torch_conformance.model.diagnostics import did_you_mean
        from torch_conformance.optional.options import written

        names = [
            f"--{metadata.get('word', field.replace('_', '-'))}"
            for field, metadata in written(command.options).items()
            if not metadata.get("positional")
        ]
        hints = [
            hint
            for word in unknown
            if word.startswith("-") and (hint := did_you_mean(word.partition("=")[0], names))
        ]
        reader.error(
            f"unrecognized arguments: {' '.join(unknown)}{f' ({hints[0]})' if hints else ''}"
        )
    return name, command.options(**values)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    return guarded_code(lambda: _answer(argv))


def guarded_code(answer: Callable[[], int]) -> int:
    """Return the exit code of what writes to the streams; where they cannot be written to, one that
    says so.
    """
    with guarded() as problem:
        try:
            code = answer()
        except SystemExit as ended:  # argparse's: its help, or wrong usage
            code = int(ended.code or 0)
        sys.stdout.flush()
        if why := problem():
            from torch_conformance.model.outcomes import ExitCode

            output.note(f"{PROGRAM}: {why}")
            return code or ExitCode.FAILED
    return code


def _answer(argv: Sequence[str] | None) -> int:
    name, options = parse(argv)
    command = commands(name)[name]

    def run() -> ExitCode:
        whole = options
        if hasattr(options, "backends") or hasattr(options, "waivers"):
            from torch_conformance.plan.selection import (
                with_settings,
            )  # only where there is something to read: it takes time

            whole = with_settings(options)
        code: ExitCode = command.part(command.function)(whole)
        return code

    return answered(run, sys.argv[1:] if argv is None else argv)


def answered(command: Callable[[], ExitCode], argv: Sequence[str]) -> int:
    """Run a command that was given these arguments; print what it raises, and return its exit
    code.
    """
    from torch_conformance.machine.redaction import KNOWN
    from torch_conformance.model.diagnostics import InvalidSpecs, JournalAltered, UsageError
    from torch_conformance.model.outcomes import ExitCode

    KNOWN.learn_environment(os.environ)
    KNOWN.learn_urls(" ".join(argv))
    try:
        return int(command())
    except InvalidSpecs as error:
        for diagnostic in error.diagnostics:
            output.note(str(diagnostic))
        count = len(error.diagnostics)
        output.note(f"{count} problem{'' if count == 1 else 's'}; nothing was run")
        return ExitCode.USAGE
    except UsageError as error:
        output.notes(f"torch-conformance: {error}")
        return ExitCode.USAGE
    except JournalAltered as error:
        output.note(f"torch-conformance: {error}")
        return ExitCode.FAILED
    except KeyboardInterrupt:
        output.note("interrupted")
        return ExitCode.INTERRUPTED
    except Exception as error:
        # a bug or a full disk: uncaught, it would exit with 1, which means that a case failed
        if isinstance(error, OSError) and error.errno in OUT_OF_SPACE:
            output.note(
                "torch-conformance: cannot "
                f"write{f' {error.filename}' if error.filename else ''}: {error.strerror}"
            )
            return ExitCode.FAILED
        output.traceback()
        output.note(
            "torch-conformance: this is a bug of torch-conformance, not of a spec or of "
            "torch; please report it with the lines above"
        )
        return ExitCode.INTERNAL
