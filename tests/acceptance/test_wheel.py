"""The wheel: what is built from the checkout works without it."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.fakes import ROOT, environment
from torch_conformance.record.journal import read_run

pytestmark = pytest.mark.torch

SOURCES = ("runner", "specs", "schemas", "templates", "pyproject.toml", "README.md", "LICENSE")
"""What is copied and built: others may write to the checkout meanwhile, and a build leaves things
behind.
"""


def run(command: list[str], cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    env = {
        name: value
        for name, value in environment(**variables).items()
        if name != "PYTHONPATH" or "PYTHONPATH" in variables
    }
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    copy = folder / "source"
    copy.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    built = run(
        [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            str(folder / "dist"),
        ],
        copy,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = (folder / "dist").glob("*.whl")
    shutil.rmtree(copy)
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    done = run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-index",
            "--target",
            str(target),
            str(wheel),
        ],
        target,
    )
    assert done.returncode == 0, done.stderr
    return target


def files_below(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.nightly(
    reason="builds and installs a wheel; nox -s build checks one in CI as a job of its own"
)
def test_the_wheel_holds_the_package_and_its_data_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = files_below(ROOT / "runner")
    data = {
        f"torch_conformance/_data/{folder}/{name}"
        for folder in ("specs", "schemas", "templates")
        for name in files_below(ROOT / folder)
    }
    inside = {name for name in names if ".dist-info/" not in name}
    assert {name for name in package if name.endswith((".py", ".json", "/py.typed"))} <= inside
    assert data <= inside
    assert inside <= package | data
    assert "torch_conformance/py.typed" in inside
    assert "torch_conformance/language/data/names.json" in inside
    assert "torch_conformance/_data/schemas/names.schema.json" in inside
    assert "torch_conformance/_data/specs/backends.yaml" in inside


def test_it_owns_one_import_name(wheel):
    with zipfile.ZipFile(wheel) as archive:
        top = {name.partition("/")[0] for name in archive.namelist()}
    (metadata,) = {name for name in top if name.endswith(".dist-info")}
    assert top == {"torch_conformance", metadata}


OF_A_NEIGHBOUR = {
    "runner/__init__.py": "NAME = 'the runner of the neighbour'\n",
    "tools/__init__.py": "NAME = 'the tools of the neighbour'\n",
    "tests/__init__.py": "",
    "tests/conftest.py": "import runner\n",
    "tests/test_own.py": (
        "import runner\nimport tools\nimport torch_conformance\n\n\n"
        "def test_names(pytestconfig):\n"
        "    assert runner.NAME == 'the runner of the neighbour'\n"
        "    assert tools.NAME == 'the tools of the neighbour'\n"
        "    assert pytestconfig.pluginmanager.hasplugin('conformance')\n"
    ),
}


def test_a_project_with_a_runner_of_its_own_keeps_its_pytest(installed, tmp_path):
    for name, text in OF_A_NEIGHBOUR.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = run(command, tmp_path, PYTHONPATH=str(installed))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


SPEC = """\
summary: A case that is run by an installed program
backends: [cpu]
compile: {backend: eager}
function: |
  def fn(x):
      return x + 1
inputs: [{zeros: [2]}]
expect: [{close: {to: eager}}]
"""

HOST = """\
summary: A library call, far from the checkout
backends: [host]
prelude: |
  import torch_conformance

  def place():
      return torch_conformance.__file__
steps:
  - api: {call: place, as: found}
    expect: [{differs: {found: nowhere}}]
"""


@pytest.mark.nightly(
    reason="builds and installs a wheel; nox -s build checks one in CI as a job of its own"
)
def test_workers_are_those_of_the_installed_package(installed, tmp_path):
    (tmp_path / "compiled.yaml").write_text(SPEC)
    (tmp_path / "host.yaml").write_text(HOST)
    done = run(
        [sys.executable, "-m", "torch_conformance", "run", str(tmp_path), "--jobs", "2"],
        tmp_path,
        PYTHONPATH=str(installed),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = read_run(tmp_path / "reports" / "latest" / "run.jsonl")
    assert {result.name: result.outcome.label for result in found.results} == {
        "compiled": "FELL_BACK",
        "host": "PASS",
    }
    (host,) = [result for result in found.results if result.name == "host"]
    facts = json.loads(
        (tmp_path / "reports" / "latest" / host.folder / "observation.json").read_text()
    )
    assert facts["steps"][0]["measured"]["0"]["found"]["value"] == str(
        installed / "torch_conformance" / "__init__.py"
    )
    for path in (tmp_path / "reports").rglob("*"):
        if path.is_file() and not path.is_symlink():
            for folder in ("runner", "specs"):  # a virtual environment may lie in the checkout
                assert str(ROOT / folder).encode() not in path.read_bytes(), path
