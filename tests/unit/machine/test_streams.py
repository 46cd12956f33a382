"""Output whose reader has left, or that has no room: the command does its work, and its exit code
says what it would have said.
"""

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

needs_full = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="this system has no /dev/full"
)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "torch_conformance", *map(str, arguments)]


def closed_pipe() -> int:
    """Return the end of a pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    return write


def started(*arguments: object, stdout: int, stderr: int = subprocess.PIPE) -> tuple[int, str]:
    done = subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env=environment(),
        stdout=stdout,
        stderr=stderr,
        timeout=60,
        check=False,
        text=True,
        errors="replace",
    )
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize(("arguments", "code"), [(["validate", BAD], 2), (["list", GOOD], 0)])
def test_closed_reader_does_not_change_exit_code(arguments: list[object], code: int) -> None:
    pipe = closed_pipe()
    found, words = started(*arguments, stdout=pipe)
    os.close(pipe)
    assert found == code
    assert "Traceback" not in words
    assert "Broken pipe" not in words


@needs_full
@pytest.mark.parametrize(("arguments", "code"), [(["list", GOOD], 1), (["validate", BAD], 2)])
def test_full_disk_for_standard_output_is_reported_and_fails(
    arguments: list[object], code: int
) -> None:
    with Path("/dev/full").open("wb") as full:
        found, words = started(*arguments, stdout=full.fileno())
    assert found == code
    assert (
        words.splitlines()[-1]
        == "torch-conformance: cannot write to standard output: No space left on device"
    )
    assert "Traceback" not in words
    assert "bug" not in words


def test_full_non_blocking_pipe_is_waited_for() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    started_ = subprocess.Popen(
        command("list", "--json", "specs/codecache", "specs/padding"),
        cwd=ROOT,
        env=environment(),
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        data = stream.read()
    _, words = started_.communicate(timeout=60)
    assert (started_.returncode, words.splitlines()[1:]) == (
        0,
        [],
    )  # the first line says which specs are taken
    assert len(data) > 1 << 16, "the pipe had room for all of it: this test shows nothing"
    assert isinstance(json.loads(data), list)


@pytest.mark.parametrize(("closed", "lost"), [((1,), True), ((2,), False), ((0, 1, 2), True)])
def test_closed_stream_is_reported_without_traceback(closed: tuple[int, ...], lost: bool) -> None:
    """Exit 1 where what was asked for went nowhere; messages alone may be lost; and no file takes
    the number of a closed stream.
    """
    shell = shlex.join(command("list", GOOD)) + "".join(
        f" {number}{'<' if number == 0 else '>'}&-" for number in closed
    )
    done = subprocess.run(
        ["/bin/sh", "-c", shell],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == int(lost)
    assert "Traceback" not in done.stdout + done.stderr
    assert ("cannot write to standard output: it is closed" in done.stderr) == (closed == (1,))
    assert bool(done.stdout) == (1 not in closed)
