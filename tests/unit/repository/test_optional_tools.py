"""Without the folder of the optional tools the program lists, validates and runs, and what needs a
tool says so.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import ROOT, environment
from tests.structure import SPEC


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("core")
    shutil.copytree(
        ROOT / "runner", folder / "runner", ignore=shutil.ignore_patterns("__pycache__", "tools")
    )
    for name in ("schemas", "templates"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "specs").mkdir()
    shutil.copy(ROOT / "specs" / "backends.yaml", folder / "specs")
    (folder / "work").mkdir()
    (folder / "work" / "relu.yaml").write_text(SPEC)
    return folder


def program(core: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    variables = {**environment(), "PYTHONPATH": str(core / "runner")}
    command = [sys.executable, "-m", "torch_conformance", *arguments]
    return subprocess.run(
        command,
        cwd=core / "work",
        env=variables,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_its_commands_are_those_of_the_core(core: Path) -> None:
    done = program(core, "--help")
    assert done.returncode == 0, done.stderr
    assert "validate" in done.stdout
    assert "submit" not in done.stdout


def test_what_needs_a_tool_names_it(core: Path) -> None:
    done = program(core, "run", "--profile", "inductor-cuda")
    assert done.returncode == 2
    assert "torch_conformance/tools/attest" in done.stderr
    done = program(core, "audit", "relu.yaml", "--nodes")
    assert done.returncode == 2
    assert "torch_conformance/tools/nodes" in done.stderr


@pytest.mark.nightly(
    reason="imports and warms torch; test_structure shows that a run loads no tool, and the other "
    "commands are always called without the folder"
)
@pytest.mark.torch
def test_it_runs(core: Path) -> None:
    done = program(core, "run", "relu.yaml", "--out", "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1  PASS" in done.stdout
    assert (core / "work" / "run" / "run.jsonl").is_file()
