"""``run``: load, select, look at the machine, execute, judge, record, report. The stages stand in ``main`` in their order."""

import argparse
import contextlib
import os
import secrets
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from runner import __version__, availability, kept, schedule
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
from runner.report import one_line
from runner.report.console import Progress, print_report, wants_bar, wants_color
from runner.report.junit import write_junit, write_stub
from runner.runs import JOURNAL, LATEST, REPORTS, RunFolder, open_run, resume_run
from runner.selection import Shard, select
from runner.services import named_servers, reach
from runner.session import CaseRunner, recorded, result_of_unavailable, result_of_unrun
from runner.times import seconds_of_run
from runner.waivers import Waivers, warnings


def main(arguments: argparse.Namespace) -> ExitCode:
    """Run the selected cases; the exit code says what a CI system may conclude."""
    workers = schedule.workers(arguments.jobs)
    memory_limit = schedule.memory_limit(arguments.memory_limit)
    reach(named_servers(arguments.service))
    # looked at once, and before anything is run: a worker could change what lies there
    arguments.object_cache = kept.object_folder(arguments.object_cache)
    if not arguments.no_kept:
        kept.answers_folder()
    suite = load(arguments.paths, arguments.backends)
    waivers = Waivers(load_waivers(arguments.waivers, suite.backends), today=datetime.now(UTC).date())
    shard = Shard.parse(arguments.shard) if arguments.shard else None
    selected = select(suite.cases, suite.backends, names=arguments.backend, globs=arguments.select, shard=shard)
    _check_required(arguments.require, suite)
    if not selected:
        print("no case is selected; 'list' shows them", file=sys.stderr)
        return ExitCode.NOTHING
    # before the new run becomes the latest
    wishes = schedule.Wishes(seconds=seconds_of_run(REPORTS / LATEST, JOURNAL), seed=_seed(arguments.shuffle), memory_limit=memory_limit)
    folder = resume_run(arguments.resume, selected) if arguments.resume else open_run(arguments.out)
    folder.claim_junit(arguments.junit)
    for warning in warnings(waivers, [case.id for case in suite.cases]):
        print(f"warning: {warning}", file=sys.stderr)
    return _Run(arguments, suite, waivers, selected, folder, workers, wishes).main()


def _seed(shuffle: int | str | None) -> int | None:
    """Return the seed of a random order, one that is told where none was given; None for the usual order."""
    if not isinstance(shuffle, str):
        return shuffle
    seed = secrets.randbelow(1 << 32)
    print(f"the cases run in a random order, which --shuffle {seed} repeats", file=sys.stderr)
    return seed


def _check_required(names: Sequence[str], suite: Suite) -> None:
    from runner.capabilities import CAPABILITIES
    from runner.diagnostics import unknown

    for name in names:
        if name not in suite.backends.by_name and name not in CAPABILITIES:
            message, hint = unknown("backend or capability", name, [*suite.backends.by_name, *CAPABILITIES])
            raise UsageError(f"--require: {message} ({hint})")


_LONGEST_WARNING = 2_000
"""Characters."""


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
        wishes: schedule.Wishes,
    ) -> None:
        self.arguments = arguments
        self.suite = suite
        self.waivers = waivers
        self.selected = selected
        self.folder = folder
        self.workers = workers
        self.wishes = wishes
        self.begun = time.monotonic()
        self.results: dict[str, CaseResult] = {result.case_id: result for result in folder.finished}
        self.is_interrupted = False
        self.warnings: list[str] = []
        self.tried: list[tuple[Case, list[Trial]]] = []
        self.header = folder.header or self._header({})
        self.has_header = folder.header is not None

    def main(self) -> ExitCode:
        progress = Progress(sys.stderr, color=wants_color(sys.stderr, os.environ), live=wants_bar(sys.stderr, os.environ))
        for path in self.folder.junit_files:
            write_stub(path, self.header)
        with JournalWriter(self.folder.journal) as journal:
            try:
                self._execute(journal, progress)
            except KeyboardInterrupt:
                self.is_interrupted = True
            progress.close()
            for warning in self.warnings:
                print(f"warning: {one_line(warning, _LONGEST_WARNING)}", file=sys.stderr)  # it may hold words of a worker
            self._note_unrun(journal)
            code = self._exit_code()
            journal.write_footer(self._footer(code))
        self._report()
        return code

    def _execute(self, journal: JournalWriter, progress: Progress) -> None:
        waiting = [case for case in self.selected if case.id not in self.results]
        progress.start(len(waiting))
        glance = availability.glance(installed_torch(), named_servers(self.arguments.service))
        with CaseRunner(self.arguments, self.suite, self.waivers, waiting, self.folder, self.workers, glance, self.wishes) as cases:
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
            by_id = {case.id: case for case in possible}
            for result in cases.run(possible, known, self._repro):
                self._take(result, journal, progress)
                self._audit(by_id[result.case_id], result, known)
                if self.arguments.fail_fast and result.outcome.is_failure:
                    break
            self.warnings = [*cases.warnings, *self._survivors()]

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
                self.results[case.id] = result_of_unrun(case, reason, self._repro(case))
                journal.write_case(self.results[case.id])

    def _exit_code(self) -> ExitCode:
        results = self.results.values()
        if self.is_interrupted:
            return ExitCode.INTERRUPTED
        if any(result.outcome.is_failure for result in results):
            return ExitCode.FAILED
        executed = sum(result.outcome.is_executed for result in results)
        passed = any(result.outcome is Outcome.PASS for result in results)
        return ExitCode.OK if passed and executed >= self.arguments.min_executed else ExitCode.NOTHING

    def _report(self) -> None:
        results = [self.results[case.id] for case in self.selected]
        for path in self.folder.junit_files:
            write_junit(path, self.header, results, folder=self.folder.path)
        color = wants_color(sys.stdout, os.environ)
        print_report(sys.stdout, results, len(self.selected), self.folder.shown_junit, color=color, objects=self.arguments.object_cache)

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
            shuffle="" if self.wishes.seed is None else str(self.wishes.seed),
        )

    def _footer(self, code: ExitCode) -> RunFooter:
        return RunFooter(
            ended=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - self.begun, 3),
            totals=totals(list(self.results.values())),
            exit_code=int(code),
            interrupted=self.is_interrupted,
        )
