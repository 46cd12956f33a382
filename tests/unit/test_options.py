"""The command line as frozen values, and how the journal records them."""

import dataclasses
import shlex
from pathlib import Path

import pytest

from runner.cli.parser import parse
from runner.cli.table import COMMANDS
from runner.core.options import AuditOptions, ExecutionOptions, MergeOptions, RunOptions
from runner.run.preparation import option_texts

LINES = {
    "validate": "validate",
    "list": "list",
    "run": "run",
    "explain": "explain a-case",
    "repro": "repro id --shrink --tries 3",
    "audit": "audit",
    "bless": "bless one --select 'a*'",
    "lint": "lint --fix --ignore spec-name",
    "merge": "merge one",
    "diff": "diff one two",
    "doctor": "doctor",
    "report": "report latest --open",
    "waive": "waive one",
    "submit": "submit one",
    "verify": "verify one.tar.zst",
    "new": "new area one-claim",
    "schema": "schema",
    "watch": "watch",
}


def run_options(line: str = "") -> RunOptions:
    command, options = parse(["run", *shlex.split(line)])
    assert command == "run"
    assert isinstance(options, RunOptions)
    return options


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_a_frozen_value_of_its_own(command: str) -> None:
    name, options = parse(LINES[command].split())
    assert name == command
    assert type(options) is COMMANDS[command].options
    first = dataclasses.fields(options)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(options, first, None)
    hash(options)  # nothing in it can be changed either


def test_what_is_given_several_times_is_a_tuple() -> None:
    options = run_options("a.yaml b --backends x.yaml --backends y.yaml --select one --select 'two *' --require cuda")
    assert options.paths == (Path("a.yaml"), Path("b"))
    assert options.backends == (Path("x.yaml"), Path("y.yaml"))
    assert options.select == ("one", "two *")
    assert (options.require, options.waivers) == (("cuda",), ())


def test_run_and_audit_say_alike_how_cases_are_executed() -> None:
    _, audit = parse(["audit"])
    run = run_options()
    assert isinstance(audit, AuditOptions)
    names = [field.name for field in dataclasses.fields(ExecutionOptions)]
    assert [getattr(audit, name) for name in names] == [getattr(run, name) for name in names]


def test_merge_and_its_files() -> None:
    _, options = parse(["merge", "one", "two", "--out", "whole", "--junit", "r.xml", "--json"])
    assert options == MergeOptions(runs=("one", "two"), out=Path("whole"), junit=Path("r.xml"), github="auto", json=True)


def test_the_journal_records_every_option_under_its_name() -> None:
    """What --resume and merge compare: a journal of an older version has these names and texts."""
    assert option_texts(run_options()) == {
        "address": "",
        "backend": "",
        "backends": "",
        "bench": "",
        "executor": "local",
        "fail-fast": "",
        "failed-in": "",
        "flaky": "fail",
        "github": "auto",
        "jobs": "auto",
        "junit": "",
        "junit-flavour": "default",
        "lab": "",
        "last-failed": "",
        "memory-limit": "auto",
        "min-executed": "1",
        "order": "longest-first",
        "out": "",
        "paths": "",
        "profile": "",
        "repeat": "1",
        "require": "",
        "resume": "",
        "retries": "0",
        "select": "",
        "shard": "",
        "shard-by": "id",
        "shuffle": "",
        "tag": "",
        "timeout": "300.0",
        "timeout-factor": "1.0",
        "waivers": "",
    }


def test_the_journal_records_what_was_given_as_text() -> None:
    line = "'a b.yaml' c --select 'x[*]' --fail-fast --shuffle 7 --min-executed 0 --retries 2 --timeout 5 --junit r.xml --shard 1/2"
    found = option_texts(run_options(line))
    given = {name: text for name, text in found.items() if text != option_texts(run_options())[name]}
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
