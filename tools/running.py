"""Runs cases of the suite with a change of torch planted in each worker, and reads what came of it.

A run has each case once. Where several trials have the same case, the run has copies of its spec in
the folders ``0``, ``1``, ..., and its ids begin with these: one zygote serves them all.
"""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes import ROOT, environment, program
from tools.planting import LINES, NOTES, SITE, VARIABLE
from torch_conformance.language.load import load
from torch_conformance.matching.patterns import Ids
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.optional.options import Selection
from torch_conformance.plan.selection import select
from torch_conformance.record.journal import read_run

SPECS = (ROOT / "specs", ROOT / "tests" / "specs" / "judged" / "relu.yaml")
"""What cases are chosen from."""

RED = (Outcome.FAIL, Outcome.FELL_BACK)
"""What detects a fault. A case that crashed, or could not be judged, claims nothing."""

QUICK = "QUICK_COMPILER"
"""The variable that names a folder for precompiled headers: kernels are then built without
optimization (``mutants/compiler/g++``).
"""


@dataclass(frozen=True, order=True)
class Trial:
    """One case run under one change, a fault or a mutant by its name; without one under ``""``."""

    change: str
    case_id: str


@dataclass(frozen=True)
class Ended:
    """What came of a trial.

    ``bites`` is how often a fault was executed; None where the change could not be planted.
    """

    trial: Trial
    result: CaseResult
    bites: int | None
    folder: Path

    @property
    def is_red(self) -> bool:
        return self.result.outcome in RED and bool(self.bites)

    @property
    def is_green(self) -> bool:
        return self.result.outcome is Outcome.PASS and self.bites is not None

    @property
    def kind(self) -> str:
        """The outcome, and what it was a failure of."""
        failed = self.result.outcome is Outcome.FAIL
        return self.result.outcome.label + (f" {self.result.failure_type}" if failed else "")

    @property
    def lines(self) -> Mapping[str, frozenset[int]]:
        """The lines that the case executed, by module."""
        numbers = json.loads((self.folder / LINES).read_bytes())
        return {module: frozenset(lines) for module, lines in numbers.items()}


def cases_of(devices: Sequence[str] = ("cpu",), extra: Sequence[Path] = ()) -> dict[str, Path]:
    """Return the cases of these devices: their ids, and the files that define them."""
    suite = load([*SPECS, *extra])
    return {
        case.id: Path(case.spec).resolve()
        for case in select(suite.cases, suite.backends, Selection())
        if case.device in devices
    }


def matching(pattern: str, ids: Iterable[str]) -> list[str]:
    """Return the ids that a glob matches, as ``run --select`` would; raise ``LookupError`` when
    there is none.
    """
    if matches := Ids(ids).matching(pattern):
        return matches
    raise LookupError(f"no case on a CPU is called {pattern}")


def named(trials: Iterable[Trial]) -> dict[str, Trial]:
    """Return the trials by the ids of their cases in the run, ``NUMBER/CASE``."""
    runs: Counter[str] = Counter()
    names = {}
    for trial in dict.fromkeys(trials):
        names[f"{runs[trial.case_id]}/{trial.case_id}"] = trial
        runs[trial.case_id] += 1
    return names


def run_trials(
    trials: Iterable[Trial],
    cases: Mapping[str, Path],
    folder: Path,
    *,
    changes: Mapping[str, Any] | None = None,
    lines: Sequence[str] = (),
    jobs: int = 2,
    seconds: int = 240,
    start: Callable[..., dict[str, str]] = environment,
) -> list[Ended]:
    """Run all trials in one run below ``folder``.

    ``changes`` has what is planted for a name, where it is not the name of a fault. ``lines`` are
    the modules whose executed lines are noted. ``seconds`` is the deadline of each case. ``start``
    returns the variables of the run.
    """
    assigned = named(trials)
    if not assigned:
        return []
    for name, trial in assigned.items():
        copy_spec(cases[trial.case_id], folder / "specs" / name.partition("/")[0])
    planted = {
        name: (changes or {}).get(trial.change, trial.change)
        for name, trial in assigned.items()
        if trial.change
    }
    plan = folder / "planted.json"
    plan.write_text(json.dumps({"changes": planted, "lines": [*lines]}, indent=1), "utf-8")
    path = os.pathsep.join([str(SITE), environment()["PYTHONPATH"]])
    variables = start(**{VARIABLE: str(plan)}, PYTHONPATH=path)
    if variables.get(QUICK):
        compiler = ROOT / "tools" / "mutants" / "compiler"
        variables["PATH"] = os.pathsep.join([str(compiler), variables["PATH"]])
    selection = [word for name in assigned for word in ("--select", name)]
    options = ["--waivers", shipped_waivers(folder), "--timeout", seconds, "--jobs", jobs]
    process = program(
        *("run", folder / "specs", *selection, *options, "--out", folder / "out"),
        env=variables,
        timeout=2 * seconds * len(assigned),
    )
    journal = folder / "out" / "run.jsonl"
    results = read_run(journal).results if journal.exists() else ()
    if {result.case_id for result in results} != set(assigned):
        raise RuntimeError(
            f"the run ended with {process.returncode}, and not with one result for each "
            f"case:\n{process.stdout}{process.stderr}"
        )
    ended = []
    for result in results:
        notes = folder / "out" / result.folder / NOTES
        bites = notes.stat().st_size if notes.exists() else None
        ended.append(Ended(assigned[result.case_id], result, bites, notes.parent))
    return ended


def copy_spec(spec: Path, target: Path) -> None:
    """Copy a spec to the folder of its trial, below the same area, with what its folder gives to
    every spec.
    """
    area = spec.parent.relative_to(SPECS[0]) if spec.is_relative_to(SPECS[0]) else Path()
    place = target / area
    place.mkdir(parents=True, exist_ok=True)
    for file in (spec, spec.parent / "_defaults.yaml"):
        if file.exists() and not (place / file.name).exists():
            shutil.copy(file, place)


def shipped_waivers(folder: Path) -> Path:
    """Write the shipped waivers for the copies, whose ids begin with a number."""
    text = (SPECS[0] / "waivers.yaml").read_text("utf-8")
    file = folder / "waivers.yaml"
    file.write_text(re.sub(r"(?m)^( *- cases: )(?=[a-z])", r"\1?*/", text), "utf-8")
    return file
