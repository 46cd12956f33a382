"""What a Python that we start finds on its search path: this package, what the user named, and
nothing from the working folder.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import PACKAGE
from torch_conformance.execute.spawn import environment_for
from torch_conformance.machine import child_python
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.plan.schedule import Environment

SHADOWS = (
    "torch",
    "torch_conformance",
    "json",
    "yaml",
    "socket",
    "sitecustomize",
    "multiprocessing",
)

WHERE = (
    "import torch_conformance, json, os, sys; "
    "print(os.path.dirname(torch_conformance.__file__)); "
    "print(os.path.dirname(os.path.dirname(json.__file__)))"
)


def plant(folder: Path) -> Path:
    """Put modules and packages that must not be imported into a folder."""
    for name in SHADOWS:
        (folder / f"{name}.py").write_text(
            f"raise SystemExit('imported {name}.py of the working folder')\n"
        )
    for name in ("torch", "torch_conformance"):
        (folder / f"{name}.py").unlink()
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(
            f"raise SystemExit('imported {name}/ of the working folder')\n"
        )
        (folder / name / "version.py").write_text("__version__ = '2.12.0'\n")
    return folder


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return plant(tmp_path / "here")


def said(command: list[str], cwd: Path, variables: dict[str, str]) -> list[str]:
    done = subprocess.run(
        command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def clean(**changes: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        **changes,
    }


@pytest.mark.parametrize(
    "search", ["", ":", ":{elsewhere}", "{elsewhere}:", "{elsewhere}::/nowhere"]
)
def test_child_and_its_children_import_nothing_from_the_working_folder(hostile, tmp_path, search):
    search = search.format(elsewhere=tmp_path / "elsewhere")
    found = child_python.variables(clean(PYTHONPATH=search), tmp_path)
    own = said([sys.executable, "-P", "-c", WHERE], hostile, found)
    assert own[0] == str(PACKAGE)
    grandchild = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WHERE!r}], check=True)"
    )
    assert said([sys.executable, "-P", "-c", grandchild], hostile, found) == own
    spawned = (
        "import multiprocessing, os\nif __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=os.getcwd); "
        "child.start(); child.join(); print(child.exitcode)"
    )
    assert said([sys.executable, "-P", "-c", spawned], hostile, found) == ["0"]


def test_another_runner_of_the_user_is_not_the_workers(hostile, tmp_path):
    found = child_python.variables(clean(PYTHONPATH=str(hostile)), tmp_path)
    code = "import torch_conformance.model.protocol as p; print(p.__file__)"
    (hostile / "json.py").unlink()
    (hostile / "sitecustomize.py").unlink()
    assert said([sys.executable, "-P", "-c", code], tmp_path, found) == [
        str(PACKAGE / "model" / "protocol.py")
    ]


def test_a_relative_entry_means_what_it_meant_to_the_parent(here, monkeypatch):
    assert child_python.folders("sub::/abs") == [str(here / "sub"), "/abs"]


def test_each_child_gets_a_folder_of_its_own_with_this_package_alone(tmp_path):
    first, second = (child_python.variables(clean(), tmp_path)["PYTHONPATH"] for _ in range(2))
    assert first != second, "an earlier child could write into the folder of a later one"
    assert [path.name for path in Path(second).iterdir()] == ["torch_conformance"]


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONSAFEPATH"])
@pytest.mark.parametrize("value", [None, "", "/elsewhere"])
def test_no_variable_of_a_case_takes_it_away(tmp_path, name, value):
    found = environment_for(Environment(variables={name: value}), 1, tmp_path)
    assert found["PYTHONSAFEPATH"] == "1"
    assert said([sys.executable, "-P", "-c", WHERE], tmp_path, found)[0] == str(PACKAGE)


def test_the_asserts_of_a_child_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONOPTIMIZE", "2")
    found = environment_for(Environment(variables={}), 1, tmp_path)
    assert said(
        [sys.executable, "-c", "import sys; print(sys.flags.optimize)"], tmp_path, found
    ) == ["0"]


INSPECT = """
from torch_conformance.__main__ import leave_out_working_folder
leave_out_working_folder()
import json, yaml
from torch_conformance.machine.installed_torch import installed_torch
print(installed_torch().root)
"""


@pytest.mark.parametrize("search", ["{root}", "{root}:", "{root}::/nowhere"])
@pytest.mark.parametrize(
    "as_script", [False, True], ids=["from-the-folder", "script-in-the-folder"]
)
def test_the_program_does_not_inspect_a_torch_that_workers_do_not_import(
    hostile, tmp_path, search, as_script
):
    for name in SHADOWS:
        # but for torch: an empty entry precedes the standard library before a line of ours has run
        (hostile / f"{name}.py").unlink(missing_ok=True)
    (hostile / "torch" / "__init__.py").write_text("")
    (hostile / "torch_conformance" / "__init__.py").unlink()
    (hostile / "torch_conformance").rename(hostile / "other")
    (hostile / "script").write_text(INSPECT)
    command = [str(hostile / "script")] if as_script else ["-c", INSPECT]
    mine = installed_torch()
    assert mine is not None
    cwd = tmp_path if as_script else hostile
    assert said(
        [sys.executable, *command], cwd, clean(PYTHONPATH=search.format(root=PACKAGE.parent))
    ) == [str(mine.root)]
