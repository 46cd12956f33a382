"""The options of the commands for authors of specs: ``new``, ``schema`` and ``lsp``."""

import argparse
from pathlib import Path

_NEW = (
    "Write AREA/NAME.yaml: a spec that validates and runs as it is, from a template. With --from-python: a spec for each test of a Python "
    "file, made from its syntax tree without executing it. What a spec could not take over of its test stands in it as a comment "
    "'not carried', and the exit code is 1."
)


def _new(command: argparse.ArgumentParser) -> None:
    option = command.add_argument
    option("area", type=Path, metavar="AREA", help="the folder of the new spec; it is made if it does not exist")
    option("name", nargs="?", default="", metavar="NAME", help="the name of the file, in field words: conv-bn-folds")
    option("--template", default="function", metavar="NAME", help="function, module or steps (default: function)")
    option(
        "--backend", action="append", default=[], metavar="NAME", help="a backend of the new spec (repeatable; default: cpu, cuda, rocm)"
    )
    option(
        "--from-python",
        default="",
        metavar="FILE[::CLASS][::TEST]",
        help="make specs from the tests of a Python file: one test, those of a class, or all",
    )
    option("--allow-partial", action="store_true", help="exit 0 also when a part of a test was not carried; the specs still say so")


def _schema(command: argparse.ArgumentParser) -> None:
    option = command.add_argument
    option("--with-torch", action="store_true", help="with the names of the installed torch alone: options, counters, metrics")
    option("--out", type=Path, metavar="FOLDER", help="write all schemas to this folder (default: print the schema of names)")
    option("--backends", type=Path, action="append", default=[], metavar="FILE", help="a file with further backends (repeatable)")


def _lsp(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--backends", type=Path, action="append", default=[], metavar="FILE", help="a file with further backends (repeatable)"
    )


COMMANDS = {
    "new": (_new, "write a new spec, from a template or from a Python test", _NEW),
    "schema": (
        _schema,
        "write the schemas for editors, with the names of the installed torch",
        "Write the JSON schemas that editors complete and check specs with. With --with-torch the names of options, counters and "
        "metrics are those of the installed torch alone, with types and defaults.",
    ),
    "lsp": (
        _lsp,
        "serve an editor over the language server protocol",
        "A language server on standard input and output, for editors: the problems of 'validate' while a spec is typed, completion, hover, "
        "definitions, and the last outcome of each spec. Needs the extra 'editor'.",
    ),
}
"""What adds the options of each command, its help and its description."""
