"""Turns what the executor reports that it does into events: which case started, which phase it entered, what the run waits for."""

from collections import Counter
from collections.abc import Callable

from runner.core.events import CaseStarted, PhaseEntered, RunEvent, Waiting
from runner.core.model import Activity


class ActivityEvents:
    """Compares each report with the one before it."""

    def __init__(self, emit: Callable[[RunEvent], None]) -> None:
        self._emit = emit
        self._phases: dict[tuple[str, float], str] = {}
        """Of the executions that ran at the last report, by case and start."""
        self._unfinished: Counter[str] = Counter()
        """How many executions of each case were reported to start and have no result yet."""

    def show(self, activity: Activity) -> None:
        """Emit what changed, and what the run waits for now."""
        now = {(case.name, case.since): case.phase for case in activity.running}
        for (case_id, since), phase in now.items():
            if (case_id, since) not in self._phases:
                self._start(case_id)
            if phase and phase != self._phases.get((case_id, since)):
                self._emit(PhaseEntered(case_id=case_id, phase=phase))
        self._phases = now
        self._emit(Waiting(activity=activity))

    def ended(self, case_id: str) -> None:
        """Make sure that a result does not come before the start of its case: a short one may end between two reports."""
        if not self._unfinished[case_id]:
            self._start(case_id)
        self._unfinished[case_id] -= 1

    def _start(self, case_id: str) -> None:
        self._unfinished[case_id] += 1
        self._emit(CaseStarted(case_id=case_id))
