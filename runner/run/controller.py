"""The stages of ``run``, in order: prepare, open the folder, execute, verify, close, report. The caller passes the listeners."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from runner.judge.waiving import remarks
from runner.language.load import surroundings_of
from runner.machine import output
from runner.machine.redaction import redacted_texts
from runner.machine.signals import Interrupts
from runner.model import header
from runner.model.case import Case, CaseId
from runner.model.conditions import Surroundings
from runner.model.diagnostics import JournalAltered
from runner.model.events import (
    AttemptFinished,
    CaseFinished,
    ExecutionEnded,
    HeaderCompleted,
    Listener,
    Note,
    ResultsCompleted,
    RunAbandoned,
    RunEnded,
    RunEvent,
    RunStarted,
)
from runner.model.header import RunFooter, RunHeader
from runner.model.optional import hooks
from runner.model.options import RunOptions, report_files
from runner.model.outcomes import ExitCode, exit_code
from runner.model.results import NODE_LOST, CaseResult, Policy, executed
from runner.record.case_files import alterations
from runner.record.run_folder import RunFolder, open_run, require_free_reports
from runner.run.case_results import repro, result_of_unavailable, result_of_unrun
from runner.run.earlier_runs import remember
from runner.run.pipeline import CaseRunner
from runner.run.preparation import Prepared, now, prepare

OpenReporters: TypeAlias = Callable[[RunOptions, RunFolder], Listener]


def run(options: RunOptions, open_reporters: OpenReporters) -> ExitCode:
    """Run the selected cases; return the exit code for CI systems."""
    return run_prepared(prepare(options), open_reporters)


def run_prepared(prepared: Prepared, open_reporters: OpenReporters) -> ExitCode:
    """Run cases that are selected already; return the exit code for CI systems."""
    if not prepared.whole:  # an empty shard of a selection is recorded, so that a merge finds all shards
        return ExitCode.NOTHING
    reports = report_files(prepared.options)
    require_free_reports(reports)
    if prepared.options.resume:
        from runner.run.resume import open_folder

        folder = open_folder(prepared)
    else:
        folder = open_run(prepared.options.out)
    try:
        folder.claim_reports(reports)
        remember(prepared.options.paths, folder.path)
        void = remarks(prepared.waivers, [case.id for case in prepared.suite.cases])
        known = [f"{remark.position}: {remark.message} ({remark.hint})" for remark in void]
        for warning in [*known, *header.problems(prepared.options.require, prepared.whole, prepared.selected, None)]:
            output.note(f"warning: {warning}")
        with closing(open_reporters(prepared.options, folder)) as listener, Interrupts() as interrupts:
            return Controller(prepared, folder, listener, interrupts).run()
    finally:
        folder.release()


class Controller:
    """One run, from its open folder to its exit code."""

    def __init__(self, prepared: Prepared, folder: RunFolder, listener: Listener, interrupts: Interrupts) -> None:
        self._prepared = prepared
        self._options = prepared.options
        self._folder = folder
        self._emit = listener.on_event
        self._interrupts = interrupts
        self._begun = time.monotonic()
        self._header: RunHeader = folder.header or replace(prepared.header, run_id=folder.run_id)
        self._is_resumed = folder.header is not None
        self._has_header = self._is_resumed
        """Whether the header is recorded."""
        self._ledger = Ledger(prepared.policy, folder.finished, folder.attempts, self._emit)
        self._unrun: Mapping[str, str] = {}
        """Why cases were not run although the run was not interrupted, by id."""

    def run(self) -> ExitCode:
        """Run the stages. An altered journal ends the run in any stage."""
        ledger, selected = self._ledger, self._prepared.selected
        try:
            total = sum(case.id not in ledger.results for case in selected)
            self._emit(RunStarted(header=self._header, total=total, is_resumed=self._is_resumed))
            warnings_of_run: list[str] = []
            is_interrupted = False
            try:
                warnings_of_run = self._execute()
            except KeyboardInterrupt:
                is_interrupted = True
            self._emit(ExecutionEnded())
            self._verify()
            is_interrupted |= self._interrupts.asked > 0
            for warning in warnings_of_run:
                self._emit(Note(text=warning, is_warning=True))
            # record a result with the reason for every case that has none
            reason = "interrupted" if is_interrupted else "stopped at the first failure"
            self._record_header()
            for case in selected:
                lost = self._unrun.get(case.id, "")
                unrun = result_of_unrun(case, lost or reason, repro(self._options, case))
                ledger.close(unrun if not lost else replace(unrun, failure_type=NODE_LOST), lost or reason, interrupted=is_interrupted)
            return self._report(is_interrupted=is_interrupted)
        except JournalAltered as error:
            self._emit(RunAbandoned(header=self._header, results=tuple(ledger.of(selected)), why=str(error)))
            raise

    def _verify(self) -> None:
        """Verify, after all workers have ended, that journal and files are unchanged; raise ``JournalAltered``."""
        for result in self._ledger.results.values():
            for problem in alterations(self._folder.path, result):
                raise JournalAltered(f"{problem}; a later case or another program changed it")

    def _execute(self) -> list[str]:
        """Execute the cases without a result; return the warnings. Raise ``KeyboardInterrupt`` after a second interrupt."""
        options, ledger, prepared = self._options, self._ledger, self._prepared
        if options.fail_fast and any(result.outcome.is_failure for result in ledger.executions):
            return []
        unknown = [case for case in prepared.selected if case.id not in ledger.results]
        waiting = [case for case in unknown if not ledger.had_all_attempts(case.id)]
        recorded_ids = {result.case_id for result in ledger.executions}
        recorded = [case for case in prepared.selected if case.id in recorded_ids]
        if options.executor == "ray":
            runner: CaseRunner = hooks("fleet").FleetRunner(prepared, self._folder, waiting, recorded)
        else:
            runner = CaseRunner(
                options,
                prepared.suite,
                waiting,
                self._folder,
                prepared.workers,
                waivers=prepared.waivers,
                scheduling=prepared.scheduling,
                recorded=recorded,
                make_executor=prepared.make_executor,
            )
        with runner:
            runner.on_interrupt(self._interrupts, lambda text: self._emit(Note(text=text)), self._emit)
            machine = runner.look_at_machine()
            known = surroundings_of(machine.torch, machine)
            reported = {name: str(value) for name, value in machine.facts.items() if value is not None}
            environment = redacted_texts({**runner.facts_of_files(), **reported})
            if not self._is_resumed:
                self._header = replace(self._header, environment=environment)
                self._record_header()
            else:
                if runner.checks_machine:
                    from runner.run.resume import check_machine

                    check_machine(options.resume or "", environment, self._header.environment)
                self._emit(HeaderCompleted(header=self._header, is_resumed=True))
            if options.resume:
                from runner.run.resume import check_executions

                check_executions(options.resume, prepared, self._folder, ledger.executions, machine, known)
            # cases whose attempts were complete when the interrupted run was killed
            for case_id in filter(ledger.had_all_attempts, list(ledger.attempts)):
                ledger.take(prepared.policy.fold(ledger.attempts.pop(case_id)))
            possible: list[Case] = []
            for case in waiting:
                if not (verdict := runner.verdict_of(case, machine)).reason:
                    possible.append(case)
                    continue
                names = [name for name in options.require if name in (case.backend, verdict.capability)]
                ledger.take(result_of_unavailable(case, verdict, names, repro(options, case, names)))
            self._run_rounds(runner, possible, known)
            self._unrun = dict(runner.unrun)
            return runner.warnings

    def _record_header(self) -> None:
        """Record the header if it is not recorded yet: a run may end before the machine is known."""
        if not self._has_header:
            self._has_header = True
            self._emit(HeaderCompleted(header=self._header, is_resumed=False))

    def _run_rounds(self, runner: CaseRunner, cases: Sequence[Case], known: Surroundings) -> None:
        """Run all cases in parallel, then the failed ones that have retries left, each alone.

        A round begins after all executions of the previous round are recorded. With ``--fail-fast`` a failure ends the last one.
        """
        ledger = self._ledger
        waiting = [case for case in cases for _ in range(self._prepared.policy.remaining(ledger.attempts.get(case.id, ())))]
        alone = False
        while (waiting or not alone) and not self._interrupts.asked:
            for result in runner.run(waiting, known, partial(repro, self._options), alone=alone):
                if result.case_id in ledger.results:
                    continue
                ledger.take_attempt(result)
                if self._options.fail_fast and result.outcome.is_failure:
                    return
            waiting = [case for case in cases if case.id in ledger.attempts]
            alone = True

    def _report(self, *, is_interrupted: bool) -> ExitCode:
        """Let the listeners write their files, then end the journal: the run is complete when its files are written."""
        results = tuple(self._ledger.of(self._prepared.selected))
        code = ExitCode.INTERRUPTED if is_interrupted else self._exit_code()
        footer = RunFooter(
            ended=now(),
            seconds=round(time.monotonic() - self._begun, 3),
            exit_code=int(code),
            interrupted=is_interrupted,
        )
        self._emit(ResultsCompleted(header=self._header, results=results, footer=footer))
        footer = replace(footer, ended=now(), seconds=round(time.monotonic() - self._begun, 3))  # with the time that the files took
        self._emit(RunEnded(header=self._header, results=results, footer=footer))
        return code

    def _exit_code(self) -> ExitCode:
        """Return the exit code. A success in which a name of ``--require`` was not exercised is NOTHING, with a message."""
        results = self._ledger.results
        if (statement := self._header.statement(results.values())) is not None:
            return ExitCode(statement.conformance.exit_code)
        code = exit_code(
            (result.outcome for result in results.values()),
            self._options.min_executed,
            lets_flaky_pass=self._header.lets_flaky_pass,
            executed=executed(results.values()),
        )
        if code not in (ExitCode.OK, ExitCode.NOTHING):
            return code
        unexercised = list(header.problems(self._options.require, self._prepared.whole, self._prepared.selected, results))
        for problem in unexercised:
            self._emit(Note(text=problem))
        return ExitCode.NOTHING if unexercised else code


class Ledger:
    """The results of a run so far, and the attempts of cases that have none yet. Every change is emitted as an event.

    The ledger of a resumed run starts with the records of the interrupted run.
    """

    def __init__(
        self,
        policy: Policy,
        finished: Iterable[CaseResult],
        attempts: Mapping[CaseId, Sequence[CaseResult]],
        emit: Callable[[RunEvent], None],
    ) -> None:
        self._policy = policy
        self._emit = emit
        self.results: dict[str, CaseResult] = {result.case_id: result for result in finished}
        self.attempts: dict[str, list[CaseResult]] = {case_id: list(results) for case_id, results in attempts.items()}

    @property
    def executions(self) -> Iterator[CaseResult]:
        """The results, and the attempts of cases that have no result."""
        yield from self.results.values()
        for results in self.attempts.values():
            yield from results

    def of(self, cases: Iterable[Case]) -> list[CaseResult]:
        """Return the known results of cases, in the order of the cases."""
        return [self.results[case.id] for case in cases if case.id in self.results]

    def had_all_attempts(self, case_id: str) -> bool:
        """Return whether a case without a result needs no further attempt."""
        results = self.attempts.get(case_id, ())
        return bool(results) and self._policy.is_done(results)

    def take(self, result: CaseResult) -> None:
        """Record the result of a case."""
        self._emit(CaseFinished(result=result))
        self.results[result.case_id] = result

    def take_attempt(self, result: CaseResult) -> None:
        """Record an attempt, and the case's result if it was the last attempt."""
        results = [*self.attempts.get(result.case_id, ()), result]
        is_done = self._policy.is_done(results)
        if is_done and len(results) == 1:
            self.take(result)
            return
        self._emit(AttemptFinished(result=result, number=len(results), bound=self._policy.bound))
        self.attempts[result.case_id] = results
        if is_done:
            self.take(self._policy.fold(self.attempts.pop(result.case_id)))

    def close(self, unrun: CaseResult, reason: str, *, interrupted: bool) -> None:
        """Record a case with missing attempts when the run ends; ``unrun`` is the result of a case without any attempt."""
        case_id = unrun.case_id
        if case_id in self.results:
            return
        had_all = self.had_all_attempts(case_id)
        attempts = self.attempts.pop(case_id, None)
        if attempts is None:
            result = unrun
        elif had_all:
            result = self._policy.fold(attempts)
        else:
            result = self._policy.interrupted(attempts) if interrupted else self._policy.fold(attempts, reason)
        self._emit(CaseFinished(result=result, had_all_attempts=False))
        self.results[case_id] = result
