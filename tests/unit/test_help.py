"""``--help``: the commands in groups, and examples; each example is a command line that the parser takes."""

import shlex

import pytest

from runner.cli.parser import parse, parser
from runner.cli.table import COMMANDS, EXAMPLES, PROGRAM, examples_of

LINES = [line for found in (EXAMPLES, *(command.examples for command in COMMANDS.values())) for line, _ in found if "--help" not in line]


@pytest.mark.parametrize("line", LINES)
def test_an_example_is_a_command_line(line: str) -> None:
    words = shlex.split(line)
    assert parse(words)[0] == words[0]


def test_the_program_shows_groups_and_examples(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit, match="0"):
        parse(["--help"])
    shown = capsys.readouterr().out
    titles = [f"\n{title}:\n" for title in dict.fromkeys(command.group for command in COMMANDS.values())]
    assert [shown.index(title) for title in titles] == sorted(shown.index(title) for title in titles)
    assert all(f"\n  {name} " in shown for name in COMMANDS)
    assert f"\nexamples:\n  {PROGRAM} validate specs/padding" in shown
    assert "exit codes: 0 passed" in shown
    assert len(shown.splitlines()) < 60


def test_a_command_shows_its_examples(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # examples are not broken: they are for copying
    with pytest.raises(SystemExit, match="0"):
        parse(["run", "--help"])
    assert examples_of("run") in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_parser_of_one_command_says_what_the_parser_of_all_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for made in (parser(), parser(name)):
        for words in ([name, "--help"], [name, "--no-such-option"], [name, "a", "b", "c", "d", "--no-such-option"]):
            with pytest.raises(SystemExit):
                made.parse_args(words)
            said.append(capsys.readouterr())
    assert said[:3] == said[3:]
    assert all(shown.out or shown.err for shown in said)
