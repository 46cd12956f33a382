"""Audits each passed case during the run. At the end one warning reports expectations that could not have failed.

The score goes into the footer of the journal.
"""

import contextlib
import itertools
import shlex
from collections.abc import Iterable
from pathlib import Path

from runner.core.case import Case
from runner.core.conditions import Surroundings
from runner.core.diagnostics import shown_path
from runner.core.header import AuditScore
from runner.core.outcomes import PASSED
from runner.core.results import CaseResult
from runner.judge.audit import Trial, audit, try_case
from runner.judge.evidence import recorded_observation
from runner.record.evidence import EvidenceAltered, RecordedFiles
from runner.record.run_folder import LATEST, RunFolder


class AuditWarnings:
    """The trials of the cases that passed so far."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._tried: list[tuple[Case, list[Trial]]] = []

    def take(self, case: Case, result: CaseResult, here: Surroundings) -> None:
        """Try the expectations of a case that passed. Workers continue meanwhile."""
        if result.outcome in PASSED:
            files = RecordedFiles(Path(self._folder.path, result.folder), result.evidence)
            with contextlib.suppress(OSError, ValueError, EvidenceAltered):  # at the end all files are verified
                self._tried.append((case, try_case(case, here, recorded_observation(files.observation()), files.code)))

    def warnings(self) -> list[str]:
        """Return at most one warning."""
        count = len(_weak(audit(self._tried).survivors))
        if not count:
            return []
        run = LATEST if self._folder.is_latest else shown_path(self._folder.path)
        command = shlex.join(["torch-conformance", "audit", run])
        return [f"{count} expectation{'' if count == 1 else 's'} passed and could not have failed; to print them: {command}"]

    def score(self) -> tuple[AuditScore, ...]:
        """Return the score of the cases that passed so far; empty where none did."""
        if not self._tried:
            return ()
        found = audit(self._tried)
        weak = _weak(found.survivors)
        return (
            AuditScore(
                cases=found.cases,
                expectations=found.expectations,
                applicable=found.applicable,
                killed=found.killed,
                excused=len(found.excused),
                weak=len(weak),
                listed=dict(itertools.islice(weak.items(), MOST_LISTED)),
            ),
        )


MOST_LISTED = 200
"""How many weak expectations the journal names."""

_LONGEST = 300


def _weak(survivors: Iterable[Trial]) -> dict[str, str]:
    """Return the expectations that held under a change of what was observed, each with its first change; a matrix has each once."""
    found: dict[str, str] = {}
    for trial in survivors:
        found.setdefault(f"{trial.position}: {trial.kind}{f' {trial.leaf}' if trial.leaf else ''}"[:_LONGEST], trial.mutant[:_LONGEST])
    return found
