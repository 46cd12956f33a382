"""Write the reference of the command line from its parser: ``python tools/generate_command_line.py > docs/reference/command-line.md``."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from runner.cli.help_pages import EXAMPLES, PROGRAM
from runner.cli.parser import parser

INTRODUCTION = """\
# Command line

`torch-conformance` and `python -m runner` are the same program. This page is generated from the parser by
`python tools/generate_command_line.py > docs/reference/command-line.md`; do not edit it.

- PATH is a spec file or a folder of specs. Without one, the shipped specs are used.
- GLOB and CASE match case ids. Only `*` and `?` are special: brackets are literal, so an id matches itself. For a glob that matches nothing
  the nearest ids are printed.
- RUN is the folder of a run, its id, or `latest`.
- Results go to standard output, progress and messages to standard error. `NO_COLOR` is respected.
- [Outcomes and exit codes](exit-codes.md) has the exit codes of all commands.
"""


def page() -> str:
    """Return the page as Markdown."""
    return INTRODUCTION + "\n".join(line for name, command in _commands().items() for line in _section(name, command)) + "\n"


def _commands() -> dict[str, argparse.ArgumentParser]:
    (found,) = [action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found.choices)


def _section(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    yield ""
    yield f"## `{name}`"
    yield ""
    yield _text(command.description or "")
    yield ""
    yield "| argument | meaning |"
    yield "|---|---|"
    for action in command._actions:
        if action.dest != "help":
            yield f"| {_name(action)} | {_text(action.help or '')} |"
    if examples := EXAMPLES.get(name):
        yield ""
        yield "| example | does |"
        yield "|---|---|"
        yield from (f"| `{PROGRAM} {_text(arguments)}` | {does} |" for arguments, does in examples)


def _name(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else str(action.metavar or "{" + ",".join(map(str, action.choices or ())) + "}")
    value = _FORMS.get(str(action.nargs), "{}").format(value)
    return "`" + " ".join(filter(None, [", ".join(action.option_strings), value])).replace("|", "\\|") + "`"


_FORMS = {"?": "[{}]", "*": "[{} ...]", "+": "{} ..."}
"""How an argument is written, by how often it can be given."""


def _text(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
