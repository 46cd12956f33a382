"""The files of the repository that no program of ours reads: workflow, issue forms, hooks, package metadata."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.fences import ROOT
from tools.mutants.__main__ import options as mutants_options

FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
pytestmark = pytest.mark.skipif(not (ROOT / ".github").is_dir(), reason="not a checkout: an sdist has no .github")


def check(path: Path, name: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", name, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_valid(path: Path) -> None:
    check(path, "vendor.github-workflows")


def test_issue_forms_are_valid_and_there() -> None:
    assert {path.stem for path in FORMS} == {"bug", "wrong-outcome", "spec-proposal"}
    for path in FORMS:
        form = yaml.safe_load(path.read_text("utf-8"))
        assert {"name", "description", "body"} <= set(form), path
        ids = [field["id"] for field in form["body"]]
        assert len(ids) == len(set(ids)), path
        assert all(field["attributes"]["label"] for field in form["body"]), path


def test_ci_runs_every_session_that_checks_and_the_commands_of_the_readme() -> None:
    ci = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    assert ci["env"]["PIP_EXTRA_INDEX_URL"] == "https://download.pytorch.org/whl/cpu"
    assert set(ci["jobs"]["checks"]["strategy"]["matrix"]["session"]) == {"lint", "types", "docs", "build"}
    assert any(step.get("run") == ".ci/run" for step in ci["jobs"]["tests"]["steps"])


def test_each_night_the_slow_tests_and_a_sample_of_mutants_run() -> None:
    nightly = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text("utf-8"))
    runs = {name: [step["run"] for step in job["steps"] if step.get("run", "").startswith("nox")] for name, job in nightly["jobs"].items()}
    assert runs["tests"] == ["nox -s full"]
    (command,) = runs["mutants"]
    session, _, arguments = command.partition(" -- ")
    assert session == "nox -s mutants"
    assert mutants_options().parse_args(arguments.replace("${{ github.run_number }}", "7").split()).seed == 7


def test_the_noxfile_has_the_sessions_that_are_documented() -> None:
    tree = ast.parse((ROOT / "noxfile.py").read_text("utf-8"))
    sessions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list}
    assert sessions == {"tests", "lint", "types", "docs", "build", "faults", "full", "mutants"}


def test_hooks_run_what_the_project_runs() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    hooks = {hook["id"] for repository in config["repos"] for hook in repository["hooks"]}
    assert {"ruff", "ruff-format", "forbid-built-files", "fresh-reference"} <= hooks


def test_the_package_is_typed_and_has_links() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (ROOT / "runner" / "py.typed").is_file()
    assert "Typing :: Typed" in project["classifiers"]
    assert all(url.startswith("https://github.com/torch-conformance/torch-conformance") for url in project["urls"].values())


def test_no_built_file_is_in_the_repository() -> None:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        pytest.skip("not a git checkout")
    names = done.stdout.split("\0")
    assert "pyproject.toml" in names
    assert [name for name in names if name.endswith((".whl", ".pyc", ".so", ".egg"))] == []
