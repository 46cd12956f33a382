"""``--help``: each example is a command line that the parser takes."""

import shlex

import pytest

from runner.cli.parser import EXAMPLES, commands, parse

LINES = [line for found in (EXAMPLES, *(command.examples for command in commands().values())) for line, _ in found if "--help" not in line]


@pytest.mark.parametrize("line", LINES)
def test_an_example_is_a_command_line(line: str) -> None:
    words = shlex.split(line)
    assert parse(words)[0] == words[0]
