"""A run of the program that has ended, as the acceptance tests look at it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.model.outcomes import Outcome
from runner.model.results import CaseResult
from runner.record.journal import Run, read_run


@dataclass(frozen=True)
class Ran:
    """What a run said, and what it left."""

    out: Path
    code: int
    stdout: str
    stderr: str

    @property
    def run(self) -> Run:
        return read_run(self.out / "run.jsonl")

    @property
    def results(self) -> Mapping[str, CaseResult]:
        found = {str(result.case_id): result for result in self.run.results}
        assert len(found) == len(self.run.results)
        return found

    @property
    def outcomes(self) -> dict[str, Outcome]:
        return {name: result.outcome for name, result in self.results.items()}

    @property
    def last_line(self) -> str:
        return self.stdout.splitlines()[-1]
