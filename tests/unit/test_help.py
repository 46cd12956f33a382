"""``--help``: every command is in a group and has examples, and each example is a command line that the parser takes."""

import argparse
import shlex

import pytest

from runner.cli.help_pages import EXAMPLES, GROUPS, OTHERS, PROGRAM, examples_of, groups_of
from runner.cli.parser import parse, parser


def commands() -> list[str]:
    (found,) = [action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return list(found.choices)


def test_every_command_is_in_one_group_and_has_examples() -> None:
    assert OTHERS not in groups_of(commands())
    named = [name for names in GROUPS.values() for name in names]
    assert len(named) == len(set(named))
    assert set(named) == set(commands()), "the parser of one command is made by these names"
    assert set(commands()) - {"repro"} <= EXAMPLES.keys()


def test_a_command_of_no_group_is_shown_too() -> None:
    assert groups_of(["run", "unheard-of"]) == {"run them": ["run"], OTHERS: ["unheard-of"]}


@pytest.mark.parametrize("line", [arguments for found in EXAMPLES.values() for arguments, _ in found if "--help" not in arguments])
def test_an_example_is_a_command_line(line: str) -> None:
    words = shlex.split(line)
    assert parse(words)[0] == words[0]


def test_the_program_shows_groups_and_examples(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit, match="0"):
        parse(["--help"])
    shown = capsys.readouterr().out
    titles = [f"\n{title}:\n" for title in groups_of(commands())]
    assert [shown.index(title) for title in titles] == sorted(shown.index(title) for title in titles)
    assert all(f"\n  {name} " in shown for name in commands())
    assert f"\nexamples:\n  {PROGRAM} validate specs/padding" in shown
    assert "exit codes: 0 passed" in shown
    assert len(shown.splitlines()) < 60


def test_a_command_shows_its_examples(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # examples are not broken: they are for copying
    with pytest.raises(SystemExit, match="0"):
        parse(["run", "--help"])
    assert examples_of("run") in capsys.readouterr().out


@pytest.mark.parametrize("name", commands())
def test_the_parser_of_one_command_says_what_the_parser_of_all_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for made in (parser(), parser(name)):
        for words in ([name, "--help"], [name, "--no-such-option"], [name, "a", "b", "c", "d", "--no-such-option"]):
            with pytest.raises(SystemExit):
                made.parse_args(words)
            said.append(capsys.readouterr())
    assert said[:3] == said[3:]
    assert all(shown.out or shown.err for shown in said)
