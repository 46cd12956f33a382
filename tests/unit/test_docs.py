"""What the documents say is true: the reference is fresh, the first spec is valid, the commands exist."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from runner.language.load import load
from runner.language.reference import reference

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(mark: str) -> str:
    """Return the fenced block after a mark in the README."""
    found = re.search(rf"<!-- {re.escape(mark)} -->\n```[a-z]*\n(.*?)```", README, re.DOTALL)
    assert found is not None, f"README.md has no block {mark}"
    return found[1]


def test_the_reference_is_fresh() -> None:
    committed = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    assert committed == reference(), "run: python -m runner.language.reference > docs/language.md"


def test_the_first_spec_is_valid_and_short(tmp_path: Path) -> None:
    text = block("first-spec")
    (tmp_path / "relu.yaml").write_text(text, encoding="utf-8")
    cases = load([tmp_path]).cases
    assert [case.id for case in cases][:2] == ["relu[backend=cpu,dynamic=true]", "relu[backend=cpu,dynamic=false]"]
    assert len(text.splitlines()) <= 15


def test_the_vendors_file_is_valid_and_runs_what_the_readme_says(tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text(block("vendor"), encoding="utf-8")
    cases = load([], [file]).cases
    for name, tags in (("rocm-ours", set()), ("rocm-ours-gemm", {"gemm"})):
        wanted = {case.id.replace("backend=rocm", f"backend={name}") for case in cases if case.backend == "rocm" and tags <= set(case.tags)}
        assert len(wanted) > (100 if not tags else 0)
        assert {case.id for case in cases if case.backend == name} == wanted


def test_the_commands_of_the_first_spec_find_it_wherever_it_lies(tmp_path: Path) -> None:
    """In a clone as elsewhere: a folder below the shipped specs would give other ids."""
    lines = [line.partition("#")[0].strip() for line in block("first-commands").splitlines()]
    assert lines[0] == ". .venv/bin/activate"
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "relu.yaml").write_text(block("first-spec"), encoding="utf-8")
    for line in lines[1:]:
        program, *arguments = shlex.split(line)
        assert program == "torch-conformance"
        if arguments[0] != "run":
            done = run_in(tmp_path, *arguments)
            assert done.returncode == 0, done.stderr
            assert arguments[0] == "validate" or "relu[backend=cpu,dynamic=true]" in done.stdout


def run_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "runner", *arguments]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=240
    )


@pytest.mark.parametrize("mark", ["command-run", "command-test"])
def test_the_commands_of_the_readme_are_what_ci_runs(mark: str) -> None:
    command = block(mark).strip()
    assert "\n" not in command
    assert command.startswith("python3 -m venv .venv && ")
    assert mark in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.torch
def test_the_first_spec_passes_and_the_failure_shown_is_real(tmp_path: Path) -> None:
    folder = tmp_path / "first"
    folder.mkdir(parents=True)
    right = block("first-spec")
    wrong = right.replace("stats.unique_graphs: 1", "stats.unique_graphs: 2")
    assert wrong != right
    (folder / "right.yaml").write_text(right, encoding="utf-8")
    (folder / "relu.yaml").write_text(wrong, encoding="utf-8")
    done = run_in(tmp_path, "run", "first", "--backend", "cpu", "--select", "*dynamic=true?")
    assert done.returncode == 1, done.stderr
    assert block("failure") in re.sub(r"reports/[0-9TZ]+-[0-9a-f]+/", "reports/20260301T120000Z-1a2b3c/", done.stdout)
    assert "1  PASS" in done.stdout


def test_no_document_holds_a_machine_path() -> None:
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=240).stdout.split("\0")
    assert any(files) or not (ROOT / ".git").exists()
    paths = re.compile(r"(?<![\w.])/(?:work|root|home/\w+)/[\w.-]+")
    for name in filter(None, files):
        path = ROOT / name
        if path.is_file() and path.suffix in (".py", ".md", ".yaml", ".json", ".toml", ".txt", ".jsonl", ".xml"):
            found = paths.search(path.read_text(encoding="utf-8", errors="replace"))
            assert found is None, f"{name}: {found[0]}"


def test_a_help_of_every_command() -> None:
    for command in ("validate", "list", "run", "explain", "audit", "merge"):
        done = subprocess.run(
            [sys.executable, "-m", "runner", command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=240
        )
        assert done.stdout.startswith(f"usage: torch-conformance {command}")
