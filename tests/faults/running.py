"""Runs cases with faults planted: which fault goes with which case in which run, and what came of it."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.core.model import CaseResult
from runner.core.outcomes import Outcome
from runner.language.load import load
from runner.plan.selection import select
from runner.record.journal import read_run
from tests.fakes import ROOT, environment, program
from tests.faults.planting import NOTES

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
    """What came of a trial. ``bites`` is how often the patched code was executed; None where the fault could not be planted."""

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
        return self.result.outcome.label + (f" {self.result.failure_type}" if self.result.outcome is Outcome.FAIL else "")


def cpu_cases() -> dict[str, Path]:
    """Return all cases that a machine without a GPU can run: their ids, and the files that they stand in."""
    suite = load(SPECS)
    return {case.id: Path(case.spec).resolve() for case in select(suite.cases, suite.backends) if case.device == "cpu"}


def matching(pattern: str, ids: Iterable[str]) -> list[str]:
    """Return the ids that a glob matches, as ``run --select`` would; raise ``LookupError`` when there is none."""
    from runner.plan.selection import glob

    found = [case_id for case_id in ids if glob(pattern).fullmatch(case_id)]
    if not found:
        raise LookupError(f"no case on a CPU is called {pattern}")
    return found


def runs_of(trials: Iterable[Trial]) -> list[dict[str, str]]:
    """Spread trials over as few runs as there can be: each a map from case to fault, because a run has each case once."""
    runs: list[dict[str, str]] = []
    for trial in trials:
        run = next((run for run in runs if trial.case_id not in run), None)
        if run is None:
            runs.append(run := {})
        run[trial.case_id] = trial.fault
    return runs


def sightings(trials: Sequence[Trial], cases: Mapping[str, Path], folder: Path, *, jobs: int = 2) -> Iterator[Sighting]:
    """Run the trials, in folders below ``folder``, and yield what came of each."""
    for number, faults in enumerate(runs_of(trials)):
        yield from _run(faults, sorted({cases[case_id] for case_id in faults}), folder / str(number), jobs)


def _run(faults: Mapping[str, str], specs: Sequence[Path], folder: Path, jobs: int) -> Iterator[Sighting]:
    folder.mkdir(parents=True)
    assigned = folder / "faults.json"
    assigned.write_text(json.dumps(faults, indent=1), "utf-8")
    variables = environment(PLANTED_FAULTS=str(assigned))
    variables["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).with_name("site")), variables["PYTHONPATH"]])
    selection = [word for case_id in faults for word in ("--select", case_id)]
    command = ["run", *specs, *selection, "--jobs", jobs, "--out", folder / "out"]
    done = program(*command, env=variables, timeout=SECONDS_PER_CASE * len(faults))
    journal = folder / "out" / "run.jsonl"
    results = {result.case_id: result for result in read_run(journal).results} if journal.exists() else {}
    if set(results) != set(faults):
        raise RuntimeError(f"the run ended with {done.returncode}, and not with one result for each case:\n{done.stdout}{done.stderr}")
    for case_id, fault in faults.items():
        result = results[case_id]
        notes = folder / "out" / result.folder / NOTES
        yield Sighting(Trial(fault, case_id), result, notes.stat().st_size if notes.exists() else None)
