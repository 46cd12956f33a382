"""What a person sees of a run on a terminal, and what a CI system gets instead."""

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes import ROOT, environment, prestarted

pytestmark = pytest.mark.torch

SLEEPS = """\
summary: A case that takes its time
backends: [host]
matrix: {name: ["one", "[red]two[/red]"]}
let: {used: {value: "{{ name }}"}}
prelude: |
  import time
  def rest():
      time.sleep(3)
      return 1
steps: [{api: {call: rest, as: found}, expect: [{equals: {found: 1}}]}]
"""
FAILS = SLEEPS.replace("found: 1}}]", "found: 2}}]").replace("sleep(3)", "sleep(0)")


def on_terminal(
    folder: Path, *arguments: str, start: Callable[..., dict[str, str]] = environment, **variables: str
) -> tuple[int, str, str]:
    """Run the program with a terminal for its standard error; return its code, what the terminal got, and standard output."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "runner", "run", str(folder), "--out", str(folder / "out"), *arguments]
    taken: list[bytes] = []

    def take() -> None:
        try:
            while data := os.read(ours, 1 << 16):
                taken.append(data)
        except OSError:  # nobody has the other end any more
            pass

    reader = threading.Thread(target=take)
    reader.start()
    try:
        kept = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30", "CI": "", "NO_COLOR": "", **variables}
        process = subprocess.Popen(command, cwd=ROOT, env=start(**kept), stdout=subprocess.PIPE, stderr=theirs, text=True)
        os.close(theirs)
        stdout, _ = process.communicate(timeout=120)
    finally:
        reader.join(timeout=60)
        os.close(ours)
    return process.returncode, b"".join(taken).decode(), stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sleeps.yaml").write_text(SLEEPS, "ascii")
    (tmp_path / "fails.yaml").write_text(FAILS, "ascii")
    return tmp_path


def test_a_terminal_says_what_the_run_waits_for(folder: Path) -> None:
    code, seen, stdout = on_terminal(folder, "--jobs", "2")
    assert code == 1, seen
    assert re.search(r"starting torch \(\d+ s\)", seen)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    for second in (1, 2):
        assert re.search(rf" {second} s  api +'sleeps\[backend=host,name=one\]'", plain), plain
    assert "2 running" in plain
    assert "%5Bred%5Dtwo" in plain
    assert re.search(r"\x1b\[31mFAIL\x1b\[0m  \d/4", seen)
    assert not re.search(r"PASS +\d/4", plain), "what passed is counted, and has no line"
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l"), "the cursor is there"
    assert "executed 4 of 4 selected" in stdout
    assert "\x1b" not in stdout


IN_CI = pytest.param({"CI": "true", "NO_COLOR": "1"}, marks=pytest.mark.nightly(reason="the same is tested with TERM=dumb"))


@pytest.mark.parametrize("variables", [{"TERM": "dumb"}, IN_CI])
def test_where_nobody_looks_there_are_lines(folder: Path, variables: dict[str, str]) -> None:
    _, seen, _ = on_terminal(folder, "--select", "fails*one*", start=prestarted, **variables)
    assert "\x1b" not in seen
    assert seen.splitlines()[0].startswith("FAIL  1/1  ")


@pytest.mark.nightly(reason="imports torch for colours alone; tests/unit/test_console.py tests them")
def test_no_color_draws_without_colours(folder: Path) -> None:
    _, seen, _ = on_terminal(folder, "--select", "fails*one*", NO_COLOR="1")
    assert "starting torch" in seen
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", seen)
