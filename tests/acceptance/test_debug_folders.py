"""Debug files, traces and logs of torch lie in the case's folder: nothing appears where the runner was started, or at home."""

from pathlib import Path

import pytest

from runner.record.journal import read_run
from tests.fakes import environment, program

pytestmark = pytest.mark.torch

SPEC = """\
summary: Twice a vector
backends: [cpu]
function: "def fn(x): return x * 2"
inputs: [{ones: [4]}]
expect: [{close: {to: eager}}]
"""
LOADED = """\
summary: A module from beside the specs
backends: [host]
prelude: |
  import os, sys
  sys.path.insert(0, os.environ["BESIDE"])
  import beside
  def value(): return beside.VALUE
steps: [{api: {call: value, as: found}, expect: [{equals: {found: 1}}]}]
"""


def files_below(folder: Path) -> list[str]:
    return sorted(str(found.relative_to(folder)) for found in folder.rglob("*") if found.is_file())


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    for name in ("specs", "beside", "home"):
        (place / name).mkdir(parents=True)
    (place / "specs" / "plain.yaml").write_text(SPEC, "ascii")
    (place / "specs" / "traced.yaml").write_text(SPEC + "config: {trace.enabled: true}\nenv: {TORCH_TRACE: traces}\n", "ascii")
    (place / "specs" / "loaded.yaml").write_text(LOADED, "ascii")
    (place / "beside" / "beside.py").write_text("VALUE = 1\n", "ascii")
    return place


SLOW = pytest.mark.nightly(reason="each case compiles and imports torch; the same is tested with forks")


@pytest.mark.nightly(reason="compiles three cases with all of torch's debug output; test_own_files and test_report_paths test the parts")
@pytest.mark.parametrize("more", ["", pytest.param("isolation: process\n", marks=SLOW)])
def test_torch_writes_into_the_cases_folder_alone(place: Path, more: str) -> None:
    for spec in (place / "specs").iterdir():
        spec.write_text(spec.read_text("ascii") + more, "ascii")
    before = files_below(place)
    out = place.parent / "out"
    debugging = {"TORCH_COMPILE_DEBUG": "1", "TORCH_LOGS_OUT": "logs.txt", "TORCH_LOGS": "output_code", "TORCH_COMPILE_DEBUG_DIR": "debug"}
    variables = {**environment(HOME=str(place / "home"), BESIDE=str(place / "beside")), **debugging}
    done = program("run", "specs", "--out", out, cwd=place, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert files_below(place) == before
    results = {result.name: files_below(out / result.folder) for result in read_run(out / "run.jsonl").results}
    for name in ("plain", "traced"):
        assert any(file.startswith("torch_compile_debug/run_") and file.endswith("output_code.py") for file in results[name]), results[name]
        assert "torch_logs.txt" in results[name]
    assert any(file.startswith("torch_compile_debug/tlparse/") for file in results["plain"])
    assert any(file.startswith("torch_trace/") for file in results["traced"])
    assert not any("__pycache__" in file for file in results["loaded"])
