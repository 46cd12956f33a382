"""What lies in the folder where a run is started, or in a case's own, is imported by no Python of
the run.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes import PACKAGE, environment
from torch_conformance.model.outcomes import Outcome
from torch_conformance.record.journal import read_run

SPEC = """\
summary: A library call, and a child that is spawned where other packages lie, import none of them
backends: [host]
prelude: |
  import os

  def plant(names):
      for name in names:
          os.makedirs(name, exist_ok=True)
          with open(os.path.join(name, "__init__.py"), "w") as stream:
              stream.write("raise SystemExit(9)")
      return len(names)

  def child():
      import json, torch_conformance, torch
      assert os.path.dirname(os.path.dirname(torch.__file__)) != os.getcwd()
steps:
  - api: {call: plant, as: planted,
          args: [[torch, torch_conformance, json, tempfile, multiprocessing]]}
    expect: [{equals: {planted: 5}}]
  - spawn: {call: child}
    expect: [{exit: {code: 0}}]
"""

FAKE = "raise SystemExit('imported {} of the working folder')\n"

SCRIPT = "import sys\nfrom torch_conformance.__main__ import main\nsys.exit(main())\n"


def plant(folder: Path) -> None:
    for name in ("torch", "torch_conformance", "yaml", "jinja2", "redis", "socket"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(FAKE.format(name))
    (folder / "torch" / "version.py").write_text("__version__ = '2.99.0'\n")
    for name in ("json", "sitecustomize", "tempfile"):
        (folder / f"{name}.py").write_text(FAKE.format(name))


def run(command: Sequence[object], cwd: Path, **changes: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.torch
def test_a_run_from_a_folder_of_fakes_imports_none_of_them(tmp_path):
    here = tmp_path / "here"
    plant(here)
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "torch-conformance"
    script.write_text(SCRIPT)
    (tmp_path / "spec.yaml").write_text(SPEC)
    command = [sys.executable, script, "run", tmp_path / "spec.yaml", "--out", tmp_path / "out"]
    done = run(command, here, PYTHONPATH=str(PACKAGE.parent))
    assert done.returncode == 0, done.stdout + done.stderr
    record = read_run(tmp_path / "out" / "run.jsonl")
    assert [result.outcome for result in record.results] == [Outcome.PASS]
    assert not record.header.environment["torch"].startswith("2.99")
