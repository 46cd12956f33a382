"""The execution stage: get the facts of the machine, record the unavailable cases, run the others, record each result."""

from collections.abc import Callable, Mapping, Sequence

from runner.core.case import Case
from runner.core.conditions import Surroundings
from runner.core.events import Note, RunEvent
from runner.core.header import AuditScore
from runner.execute.executors import RAY
from runner.language.load import surroundings_of
from runner.record.run_folder import RunFolder
from runner.run.activity import ActivityEvents
from runner.run.audit_warnings import AuditWarnings
from runner.run.header_stage import HeaderStage
from runner.run.ledger import Ledger
from runner.run.machines_then import here_of
from runner.run.pipeline import CaseRunner
from runner.run.preparation import Prepared
from runner.run.repro import repro
from runner.run.results import result_of_unavailable
from runner.run.retries import run_rounds
from runner.system import availability
from runner.system.capabilities import Machine
from runner.system.installed_torch import installed_torch
from runner.system.signals import Interrupts


class Execution:
    """The execution stage of one run."""

    def __init__(
        self,
        prepared: Prepared,
        folder: RunFolder,
        header: HeaderStage,
        ledger: Ledger,
        interrupts: Interrupts,
        emit: Callable[[RunEvent], None],
    ) -> None:
        self._prepared = prepared
        self._options = prepared.options
        self._selection = prepared.selection
        self._folder = folder
        self._header = header
        self._ledger = ledger
        self._interrupts = interrupts
        self._emit = emit
        self._activity = ActivityEvents(emit)
        self._audit = AuditWarnings(folder)
        self.unrun: Mapping[str, str] = {}
        """Why cases were not run although the run was not interrupted, by id."""

    def run(self) -> list[str]:
        """Execute the cases without a result; return the warnings. Raise ``KeyboardInterrupt`` after a second interrupt."""
        if self._options.fail_fast and any(result.outcome.is_failure for result in self._ledger.executions):
            return []
        unknown = [case for case in self._selection.selected if case.id not in self._ledger.results]
        waiting = [case for case in unknown if not self._ledger.had_all_attempts(case.id)]
        recorded = {result.case_id for result in self._ledger.executions}
        with self._case_runner(waiting, [case for case in self._selection.selected if case.id in recorded]) as runner:
            runner.on_interrupt(self._interrupts, lambda text: self._emit(Note(text=text)), self._activity.show)
            machine = runner.look_at_machine()
            self._header.complete(machine, runner.facts_of_files(), is_compared=runner.checks_machine)
            known = surroundings_of(machine.torch, machine)
            if self._options.resume:
                from runner.run.resume import check_executions

                check_executions(self._options.resume, self._selection, self._folder, self._ledger.executions, machine, known)
            self._ledger.take_killed()
            self._run_cases(runner, self._take_unavailable(runner, waiting, machine), known)
            self.unrun = dict(runner.unrun)
            for note in runner.notes:
                self._emit(Note(text=note))
            return [*runner.warnings, *self._audit.warnings()]

    def audit_score(self) -> tuple[AuditScore, ...]:
        """Return the score of the audit of the cases that passed so far; empty where none did."""
        return self._audit.score()

    def _case_runner(self, cases: Sequence[Case], recorded: Sequence[Case]) -> CaseRunner:
        glance = availability.inspect_files(installed_torch())
        suite, waivers = self._selection.suite, self._selection.waivers
        prepared = self._prepared
        scheduling, executors = prepared.scheduling, prepared.executors
        if self._options.executor == RAY:
            from runner.run.fleet.runner import FleetRunner

            return FleetRunner(prepared, self._folder, cases, recorded, glance)
        return CaseRunner(self._options, suite, waivers, cases, self._folder, prepared.workers, glance, scheduling, recorded, executors)

    def _take_unavailable(self, runner: CaseRunner, cases: Sequence[Case], machine: Machine) -> list[Case]:
        """Record the cases that cannot run here; return the others."""
        possible: list[Case] = []
        for case in cases:
            verdict = runner.verdict_of(case, machine)
            if not verdict.reason:
                possible.append(case)
                continue
            names = [name for name in self._options.require if name in (case.backend, verdict.capability)]
            self._ledger.take(result_of_unavailable(case, verdict, names, repro(self._options, case, names)))
        return possible

    def _run_cases(self, runner: CaseRunner, cases: Sequence[Case], known: Surroundings) -> None:
        by_id: dict[str, Case] = {case.id: case for case in cases}
        for result in run_rounds(runner, cases, known, self._ledger, self._options, lambda: self._interrupts.asked > 0):
            self._activity.ended(result.case_id)
            ended = self._ledger.take_attempt(result)
            if ended is not None:
                case = by_id[ended.case_id]
                backend = self._selection.suite.backends.by_name[case.backend]
                self._audit.take(case, ended, here_of(case, backend, ended, known))
