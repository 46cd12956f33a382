"""The preparation of a run, before its folder is opened: checked options, selected cases, scheduling options, the header."""

import os
import secrets
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from runner import __version__
from runner.execute.executor import LocalExecutor
from runner.execute.executor_protocol import ExecutorSettings
from runner.judge.waiving import Waivers
from runner.language.load import Suite, load
from runner.language.waivers import load_waivers
from runner.machine import cache_dirs, output, scratch
from runner.machine.installed_torch import facts_of_files, installed_torch
from runner.machine.redaction import environment_variables, redacted, redacted_result, redacted_texts
from runner.model.case import Case
from runner.model.conformance import ProfileRecord
from runner.model.header import RunHeader
from runner.model.optional import hooks
from runner.model.options import RunOptions
from runner.model.results import Policy
from runner.plan import schedule, selection
from runner.plan.selection import Shard, cases_not_requested, requested, select, taken, unmatched, why_nothing_selected, without_benches
from runner.plan.worker_plan import digest_of
from runner.record.journal import digest_of_selection
from runner.record.run_folder import JOURNAL, LATEST, REPORTS
from runner.run.earlier_runs import roots_of, seconds_of_run, seconds_of_tables

if TYPE_CHECKING:
    from runner.run.earlier_runs import Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Options that contradict neither each other nor this machine, with the values computed from them."""

    options: RunOptions
    workers: int
    policy: Policy
    memory_limit: int | None
    profile: Any = None
    """The profile of ``--profile``; ``options`` has its files."""
    failed: "Failed | None" = None
    """The failed cases of the run of ``--failed-in``, which ``options`` names by its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The cases of a run, and the waivers."""

    suite: Suite
    waivers: Waivers
    whole: Sequence[Case]
    """The selection of all shards."""
    selected: Sequence[Case]
    """The selection of this shard, in the order of reports."""
    not_requested: int = 0
    """How many cases on request match the criteria, and are named by nothing."""
    profile: ProfileRecord | None = None
    """The profile of ``--profile`` with its cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything that is fixed before the first case runs."""

    options: RunOptions
    selection: Selection
    policy: Policy
    workers: int
    scheduling: schedule.SchedulingOptions
    header: RunHeader
    make_executor: Callable[[ExecutorSettings], LocalExecutor] | None = None
    """Makes what runs the cases; None for a new ``LocalExecutor``."""


def check(options: RunOptions) -> Checked:
    """Return the options with those of the profile; raise ``UsageError`` for impossible options."""
    if options.executor != "local" or options.address or options.lab:
        hooks("fleet").check_fleet(options)
    profile = None
    if options.profile is not None:
        options, profile = hooks("vendor").with_profile(options, options.profile)
    workers = schedule.workers(options.jobs)
    policy = Policy.of(retries=options.retries, repeat=options.repeat, fail_fast=options.fail_fast)
    memory_limit = schedule.memory_limit(options.memory_limit)
    failed = None
    if options.last_failed or options.failed_in:
        from runner.run.earlier_runs import with_failed

        options, failed = with_failed(options)
    scratch.check()
    cache_dirs.warm_folder()
    return Checked(options=options, workers=workers, policy=policy, memory_limit=memory_limit, profile=profile, failed=failed)


def choose(options: RunOptions, profile: Any = None, failed: "Failed | None" = None, suite: Suite | None = None) -> Selection:
    """Load the specs and select the cases: those of the profile, which has given the options its files, or those that the options name.

    ``suite`` has the specs if they are loaded already. Print a hint for each glob without a match.
    """
    suite = suite or load(options.paths, options.backends)
    if profile is None:
        output.note(taken(options.paths, len(suite.cases)))
    files = load_waivers(options.waivers, suite.backends)
    today = datetime.now(UTC).date()
    left, record = 0, None
    whole: Sequence[Case]
    if profile is not None:
        resolved = hooks("vendor").cases_of(profile, suite, files)
        files, whole, record = resolved.waivers, resolved.cases, resolved.record
    else:
        matching = select(suite.cases, suite.backends, names=options.backend, globs=options.select, tags=options.tag)
        if failed is None:
            whole = requested(matching, suite.cases, paths=options.paths, globs=options.select, tags=options.tag)
        else:  # a case on request was requested in that run
            whole = matching = failed.among(matching, suite.cases)
        left = len(matching) - len(whole)
    if not options.bench:
        whole = [without_benches(case) for case in whole]
    selected = list(whole)
    if options.shard:
        holds = Shard.parse(options.shard).holds
        selected = [case for case in whole if holds(case)]
    if profile is None:
        selection.check_names(options.require, suite.backends)
        for hint in unmatched(options.select, suite.cases):
            output.note(hint)
        if not selected:
            read, of = len(suite.cases), len(whole)
            why = why_nothing_selected(read, names=options.backend, globs=options.select, tags=options.tag, shard=options.shard, of=of)
            if failed is not None and not whole:
                why = failed.why_none
            output.note(f"no case is selected: {cases_not_requested(left)}" if left else why)
    waivers = Waivers(files, today=today)
    # who names specs or a backend knows which cases are meant
    not_requested = 0 if options.paths or options.backend else left
    return Selection(suite=suite, waivers=waivers, whole=whole, selected=selected, not_requested=not_requested, profile=record)


def prepare(checked: Checked, selection: Selection) -> Prepared:
    """Return the prepared run. Reads the durations of ``latest``, so call it before the new run becomes ``latest``."""
    options = checked.options
    seconds = {**seconds_of_tables(roots_of(options.paths)), **seconds_of_run(REPORTS / LATEST, JOURNAL)}
    seed = options.shuffle
    if isinstance(seed, str):
        seed = secrets.randbelow(1 << 32)
        output.note(f"the cases run in a random order, which --shuffle {seed} repeats")
    scheduling = schedule.SchedulingOptions(seconds=seconds, seed=seed, memory_limit=checked.memory_limit)
    suite, waivers = selection.suite, selection.waivers
    header = RunHeader(
        run_id="",
        started=now(),
        version=__version__,
        command=tuple(map(redacted, sys.argv)),
        environment=redacted_texts(facts_of_files(installed_torch())),
        variables=environment_variables(os.environ),
        specs={**suite.digests, **judging_files(suite, waivers)},
        selected=len(selection.selected),
        shuffle="" if seed is None else str(seed),
        selected_whole=len(selection.whole),
        selection=digest_of_selection({case.id: digest_of(case) for case in selection.whole}),
        options=option_texts(options),
        not_requested=selection.not_requested,
    )
    if (profile := selection.profile) is not None:  # its file is one of those that decide how cases are judged
        recorded = replace(profile, waivers=tuple(map(redacted_result, profile.waivers)))  # as the results that name them are
        header = replace(header, profile=(recorded,), specs={**header.specs, profile.file: profile.digest})
    return Prepared(
        options=options,
        selection=selection,
        policy=checked.policy,
        workers=checked.workers,
        scheduling=scheduling,
        header=header,
    )


def option_texts(options: RunOptions) -> dict[str, str]:
    """Return every option by its name on the command line, as text; empty where it was not given.

    ``--resume`` and ``merge`` compare these texts with those of other runs.
    """
    names = sorted(field.name for field in fields(options))
    return redacted_texts({name.replace("_", "-"): option_text(getattr(options, name)) for name in names})


def option_text(value: object) -> str:
    """Return the value of one option as a header has it."""
    if value is None or value is False:
        return ""
    return shlex.join(redacted(str(part)) for part in value) if isinstance(value, tuple) else str(value)


def judging_files(suite: Suite, waivers: Waivers) -> dict[str, str]:
    """Return the digests of the files that decide how cases are judged: backends and waivers."""
    documents = [backend.document for backend in suite.backends.by_name.values()]
    return {**{document.file: document.digest for document in documents}, **waivers.digests}


def now() -> str:
    """Return the current time in UTC, as a journal records it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
