"""Shards that are really run, merged, against the run of the whole: the same cases, the same
report, the same evidence.
"""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.fakes import ROOT, prestarted, write_specs
from tests.ran import called, normalised
from torch_conformance.model.outcomes import Outcome, exit_code
from torch_conformance.record.journal import read_run

pytestmark = pytest.mark.torch

SPEC = """
summary: Cases of which some fail
backends: [host]
matrix: {number: [1, 2, 3, 4]}
prelude: |
  def act():
      return params.number % 3
steps:
  - api: {call: act, as: found}
    expect: [{equals: {found: 1}}]
"""
OURS = (
    "ours:\n  summary: A backend of a vendor\n  device: cpu\n  joins: [host]\n  compiles: false\n"
)
UNAVAILABLE = ROOT / "tests" / "specs" / "judged" / "unavailable.yaml"
COUNT = 3


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the run of the whole and those of its shards, one of which was given the
    case that cannot run.
    """
    path = tmp_path_factory.mktemp("merged")
    write_specs(path, {"one": SPEC, "unavailable": UNAVAILABLE.read_text()})
    (path / "ours.yaml").write_text(OURS)
    command = ("run", "specs", "--backends", "ours.yaml", "--jobs", "1")
    whole = called(*command, "--out", "whole", cwd=path, env=prestarted())
    (path / "whole" / "stdout").write_text(whole.stdout)
    assert whole.returncode == 1, whole.stderr
    for index in range(1, COUNT + 1):
        done = called(
            *command,
            "--shard",
            f"{index}/{COUNT}",
            "--out",
            f"shard-{index}",
            cwd=path,
            env=prestarted(),
        )
        assert done.returncode in (0, 1, 4), done.stderr
    return path


def names(*indices: int) -> list[str]:
    return [f"shard-{index}" for index in indices]


def test_the_merged_run_says_what_the_whole_run_says(place: Path) -> None:
    done = called("merge", *names(3, 1, 2), "--out", "merged", cwd=place, env=prestarted())
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    whole, merged = (
        read_run(place / "whole" / "run.jsonl"),
        read_run(place / "merged" / "run.jsonl"),
    )
    assert {one.case_id: one.outcome for one in merged.results} == {
        one.case_id: one.outcome for one in whole.results
    }
    assert (merged.header.environment, merged.header.selected) == (
        whole.header.environment,
        whole.header.selected,
    )
    assert normalised(place / "merged") == normalised(place / "whole")
    without_place = [
        re.sub("(report|folder|page): .*|seconds until .*\n", "", text)
        for text in (done.stdout, (place / "whole" / "stdout").read_text())
    ]
    assert without_place[0] == without_place[1]
    for one in merged.results:
        if one.folder:
            assert (
                json.loads((place / "merged" / one.folder / "plan.json").read_text())["id"]
                == one.case_id
            )


def forged(place: Path) -> str:
    """Make the first failed case of a shard a PASS, everywhere in its journal; return the shard."""
    for name in names(1, 2, 3):
        journal = place / name / "run.jsonl"
        lines = [json.loads(line) for line in journal.read_text().splitlines()]
        for line in (line for line in lines if line.get("outcome") == "FAIL"):
            line.update(outcome="PASS", reason="", failure_type="")
            for verdict in line["verdicts"]:
                if verdict["status"] == "failed":
                    verdict.update(status="held", observed=verdict["expected"], detail="")
            by_label = {outcome.label: outcome for outcome in Outcome}
            lines[-1]["exit_code"] = int(
                exit_code(
                    [by_label[line["outcome"]] for line in lines if line["kind"] == "case"], 1
                )
            )
            journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
            return name
    raise AssertionError("no case failed")


@pytest.mark.parametrize("has_specs", [True, False])
def test_an_outcome_that_its_facts_contradict_is_refused_where_the_specs_are(
    place: Path, tmp_path: Path, has_specs: bool
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(place, copy, symlinks=True)
    shard = forged(copy)
    if not has_specs:
        shutil.rmtree(copy / "specs")
    done = called("merge", *names(1, 2, 3), "--out", "new", cwd=copy, env=prestarted())
    if has_specs:
        assert done.returncode == 2, done.stdout
        assert done.stderr.startswith(f"{copy / shard}/run.jsonl: one[backend=")
        assert ": PASS is recorded, and judging its files again gives FAIL: equals: " in done.stderr
    else:
        assert done.returncode == 1, done.stderr
        assert done.stderr.startswith(
            "warning: merged as recorded, not judged again: shard-1: specs/one.yaml of the "
            "run is not there"
        )
    assert (copy / "new").exists() == (not has_specs)


NEEDS_GPUS = """
summary: Cases that no machine can run and that require more than one thing
backends: [host]
requires: [cxx, {gpus: ">=99"}]
matrix: {repeat: [1, 2, 3]}
prelude: |
  def act():
      return 1
steps:
  - api: {call: act, as: found}
    expect: [{equals: {found: 1}}]
"""


UNEXERCISED = [
    "--require cxx: none of the 3 selected cases that use it was executed (the report has the "
    "reasons)",
    "--require triton: no selected case uses triton, so it cannot be met (select other cases, "
    "or remove the option)",
]


NIGHTLY = pytest.mark.nightly(
    reason="required names that are missing are tested by every run of the tests"
)


@pytest.mark.parametrize(
    ("names", "lines"),
    [pytest.param(["torch"], [], marks=NIGHTLY), (["cxx", "triton"], UNEXERCISED)],
)
def test_what_is_required_of_the_run_is_required_of_its_merged_shards(
    tmp_path: Path, names: list[str], lines: list[str]
) -> None:
    write_specs(
        tmp_path, {"one": SPEC.replace("[1, 2, 3, 4]", "[1, 4, 7, 10]"), "gpus": NEEDS_GPUS}
    )
    options = ("specs", *(word for name in names for word in ("--require", name)), "--jobs", "1")
    whole = called("run", *options, "--out", "whole", cwd=tmp_path, env=prestarted())
    for index in (1, 2):
        called(
            "run",
            *options,
            "--shard",
            f"{index}/2",
            "--out",
            f"shard-{index}",
            cwd=tmp_path,
            env=prestarted(),
        )
    merged = called(
        "merge", "shard-1", "shard-2", "--out", "merged", cwd=tmp_path, env=prestarted()
    )
    assert merged.returncode == whole.returncode == (4 if lines else 0), merged.stderr
    assert [text for text in merged.stderr.splitlines() if text.startswith("--require")] == lines
    assert [text for text in whole.stderr.splitlines() if text.startswith("--require")] == lines
    footers = [
        run.footer
        for run in (read_run(tmp_path / out / "run.jsonl") for out in ("whole", "merged"))
    ]
    assert len({footer.exit_code for footer in footers if footer is not None}) == 1
