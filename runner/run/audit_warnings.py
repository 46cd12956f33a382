"""Audits each passed case during the run. Expectations that could not have failed are reported in one warning at the end."""

import contextlib
import shlex
from pathlib import Path

from runner.core.case import Case
from runner.core.conditions import Surroundings
from runner.core.diagnostics import shown_path
from runner.core.outcomes import PASSED
from runner.core.results import CaseResult
from runner.judge.audit import Trial, audit, try_case
from runner.judge.reading import recorded_observation
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
        found = audit(self._tried).survivors
        count = len({(trial.position, trial.kind, trial.leaf) for trial in found})
        if not count:
            return []
        run = LATEST if self._folder.is_latest else shown_path(self._folder.path)
        command = shlex.join(["torch-conformance", "audit", run])
        return [f"{count} expectation{'' if count == 1 else 's'} passed and could not have failed; to print them: {command}"]
