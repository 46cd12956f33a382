"""``run``: load, select, look at the machine, execute, judge, record, report. The stages stand in ``main`` in their order."""

import argparse
import contextlib
import itertools
import os
import secrets
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner import __version__
from runner.core import required
from runner.core.attempts import Policy
from runner.core.conditions import Surroundings
from runner.core.diagnostics import JournalAltered, UsageError, shown_path
from runner.core.exit_codes import ExitCode, exit_code
from runner.core.model import Availability, Case, CaseResult
from runner.core.outcomes import Outcome
from runner.execute.services import named_servers, reach
from runner.judge.audit import Trial, audit, try_case
from runner.judge.waivers import Waivers, warnings
from runner.language.expand.cases import surroundings
from runner.language.load import Suite, load, surroundings_of
from runner.language.waivers import load_waivers
from runner.plan import schedule
from runner.plan.durations import seconds_of_run
from runner.plan.selection import Shard, select, unmatched, why_nothing_selected, without_benches
from runner.plan.worker_plan import digest_of
from runner.record.compatibility import machine_differences
from runner.record.evidence import EvidenceAltered, RecordedFiles, alterations
from runner.record.journal import JournalWriter, RunFooter, RunHeader, digest_of_selection, totals
from runner.record.run_folder import JOURNAL, LATEST, REPORTS, RunFolder, open_run, require_free_report, resume_run
from runner.report import one_line
from runner.report.console import print_report, wants_bar, wants_color, why_nothing
from runner.report.junit import write_junit, write_stub
from runner.report.progress import Progress
from runner.run import rejudge
from runner.run.session import CaseRunner, result_of_unavailable, result_of_unrun
from runner.system import availability, cache_dirs, output, scratch
from runner.system.capabilities import Machine
from runner.system.installed_torch import facts_of_files, installed_torch
from runner.system.redaction import environment_variables, redacted_command, redacted_texts
from runner.system.signals import Interrupts


def main(arguments: argparse.Namespace) -> ExitCode:
    """Run the selected cases; the exit code says what a CI system may conclude."""
    if arguments.share_across_folders and arguments.isolation != "worker":
        raise UsageError(
            f"--share-across-folders says nothing with --isolation {arguments.isolation} (write --isolation worker, or leave it out)"
        )
    workers = schedule.workers(arguments.jobs)
    policy = Policy.of(retries=arguments.retries, repeat=arguments.repeat, fail_fast=arguments.fail_fast)
    memory_limit = schedule.memory_limit(arguments.memory_limit)
    reach(named_servers(arguments.service))
    scratch.check()
    # looked at once, and before anything is run: a worker could change what lies there
    arguments.object_cache = cache_dirs.object_folder(arguments.object_cache)
    if not arguments.no_kept:
        cache_dirs.probe_cache_folder()
    suite = load(arguments.paths, arguments.backends)
    waivers = Waivers(load_waivers(arguments.waivers, suite.backends), today=datetime.now(UTC).date())
    shard = Shard.parse(arguments.shard) if arguments.shard else None
    whole = select(suite.cases, suite.backends, names=arguments.backend, globs=arguments.select)
    if not arguments.bench:
        whole = [without_benches(case) for case in whole]
    selected = [case for case in whole if shard is None or shard.holds(case)]
    _check_required(arguments.require, suite)
    for hint in unmatched(arguments.select, suite.cases):
        output.note(hint)
    if not selected:
        given = {"names": arguments.backend, "globs": arguments.select, "shard": arguments.shard}
        output.note(why_nothing_selected(len(suite.cases), of=len(whole), **given))
        if not whole:
            return ExitCode.NOTHING
        # a shard of which nothing is left is recorded, so that a merge misses nothing
    # before the new run becomes the latest
    wishes = schedule.Wishes(seconds=seconds_of_run(REPORTS / LATEST, JOURNAL), seed=_seed(arguments.shuffle), memory_limit=memory_limit)
    header = _header(arguments, suite, waivers, whole, selected, wishes)
    # from here no other process writes to the folder
    require_free_report(arguments.junit)
    folder = _open(arguments, header, suite, waivers, selected)
    try:
        folder.claim_junit(arguments.junit)
        for warning in warnings(waivers, [case.id for case in suite.cases]):
            output.note(f"warning: {warning}")
        run = _Run(arguments, suite, waivers, selected, folder, workers, policy, wishes, replace(header, run_id=folder.run_id))
        run.whole = whole
        for problem in required.problems(arguments.require, whole, selected, None):
            output.note(f"warning: {problem}")
        return run.main()
    finally:
        folder.release()


def _seed(shuffle: int | str | None) -> int | None:
    """Return the seed of a random order, one that is told where none was given; None for the usual order."""
    if not isinstance(shuffle, str):
        return shuffle
    seed = secrets.randbelow(1 << 32)
    output.note(f"the cases run in a random order, which --shuffle {seed} repeats")
    return seed


def _header(
    arguments: argparse.Namespace,
    suite: Suite,
    waivers: Waivers,
    whole: Sequence[Case],
    selected: Sequence[Case],
    wishes: schedule.Wishes,
) -> RunHeader:
    """Return what is known of a new run before a worker has been asked what the machine is."""
    return RunHeader(
        run_id="",
        started=_now(),
        version=__version__,
        command=redacted_command(sys.argv),
        environment=redacted_texts(facts_of_files(installed_torch())),
        variables=environment_variables(os.environ),
        specs={**suite.digests, **_judging_files(suite, waivers)},
        selected=len(selected),
        shard=arguments.shard or "",
        shuffle="" if wishes.seed is None else str(wishes.seed),
        selected_whole=len(whole),
        selection=digest_of_selection({case.id: digest_of(case) for case in whole}),
        options=_options(arguments),
        retries=arguments.retries,
        repeat=arguments.repeat,
        flaky=arguments.flaky,
    )


def _options(arguments: argparse.Namespace) -> dict[str, str]:
    given = {name.replace("_", "-"): value for name, value in sorted(vars(arguments).items()) if name != "command"}
    return redacted_texts({name: _option_text(value) for name, value in given.items()})


def _option_text(value: Any) -> str:
    if value is None or value is False:
        return ""
    return shlex.join(redacted_command(list(map(str, value)))) if isinstance(value, list) else str(value)


def _judging_files(suite: Suite, waivers: Waivers) -> dict[str, str]:
    """Return the digests of the files that say how every case is judged."""
    documents = [backend.document for backend in suite.backends.by_name.values()]
    return {**{document.file: document.digest for document in documents}, **waivers.digests}


def _open(arguments: argparse.Namespace, header: RunHeader, suite: Suite, waivers: Waivers, selected: Sequence[Case]) -> RunFolder:
    if not arguments.resume:
        return open_run(arguments.out)
    digests: dict[str, str] = {case.id: digest_of(case) for case in selected}
    return resume_run(arguments.resume, header, digests, _judging_files(suite, waivers), arguments.out)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _check_required(names: Sequence[str], suite: Suite) -> None:
    from runner.core.diagnostics import unknown
    from runner.system.capabilities import CAPABILITIES

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
        policy: Policy,
        wishes: schedule.Wishes,
        header: RunHeader,
    ) -> None:
        self.arguments = arguments
        self.suite = suite
        self.waivers = waivers
        self.selected = selected
        self.whole: Sequence[Case] = selected
        """The selection of all shards."""
        self.folder = folder
        self.workers = workers
        self.wishes = wishes
        self.policy = policy
        self.begun = time.monotonic()
        self.results: dict[str, CaseResult] = {result.case_id: result for result in folder.finished}
        self.attempts: dict[str, list[CaseResult]] = {case_id: list(made) for case_id, made in folder.attempts.items()}
        self.is_interrupted = False
        self.warnings: list[str] = []
        self.tried: list[tuple[Case, list[Trial]]] = []
        self.header = folder.header or header
        self.has_header = folder.header is not None

    def main(self) -> ExitCode:
        progress = Progress(
            output.stderr(),
            color=wants_color(output.stderr(), os.environ),
            live=wants_bar(output.stderr(), os.environ),
            lets_flaky_pass=self.header.lets_flaky_pass,
        )
        with progress, JournalWriter(self.folder.journal) as journal, Interrupts() as interrupts:
            try:
                return self._main(journal, progress, interrupts)
            except JournalAltered as error:
                progress.close()
                self._give_up(journal, error)
                raise

    def _give_up(self, journal: JournalWriter, error: JournalAltered) -> None:
        """Leave a report of what this process saw, marked as cut off, and no journal that could be taken for the run's."""
        journal.set_aside()
        for path in self.folder.junit_files:
            known = [result for case in self.selected if (result := self.results.get(case.id))]
            write_junit(path, self.header, known, truncated=True, why=str(error), folder=self.folder.path)

    def _main(self, journal: JournalWriter, progress: Progress, interrupts: Interrupts) -> ExitCode:
        if not self.has_header:
            self._write_stubs()
        try:
            self._execute(journal, progress, interrupts)
        except KeyboardInterrupt:
            self.is_interrupted = True
        self._verify(journal)
        self.is_interrupted |= interrupts.asked > 0
        progress.close()
        for warning in self.warnings:
            output.note(f"warning: {one_line(warning, _LONGEST_WARNING)}")  # it may hold words of a worker
        self._note_unrun(journal)
        code = self._exit_code()
        # a run has come to its end when its reports have
        self._write_reports()
        journal.write_footer(self._footer(code))
        self._print_report(code)
        return code

    def _verify(self, journal: JournalWriter) -> None:
        """Make sure, now that no worker lives, that journal and files are what was written and judged; raise ``JournalAltered``."""
        if self.has_header:
            journal.verify()
        for result in self.results.values():
            for problem in alterations(self.folder.path, result):
                raise JournalAltered(f"{problem}; a later case or another program changed it")

    def _execute(self, journal: JournalWriter, progress: Progress, interrupts: Interrupts) -> None:
        made = itertools.chain(self.results.values(), *self.attempts.values())
        if self.arguments.fail_fast and any(result.outcome.is_failure for result in made):
            return
        unknown = [case for case in self.selected if case.id not in self.results]
        waiting = [case for case in unknown if not self._had_all_attempts(case.id)]
        progress.start(len(unknown))
        glance = availability.inspect_files(installed_torch(), named_servers(self.arguments.service))
        with CaseRunner(self.arguments, self.suite, self.waivers, waiting, self.folder, self.workers, glance, self.wishes) as cases:
            cases.heed(interrupts, progress.note, progress.show)
            machine = cases.look_at_machine()
            self._place(machine.facts, journal)
            known = surroundings_of(machine.torch, machine)
            self._verify_earlier(machine, known)
            self._take_killed(journal, progress)
            possible: list[Case] = []
            for case in waiting:
                verdict = availability.of_case(case, machine)
                if verdict.reason:
                    required = [name for name in self.arguments.require if name in (case.backend, verdict.capability)]
                    self._take(result_of_unavailable(case, verdict, required, self._repro(case, required)), journal, progress)
                else:
                    possible.append(case)
            self._run_possible(cases, possible, known, journal, progress, interrupts)
            self.warnings = [*cases.warnings, *self._survivors()]

    def _place(self, facts: Mapping[str, Any], journal: JournalWriter) -> None:
        """Write down which machine this is; a run that is gone on with must be on one like it."""
        told = {name: str(value) for name, value in facts.items() if value is not None}
        environment = redacted_texts({**facts_of_files(installed_torch()), **told})
        if not self.has_header:
            self.header = replace(self.header, environment=environment)
            self._write_header(journal)
            return
        other = machine_differences(environment, self.header.environment)
        if other:
            words = "; ".join(difference.between("now", "then") for difference in other)
            raise UsageError(f"--resume {self.arguments.resume}: {words}; begin a new run")
        self._write_stubs()

    def _verify_earlier(self, machine: Machine, known: Surroundings) -> None:
        """Refuse what an earlier run recorded where this machine could not have run it, or its files come to something else."""
        by_id = {str(case.id): case for case in self.selected}
        for result in itertools.chain(self.results.values(), *self.attempts.values()):
            problem = self._problem(by_id[result.case_id], result, machine, known) if result.folder else ""
            if problem:
                raise UsageError(f"--resume {self.arguments.resume}: {problem}; begin a new run")

    def _problem(self, case: Case, result: CaseResult, machine: Machine, known: Surroundings) -> str:
        backend = self.suite.backends.by_name[case.backend]
        here = surroundings(backend, known)
        missing = availability.of_case(case, machine)
        if missing.availability is Availability.NO:
            return f"{case.id}: {result.outcome.label} is recorded, and it cannot run here: {missing.reason}"
        problem = next(rejudge.problems(case, backend, here, result, self.folder.path), "")
        return problem or rejudge.not_excused(case, result, here, self.waivers)

    def _run_possible(
        self,
        cases: CaseRunner,
        possible: Sequence[Case],
        known: Surroundings,
        journal: JournalWriter,
        progress: Progress,
        interrupts: Interrupts,
    ) -> None:
        """Run the cases beside each other, then, while something has failed and may be run again, that alone."""
        by_id = {case.id: case for case in possible}
        waiting = [case for case in possible for _ in range(self.policy.remaining(self.attempts.get(case.id, ())))]
        alone = False
        while (waiting or not alone) and not interrupts.asked:  # then nothing is begun any more
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
        for case_id in filter(self._had_all_attempts, list(self.attempts)):
            self._take(self.policy.fold(self.attempts.pop(case_id)), journal, progress)

    def _had_all_attempts(self, case_id: str) -> bool:
        made = self.attempts.get(case_id, ())
        return bool(made) and self.policy.is_done(made)

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
            files = RecordedFiles(self.folder.path / result.folder, result.evidence)
            with contextlib.suppress(OSError, ValueError, EvidenceAltered):  # at the end all files are verified
                self.tried.append((case, try_case(case, here, files.observation(), files.code)))

    def _survivors(self) -> list[str]:
        found = audit(self.tried).survivors
        count = len({(trial.position, trial.kind, trial.leaf) for trial in found})
        if not count:
            return []
        run = LATEST if self.folder.is_latest else shown_path(self.folder.path)
        command = shlex.join(["torch-conformance", "audit", run])
        return [f"{count} expectation{'' if count == 1 else 's'} that held could not have failed; this shows them: {command}"]

    def _write_header(self, journal: JournalWriter) -> None:
        self.has_header = True
        journal.write_header(self.header)

    def _take(self, result: CaseResult, journal: JournalWriter, progress: Progress) -> None:
        journal.write_case(result)
        self.results[result.case_id] = result
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
        had_all = self._had_all_attempts(case.id)
        made = self.attempts.pop(case.id, None)
        if made is None:
            return result_of_unrun(case, reason, self._repro(case))
        if had_all:
            return self.policy.fold(made)
        return self.policy.interrupted(made) if self.is_interrupted else self.policy.fold(made, reason)

    def _exit_code(self) -> ExitCode:
        if self.is_interrupted:
            return ExitCode.INTERRUPTED
        outcomes = (result.outcome for result in self.results.values())
        code = exit_code(outcomes, self.arguments.min_executed, lets_flaky_pass=self.header.lets_flaky_pass)
        return self._unless_unexercised(code)

    def _unless_unexercised(self, code: ExitCode) -> ExitCode:
        """Return NOTHING in the place of a success under which a required name was not exercised, and print why."""
        unexercised = list(required.problems(self.arguments.require, self.whole, self.selected, self.results))
        if code not in (ExitCode.OK, ExitCode.NOTHING) or not unexercised:
            return code
        for problem in unexercised:
            output.note(problem)
        return ExitCode.NOTHING

    def _executes_enough(self) -> bool:
        """Whether ``--min-executed`` holds: where the run is no success all the same, the reason is another one."""
        executed = sum(result.outcome.is_executed for result in self.results.values())
        return bool(executed >= max(self.arguments.min_executed, 1))

    def _write_stubs(self) -> None:
        for path in self.folder.junit_files:
            write_stub(path, self.header)

    def _write_reports(self) -> None:
        for path in self.folder.junit_files:
            write_junit(path, self.header, self._in_order(), folder=self.folder.path)

    def _print_report(self, code: ExitCode) -> None:
        color = wants_color(output.stdout(), os.environ)
        print_report(
            output.stdout(),
            self._in_order(),
            len(self.selected),
            self.folder.shown_junit,
            color=color,
            objects=self.arguments.object_cache,
            lets_flaky_pass=self.header.lets_flaky_pass,
            folder=Path(shown_path(self.folder.path)),
        )
        is_said = self._executes_enough() or not self.selected
        if code is ExitCode.NOTHING and not is_said:
            output.note(why_nothing(self._in_order(), self.arguments.min_executed, len(self.selected)))
        if self.is_interrupted:
            output.note(f"to go on: the same command with --resume {shlex.quote(shown_path(self.folder.path))}")

    def _in_order(self) -> list[CaseResult]:
        return [self.results[case.id] for case in self.selected]

    def _repro(self, case: Case, required: Sequence[str] = ()) -> str:
        """Return the command that runs a case alone; ``required`` are the names of ``--require`` that its result comes from."""
        parts = ["torch-conformance", "run", *map(str, self.arguments.paths)]
        for file in self.arguments.backends:
            parts += ["--backends", str(file)]
        for file in self.arguments.waivers:
            parts += ["--waivers", str(file)]
        for server in self.arguments.service:
            parts += ["--service", server]
        if self.arguments.bench and not case.left_out and any(step.kind == "bench" for step in case.steps):
            parts.append("--bench")
        for name in required:
            parts += ["--require", name]
        return shlex.join(redacted_command([*parts, "--select", case.id]))

    def _footer(self, code: ExitCode) -> RunFooter:
        return RunFooter(
            ended=_now(),
            seconds=round(time.monotonic() - self.begun, 3),
            totals=totals(list(self.results.values())),
            exit_code=int(code),
            interrupted=self.is_interrupted,
        )
