"""The cases of recorded runs as samples: what each machine observed of a case, and the cases of the same specs that no run recorded."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runner.judge.evidence import CarriedOut, carried_out, recorded_observation
from runner.language.backends import Backends
from runner.language.expand.cases import surroundings_for
from runner.model.case import Case
from runner.model.conditions import Surroundings
from runner.model.outcomes import PASSED, Outcome
from runner.model.results import CaseResult
from runner.plan.selection import without_benches
from runner.record.case_files import OBSERVATION, RecordedFiles
from runner.record.journal import read_run
from runner.record.run_folder import JOURNAL, find_run
from runner.run.auditing import recorded_cases
from runner.run.machines_then import here_of
from runner.run.rejudge import files_of

BLESSABLE = (Outcome.FAIL, Outcome.OFFLINE_FAIL)
"""Outcomes of which facts can be blessed. A crash, a hang, an error and a wrong proof cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A run: what its specs were read with, and on which machine."""

    run: str
    torch: str | None
    backend_files: tuple[Path, ...]
    machine: tuple[tuple[str, str], ...]
    """The facts of the machine and its torch: what differs between runs with the same facts is unstable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A case in one run. Its steps are empty where no facts were recorded."""

    source: Source
    case: Case
    surroundings: Surroundings
    result: CaseResult
    folder: Path
    steps: tuple[CarriedOut, ...]

    @property
    def key(self) -> tuple[str, str]:
        """Its run and its id."""
        return self.source.run, str(self.case.id)

    @property
    def is_red(self) -> bool:
        """Whether the case failed the run."""
        return self.result.outcome.is_failure

    @property
    def is_usable(self) -> bool:
        """Whether its facts may become a claim: those of a waived failure may not."""
        return self.result.outcome in (*PASSED, *BLESSABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The samples of all runs, and the cases that none recorded."""

    samples: tuple[Sample, ...]
    others: tuple[tuple[Case, Surroundings], ...]
    """Cases without facts in any run, each with what is known of where it runs."""
    red: tuple[tuple[str, CaseResult], ...]
    """Each failed case with the name of its run, also those without facts."""
    backends: Backends


def read_samples(runs: Iterable[str], backend_files: tuple[Path, ...]) -> Recorded:
    """Read the runs, with these files of backends or their own.

    Raise ``UsageError`` for a run whose specs changed since, or that its own files contradict.
    """
    samples: list[Sample] = []
    cases: dict[str, Case] = {}
    red: list[tuple[str, CaseResult]] = []
    backends = Backends({})
    for name in runs:
        folder = find_run(name)
        ran = recorded_cases([name], folder, backend_files)
        backends = ran.suite.backends
        cases |= {case.id: case for case in ran.suite.cases}
        run = read_run(folder / JOURNAL)
        files_of_backends = backend_files or tuple(files_of(run.header, "backends"))
        red += [(run.header.run_id, result) for result in run.results if result.outcome.is_failure]
        for case, result in ran.results:
            surroundings = here_of(case, backends.by_name[case.backend], result, ran.known)
            facts = result.node or run.header.environment
            machine = tuple(sorted(facts.items()))
            source = Source(run=run.header.run_id, torch=facts.get("torch"), backend_files=files_of_backends, machine=machine)
            case = without_benches(case) if result.benches_left_out else case
            place = folder / result.folder
            steps: tuple[CarriedOut, ...] = ()
            if result.folder and OBSERVATION in result.evidence:
                files = RecordedFiles(place, result.evidence)
                steps = tuple(carried_out(case, recorded_observation(files.observation()), files.code))
            samples.append(Sample(source=source, case=case, surroundings=surroundings, result=result, folder=place, steps=steps))
    known = {sample.case.id for sample in samples if sample.steps}
    nothing = Surroundings(backends=frozenset(), device="")
    others = [
        (case, surroundings_for(backends.by_name[case.backend], nothing, case.target)) for case in cases.values() if case.id not in known
    ]
    return Recorded(samples=tuple(samples), others=tuple(others), red=tuple(red), backends=backends)
