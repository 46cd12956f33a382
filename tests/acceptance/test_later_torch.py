"""A torch of a version that nothing here knows runs shipped cases as the installed one does."""

import os
import re
from pathlib import Path

import pytest

from tests.fakes import ROOT, environment, program
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.record.journal import read_run

CASES = (
    "basics/adaptive-pool-one-side",
    "codecache/cache-hit-kernel-count",
    "upstream/dispatch-key-set-guard",
)
LATER = "2.99.0.dev20270101+cpu"


@pytest.mark.nightly(
    reason="imports torch twice for two runs; test_names reads the names of a torch that nothing "
    "here knows"
)
@pytest.mark.torch
def test_a_later_torch_has_the_outcomes_of_the_installed_one(tmp_path: Path) -> None:
    torch = installed_torch()
    assert torch is not None
    (tmp_path / "site" / "torch").mkdir(parents=True)
    for path in [*torch.root.iterdir(), torch.root.parent / "torchgen"]:
        if path.name not in ("version.py", "__pycache__"):
            (tmp_path / "site" / path.relative_to(torch.root.parent)).symlink_to(path)
    text = re.sub(
        r"(?m)^__version__ = .*$",
        f"__version__ = '{LATER}'",
        (torch.root / "version.py").read_text(),
    )
    (tmp_path / "site" / "torch" / "version.py").write_text(text)
    outcomes, notes = {}, {}
    for version, first in {torch.version: "", LATER: f"{tmp_path / 'site'}{os.pathsep}"}.items():
        out = tmp_path / version
        specs = [ROOT / "specs" / f"{case}.yaml" for case in CASES]
        variables = environment(PYTHONPATH=first + environment()["PYTHONPATH"])
        done = program(
            "run", *specs, "--backend", "cpu", "--backend", "eager", "--out", out, env=variables
        )
        run = read_run(out / "run.jsonl")
        assert (run.header.environment["torch"], run.header.environment["torch_git"]) == (
            version,
            torch.git,
        )
        outcomes[version] = {result.case_id: result.outcome for result in run.results}
        notes[version] = [line for line in done.stderr.splitlines() if "tested" in line]
    assert outcomes[LATER] == outcomes[torch.version]
    assert len(outcomes[LATER]) >= len(CASES)
    (note,) = notes[LATER]
    assert note.startswith(f"torch {LATER} is newer than the newest tested, ")
