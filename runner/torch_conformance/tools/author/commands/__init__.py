"""The commands for authors of specs. ``commands/NAME`` is the module of each."""

from collections.abc import Mapping

from torch_conformance.cli.parser import Command

COMMANDS: Mapping[str, Command] = {
    "new": Command(
        "tools.author.commands.new:NewOptions",
        "write a new spec, from a template or like a shipped one",
        "Write AREA/NAME.yaml: a spec that validates and runs as it is, from a template. With "
        "--like: a copy of a shipped spec, with the defaults that it inherits, and a comment above "
        "each part that says what the part is.",
        (
            ("new specs/padding wide-rows-padded", "write a spec from a template"),
            ("new mine --like codecache/fx-cache-hit", "copy a shipped spec, with explanations"),
        ),
    ),
    "explain": Command(
        "tools.author.commands.explain:ExplainOptions",
        "print one case as a standalone spec",
        "Print a case as a standalone spec, with where each value comes from; above it, "
        "whether it can run here.",
        (("explain 'padding/*cpu*' specs/padding", "the cases whose ids match"),),
    ),
    "watch": Command(
        "tools.author.commands.watch:WatchOptions",
        "run specs, and run a spec again when its file is saved",
        "Run the selected cases, then wait. When a spec is saved, or a file that it depends "
        "on (defaults, backends, waivers), its cases run again; press Enter after a change of "
        "a Python module. torch stays loaded between the runs; each case still "
        "has a process of its own. "
        "Enter: again, f: the cases that fail, a: all, q: quit.",
        (
            ("watch specs/padding --backend cpu", "run a spec again when it is saved"),
            ("watch my-spec.yaml", "one file"),
        ),
    ),
    "lint": Command(
        "tools.author.commands.lint:LintOptions",
        "print what is valid in specs, but unsound",
        "Print findings of specs that are valid: points without a case, expectations that "
        "nothing judges, loose tolerances.",
        (("lint specs/padding", "what is valid, but unsound"),),
    ),
    "bless": Command(
        "tools.author.commands.bless:BlessOptions",
        "print a patch of specs that says what recorded runs counted",
        "Print a patch under which the red cases of recorded runs pass: counts as they were "
        "observed, with the smallest condition or "
        "matrix value that explains the cases and machines. Nothing else is blessed; each red "
        "case that is not blessed has a line that "
        "says why. The recorded runs are judged again by the patch before it is printed.",
        (("bless latest", "a patch of counts from what a run observed"),),
    ),
    "schema": Command(
        "tools.author.commands.schema:SchemaOptions",
        "write the schemas for editors to a folder",
        "Write the JSON schemas that editors complete and check specs with. With --with-torch "
        "the names of options, counters and metrics "
        "are only those of the installed torch, with types and defaults.",
        (
            (
                "schema --with-torch --out schemas-here",
                "schemas for an editor, with the names of the installed torch",
            ),
        ),
    ),
    "repro": Command(
        "tools.author.commands.repro:ReproOptions",
        "print a Python script that shows one case with only torch",
        "Print a script that imports only torch and fails where the case fails: exit 0 where "
        "every expectation held, 1 where one "
        "failed, 2 where the machine cannot run it. The script names the claims that it does "
        "not check.",
        (
            (
                "repro 'padding/mm-zero-rows[backend=cpu]' > repro.py",
                "a script that needs only torch",
            ),
            (
                "repro 'padding/mm-zero-rows[backend=cpu]' --shrink --seconds 300",
                "a smaller case that fails in the same way",
            ),
        ),
    ),
    "waive": Command(
        "tools.author.commands.waive:WaiveOptions",
        "propose waivers for the failures of runs",
        "Print a waiver for each failure of recorded runs that no waiver excuses, with the "
        "smallest condition that holds where a case "
        "failed and not where it passed.",
        (
            (
                "waive latest --issue 123 --reason 'a known defect'",
                "waivers for the failures of a run",
            ),
        ),
    ),
    "diff": Command(
        "tools.author.commands.diff:DiffOptions",
        "compare two recorded runs",
        "Compare two recorded runs, case by case: what broke, was fixed, is new or gone, is "
        "no longer executed, or fails in "
        "another way. Exit 0: compared; 1: a change of --fail-on was found; 2: a run cannot "
        "be read; 4: no case has a result in both runs.",
        (
            (
                "diff 20260301T120000Z-1a2b3c latest --fail-on broken,gone",
                "what changed between two runs",
            ),
        ),
    ),
}
