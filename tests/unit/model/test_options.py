"""The command line as frozen values, and how the journal records them."""

import dataclasses
import shlex
from pathlib import Path

import pytest

from tests.conftest import GOOD
from torch_conformance.cli.parser import EXAMPLES, commands, main, parse
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.optional.options import RunOptions
from torch_conformance.run.preparation import option_texts


def run_options(line: str = "") -> RunOptions:
    command, options = parse(["run", *shlex.split(line)])
    assert command == "run"
    assert isinstance(options, RunOptions)
    return options


LINES = [
    line
    for examples in (EXAMPLES, *(command.examples for command in commands().values()))
    for line, _ in examples
]


@pytest.mark.parametrize("line", [line for line in LINES if "--help" not in line])
def test_an_example_is_a_command_line_whose_options_are_a_frozen_value(line: str) -> None:
    words = shlex.split(line)
    name, options = parse(words)
    assert name == words[0]
    assert type(options) is commands()[name].options
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(options, dataclasses.fields(options)[0].name, None)
    hash(options)  # nothing in it can be changed either
    assert {line.split()[0] for line in LINES} >= commands().keys(), "each command has an example"


def test_the_journal_records_what_was_given_as_text() -> None:
    line = (
        "'a b.yaml' c --select 'x[*]' --fail-fast --shuffle 7 --min-executed 0 --retries 2 "
        "--timeout 5 --junit r.xml --shard 1/2"
    )
    found = option_texts(run_options(line))
    given = {
        name: text for name, text in found.items() if text != option_texts(run_options())[name]
    }
    assert given == {
        "paths": "'a b.yaml' c",
        "select": "'x[*]'",
        "fail-fast": "True",
        "shuffle": "7",
        "min-executed": "0",
        "retries": "2",
        "timeout": "5.0",
        "junit": "r.xml",
        "shard": "1/2",
    }


@pytest.mark.parametrize(
    ("words", "near"),
    [(["run", "--jbos", "3"], "--jobs"), (["list", "--slect=x"], "--select"), (["adit"], "audit")],
)
def test_the_nearest_word_is_offered(
    words: list[str], near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(words)
    assert f"(did you mean '{near}'?)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--retries", "-1"],
        ["--repeat", "0"],
        ["--timeout-factor", "nan"],
        ["--timeout", "-5"],
        ["--timeout", "inf"],
        ["--jobs", "0"],
        ["--shard", "3/2"],
        ["--min-executed", "-1"],
        ["--memory-limit", "lots"],
    ],
)
def test_a_number_that_means_nothing_is_wrong_usage(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    try:
        code = main(["run", str(tmp_path), *words])
    except SystemExit as end:
        code = end.code
    assert code == ExitCode.USAGE
    assert words[1] in capsys.readouterr().err
