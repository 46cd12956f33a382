"""The command-line parser. It builds the frozen dataclasses of ``core/options``; no other package imports argparse.

A command's module is imported when the command runs, so that ``--help`` is fast.
"""

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from runner import __version__
from runner.cli import (
    author_options,
    fleet_options,
    help_pages,
    ledger_options,
    recorded_options,
    report_options,
    repro_options,
    selecting,
    submit_options,
    waive_options,
    watch_options,
    writing_options,
)
from runner.cli.option_types import factor, natural, positive, seed, times
from runner.core.escaping import line
from runner.core.exit_codes import ExitCode
from runner.system import output
from runner.system.streams import guarded

if TYPE_CHECKING:
    _Commands: TypeAlias = "argparse._SubParsersAction[_Parser]"  # noqa: SLF001 - argparse exports no public name for the return type of add_subparsers

    from runner.core.options import Options

_EPILOG = """exit codes: 0 passed; 1 some case failed; 2 wrong usage or an invalid spec; 3 a bug of this program;
4 nothing was selected or executed, or a profile is INCOMPLETE; 130 interrupted. Output that cannot be written (disk full): 1"""


class _Parser(argparse.ArgumentParser):
    """Prints a usage error on one line; line breaks and control characters in the arguments are escaped."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"formatter_class": help_pages.Formatter, **given})

    def error(self, message: str) -> NoReturn:
        """Print usage and the problem; exit 2."""
        super().error(line(message))


class _Program(_Parser):
    """Shows the commands in groups."""

    def format_help(self) -> str:
        """Return the help of the program."""
        (commands,) = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001 - argparse has no public list of subcommands
        by_name = {action.dest: action for action in commands._choices_actions}  # noqa: SLF001 - argparse has no public list of the help texts of subcommands
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        options = [action for action in self._actions if action.option_strings]
        groups = {title: [by_name[name] for name in names] for title, names in help_pages.groups_of(list(by_name)).items()}
        for title, actions in {**groups, "options": options}.items():
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(help_pages.examples_of(""))
        formatter.add_text(self.epilog)
        return formatter.format_help()


def parser(only: str = "") -> argparse.ArgumentParser:
    """Return the parser of every command; with ``only``, the parser for command lines of this one, which takes a tenth of the time."""
    top = _Program(prog="torch-conformance", description="Conformance tests of torch.compile, written in YAML.", epilog=_EPILOG)
    top.add_argument("--version", action="version", version=f"torch-conformance {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for name, command_of in _OF_SPECS.items():
        if only in ("", name):
            command_of(commands)
    for table in (
        recorded_options.COMMANDS,
        report_options.COMMANDS,
        repro_options.COMMANDS,
        waive_options.COMMANDS,
        submit_options.COMMANDS,
        writing_options.COMMANDS,
        author_options.COMMANDS,
        watch_options.COMMANDS,
        fleet_options.COMMANDS,
    ):
        for name, (add, text, description) in table.items():
            if only in ("", name):
                add(commands.add_parser(name, help=text, description=description))
    for name, command in commands.choices.items():
        command.epilog = help_pages.examples_of(name) or None
    return top


def _validate(commands: "_Commands") -> None:
    command = commands.add_parser(
        "validate", help="print every problem of every spec", description="Print every problem of every file, one line each."
    )
    selecting.paths(command)
    selecting.backend_files(command)
    selecting.waiver_files(command)
    selecting.profile(command, "also check this profile, with the specs, backends and waivers that it names")
    command.add_argument("--json", action="store_true", help="print the problems as JSON")


def _list(commands: "_Commands") -> None:
    command = commands.add_parser(
        "list", help="show the expanded cases", description="Show the cases that the specs expand to, and whether each can run here."
    )
    selecting.paths(command)
    selecting.backend_files(command)
    selecting.choice(command)
    selecting.profile(command, "show the cases of this profile by level")
    command.add_argument(
        "--coverage", action="store_true", help="print which specs and cases cover each upstream test, instead of the cases"
    )
    command.add_argument("--json", action="store_true", help="print an array of objects; with --coverage one object")
    ledger_options.of_list(command)


def _run(commands: "_Commands") -> None:
    command = commands.add_parser(
        "run", help="run cases and report", description="Run cases with torch.compile, judge them, and report the results."
    )
    selecting.paths(command)
    selecting.backend_files(command)
    selecting.waiver_files(command)
    selecting.choice(command)
    selecting.profile(command, "run the cases of this profile and state CONFORMANT (exit 0), NOT CONFORMANT (1) or INCOMPLETE (4)")
    _machine(command)
    report_options.of_run(command)
    _verdict(command)
    _attempts(command)
    command.add_argument("--resume", metavar="RUN", help="resume a run that was killed or interrupted: its folder, its id, or latest")
    ledger_options.of_run(command)
    recorded_options.of_run(command)
    fleet_options.of_run(command)


def _jobs_and_deadlines(command: argparse.ArgumentParser) -> None:
    """Add what ``run`` and ``audit`` share of the scheduling options."""
    add = command.add_argument
    add("--jobs", default="auto", metavar="N", help="maximum number of cases that run in parallel (default: auto, by cores and memory)")
    add("--timeout", type=positive, default=300.0, metavar="S", help="deadline of a case in seconds (default: 300)")
    add(
        "--timeout-factor",
        type=factor,
        default=1.0,
        metavar="F",
        help="multiply every deadline, including those that specs set (default: 1)",
    )


def _machine(command: argparse.ArgumentParser) -> None:
    """Add the scheduling options: parallelism, deadlines, memory limit, order."""
    add = command.add_argument
    _jobs_and_deadlines(command)
    add(
        "--memory-limit",
        default="auto",
        metavar="SIZE",
        help="memory limit of each case: 4GiB, 500MiB, none (default: auto, three quarters of the free memory at the start)",
    )
    add(
        "--shuffle",
        nargs="?",
        type=seed,
        const="random",
        metavar="SEED",
        help="run the cases in a random order that depends on SEED only (without SEED: one is chosen and printed)",
    )


def _verdict(command: argparse.ArgumentParser) -> None:
    """Add the options that decide whether a run is a success."""
    add = command.add_argument
    add(
        "--require",
        action="append",
        default=[],
        metavar="NAME",
        help="a backend or capability that must be available; exit 4 if no executed case uses it (repeatable)",
    )
    add("--bench", action="store_true", help="also run the bench steps: their cases run alone, their times are reported and never judged")
    add("--min-executed", type=natural, default=1, metavar="N", help="exit 4 when fewer cases were executed (default: 1)")


def _attempts(command: argparse.ArgumentParser) -> None:
    """Add the options for repeated executions of a case."""
    add = command.add_argument
    add("--fail-fast", action="store_true", help="stop after the first failure")
    add(
        "--retries",
        type=natural,
        default=0,
        metavar="N",
        help="run a failed case up to N more times, alone; a case that then passes is FLAKY",
    )
    add("--repeat", type=times, default=1, metavar="N", help="run every case N times; a case with different outcomes is FLAKY (default: 1)")
    add("--flaky", choices=["fail", "pass"], default="fail", help="whether a FLAKY case fails the run (default: fail)")


def _explain(commands: "_Commands") -> None:
    command = commands.add_parser(
        "explain",
        help="print one case as a spec of it alone",
        description="Print a case as the spec of it alone, with where each value comes from; above it, whether it can run here.",
    )
    command.add_argument("case", metavar="CASE", help="a case's id, or a glob that selects cases")
    selecting.paths(command)
    selecting.backend_files(command)
    selecting.sample(command)
    selecting.profile(command, "name the case's level in this profile")
    command.add_argument("--json", action="store_true", help="print an array of objects")


def _audit(commands: "_Commands") -> None:
    command = commands.add_parser(
        "audit",
        help="print the expectations that could not have failed",
        description="Judge recorded observations again with changed facts (mutants): an expectation that still passes could not have "
        "failed. PATHs are run first.",
    )
    add = command.add_argument
    add("targets", nargs="*", metavar="RUN|PATH", help="a run (its folder, its id, or latest, the default), or spec files and folders")
    add("--run", action="store_true", help="also run the controls: the cases with the patch of their spec's 'control', which must fail")
    add("--json", action="store_true", help="print one object")
    selecting.backend_files(command)
    selecting.choice(command)
    _jobs_and_deadlines(command)


def _doctor(commands: "_Commands") -> None:
    command = commands.add_parser(
        "doctor",
        help="show what this machine has and lacks",
        description="Show what this machine has and lacks, and what that allows. Exit 1 when something that it claims does not work.",
    )
    selecting.paths(command)
    selecting.backend_files(command)
    selecting.profile(command, "look at this profile alone, with the specs and backends that it names")
    command.add_argument("--json", action="store_true", help="print one object")


_OF_SPECS = {"validate": _validate, "list": _list, "run": _run, "explain": _explain, "audit": _audit, "doctor": _doctor}
"""What adds each of the commands whose options are in this module."""


def parse(argv: Sequence[str] | None = None) -> "tuple[str, Options]":
    """Return the name of the command and its options; raise ``SystemExit`` for ``--help`` and for wrong usage."""
    words = sys.argv[1:] if argv is None else argv
    is_command = bool(words) and any(words[0] in names for names in help_pages.GROUPS.values())
    arguments = vars(parser(words[0] if is_command else "").parse_args(words))
    from runner.core.options import OPTIONS

    command = arguments.pop("command")
    build: Callable[..., Options] = OPTIONS[command]
    return command, build(**{name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()})


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    with guarded() as guard:
        try:
            code = _answer(argv)
        except SystemExit as ended:  # argparse's: its help, or wrong usage
            code = int(ended.code or 0)
        sys.stdout.flush()
        if guard.problem:
            output.note(f"torch-conformance: {guard.problem}")
            return code or ExitCode.FAILED
    return code


def _answer(argv: Sequence[str] | None) -> int:
    name, options = parse(argv)
    # imported by name: the parser has the only list of commands
    command = importlib.import_module(f"runner.cli.commands.{name}")
    from runner.cli.answering import answered

    return answered(lambda: command.main(options), sys.argv[1:] if argv is None else argv)
