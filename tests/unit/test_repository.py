"""The files of the repository that no program of ours reads: workflow, issue forms, hooks, package metadata."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.fences import ROOT

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
