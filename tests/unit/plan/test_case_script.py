"""``repro.py`` beside a failed case: written for failures alone, and never through a link that a
worker left.
"""

from pathlib import Path

import pytest

from tests.conftest import GOOD
from tests.fakes import ENDED, HERE, observation, seen, use_executor
from torch_conformance.cli.parser import main
from torch_conformance.execute.executor_protocol import Execution, Job
from torch_conformance.language.load import load
from torch_conformance.machine import capabilities
from torch_conformance.model.case import Case
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.record.case_files import SCRIPT
from torch_conformance.record.journal import read_run
from torch_conformance.run.pipeline import write_script


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Case:
    path = tmp_path_factory.mktemp("spec") / "planted.yaml"
    function = "function: |\n  def fn(x):\n      return x + 1\ninputs: [{ones: [3]}]\n"
    path.write_text(
        f"summary: A planted case\nbackends: [cpu]\n{function}expect: [{{close: {{to: eager}}}}]\n"
    )
    return load([path]).cases[0]


def write(one: Case, folder: Path) -> Path:
    write_script(one, HERE, capabilities.inspect_files(None), folder / SCRIPT)
    return folder / SCRIPT


def test_a_failure_alone_leaves_its_script(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(job: Job) -> Execution:
        (Path("out") / job.folder).mkdir(parents=True, exist_ok=True)
        sent = None if "two[" in str(job.plan) else observation(seen(), id=(job.plan or {})["id"])
        return Execution(job=job, observation=sent, ending=ENDED, seconds=1.0, isolation="fork")

    for name in ("one", "two"):
        Path(f"{name}.yaml").write_text(
            GOOD.replace("close: {to: eager}", "counter: {inductor.fxgraph_cache_miss: 1}")
        )
    use_executor(monkeypatch, play)
    assert main(["run", ".", "--out", "out"]) == ExitCode.FAILED
    (script,) = Path("out").rglob(SCRIPT)
    assert "def main" in script.read_text()
    results = {result.name: result for result in read_run(Path("out/run.jsonl")).results}
    assert (results["one"].outcome, results["two"].outcome) == (Outcome.PASS, Outcome.CRASH)
    assert str(script.parent) == f"out/{results['two'].folder}"


def test_a_link_of_the_worker_is_replaced_and_not_followed(one: Case, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("kept")
    (tmp_path / SCRIPT).symlink_to(outside)
    assert not write(one, tmp_path).is_symlink()
    assert outside.read_text() == "kept"


def test_a_folder_under_its_name_does_not_end_the_run(one: Case, tmp_path: Path) -> None:
    (tmp_path / SCRIPT).mkdir()
    assert write(one, tmp_path).is_dir()
