"""What ``--help`` prints: the commands in groups, and examples for each. ``runner.cli.parser`` has the commands."""

import argparse
from collections.abc import Mapping, Sequence

GROUPS: Mapping[str, Sequence[str]] = {
    "write specs": ("new", "validate", "list", "explain", "watch", "lint", "bless", "schema", "lsp"),
    "run them": ("run", "audit", "merge", "node", "plan"),
    "read runs": ("report", "diff", "repro", "shrink"),
    "for vendors": ("doctor", "waive", "submit", "verify"),
}
"""The groups of ``--help``, in its order. A command that none names stands under OTHERS."""

OTHERS = "others"

EXAMPLES: Mapping[str, Sequence[tuple[str, str]]] = {
    "": (
        ("validate specs/padding", "every problem, with line and column"),
        ("run specs/padding --backend cpu", "run, judge, report"),
        ("watch specs/padding", "again, whenever a file is saved"),
        ("run --help", "the options of a command"),
    ),
    "validate": (("validate specs/padding", "one folder"), ("validate --json", "the shipped specs, for programs")),
    "list": (
        ("list specs/padding", "its cases, and why some cannot run here"),
        ("list --backend rocm --json", "the cases of a backend, for programs"),
        ("list --coverage", "which upstream tests the specs cover"),
    ),
    "run": (
        ("run specs/padding --backend cpu", "one folder on one backend"),
        ("run --select 'padding/*' --fail-fast", "the cases with these ids, until one fails"),
        ("run --require cuda --junit report.xml", "for CI: a machine without CUDA is an error"),
        ("run --resume latest", "go on with a run that was interrupted"),
    ),
    "explain": (("explain 'padding/*' --json", "for programs"), ("explain 'padding/*cpu*' specs/padding", "the cases whose ids match")),
    "audit": (("audit latest", "a recorded run"), ("audit specs/padding --run", "run the specs, and their controls")),
    "report": (
        ("report latest", "write the page of the latest run again"),
        ("report latest --junit report.xml", "the JUnit report of a recorded run too"),
    ),
    "diff": (("diff 20260301T120000Z-1a2b3c latest", "what changed between two runs"),),
    "merge": (("merge shard-1 shard-2 --out whole", "two shards of one selection"),),
    "node": (
        ("node join --address head:6379 --lab lab.yaml --as epyc", "join as the node of a lab"),
        ("node join --address head:6379 --print", "the labels of this machine, and the command"),
    ),
    "plan": (
        ("plan specs/padding --shards 4", "four shards, as JSON"),
        ("plan specs/padding --shards 6 --by label --slurm", "a Slurm array whose shards need one kind of machine each"),
    ),
    "doctor": (("doctor", "this machine"), ("doctor --profile inductor-rocm", "what it lacks for a profile")),
    "waive": (("waive latest --issue 123 --reason 'a known defect'", "waivers for the failures of a run"),),
    "submit": (("submit latest --out results.tar.zst", "pack the latest run"),),
    "verify": (("verify results.tar.zst", "check an archive"),),
    "watch": (("watch specs/padding --backend cpu", "run a spec again when it is saved"), ("watch my-spec.yaml", "one file")),
    "new": (
        ("new specs/padding wide-rows-padded", "write a spec from a template"),
        ("new imported --from-python test_padding.py::PaddingTest::test_mm", "begin one from a Python test"),
    ),
    "lint": (("lint specs/padding", "what is valid, but unsound"), ("lint specs/padding --fix", "mend what is safe to change")),
    "bless": (("bless latest", "a patch of counts and directives from what a run observed"),),
    "schema": (("schema --with-torch --out schemas-here", "schemas for an editor, with the names of the installed torch"),),
    "lsp": (("lsp", "the language server; an editor starts it"),),
    "repro": (("repro 'padding/mm-zero-rows[backend=cpu]' > repro.py", "a script that needs torch alone"),),
    "shrink": (("shrink 'padding/mm-zero-rows[backend=cpu]' --seconds 300", "a smaller case that fails in the same way"),),
}
"""Examples of the program and of its commands: arguments, and what they do."""

PROGRAM = "torch-conformance"


class Formatter(argparse.HelpFormatter):
    """Keeps the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:\n") else super()._fill_text(text, width, indent)


def examples_of(command: str) -> str:
    """Return the examples of a command as text; empty where it has none."""
    found = EXAMPLES.get(command, ())
    width = max((len(arguments) for arguments, _ in found), default=0)
    return "\n".join(["examples:", *(f"  {PROGRAM} {arguments:{width}}  # {does}" for arguments, does in found)]) if found else ""


def groups_of(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the commands of each group that has some; those of no group come last."""
    grouped = {title: [name for name in of_group if name in names] for title, of_group in GROUPS.items()}
    named = {name for found in grouped.values() for name in found}
    grouped[OTHERS] = [name for name in names if name not in named]
    return {title: found for title, found in grouped.items() if found}
