"""The stages of ``run``, in their order: prepare, open the folder, execute, verify, report. Whoever calls it brings the listeners."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TypeAlias

from runner.core.conditions import Surroundings
from runner.core.diagnostics import JournalAltered
from runner.core.events import (
    ExecutionEnded,
    HeaderCompleted,
    Listener,
    Note,
    ResultsCompleted,
    RunAbandoned,
    RunEnded,
    RunStarted,
    Warned,
)
from runner.core.exit_codes import ExitCode, exit_code
from runner.core.header import RunFooter
from runner.core.model import Case, CaseResult
from runner.core.options import RunOptions
from runner.execute.services import named_servers
from runner.judge.waivers import warnings
from runner.language.expand.cases import surroundings
from runner.language.load import surroundings_of
from runner.plan import required
from runner.record.evidence import alterations
from runner.record.journal import totals
from runner.record.run_folder import RunFolder
from runner.run import resume
from runner.run.activity import ActivityEvents
from runner.run.audit_warnings import AuditWarnings
from runner.run.header import now
from runner.run.ledger import Ledger
from runner.run.preparation import Prepared, check, choose, prepare
from runner.run.repro import repro
from runner.run.retries import run_rounds
from runner.run.session import CaseRunner, result_of_unavailable, result_of_unrun
from runner.system import availability, output
from runner.system.capabilities import Machine
from runner.system.installed_torch import facts_of_files, installed_torch
from runner.system.redaction import redacted_texts
from runner.system.signals import Interrupts

OpenReporters: TypeAlias = Callable[[RunOptions, RunFolder], Listener]


def run(options: RunOptions, open_reporters: OpenReporters) -> ExitCode:
    """Run the selected cases; the exit code says what a CI system may conclude."""
    checked = check(options)
    selection = choose(checked.options)
    if not selection.whole:  # a shard without a case is recorded all the same, so that a merge misses nothing
        return ExitCode.NOTHING
    prepared = prepare(checked, selection)
    folder = resume.open_folder(prepared)
    try:
        folder.claim_junit(prepared.options.junit)
        _print_warnings(prepared)
        with closing(open_reporters(prepared.options, folder)) as listener, Interrupts() as interrupts:
            return Controller(prepared, folder, listener, interrupts).run()
    finally:
        folder.release()


def _print_warnings(prepared: Prepared) -> None:
    """Print what is known to be wrong before anything runs."""
    selection = prepared.selection
    for warning in warnings(selection.waivers, [case.id for case in selection.suite.cases]):
        output.note(f"warning: {warning}")
    for problem in required.problems(prepared.options.require, selection.whole, selection.selected, None):
        output.note(f"warning: {problem}")


class Controller:
    """One run, from its open folder to its exit code."""

    def __init__(self, prepared: Prepared, folder: RunFolder, listener: Listener, interrupts: Interrupts) -> None:
        self._prepared = prepared
        self._options = prepared.options
        self._selection = prepared.selection
        self._folder = folder
        self._emit = listener.on_event
        self._interrupts = interrupts
        self._begun = time.monotonic()
        self._header = folder.header or replace(prepared.header, run_id=folder.run_id)
        self._has_complete_header = folder.header is not None
        self._is_interrupted = False
        self._ledger = Ledger(prepared.policy, folder.finished, folder.attempts, self._emit)
        self._activity = ActivityEvents(self._emit)
        self._audit = AuditWarnings(folder)
        self._warnings: list[str] = []

    def run(self) -> ExitCode:
        """Go through the stages. An altered journal ends the run wherever that is noticed."""
        try:
            self._start()
            try:
                self._execute()
            except KeyboardInterrupt:
                self._is_interrupted = True
            self._verify()
            self._close_unfinished()
            return self._report()
        except JournalAltered as error:
            known = tuple(self._ledger.of(self._selection.selected))
            self._emit(RunAbandoned(header=self._header, results=known, why=str(error)))
            raise

    # -- the stages -------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        total = sum(case.id not in self._ledger.results for case in self._selection.selected)
        self._emit(RunStarted(header=self._header, total=total, is_resumed=self._has_complete_header))

    def _execute(self) -> None:
        if self._options.fail_fast and any(result.outcome.is_failure for result in self._ledger.executions):
            return
        unknown = [case for case in self._selection.selected if case.id not in self._ledger.results]
        waiting = [case for case in unknown if not self._ledger.had_all_attempts(case.id)]
        with self._case_runner(waiting) as runner:
            runner.heed(self._interrupts, lambda text: self._emit(Note(text=text)), self._activity.show)
            machine = runner.look_at_machine()
            self._complete_header(machine)
            known = surroundings_of(machine.torch, machine)
            resume.check_executions(self._options.resume or "", self._selection, self._folder, self._ledger.executions, machine, known)
            self._ledger.take_killed()
            self._run_cases(runner, self._take_unavailable(waiting, machine), known)
            self._warnings = [*runner.warnings, *self._audit.warnings()]

    def _verify(self) -> None:
        """Make sure, now that no worker lives, that journal and files are what was written and judged; raise ``JournalAltered``."""
        self._emit(ExecutionEnded())
        for result in self._ledger.results.values():
            for problem in alterations(self._folder.path, result):
                raise JournalAltered(f"{problem}; a later case or another program changed it")
        self._is_interrupted |= self._interrupts.asked > 0
        for warning in self._warnings:
            self._emit(Warned(text=warning))

    def _close_unfinished(self) -> None:
        reason = "interrupted" if self._is_interrupted else "stopped at the first failure"
        if not self._has_complete_header:
            self._emit_header()
        for case in self._selection.selected:
            self._ledger.close(case, reason, self._unrun, interrupted=self._is_interrupted)

    def _report(self) -> ExitCode:
        """Let the listeners write files, then end the journal: a run has reached its end when its files are written."""
        code = self._exit_code()
        results = tuple(self._ledger.of(self._selection.selected))
        self._emit(ResultsCompleted(header=self._header, results=results))
        self._emit(RunEnded(header=self._header, results=results, footer=self._footer(code)))
        return code

    # -- executing --------------------------------------------------------------------------------------------------

    def _case_runner(self, cases: Sequence[Case]) -> CaseRunner:
        glance = availability.glance(installed_torch(), named_servers(self._options.service))
        suite, waivers = self._selection.suite, self._selection.waivers
        return CaseRunner(self._options, suite, waivers, cases, self._folder, self._prepared.workers, glance, self._prepared.scheduling)

    def _complete_header(self, machine: Machine) -> None:
        """Record which machine this is; a run that is resumed must be on one like it."""
        told = {name: str(value) for name, value in machine.facts.items() if value is not None}
        environment = redacted_texts({**facts_of_files(installed_torch()), **told})
        if self._has_complete_header:
            resume.check_machine(self._options.resume or "", environment, self._header.environment)
            self._emit(HeaderCompleted(header=self._header, is_resumed=True))
        else:
            self._header = replace(self._header, environment=environment)
            self._emit_header()

    def _emit_header(self) -> None:
        self._has_complete_header = True
        self._emit(HeaderCompleted(header=self._header, is_resumed=False))

    def _take_unavailable(self, cases: Sequence[Case], machine: Machine) -> list[Case]:
        """Record the cases that cannot run here; return the others."""
        possible: list[Case] = []
        for case in cases:
            verdict = availability.of_case(case, machine)
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
                here = surroundings(self._selection.suite.backends.by_name[case.backend], known)
                self._audit.take(case, ended, here)

    # -- ending -----------------------------------------------------------------------------------------------------

    def _unrun(self, case: Case, reason: str) -> CaseResult:
        return result_of_unrun(case, reason, repro(self._options, case))

    def _exit_code(self) -> ExitCode:
        """Return the exit code. A success under which a required name was not exercised is NOTHING, and a message says why."""
        if self._is_interrupted:
            return ExitCode.INTERRUPTED
        results = self._ledger.results
        outcomes = (result.outcome for result in results.values())
        code = exit_code(outcomes, self._options.min_executed, lets_flaky_pass=self._header.lets_flaky_pass)
        if code not in (ExitCode.OK, ExitCode.NOTHING):
            return code
        unexercised = list(required.problems(self._options.require, self._selection.whole, self._selection.selected, results))
        for problem in unexercised:
            self._emit(Note(text=problem))
        return ExitCode.NOTHING if unexercised else code

    def _footer(self, code: ExitCode) -> RunFooter:
        return RunFooter(
            ended=now(),
            seconds=round(time.monotonic() - self._begun, 3),
            totals=totals(list(self._ledger.results.values())),
            exit_code=int(code),
            interrupted=self._is_interrupted,
        )
