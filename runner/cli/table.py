"""The table of commands: the options of each, what it does, and examples. ``cli/commands/NAME`` is its module."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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

    @property
    def options(self) -> Any:
        """The class of its options."""
        module, _, name = self.place.partition(":")
        return getattr(importlib.import_module(f"runner.{module}"), name)


COMMANDS: Mapping[str, Command] = {
    "new": Command(
        "cli.commands.new:NewOptions",
        "write a new spec, from a template or from a Python test",
        "Write AREA/NAME.yaml: a spec that validates and runs as it is, from a template. With --from-python: a spec for each test of a "
        "Python file, made from its syntax tree without executing it. What a spec could not take over of its test stands in it as a "
        "comment 'not carried', and the exit code is 1.",
        (
            ("new specs/padding wide-rows-padded", "write a spec from a template"),
            ("new imported --from-python test_padding.py::PaddingTest::test_mm", "begin one from a Python test"),
        ),
    ),
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
    "explain": Command(
        "cli.commands.explain:ExplainOptions",
        "print one case as a spec of it alone",
        "Print a case as the spec of it alone, with where each value comes from; above it, whether it can run here.",
        (("explain 'padding/*' --json", "for programs"), ("explain 'padding/*cpu*' specs/padding", "the cases whose ids match")),
    ),
    "watch": Command(
        "cli.commands.watch:WatchOptions",
        "run specs, and run a spec again when its file is saved",
        "Run the selected cases, then wait. When a spec is saved, or a file that it depends on (defaults, backends, waivers, a module of "
        "yours), its cases run again. torch stays loaded between the runs; each case still has a process of its own. "
        "Enter: again, f: the cases that fail, a: all, q: quit.",
        (("watch specs/padding --backend cpu", "run a spec again when it is saved"), ("watch my-spec.yaml", "one file")),
    ),
    "lint": Command(
        "language.lint.linting:LintOptions",
        "print what is valid in specs, but unsound",
        "Print findings of specs that are valid: claims twice, conditions that never hold, loose tolerances, unused names.",
        (("lint specs/padding", "what is valid, but unsound"),),
    ),
    "bless": Command(
        "run.blessing.samples:BlessOptions",
        "print a patch of specs that says what recorded runs counted",
        "Print a patch under which the red cases of recorded runs pass: counts as they were observed, with the smallest condition or "
        "matrix value that explains the cases and machines. Nothing else is blessed; each red case that is not blessed has a line that "
        "says why. The recorded runs are judged again by the patch before it is printed.",
        (("bless latest", "a patch of counts from what a run observed"),),
    ),
    "schema": Command(
        "cli.commands.schema:SchemaOptions",
        "write the schemas for editors, with the names of the installed torch",
        "Write the JSON schemas that editors complete and check specs with. With --with-torch the names of options, counters and metrics "
        "are those of the installed torch alone, with types and defaults.",
        (("schema --with-torch --out schemas-here", "schemas for an editor, with the names of the installed torch"),),
    ),
    "run": Command(
        "core.options:RunOptions",
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
        "core.options:MergeOptions",
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
    "repro": Command(
        "run.shrinking.shrinking:ReproOptions",
        "print a Python script that shows one case with torch alone",
        "Print a script that imports torch alone and fails where the case fails: exit 0 where every expectation held, 1 where one "
        "failed, 2 where the machine cannot run it. What the script does not say is named in it.",
        (
            ("repro 'padding/mm-zero-rows[backend=cpu]' > repro.py", "a script that needs torch alone"),
            ("repro 'padding/mm-zero-rows[backend=cpu]' --shrink --seconds 300", "a smaller case that fails in the same way"),
        ),
    ),
    "doctor": Command(
        "cli.commands.doctor:DoctorOptions",
        "show what this machine has and lacks",
        "Show what this machine has and lacks, and what that allows. Exit 1 when something that it claims does not work.",
        (("doctor", "this machine"), ("doctor --profile inductor-rocm", "what it lacks for a profile")),
    ),
    "waive": Command(
        "run.waiver_proposals:WaiveOptions",
        "propose waivers for the failures of runs, or print the patch that removes void ones",
        "Print a waiver for each failure of recorded runs that no waiver excuses, with the smallest condition that holds where a case "
        "failed and not where it passed. With --remove: print the patch that removes waivers that ended or whose cases passed.",
        (
            ("waive latest --issue 123 --reason 'a known defect'", "waivers for the failures of a run"),
            ("waive latest --remove", "the patch that removes void waivers"),
        ),
    ),
    "submit": Command(
        "run.submitting:SubmitOptions",
        "pack a recorded run into one archive that others can verify",
        "Pack a run that has ended into one archive: journal, JUnit report, the files that it read, the environment, raw observations and "
        "generated code, with an attestation. Folders of this machine and secrets are cut. The archive is verified before it is written.",
        (("submit latest --out results.tar.zst", "pack the latest run"),),
    ),
    "verify": Command(
        "run.verification:VerifyOptions",
        "check a submission without trusting its author",
        "Read an archive that 'submit' wrote, judge every observation in it again, and print which claims follow from evidence and which "
        "are the word of its author. Exit 0: conformant (without a profile: nothing failed); 1: not, or the archive was tampered with; "
        "4: INCOMPLETE, or it could not be judged here.",
        (("verify results.tar.zst", "check an archive"),),
    ),
}

EXAMPLES: Sequence[tuple[str, str]] = (
    ("validate specs/padding", "every problem, with line and column"),
    ("run specs/padding --backend cpu", "run, judge, report"),
    ("watch specs/padding", "again, whenever a file is saved"),
    ("run --help", "the options of a command"),
)
"""Examples of the program."""


def examples_of(name: str = "") -> str:
    """Return the examples of a command, or of the program, as text."""
    examples = COMMANDS[name].examples if name else EXAMPLES
    width = max(len(arguments) for arguments, _ in examples)
    return "\n".join(["examples:", *(f"  {PROGRAM} {arguments:{width}}  # {does}" for arguments, does in examples)])
