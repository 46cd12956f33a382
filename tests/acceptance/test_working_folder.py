"""What lies in the folder where a run is started, or in a case's own, is imported by no Python of the run."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from runner.core.outcomes import Outcome
from runner.record.journal import read_run
from tests.fakes import environment

ROOT = Path(__file__).resolve().parents[2]

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
      import json, runner, torch
      assert os.path.dirname(os.path.dirname(torch.__file__)) != os.getcwd()
steps:
  - api: {call: plant, args: [[torch, runner, json, tempfile, multiprocessing]], as: planted}
    expect: [{equals: {planted: 5}}]
  - spawn: {call: child}
    expect: [{exit: {code: 0}}]
"""

FAKE = "raise SystemExit('imported {} of the working folder')\n"

SCRIPT = "import sys\nfrom runner.__main__ import main\nsys.exit(main())\n"


def plant(folder: Path) -> None:
    for name in ("torch", "runner", "yaml", "jinja2", "redis", "socket"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(FAKE.format(name))
    (folder / "torch" / "version.py").write_text("__version__ = '2.99.0'\n")
    for name in ("json", "sitecustomize", "tempfile"):
        (folder / f"{name}.py").write_text(FAKE.format(name))


def run(command: Sequence[object], cwd: Path, **changes: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment(**changes), capture_output=True, text=True, timeout=240, check=False
    )


SLOW = pytest.mark.nightly(
    reason="compiles in a process that imports torch; the same is tested with forks, and test_child_python imports nothing"
)


@pytest.mark.torch
@pytest.mark.parametrize("more", ["", pytest.param("isolation: process\n", marks=SLOW)])
def test_a_run_from_a_folder_of_fakes_imports_none_of_them(tmp_path, more):
    here = tmp_path / "here"
    plant(here)
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "torch-conformance"
    script.write_text(SCRIPT)
    (tmp_path / "spec.yaml").write_text(SPEC + more)
    command = [sys.executable, script, "run", tmp_path / "spec.yaml", "--out", tmp_path / "out"]
    done = run(command, here, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stdout + done.stderr
    record = read_run(tmp_path / "out" / "run.jsonl")
    assert [result.outcome for result in record.results] == [Outcome.PASS]
    assert not record.header.environment["torch"].startswith("2.99")


@pytest.mark.nightly(reason="imports torch for one message; test_availability refuses a worker that reports another torch")
@pytest.mark.torch
def test_a_run_whose_workers_import_another_torch_is_refused(tmp_path):
    """The runner finds a torch through a ``sitecustomize`` that acts in the runner alone."""
    site = tmp_path / "site"
    (site / "other" / "torch").mkdir(parents=True)
    (site / "other" / "torch" / "__init__.py").write_text("")
    (site / "other" / "torch" / "version.py").write_text("__version__ = '2.12.0'\n")
    act = f"import sys\nif 'runner' in sys.orig_argv:\n    sys.path.insert(0, {str(site / 'other')!r})\n"
    (site / "sitecustomize.py").write_text(act)
    (tmp_path / "spec.yaml").write_text(SPEC)
    search = os.pathsep.join([str(site), str(ROOT)])
    command = [sys.executable, "-P", "-m", "runner", "run", tmp_path / "spec.yaml", "--out", tmp_path / "out"]
    done = run(command, tmp_path, PYTHONPATH=search)
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "torch" in line]
    assert str(site / "other" / "torch") in line
    assert "the workers import torch" in line
    assert "PYTHONPATH" in line


@pytest.mark.nightly(reason="imports torch twice; test_availability refuses a worker that reports another torch")
@pytest.mark.torch
def test_a_case_whose_variables_lead_to_another_torch_is_an_error(tmp_path):
    """It must not be judged by what was inspected of the installed one."""
    import importlib.util

    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    other = tmp_path / "other" / "torch"
    other.mkdir(parents=True)
    # the installed torch under another name: the same code, and another package
    (other / "__init__.py").write_text(
        f"__path__ = [{os.path.dirname(found.origin)!r}]\n_file = __file__\n__file__ = {found.origin!r}\n"
        "exec(compile(open(__file__).read(), __file__, 'exec'))\n__file__ = _file\n"
    )
    (tmp_path / "spec.yaml").write_text(SPEC + f"env: {{PYTHONPATH: {tmp_path / 'other'}}}\n")
    (tmp_path / "first.yaml").write_text(SPEC)
    command = [sys.executable, "-m", "runner", "run", tmp_path / "first.yaml", tmp_path / "spec.yaml", "--out", tmp_path / "out"]
    done = run([*command, "--jobs", "1"], tmp_path)
    outcomes = {result.name: result for result in read_run(tmp_path / "out" / "run.jsonl").results}
    assert outcomes["first"].outcome is Outcome.PASS, done.stdout + done.stderr
    assert outcomes["spec"].outcome is Outcome.ERROR
    assert str(other) in outcomes["spec"].reason
