"""The stages of ``run``, in order: prepare, open the folder, execute, verify, report. The caller passes the listeners."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TypeAlias

from runner.core import required
from runner.core.case import Case
from runner.core.diagnostics import JournalAltered
from runner.core.events import ExecutionEnded, Listener, Note, ResultsCompleted, RunAbandoned, RunEnded, RunStarted, Warned
from runner.core.exit_codes import ExitCode, exit_code
from runner.core.header import RunFooter
from runner.core.options import RunOptions
from runner.core.results import NODE_LOST, CaseResult, executed
from runner.judge.void_waivers import lines_of, void_waivers
from runner.judge.waivers import warnings
from runner.record.evidence import alterations
from runner.record.run_folder import RunFolder, open_run, require_free_report
from runner.run.execution import Execution
from runner.run.header import now
from runner.run.header_stage import HeaderStage
from runner.run.ledger import Ledger
from runner.run.preparation import Prepared, check, choose, prepare
from runner.run.repro import repro
from runner.run.results import result_of_unrun
from runner.system import output
from runner.system.signals import Interrupts

OpenReporters: TypeAlias = Callable[[RunOptions, RunFolder], Listener]


def run(options: RunOptions, open_reporters: OpenReporters) -> ExitCode:
    """Run the selected cases; return the exit code for CI systems."""
    checked = check(options)
    selection = choose(checked.options, checked.profile, checked.failed)
    if not selection.whole:  # an empty shard of a selection is recorded, so that a merge finds all shards
        return ExitCode.NOTHING
    return run_prepared(prepare(checked, selection), open_reporters)


def run_prepared(prepared: Prepared, open_reporters: OpenReporters) -> ExitCode:
    """Run cases that are selected already; return the exit code for CI systems."""
    require_free_report(prepared.options.junit)
    if prepared.options.resume:
        from runner.run.resume import open_folder

        folder = open_folder(prepared)
    else:
        folder = open_run(prepared.options.out)
    try:
        folder.claim_report(prepared.options.junit)
        _print_warnings(prepared)
        with closing(open_reporters(prepared.options, folder)) as listener, Interrupts() as interrupts:
            return Controller(prepared, folder, listener, interrupts).run()
    finally:
        folder.release()


def _print_warnings(prepared: Prepared) -> None:
    """Print the warnings that are known before anything runs."""
    selection = prepared.selection
    for warning in warnings(selection.waivers, [case.id for case in selection.suite.cases]):
        output.note(f"warning: {warning}")
    for problem in required.problems(prepared.options.require, selection.whole, selection.selected, None):
        output.note(f"warning: {problem}")


class Controller:
    """One run, from its open folder to its exit code."""

    def __init__(self, prepared: Prepared, folder: RunFolder, listener: Listener, interrupts: Interrupts) -> None:
        self._options = prepared.options
        self._selection = prepared.selection
        self._folder = folder
        self._emit = listener.on_event
        self._interrupts = interrupts
        self._begun = time.monotonic()
        self._is_interrupted = False
        self._header = HeaderStage(prepared, folder, self._emit)
        self._ledger = Ledger(prepared.policy, folder.finished, folder.attempts, self._emit)
        self._execution = Execution(prepared, folder, self._header, self._ledger, interrupts, self._emit)

    def run(self) -> ExitCode:
        """Run the stages. An altered journal ends the run in any stage."""
        try:
            self._start()
            found = self._execute()
            self._verify()
            for warning in found:
                self._emit(Warned(text=warning))
            self._close_unfinished()
            return self._report()
        except JournalAltered as error:
            known = tuple(self._ledger.of(self._selection.selected))
            self._emit(RunAbandoned(header=self._header.header, results=known, why=str(error)))
            raise

    def _start(self) -> None:
        total = sum(case.id not in self._ledger.results for case in self._selection.selected)
        self._emit(RunStarted(header=self._header.header, total=total, is_resumed=self._header.is_resumed))

    def _execute(self) -> list[str]:
        try:
            return self._execution.run()
        except KeyboardInterrupt:
            self._is_interrupted = True
            return []

    def _verify(self) -> None:
        """Verify, after all workers have ended, that journal and files are unchanged; raise ``JournalAltered``."""
        self._emit(ExecutionEnded())
        for result in self._ledger.results.values():
            for problem in alterations(self._folder.path, result):
                raise JournalAltered(f"{problem}; a later case or another program changed it")
        self._is_interrupted |= self._interrupts.asked > 0

    def _close_unfinished(self) -> None:
        """Record a result with the reason for every case that has none."""
        reason = "interrupted" if self._is_interrupted else "stopped at the first failure"
        self._header.require()
        for case in self._selection.selected:
            lost = self._execution.unrun.get(case.id, "")
            unrun = self._lost if lost else self._unrun
            self._ledger.close(case, lost or reason, unrun, interrupted=self._is_interrupted)

    def _report(self) -> ExitCode:
        """Let the listeners write their files, then end the journal: the run is complete when its files are written."""
        code = self._exit_code()
        results = tuple(self._ledger.of(self._selection.selected))
        footer = self._footer(code)
        self._emit(ResultsCompleted(header=self._header.header, results=results, footer=footer))
        void = self._void_waivers(results)
        footer = replace(footer, ended=now(), seconds=self._seconds())  # with the time that the files took
        self._emit(RunEnded(header=self._header.header, results=results, footer=footer, void_waivers=void))
        return code

    def _void_waivers(self, results: Sequence[CaseResult]) -> tuple[str, ...]:
        waivers = self._selection.waivers
        found = list(void_waivers(waivers, results, [case.id for case in self._selection.suite.cases]))
        return tuple(lines_of(found, waivers.files.documents))

    def _unrun(self, case: Case, reason: str) -> CaseResult:
        return result_of_unrun(case, reason, repro(self._options, case))

    def _lost(self, case: Case, reason: str) -> CaseResult:
        return replace(self._unrun(case, reason), failure_type=NODE_LOST)

    def _exit_code(self) -> ExitCode:
        """Return the exit code. A success in which a name of ``--require`` was not exercised is NOTHING, with a message."""
        if self._is_interrupted:
            return ExitCode.INTERRUPTED
        results = self._ledger.results
        if (statement := self._header.header.statement(results.values())) is not None:
            return statement.conformance.exit_code
        code = exit_code(
            (result.outcome for result in results.values()),
            self._options.min_executed,
            lets_flaky_pass=self._header.header.lets_flaky_pass,
            executed=executed(results.values()),
        )
        if code not in (ExitCode.OK, ExitCode.NOTHING):
            return code
        unexercised = list(required.problems(self._options.require, self._selection.whole, self._selection.selected, results))
        for problem in unexercised:
            self._emit(Note(text=problem))
        return ExitCode.NOTHING if unexercised else code

    def _seconds(self) -> float:
        return round(time.monotonic() - self._begun, 3)

    def _footer(self, code: ExitCode) -> RunFooter:
        statement = self._header.header.statement(self._ledger.results.values())
        return RunFooter(
            ended=now(),
            seconds=self._seconds(),
            exit_code=int(code),
            interrupted=self._is_interrupted,
            statement=(statement,) if statement else (),
            audit=self._execution.audit_score(),
        )
