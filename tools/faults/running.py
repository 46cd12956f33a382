"""Runs cases with faults planted: which fault goes with which case in which run, and what came of
it.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fakes import ROOT, environment, program
from tools.faults.planting import NOTES
from torch_conformance.language.load import load
from torch_conformance.model.matching.patterns import Ids
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import read_run

SPECS = (ROOT / "specs", ROOT / "tests" / "specs" / "judged" / "relu.yaml")
"""What the cases of the table are chosen from."""

SECONDS_PER_CASE = 120
"""How long a run may take for each of its cases."""

RED = (Outcome.FAIL, Outcome.FELL_BACK)
"""What detects a fault. A case that crashed, or could not be judged, claims nothing."""


@dataclass(frozen=True, order=True)
class Trial:
    """One case run under one fault."""

    fault: str
    case_id: str


@dataclass(frozen=True)
class Sighting:
    """What came of a trial.

    ``bites`` is how often the patched code was executed; None where the fault could not be planted.
    """

    trial: Trial
    result: CaseResult
    bites: int | None

    @property
    def is_red(self) -> bool:
        return self.result.outcome in RED and bool(self.bites)

    @property
    def is_green(self) -> bool:
        return self.result.outcome is Outcome.PASS and self.bites is not None

    @property
    def kind(self) -> str:
        """The outcome, and what it was a failure of."""
        return self.result.outcome.label + (
            f" {self.result.failure_type}" if self.result.outcome is Outcome.FAIL else ""
        )


def cpu_cases() -> dict[str, Path]:
    """Return all cases that a machine without a GPU can run: their ids, and the files that they
    stand in.
    """
    suite = load(SPECS)
    return {case.id: Path(case.spec).resolve() for case in suite.cases if case.device == "cpu"}


def matching(pattern: str, ids: Iterable[str]) -> list[str]:
    """Return the ids that a glob matches, as ``run --select`` would; raise ``LookupError`` when
    there is none.
    """
    if matches := Ids(ids).matching(pattern):
        return matches
    raise LookupError(f"no case on a CPU is called {pattern}")


def runs_of(trials: Iterable[Trial]) -> list[dict[str, str]]:
    """Spread trials over as few rounds as there can be: each a map from case to fault, because a
    round has each case once.
    """
    rounds: list[dict[str, str]] = []
    for trial in trials:
        found = next((one for one in rounds if trial.case_id not in one), None)
        if found is None:
            rounds.append(found := {})
        found[trial.case_id] = trial.fault
    return rounds


def sightings(
    trials: Sequence[Trial],
    cases: Mapping[str, Path],
    folder: Path,
    *,
    jobs: int = 2,
    start: Callable[..., dict[str, str]] = environment,
) -> Iterator[Sighting]:
    """Run all trials in one run below ``folder``, and yield what became of each.

    A run has each case once. Each round of trials therefore has a copy of its specs, in a folder of
    its own that its ids begin with: one zygote serves them all. ``start`` returns the variables of
    the run.
    """
    assigned: dict[str, Trial] = {}
    for number, faults in enumerate(runs_of(trials)):
        for case_id, fault in faults.items():
            copy_spec(cases[case_id], folder / "specs" / str(number))
            assigned[f"{number}/{case_id}"] = Trial(fault, case_id)
    if assigned:
        yield from _run(assigned, folder, jobs, start)


def copy_spec(spec: Path, target: Path) -> None:
    """Copy a spec to the folder of a round, below the same area, with what its folder gives to
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


def _run(
    assigned: Mapping[str, Trial], folder: Path, jobs: int, start: Callable[..., dict[str, str]]
) -> Iterator[Sighting]:
    plan = folder / "faults.json"
    plan.write_text(
        json.dumps({case_id: trial.fault for case_id, trial in assigned.items()}, indent=1), "utf-8"
    )
    path = os.pathsep.join([str(Path(__file__).with_name("site")), environment()["PYTHONPATH"]])
    variables = start(PLANTED_FAULTS=str(plan), PYTHONPATH=path)
    selection = [word for case_id in assigned for word in ("--select", case_id)]
    options = ["--waivers", shipped_waivers(folder), "--jobs", jobs, "--out", folder / "out"]
    done = program(
        "run",
        folder / "specs",
        *selection,
        *options,
        env=variables,
        timeout=SECONDS_PER_CASE * len(assigned),
    )
    journal = folder / "out" / "run.jsonl"
    results = (
        {result.case_id: result for result in read_run(journal).results} if journal.exists() else {}
    )
    if set(results) != set(assigned):
        raise RuntimeError(
            f"the run ended with {done.returncode}, and not with one result for each "
            f"case:\n{done.stdout}{done.stderr}"
        )
    for case_id, trial in assigned.items():
        result = results[case_id]
        notes = folder / "out" / result.folder / NOTES
        yield Sighting(trial, result, notes.stat().st_size if notes.exists() else None)
