"""The stages of ``run``, in order: prepare, open the folder, execute, verify, close, report.

The caller passes the listeners.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from torch_conformance.execute.executor_protocol import StartUp
from torch_conformance.judge.waiving import remarks
from torch_conformance.language.load import surroundings_of
from torch_conformance.machine import output
from torch_conformance.machine.capabilities import Machine
from torch_conformance.machine.redaction import redacted_texts
from torch_conformance.machine.signals import Interrupts
from torch_conformance.model import events, header
from torch_conformance.model.case import Case, CaseId
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.diagnostics import JournalAltered
from torch_conformance.model.header import MachineWarning, RunFooter, RunHeader
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.model.results import NODE_LOST, Redacted
from torch_conformance.optional.options import RunOptions, report_files
from torch_conformance.optional.tools import hooks, is_there
from torch_conformance.plan.profile import profiles
from torch_conformance.plan.schedule import cores, tools_of
from torch_conformance.plan.worker_plan import digest_of
from torch_conformance.record.case_files import alterations
from torch_conformance.record.conclusion import conclusion_of, profile_statement
from torch_conformance.record.run_folder import RunFolder, open_run, remember, require_free_reports
from torch_conformance.run.costs import costs_of, phases_of_start
from torch_conformance.run.pipeline import CaseRunner, repro, result_of_unavailable, result_of_unrun
from torch_conformance.run.preparation import Prepared, now

OpenReporters: TypeAlias = Callable[[RunOptions, RunFolder], events.Listener]


def run_prepared(prepared: Prepared, open_reporters: OpenReporters) -> ExitCode:
    """Run cases that are selected already; return the exit code for CI systems."""
    options = prepared.options
    if not prepared.whole:
        # an empty shard of a selection is recorded, so that a merge finds all shards
        return ExitCode.NOTHING
    reports = report_files(options)
    require_free_reports(reports)
    if options.resume:
        from torch_conformance.run.earlier_runs import resume_run

        digests: dict[str, str] = {case.id: digest_of(case) for case in prepared.selected}
        folder = resume_run(
            options.resume, prepared.header, digests, prepared.judged_by, options.out
        )
    else:
        folder = open_run(options.out, prepared.header.run_id)
    try:
        folder.claim_reports(reports)
        remember(folder.path, options.paths)
        prepared.suite.freeze()
        void = remarks(prepared.waivers, [case.id for case in prepared.suite.cases])
        warnings = [f"{remark.position}: {remark.message} ({remark.hint})" for remark in void]
        for warning in [
            *warnings,
            *header.problems(options.require, prepared.whole, prepared.selected, None),
        ]:
            output.note(f"warning: {warning}")
        with closing(open_reporters(options, folder)) as listener, Interrupts() as interrupts:
            return Controller(prepared, folder, listener, interrupts).run()
    finally:
        folder.release()


class Controller:
    """One run, from its open folder to its exit code: its results, and the attempts of cases that
    have none yet.

    Every change of these is emitted as an event. A resumed run starts with the records of the
    interrupted run.
    """

    def __init__(
        self,
        prepared: Prepared,
        folder: RunFolder,
        listener: events.Listener,
        interrupts: Interrupts,
    ) -> None:
        self._prepared = prepared
        self._options = prepared.options
        self._policy = prepared.policy
        self._folder = folder
        self._emit = listener.on_event
        self._interrupts = interrupts
        self._begun = time.monotonic() - prepared.seconds
        self._is_resumed = folder.header is not None
        self._has_header = self._is_resumed
        """Whether the header is recorded."""
        self._header: RunHeader = folder.header or replace(prepared.header, run_id=folder.run_id)
        self._results: dict[CaseId, Redacted] = {
            result.case_id: result for result in folder.finished
        }
        self._attempts: dict[CaseId, list[Redacted]] = {
            case_id: list(results) for case_id, results in folder.attempts.items()
        }
        self._executed: list[Redacted] = []
        """The results of this part of the run, with each attempt."""
        self._failed: set[CaseId] = set()
        """The cases that ``--max-failures`` counts."""
        self._unrun: Mapping[str, str] = {}
        """Why cases were not run although the run was not interrupted, by id."""
        self._warnings: Sequence[str] = ()
        self._start_up: StartUp | None = None
        self._machine: Machine | None = None

    def run(self) -> ExitCode:
        """Run the stages. An altered journal ends the run in any stage."""
        selected = self._prepared.selected
        try:
            total = sum(case.id not in self._results for case in selected)
            self._emit(
                events.RunStarted(header=self._header, total=total, is_resumed=self._is_resumed)
            )
            is_interrupted = False
            try:
                self._execute()
            except KeyboardInterrupt:
                is_interrupted = True
            self._emit(events.ExecutionEnded())
            self._verify()
            is_interrupted |= self._interrupts.asked > 0
            for warning in self._warnings:
                self._emit(events.Note(text=warning, is_warning=True))
            self._record_header()
            for case in selected:
                if case.id not in self._results:
                    self._close(case, is_interrupted=is_interrupted)
            return self._report(is_interrupted=is_interrupted)
        except JournalAltered as error:
            self._emit(
                events.RunAbandoned(header=self._header, results=self._ordered(), why=str(error))
            )
            raise

    def _verify(self) -> None:
        """Verify, after all workers have ended, that the files of cases are unchanged; raise
        ``JournalAltered``.
        """
        for result in self._results.values():
            for problem in alterations(self._folder.path, result):
                raise JournalAltered(f"{problem}; a later case or another program changed it")

    def _ordered(self) -> tuple[Redacted, ...]:
        """Return the known results, in the order of reports."""
        return tuple(
            self._results[case.id] for case in self._prepared.selected if case.id in self._results
        )

    def _record_header(self) -> None:
        """Record the header if it is not recorded yet: a run may end before the machine is
        known.
        """
        if not self._has_header:
            self._has_header = True
            self._emit(events.HeaderCompleted(header=self._header, is_resumed=False))

    # -- execution ---------------------------------------------------------------------------------

    def _execute(self) -> None:
        """Execute the cases without a result.

        Raise ``KeyboardInterrupt`` after a second interrupt.
        """
        options, prepared = self._options, self._prepared
        executions = [
            *self._results.values(),
            *itertools.chain.from_iterable(self._attempts.values()),
        ]
        for result in self._results.values() if self._policy.repeat == 1 else executions:
            self._count_failure(result)
        if self._is_stopped():
            return
        unknown = [case for case in prepared.selected if case.id not in self._results]
        complete = [
            case_id
            for case_id, attempts in self._attempts.items()
            if self._policy.is_done(attempts)
        ]
        waiting = [case for case in unknown if case.id not in complete]
        recorded_ids = {result.case_id for result in executions}
        recorded = [case for case in prepared.selected if case.id in recorded_ids]
        if options.executor == "ray":
            of_fleet: Callable[
                [Prepared, RunFolder, Sequence[Case], Sequence[Case]], CaseRunner
            ] = hooks("fleet").FleetRunner
            runner = of_fleet(prepared, self._folder, waiting, recorded)
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
        with closing(runner):
            runner.on_interrupt(
                self._interrupts, lambda text: self._emit(events.Note(text=text)), self._emit
            )
            self._machine = machine = runner.look_at_machine()
            surroundings = surroundings_of(machine.torch, machine)
            reported = {
                name: str(value) for name, value in machine.facts.items() if value is not None
            }
            environment = redacted_texts(
                {**(runner.facts_of_files or prepared.header.environment), **reported}
            )
            if options.resume:
                from torch_conformance.run.earlier_runs import check_executions, check_machine

                if self._is_resumed and runner.checks_machine:
                    check_machine(options.resume, environment, self._header.environment)
                backends = prepared.suite.backends.by_name
                check_executions(
                    executions,
                    prepared.selected,
                    backends,
                    prepared.waivers,
                    self._folder.path,
                    machine,
                    surroundings,
                )
            if self._is_resumed:
                self._emit(events.HeaderCompleted(header=self._header, is_resumed=True))
            else:
                self._header = replace(self._header, environment=environment)
                self._record_header()
            for case_id in complete:  # when the interrupted run was killed
                self._take(self._policy.fold(self._attempts.pop(case_id)))
            possible: list[Case] = []
            for case in waiting:
                if not (verdict := runner.verdict_of(case, machine)).reason:
                    possible.append(case)
                    continue
                names = [
                    name for name in options.require if name in (case.backend, verdict.capability)
                ]
                self._take(result_of_unavailable(case, verdict, names, repro(options, case, names)))
            self._run_rounds(runner, possible, surroundings)
            self._unrun, self._warnings = dict(runner.unrun), runner.warnings
            self._start_up = runner.start_up

    def _run_rounds(
        self, runner: CaseRunner, cases: Sequence[Case], surroundings: Surroundings
    ) -> None:
        """Run all cases in parallel, then the failed ones that have retries left, one at a time.

        A round begins after all executions of the previous round are recorded. The failure that
        ``--max-failures`` counts last ends the last one.
        """
        waiting = [
            case
            for case in cases
            for _ in range(self._policy.remaining(self._attempts.get(case.id, ())))
        ]
        exclusively = False
        while (waiting or not exclusively) and not (self._interrupts.asked or self._is_stopped()):
            for result in runner.run(
                waiting, surroundings, partial(repro, self._options), exclusively=exclusively
            ):
                self._executed.append(result)
                if result.case_id in self._results:
                    continue
                attempts = [*self._attempts.get(result.case_id, ()), result]
                is_done = self._policy.is_done(attempts)
                if not is_done or len(attempts) > 1:
                    self._emit(
                        events.AttemptFinished(
                            result=result, number=len(attempts), bound=self._policy.bound(result)
                        )
                    )
                    self._attempts[result.case_id] = attempts
                if is_done:
                    self._take(
                        result
                        if len(attempts) == 1
                        else self._policy.fold(self._attempts.pop(result.case_id))
                    )
                if self._policy.repeat > 1:
                    self._count_failure(result)  # retries may pass yet; repetitions cannot
                if self._is_stopped():
                    return
            waiting = [
                case for case in cases if case.id in self._attempts and case.id not in runner.unrun
            ]
            exclusively = True

    def _count_failure(self, result: Redacted) -> None:
        """Count a case that failed, for ``--max-failures``."""
        is_run = result.outcome is not Outcome.NOT_RUN
        if result.outcome.is_failure and is_run and not self._header.lets_pass(result):
            self._failed.add(result.case_id)

    def _is_stopped(self) -> bool:
        """Whether as many cases failed as ``--max-failures`` lets."""
        return 0 < self._options.most_failures <= len(self._failed)

    def _take(self, result: Redacted, *, had_all_attempts: bool = True) -> None:
        """Record the result of a case."""
        self._emit(events.CaseFinished(result=result, had_all_attempts=had_all_attempts))
        self._results[result.case_id] = result
        self._count_failure(result)

    # -- the end -----------------------------------------------------------------------------------

    def _close(self, case: Case, *, is_interrupted: bool) -> None:
        """Record a case that has no result when the run ends: without any attempt, or without
        some.
        """
        lost = self._unrun.get(case.id, "")
        count = len(self._failed)
        stopped = f"stopped after {count} failures" if count > 1 else "stopped at the first failure"
        reason = lost or ("interrupted" if is_interrupted else stopped)
        attempts = self._attempts.pop(case.id, [])
        if not attempts:
            result = result_of_unrun(
                case, reason, repro(self._options, case), *([NODE_LOST] if lost else [])
            )
        elif self._policy.is_done(attempts):
            result = self._policy.fold(attempts)
        else:
            result = (
                self._policy.interrupted(attempts)
                if is_interrupted
                else self._policy.fold(attempts, reason)
            )
        self._take(result, had_all_attempts=False)

    def _report(self, *, is_interrupted: bool) -> ExitCode:
        """Let the listeners write their files, then end the journal: the run is complete when its
        files are written.
        """
        results = self._ordered()
        code = ExitCode.INTERRUPTED
        if not is_interrupted:
            code, unexercised = conclusion_of(self._header, results, self._prepared.whole)
            for problem in unexercised:
                self._emit(events.Note(text=problem))
        seconds = round(time.monotonic() - self._begun, 3)
        begun = time.time() - seconds
        warnings = () if is_interrupted else tuple(self._machine_warnings(results, code))
        footer = RunFooter(
            ended=now(),
            seconds=seconds,
            exit_code=int(code),
            interrupted=is_interrupted,
            costs=costs_of(self._executed, seconds=seconds, begun=begun, cores=cores()),
            start_up=phases_of_start(self._executed, self._start_up, begun),
            warnings=warnings,
        )
        results = footer.warned(results)
        self._emit(events.ResultsCompleted(header=self._header, results=results, footer=footer))
        footer = replace(
            footer, ended=now(), seconds=round(time.monotonic() - self._begun, 3)
        )  # with the time that the files took
        self._emit(events.RunEnded(header=self._header, results=results, footer=footer))
        return code

    def _machine_warnings(
        self, results: Sequence[Redacted], code: ExitCode
    ) -> Iterator[MachineWarning]:
        """Yield what ``doctor`` says of the tools of cases that crashed, and of required cases that
        failed their profile.
        """
        failed = (
            result
            for result in results
            if result.outcome.is_failure and not self._header.lets_pass(result)
        )
        red: set[str] = {
            result.case_id
            for result in failed
            if any(part.outcome is Outcome.CRASH for part in (result, *result.attempts))
        }
        statement = profile_statement(self._header, results) if code is ExitCode.FAILED else None
        red.update(statement.failed if statement else ())
        tools = {
            case.id: tools_of(case, self._results[case.id])
            for case in self._prepared.selected
            if case.id in red
        }
        names = frozenset().union(*tools.values())
        if self._machine is not None and names and is_there("attest"):
            for name, text in profiles().warnings_of(self._machine, names):
                yield MachineWarning(
                    text=text,
                    cases=tuple(case_id for case_id, of_case in tools.items() if name in of_case),
                )
