"""One author's case cannot pass another's: what a prelude changes in a shared worker is seen, and folders share no worker."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.record.journal import read_run
from tests.fakes import prestarted_program

WRONG = """\
summary: A sum on the host is one that it is not
backends: [host]
isolation: worker
steps:
  - api: {call: operator.add, args: [1, 2], as: sum}
    expect: [{equals: {sum: 4}}]
"""

RIGHT = WRONG.replace("sum: 4", "sum: 3").replace("one that it is not", "what it is")

PATCHES = {
    "a measuring function": "from runner.vocabulary.expectations.equality import measure as f\n  f.__code__ = (lambda a, v: [1]).__code__",
    "what decides the facts": "from runner.worker.case import case\n  case._measure = lambda *_: ({}, {})",
    "json": "import json\n  real = json.dumps\n  json.dumps = lambda *a, **k: real(*a, **k)",
    "a builtin": "import builtins\n  real = builtins.max\n  builtins.max = lambda *a, **k: real(*a, **k)",
    "the table of steps": "from runner.vocabulary.steps import STEPS, api\n"
    "  STEPS['api'] = type('Other', (api.Api,), {'runs': staticmethod(lambda *_: None)})",
    "what a step does": "from runner.vocabulary.steps import api\n  api.Api.runs = staticmethod(lambda *_: None)",
}


def results(folder: Path, *options: str) -> Mapping[str, CaseResult]:
    prestarted_program("run", folder, "--out", folder / "out", "--isolation", "worker", "--jobs", "1", *options)
    return {result.name: result for result in read_run(folder / "out" / "run.jsonl").results}


@pytest.mark.torch
def test_patches_of_what_measures_reach_no_later_case(tmp_path):
    for number, (name, patch) in enumerate(PATCHES.items()):
        folder = tmp_path / "specs"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}-0-right.yaml").write_text(RIGHT)
        (folder / f"{number}-1-patches.yaml").write_text(RIGHT.replace("isolation", f"prelude: |\n  # {name}\n  {patch}\nisolation"))
        (folder / f"{number}-2-wrong.yaml").write_text(WRONG)
    found = results(tmp_path / "specs")
    for number in range(len(PATCHES)):
        patching = found[f"{number}-1-patches"]
        assert (patching.isolation, patching.after) == ("fork", 0)
        assert "with contamination" in patching.company
        assert found[f"{number}-2-wrong"].outcome is Outcome.FAIL


@pytest.mark.nightly(reason="four workers; tests/unit/test_sharing.py decides the same from a plan")
@pytest.mark.torch
def test_specs_of_two_folders_share_a_worker_only_when_asked(tmp_path):
    for number, folder in enumerate(("one", "two", "one", "two")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{number}.yaml").write_text(RIGHT)
    apart = results(tmp_path)
    assert sorted((name, result.after) for name, result in apart.items()) == [("0", 0), ("1", 0), ("2", 1), ("3", 1)]
    (tmp_path / "out").rename(tmp_path.parent / f"{tmp_path.name}-out")
    together = results(tmp_path, "--share-across-folders")
    assert sorted(result.after for result in together.values()) == [0, 1, 2, 3]
