"""``repro.py`` beside a failed case: written for failures alone, and never through a link that a worker left."""

import dataclasses
from pathlib import Path

import pytest

from runner.language.load import load
from runner.machine import capabilities
from runner.model.case import Case
from runner.model.outcomes import Outcome
from runner.model.results import CaseResult, result_of
from runner.run.pipeline import NAME, write_script
from tests.fakes import HERE


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Case:
    path = tmp_path_factory.mktemp("spec") / "planted.yaml"
    function = "function: |\n  def fn(x):\n      return x + 1\ninputs: [{ones: [3]}]\n"
    path.write_text(f"summary: A planted case\nbackends: [cpu]\n{function}expect: [{{close: {{to: eager}}}}]\n")
    return load([path]).cases[0]


def result(one: Case, outcome: Outcome) -> CaseResult:
    return dataclasses.replace(result_of(one, outcome, "why", "close"), folder="cases/00001")


def write(one: Case, outcome: Outcome, folder: Path) -> Path:
    (folder / "cases" / "00001").mkdir(parents=True, exist_ok=True)
    write_script(one, HERE, capabilities.inspect_files(None), result(one, outcome), folder)
    return folder / "cases" / "00001" / NAME


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.CRASH, Outcome.ERROR])
def test_a_failure_leaves_its_script(one: Case, outcome: Outcome, tmp_path: Path) -> None:
    assert "def main" in write(one, outcome, tmp_path).read_text()


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.XFAIL, Outcome.UNAVAILABLE])
def test_any_other_result_leaves_none(one: Case, outcome: Outcome, tmp_path: Path) -> None:
    assert not write(one, outcome, tmp_path).exists()


def test_a_link_of_the_worker_is_replaced_and_not_followed(one: Case, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("kept")
    (tmp_path / "cases" / "00001").mkdir(parents=True)
    (tmp_path / "cases" / "00001" / NAME).symlink_to(outside)
    assert not write(one, Outcome.FAIL, tmp_path).is_symlink()
    assert outside.read_text() == "kept"


def test_a_folder_under_its_name_does_not_end_the_run(one: Case, tmp_path: Path) -> None:
    (tmp_path / "cases" / "00001" / NAME).mkdir(parents=True)
    assert write(one, Outcome.FAIL, tmp_path).is_dir()
