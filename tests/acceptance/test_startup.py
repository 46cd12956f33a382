"""What must answer at once imports no torch; exit codes and JSON of ``list`` and ``validate`` on
good, bad and empty input.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import GOOD
from tests.fakes import PACKAGE
from tests.json_schemas import validator
from tests.ran import called
from torch_conformance.model.outcomes import ExitCode

WATCH = """\
import atexit, json, os, sys

def report():
    with open(os.environ["WATCH_FILE"], "w") as file:
        json.dump(sorted(sys.modules), file)

atexit.register(report)
"""
"""Written as ``sitecustomize``: Python imports it first, and it says last what had been imported.
"""


class Program:
    """Runs the program in a folder, and keeps the names of what it imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.modules: set[str] = set()
        (folder / "watch").mkdir()
        (folder / "watch" / "sitecustomize.py").write_text(WATCH)

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        report = self.folder / "watch" / "modules.json"
        report.unlink(missing_ok=True)
        variables = {
            **os.environ,
            "PYTHONPATH": f"{self.folder / 'watch'}{os.pathsep}{PACKAGE.parent}",
            "WATCH_FILE": str(report),
        }
        command = [sys.executable, "-m", "torch_conformance", *arguments]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        self.modules = set(json.loads(report.read_text()))
        return done


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "product.yaml").write_text(
        GOOD + "matrix: {repeat: [1, .nan]}\nrequires: [cxx]\ncovers: [test_a.py::test_b]\n"
    )
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "product.yaml").write_text(GOOD + "conifg: {freezing: true}\n")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "torch.yaml").write_text(
        GOOD.replace("x @ y", "x @@ y") + 'config: {freezing: "{{ 1 +', "utf-8"
    )
    (tmp_path / "empty").mkdir()
    return Program(tmp_path)


def test_the_watch_sees_torch(program: Program) -> None:
    """The tests below could not fail if it did not."""
    report = program.folder / "watch" / "modules.json"
    variables = {
        **os.environ,
        "PYTHONPATH": str(program.folder / "watch"),
        "WATCH_FILE": str(report),
    }
    (program.folder / "torch.py").write_text("")
    subprocess.run(
        [sys.executable, "-c", "import torch"],
        cwd=program.folder,
        env=variables,
        check=True,
        timeout=240,
    )
    assert "torch" in json.loads(report.read_text())


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("list --json good", ExitCode.OK),
        ("explain * good", ExitCode.OK),
        ("validate bad broken good", ExitCode.USAGE),
        ("run good --select nothing --out out", ExitCode.NOTHING),
    ],
)
def test_torch_is_not_imported(arguments: str, code: ExitCode, program: Program) -> None:
    done = program(*arguments.split())
    assert done.returncode == code, done.stderr
    assert "torch_conformance.cli.parser" in program.modules
    assert not {
        name for name in program.modules if name.split(".")[0] in ("torch", "triton", "numpy")
    }
    assert not (program.folder / "out").exists()


def test_help_imports_little(program: Program) -> None:
    """Each of these takes longer than argparse itself."""
    assert program("--help").returncode == ExitCode.OK
    assert "torch_conformance.tools.attest.commands" in program.modules
    assert not program.modules & {
        "dataclasses",
        "inspect",
        "pathlib",
        "typing",
        "torch_conformance.optional.options",
        "torch_conformance.machine.redaction",
    }


# -- exit codes and output -------------------------------------------------------------------------


SPECS = "specs: 2 cases of ./good\n"
LIKE = "ids look like 'product[backend=cpu,repeat=1]'"
NONE = "no case is selected: none of the 2 cases that were read matches {} ('list' shows them)\n"


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        ("validate good", 0, "1 spec, 2 cases, no problem\n", ""),
        (
            "validate bad",
            2,
            "bad/product.yaml:8:1: unknown key 'conifg' (did you mean 'config'?)\n1 problem\n",
            "",
        ),
        (
            "validate empty",
            2,
            "",
            "torch-conformance: no spec below empty: specs are files that end in .yaml\n",
        ),
        ("validate nothing", 2, "", "torch-conformance: no such file or folder: nothing\n"),
        (
            "list good",
            0,
            "product[backend=cpu,repeat=1]\nproduct[backend=cpu,repeat=.nan]\n\n2 cases of 1 "
            "spec: 2 can run here\n",
            SPECS,
        ),
        (
            "list good --select *repeat=1]",
            0,
            "product[backend=cpu,repeat=1]\n\n1 case of 1 spec: 1 can run here\n",
            SPECS,
        ),
        (
            "list good --select nothing",
            4,
            "",
            f"{SPECS}no case matches 'nothing': {LIKE}\n" + NONE.format("--select nothing"),
        ),
        ("list good --backend cuda", 4, "", SPECS + NONE.format("--backend cuda")),
        (
            "list good --backend cdua",
            2,
            "",
            SPECS + "torch-conformance: unknown backend 'cdua' (did you mean 'cuda'?)\n",
        ),
        (
            "list good --shard 3/2",
            2,
            "",
            SPECS
            + "torch-conformance: '3/2' is not a shard: write I/N with I from 1 to N, for example "
            "2/4\n",
        ),
        (
            "list good --durations x",
            2,
            "",
            SPECS
            + "torch-conformance: --durations is for shards: add --shard I/N, or leave it out\n",
        ),
        (
            "list bad",
            2,
            "",
            "bad/product.yaml:8:1: unknown key 'conifg' (did you mean 'config'?)\n1 problem; "
            "nothing was run\n",
        ),
        (
            "list empty",
            2,
            "",
            "torch-conformance: no spec below empty: specs are files that end in .yaml\n",
        ),
        ("explain nothing good", 2, "", f"torch-conformance: no case matches 'nothing': {LIKE}\n"),
    ],
)
def test_exit_codes(arguments: str, code: int, out: str, err: str, program: Program) -> None:
    done = called(*arguments.split(), cwd=program.folder)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


def strict(text: str) -> Any:
    """Read JSON as strict readers do: no NaN and no Infinity."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_json_of_list(program: Program) -> None:
    done = called("list", "good", "--json", cwd=program.folder)
    found = strict(done.stdout)
    assert done.returncode == ExitCode.OK
    validator("list").validate(found)
    assert [case["id"] for case in found] == [
        "product[backend=cpu,repeat=1]",
        "product[backend=cpu,repeat=.nan]",
    ]
    first = found[0]
    assert {
        key: first[key] for key in ("spec", "line", "area", "name", "backend", "covers", "tags")
    } == {
        "spec": "good/product.yaml",
        "line": 1,
        "area": "",
        "name": "product",
        "backend": "cpu",
        "covers": ["test_a.py::test_b"],
        "tags": [],
    }
    assert [case["params"] for case in found] == [{"repeat": 1}, {"repeat": {"$float": "nan"}}]
    assert first["available"] in (True, False, None)
    assert (first["reason"] == "") is (first["available"] is True)


@pytest.mark.parametrize(
    ("folder", "valid", "counts"), [("good", True, (1, 2, 0)), ("bad", False, (0, 0, 1))]
)
def test_json_of_validate(
    folder: str, valid: bool, counts: tuple[int, int, int], program: Program
) -> None:
    done = called("validate", folder, "--json", cwd=program.folder)
    found = strict(done.stdout)
    assert done.returncode == (ExitCode.OK if valid else ExitCode.USAGE)
    validator("validate").validate(found)
    assert found["format"] == 1
    assert found["valid"] is valid
    assert (found["specs"], found["cases"], len(found["problems"])) == counts
    if not valid:
        assert found["problems"] == [
            {
                "file": "bad/product.yaml",
                "line": 8,
                "column": 1,
                "severity": "error",
                "code": "unknown-key",
                "message": "unknown key 'conifg'",
                "hint": "did you mean 'config'?",
            }
        ]
