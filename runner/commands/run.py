"""``run``: load, select, look at the machine, execute, judge, record, report. The stages stand in ``main`` in their order."""

import argparse
import contextlib
import os
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from runner import __version__, availability, schedule
from runner.attempts import Policy
from runner.audit import Trial, audit, try_case
from runner.conditions import Surroundings
from runner.diagnostics import UsageError
from runner.exits import ExitCode
from runner.language.expand import surroundings
from runner.language.load import Suite, load, surroundings_of
from runner.language.source import shown
from runner.language.waivers import load_waivers
from runner.machine import installed_torch
from runner.model import Case, CaseResult
from runner.outcomes import Outcome
from runner.record import JournalWriter, RunFooter, RunHeader, environment_variables, sanitised_command, totals
from runner.report.console import Progress, print_report, wants_bar, wants_color
from runner.report.junit import write_junit, write_stub
from runner.runs import LATEST, RunFolder, open_run, resume_run
from runner.selection import Shard, select
from runner.services import named_servers, reach
from runner.session import CaseRunner, recorded, result_of_unavailable, result_of_unrun
from runner.waivers import Waivers, warnings


def main(arguments: argparse.Namespace) -> ExitCode:
    """Run the selected cases; the exit code says what a CI system may conclude."""
    workers = schedule.workers(arguments.jobs)
    reach(named_servers(arguments.service))
    suite = load(arguments.paths, arguments.backends)
    waivers = Waivers(load_waivers(arguments.waivers, suite.backends), today=datetime.now(UTC).date())
    shard = Shard.parse(arguments.shard) if arguments.shard else None
    policy = Policy.of(retries=arguments.retries, repeat=arguments.repeat, fail_fast=arguments.fail_fast)
    selected = select(suite.cases, suite.backends, names=arguments.backend, globs=arguments.select, shard=shard)
    _check_required(arguments.require, suite)
    if not selected:
        print("no case is selected; 'list' shows them", file=sys.stderr)
        return ExitCode.NOTHING
    folder = resume_run(arguments.resume, selected) if arguments.resume else open_run(arguments.out)
    if folder.header is not None:
        _check_same_attempts(folder.header, arguments)
    folder.claim_junit(arguments.junit)
    for warning in warnings(waivers, [case.id for case in suite.cases]):
        print(f"warning: {warning}", file=sys.stderr)
    return _Run(arguments, suite, waivers, selected, folder, workers, policy).main()


def _check_same_attempts(header: RunHeader, arguments: argparse.Namespace) -> None:
    """Refuse to go on with a run by other rules than those by which it was begun: its results would not mean one thing."""
    for option in ("retries", "repeat", "flaky"):
        then, now = getattr(header, option), getattr(arguments, option)
        if then != now:
            raise UsageError(
                f"--resume {arguments.resume}: that run was begun with --{option} {then}, this command says {now} (add --{option} {then})"
            )


def _check_required(names: Sequence[str], suite: Suite) -> None:
    from runner.capabilities import CAPABILITIES
    from runner.diagnostics import unknown

    for name in names:
        if name not in suite.backends.by_name and name not in CAPABILITIES:
            message, hint = unknown("backend or capability", name, [*suite.backends.by_name, *CAPABILITIES])
            raise UsageError(f"--require: {message} ({hint})")


class _Run:
    """One run: what was selected, where it is recorded, and the results so far."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        suite: Suite,
        waivers: Waivers,
        selected: list[Case],
        folder: RunFolder,
        workers: int,
        policy: Policy,
    ) -> None:
        self.arguments = arguments
        self.suite = suite
        self.waivers = waivers
        self.selected = selected
        self.folder = folder
        self.workers = workers
        self.policy = policy
        self.begun = time.monotonic()
        self.results: dict[str, CaseResult] = {result.case_id: result for result in folder.finished}
        self.attempts: dict[str, list[CaseResult]] = {case_id: list(made) for case_id, made in folder.attempts.items()}
        self.is_interrupted = False
        self.warnings: list[str] = []
        self.tried: list[tuple[Case, list[Trial]]] = []
        self.header = folder.header or self._header({})
        self.has_header = folder.header is not None

    def main(self) -> ExitCode:
        progress = Progress(
            sys.stderr,
            color=wants_color(sys.stderr, os.environ),
            live=wants_bar(sys.stderr, os.environ),
            lets_flaky_pass=self.header.lets_flaky_pass,
        )
        for path in self.folder.junit_files:
            write_stub(path, self.header)
        with JournalWriter(self.folder.journal) as journal:
            try:
                self._execute(journal, progress)
            except KeyboardInterrupt:
                self.is_interrupted = True
            progress.close()
            for warning in self.warnings:
                print(f"warning: {warning}", file=sys.stderr)
            self._note_unrun(journal)
            code = self._exit_code()
            journal.write_footer(self._footer(code))
        self._report()
        return code

    def _execute(self, journal: JournalWriter, progress: Progress) -> None:
        waiting = [case for case in self.selected if case.id not in self.results]
        progress.start(len(waiting))
        self._take_killed(journal, progress)
        glance = availability.glance(installed_torch(), named_servers(self.arguments.service))
        waiting = [case for case in waiting if case.id not in self.results]
        with CaseRunner(self.arguments, self.suite, self.waivers, waiting, self.folder, self.workers, glance) as cases:
            machine = cases.look_at_machine()
            if not self.has_header:
                self.header = self._header(machine.facts)
                self._write_header(journal)
            known = surroundings_of(machine.torch, machine)
            possible: list[Case] = []
            for case in waiting:
                verdict = availability.of_case(case, machine)
                if verdict.reason:
                    self._take(result_of_unavailable(case, verdict, self.arguments.require, self._repro(case)), journal, progress)
                else:
                    possible.append(case)
            self._run_possible(cases, possible, known, journal, progress)
            self.warnings = [*cases.warnings, *self._survivors()]

    def _run_possible(
        self, cases: CaseRunner, possible: Sequence[Case], known: Surroundings, journal: JournalWriter, progress: Progress
    ) -> None:
        """Run the cases beside each other, then, while something has failed and may be run again, that alone."""
        by_id = {case.id: case for case in possible}
        waiting = [case for case in possible for _ in range(self.policy.beside_others(self.attempts.get(case.id, ())))]
        alone = False
        while waiting or not alone:
            for result in cases.run(waiting, known, self._repro, alone=alone):
                if result.case_id in self.results:
                    continue
                ended = self._take_attempt(result, journal, progress)
                if ended is not None:
                    self._audit(by_id[ended.case_id], ended, known)
                if self.arguments.fail_fast and result.outcome.is_failure:
                    return
            waiting = [case for case in possible if case.id in self.attempts]
            alone = True

    def _take_killed(self, journal: JournalWriter, progress: Progress) -> None:
        """Take the results of cases that had all their attempts when the earlier run was killed."""
        for case_id in [case_id for case_id, made in self.attempts.items() if self.policy.is_done(made)]:
            self._take(self.policy.fold(self.attempts.pop(case_id)), journal, progress)

    def _take_attempt(self, result: CaseResult, journal: JournalWriter, progress: Progress) -> CaseResult | None:
        """Record an attempt; return the case's result where it was the last one."""
        made = [*self.attempts.get(result.case_id, ()), result]
        is_done = self.policy.is_done(made)
        if is_done and len(made) == 1:
            self._take(result, journal, progress)
            return result
        journal.write_attempt(result)
        progress.attempt_finished(result, f"attempt {len(made)} of {self.policy.bound}")
        self.attempts[result.case_id] = made
        if not is_done:
            return None
        folded = self.policy.fold(self.attempts.pop(result.case_id))
        self._take(folded, journal, progress)
        return folded

    def _audit(self, case: Case, result: CaseResult, known: Surroundings) -> None:
        """Ask the expectations of a case that passed whether they could have failed; the workers go on meanwhile."""
        if result.outcome is Outcome.PASS:
            here = surroundings(self.suite.backends.by_name[case.backend], known)
            with contextlib.suppress(OSError, ValueError):  # what cannot be read any more, the command ``audit`` will say
                self.tried.append((case, try_case(case, here, *recorded(self.folder.path / result.folder))))

    def _survivors(self) -> list[str]:
        found = audit(self.tried).survivors
        count = len({(trial.position, trial.kind, trial.leaf) for trial in found})
        if not count:
            return []
        run = LATEST if self.folder.is_latest else shown(self.folder.path)
        command = shlex.join(["torch-conformance", "audit", run])
        return [f"{count} expectation{'' if count == 1 else 's'} that held could not have failed; this shows them: {command}"]

    def _write_header(self, journal: JournalWriter) -> None:
        self.has_header = True
        journal.write_header(self.header)

    def _take(self, result: CaseResult, journal: JournalWriter, progress: Progress) -> None:
        self.results[result.case_id] = result
        journal.write_case(result)
        progress.case_finished(result)

    def _note_unrun(self, journal: JournalWriter) -> None:
        reason = "interrupted" if self.is_interrupted else "stopped at the first failure"
        if not self.has_header:
            self._write_header(journal)
        for case in self.selected:
            if case.id not in self.results:
                self.results[case.id] = self._unfinished(case, reason)
                journal.write_case(self.results[case.id])

    def _unfinished(self, case: Case, reason: str) -> CaseResult:
        made = self.attempts.pop(case.id, None)
        if made is None:
            return result_of_unrun(case, reason, self._repro(case))
        return self.policy.interrupted(made) if self.is_interrupted else self.policy.fold(made, reason)

    def _exit_code(self) -> ExitCode:
        results = self.results.values()
        if self.is_interrupted:
            return ExitCode.INTERRUPTED
        if any(result.outcome.is_failure and not self._is_let_pass(result) for result in results):
            return ExitCode.FAILED
        executed = sum(result.outcome.is_executed for result in results)
        passed = any(result.outcome is Outcome.PASS for result in results)
        return ExitCode.OK if passed and executed >= self.arguments.min_executed else ExitCode.NOTHING

    def _is_let_pass(self, result: CaseResult) -> bool:
        return self.header.lets_flaky_pass and result.outcome is Outcome.FLAKY

    def _report(self) -> None:
        results = [self.results[case.id] for case in self.selected]
        for path in self.folder.junit_files:
            write_junit(path, self.header, results, folder=self.folder.path)
        color = wants_color(sys.stdout, os.environ)
        print_report(
            sys.stdout, results, len(self.selected), self.folder.shown_junit, color=color, lets_flaky_pass=self.header.lets_flaky_pass
        )

    def _repro(self, case: Case) -> str:
        parts = ["torch-conformance", "run", *map(str, self.arguments.paths)]
        for file in self.arguments.backends:
            parts += ["--backends", str(file)]
        for file in self.arguments.waivers:
            parts += ["--waivers", str(file)]
        for server in self.arguments.service:
            parts += ["--service", server]
        return shlex.join([*parts, "--select", case.id])

    def _header(self, facts: object) -> RunHeader:
        known = facts if isinstance(facts, dict) else {}
        return RunHeader(
            run_id=self.folder.run_id,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            version=__version__,
            command=sanitised_command(sys.argv),
            environment={name: str(value) for name, value in known.items() if value is not None},
            variables=environment_variables(os.environ),
            specs={**self.suite.digests, **self.waivers.digests},
            selected=len(self.selected),
            shard=self.arguments.shard or "",
            retries=self.arguments.retries,
            repeat=self.arguments.repeat,
            flaky=self.arguments.flaky,
        )

    def _footer(self, code: ExitCode) -> RunFooter:
        return RunFooter(
            ended=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - self.begun, 3),
            totals=totals(list(self.results.values())),
            exit_code=int(code),
            interrupted=self.is_interrupted,
        )
