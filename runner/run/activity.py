"""Converts activity reports of the executor to events: a case started, a phase was entered, what the run waits for."""

from collections import Counter
from collections.abc import Callable

from runner.core.events import Activity, CaseStarted, PhaseEntered, RunEvent, Waiting


class ActivityEvents:
    """Compares each activity report with the one before it."""

    def __init__(self, emit: Callable[[RunEvent], None]) -> None:
        self._emit = emit
        self._phases: dict[tuple[str, float], str] = {}
        """The phases of the executions that ran at the last report, by case and start."""
        self._unfinished: Counter[str] = Counter()
        """How many executions of each case have started and have no result yet."""

    def show(self, activity: Activity) -> None:
        """Emit the changes since the last report, and what the run waits for now."""
        now = {(case.name, case.since): case.phase for case in activity.running}
        for (case_id, since), phase in now.items():
            if (case_id, since) not in self._phases:
                self._start(case_id)
            if phase and phase != self._phases.get((case_id, since)):
                self._emit(PhaseEntered(case_id=case_id, phase=phase))
        self._phases = now
        self._emit(Waiting(activity=activity))

    def ended(self, case_id: str) -> None:
        """Emit the start of a case before its result, where it started and ended between two reports."""
        if not self._unfinished[case_id]:
            self._start(case_id)
        self._unfinished[case_id] -= 1

    def _start(self, case_id: str) -> None:
        self._unfinished[case_id] += 1
        self._emit(CaseStarted(case_id=case_id))
