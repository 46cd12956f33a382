"""Output whose reader has left, or that has no room: the command does its work, and its exit code says what it would have said."""

import functools
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import ROOT, environment

GOOD = ROOT / "tests" / "specs" / "valid"
BAD = ROOT / "tests" / "specs" / "invalid" / "backend-twice.yaml"

OTHER = pytest.mark.nightly(reason="each needs a new Python; a success and a failure are tested by every run of the tests")

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "runner", *map(str, arguments)]


def closed_pipe() -> int:
    """Return the end of a pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    return write


def started(*arguments: object, stdout: int, stderr: int = subprocess.PIPE) -> tuple[int, str]:
    done = subprocess.run(
        command(*arguments), cwd=ROOT, env=environment(), stdout=stdout, stderr=stderr, timeout=60, check=False, text=True, errors="replace"
    )
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(["validate", GOOD], 0, marks=OTHER),
        (["validate", BAD], 2),
        (["list", GOOD], 0),
        pytest.param(["--help"], 0, marks=OTHER),
        pytest.param(["run", "--help"], 0, marks=OTHER),
    ],
)
def test_closed_reader_does_not_change_exit_code(arguments: list[object], code: int) -> None:
    pipe = closed_pipe()
    found, words = started(*arguments, stdout=pipe)
    os.close(pipe)
    assert found == code
    assert "Traceback" not in words
    assert "Broken pipe" not in words


@needs_full
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["list", GOOD], 1),
        pytest.param(["--help"], 1, marks=OTHER),
        (["validate", BAD], 2),
        pytest.param(["validate", "--json", GOOD], 1, marks=OTHER),
    ],
)
def test_full_disk_for_standard_output_is_reported_and_fails(arguments: list[object], code: int) -> None:
    with Path("/dev/full").open("wb") as full:
        found, words = started(*arguments, stdout=full.fileno())
    assert found == code
    assert words.splitlines()[-1] == "torch-conformance: cannot write to standard output: No space left on device"
    assert "Traceback" not in words
    assert "bug" not in words


def test_full_non_blocking_pipe_is_waited_for() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    started_ = subprocess.Popen(
        command("list", "--json", "specs/codecache", "specs/padding"), cwd=ROOT, env=environment(), stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        data = stream.read()
    _, words = started_.communicate(timeout=60)
    assert (started_.returncode, words.splitlines()[1:]) == (0, [])  # the first line says which specs are taken
    assert len(data) > 1 << 16, "the pipe had room for all of it: this test shows nothing"
    assert isinstance(json.loads(data), list)


CLOSED = [
    ["list", GOOD],
    ["list", GOOD, "--json"],
    ["validate", GOOD],
    ["explain", "*", GOOD],
    ["--help"],
    ["list", "no/such.yaml"],
    ["run", "--x"],
]


@functools.cache
def undisturbed(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command(*arguments), cwd=ROOT, env=environment(), capture_output=True, check=False, timeout=240)


ALWAYS = [((1,), ["list", GOOD, "--json"]), ((1,), ["list", "no/such.yaml"])]
NIGHTLY = pytest.mark.nightly(reason="standard output closed for three kinds of output, and 'list' with each stream, are always tested")


@pytest.mark.parametrize(
    ("closed", "arguments"),
    [
        pytest.param(closed, arguments, marks=() if arguments == CLOSED[0] or (closed, arguments) in ALWAYS else NIGHTLY)
        for closed in [(1,), (2,), (0, 1, 2)]
        for arguments in CLOSED
    ],
    ids=str,
)
def test_closed_stream_is_reported_without_traceback(arguments: list[object], closed: tuple[int, ...], tmp_path: Path) -> None:
    """Exit 1 where what was asked for went nowhere; messages alone may be lost; and no file takes the number of a closed stream."""
    whole = undisturbed(*arguments)
    shell = shlex.join(map(str, command(*arguments))) + "".join(f" {number}{'<' if number == 0 else '>'}&-" for number in closed)
    done = subprocess.run(["/bin/sh", "-c", shell], cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=240)
    loses = 1 in closed and whole.stdout
    assert done.returncode == (whole.returncode or int(bool(loses)))
    assert "Traceback" not in done.stdout + done.stderr
    if loses and 2 not in closed:
        assert "cannot write to standard output: it is closed" in done.stderr
    if 1 not in closed:
        assert done.stdout.encode() == whole.stdout
