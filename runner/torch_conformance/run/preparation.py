"""The preparation of a run, before its folder is opened: checked options, selected cases,
scheduling options, the header.
"""

import json
import os
import re
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from torch_conformance import __version__
from torch_conformance.execute.engine import LocalExecutor
from torch_conformance.execute.executor_protocol import ExecutorSettings
from torch_conformance.judge.waiving import Waivers
from torch_conformance.language.backends import declarations
from torch_conformance.language.load import Suite, load
from torch_conformance.language.read.anatomy import PROGRAMS
from torch_conformance.language.waivers import load_waivers
from torch_conformance.machine import cache_dirs, output, scratch
from torch_conformance.machine.installed_torch import facts_of_files, installed_torch
from torch_conformance.machine.redaction import (
    environment_variables,
    redacted,
    redacted_record,
    redacted_texts,
)
from torch_conformance.machine.scratch import open_untrusted
from torch_conformance.model.case import Case
from torch_conformance.model.diagnostics import UsageError, require_known
from torch_conformance.model.escaping import counted
from torch_conformance.model.header import RunHeader
from torch_conformance.model.results import Policy
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import RunOptions
from torch_conformance.optional.tools import hooks
from torch_conformance.plan import schedule, selection
from torch_conformance.plan.profile import profiles
from torch_conformance.plan.selection import (
    read_shard,
    requested,
    select,
    shards_of,
    taken,
    unmatched,
    why_nothing_selected,
    without_benches,
)
from torch_conformance.plan.worker_plan import digest_of
from torch_conformance.record.journal import digest_of_selection, recorded_run
from torch_conformance.record.run_folder import JOURNAL, LATEST, REPORTS, find_run, new_run_id


class FleetTool(Protocol):
    """What is asked of the tool ``fleet``."""

    def check_fleet(self, options: RunOptions) -> None:
        """Raise ``UsageError`` for options that contradict each other."""


@frozen
class Prepared:
    """Everything that is fixed before the first case runs."""

    options: RunOptions
    """With the files of the profile, where there is one."""
    suite: Suite
    waivers: Waivers
    whole: Sequence[Case]
    """The selection of all shards."""
    selected: Sequence[Case]
    """The selection of this shard, in the order of reports."""
    policy: Policy
    workers: int
    scheduling: schedule.SchedulingOptions
    header: RunHeader
    judged_by: Mapping[str, str]
    """The digests of the files that decide how cases are judged, apart from their specs."""
    make_executor: Callable[[ExecutorSettings], LocalExecutor] | None = None
    """Makes what runs the cases; None for a new ``LocalExecutor``."""
    seconds: float = 0.0
    """How long it took."""


def _selected(
    options: RunOptions,
    suite: Suite,
    only: Collection[str] | None,
    failed: Collection[str] | None,
) -> tuple[list[Case], int]:
    """Return the selection of all shards, and how many cases on request are not in it: of the ids
    that somebody else selected (``only``), or of cases that failed, where there are such.
    """
    matching = select(suite.cases, suite.backends, options)
    if only is not None:
        return [case for case in matching if case.id in only], 0
    if failed is None:
        whole = requested(
            matching, suite.cases, options, paths=options.paths, sources=suite.sources
        )
        return whole, len(matching) - len(whole)
    whole = [case for case in matching if case.id in failed]  # one on request was requested then
    if len(whole) < len(failed):
        output.note(
            f"{len(whole)} of the {len(failed)} cases that failed in {options.failed_in} are among "
            "those that are selected"
        )
    return whole, 0


def _as_run(case: Case, options: RunOptions, bounds: Mapping[str, int]) -> Case:
    """Return a case with the bound of its group, the challenge, and its benches or without them."""
    if case.group is not None and case.group.name in bounds:
        case = replace(case, group=replace(case.group, most=bounds[case.group.name]))
    if options.challenge:
        case = replace(case, challenge=options.challenge)
    return case if options.bench else without_benches(case)


def _why_nothing(read: int, options: RunOptions, whole: int, not_requested: int) -> str:
    """Return why no case is selected, of those that were read, and of the ``whole`` selection of
    all shards.
    """
    if not not_requested:
        return why_nothing_selected(read, options, shard=options.shard, count=whole)
    cases = (
        "1 case on request was" if not_requested == 1 else f"{not_requested} cases on request were"
    )
    return (
        f"no case is selected: {cases} not selected (name their file or folder, or use "
        "--tag or --select)"
    )


def prepare(
    options: RunOptions, suite: Suite | None = None, only: Collection[str] | None = None
) -> Prepared:
    """Check the options, load the specs, select the cases, and make the header; raise
    ``UsageError`` for impossible options.

    Print a hint for each glob without a match, and why no case is selected. ``suite`` has the specs
    if they are loaded already, ``only`` the ids of cases that somebody else selected. Reads the
    durations of ``latest``, so it is called before the new run becomes ``latest``.
    """
    begin = time.monotonic()
    if options.executor != "local" or options.address or options.lab:
        fleet: FleetTool = hooks("fleet")
        fleet.check_fleet(options)
    profile = failed = None
    if options.profile is not None:
        options, profile = profiles().with_profile(options, options.profile)
    workers = schedule.workers(options.jobs)
    policy = Policy.of(
        retries=options.retries,
        repeat=options.repeat,
        max_failures=options.most_failures,
        has_profile=profile is not None,
    )
    memory_limit = schedule.memory_limit(options.memory_limit)
    if options.last_failed or options.failed_in:
        from torch_conformance.run.earlier_runs import with_failed

        options, failed = with_failed(options)
    scratch.check()
    cache_dirs.cache_folder("warm")

    run_id = new_run_id()
    folder = find_run(options.resume) if options.resume else options.out or REPORTS / run_id
    suite = suite or load(
        options.paths, options.backends, programs_folder=folder.absolute() / PROGRAMS
    )
    if profile is None:
        output.note(taken(options.paths, len(suite.cases)))
    files = load_waivers(options.waivers, suite.backends)
    not_requested, record = 0, None
    whole: Sequence[Case]
    if profile is not None:
        resolved = profiles().cases_of(profile, suite, files)
        files, whole, record = resolved.waivers, resolved.cases, resolved.record
    else:
        whole, not_requested = _selected(options, suite, only, failed)
        if only is not None:  # the journal records what was selected
            ids = tuple(case.id for case in whole)
            options = replace(options, select=ids, backend=(), tag=())
    bounds = _bounds_of_groups(options.group, suite.cases)
    whole = [_as_run(case, options, bounds) for case in whole]
    if options.shard and options.resume:
        from torch_conformance.run.earlier_runs import (
            durations_of,
        )  # the latest run may be another one than then

        options = replace(options, durations=durations_of(options.resume, options.durations))
    name, durations = (
        known_durations(options.durations, options.paths)
        if options.durations or len(whole) > 1
        else (None, {})
    )
    options = replace(options, durations=name)
    selected, assignment = (
        take_shard(whole, options.shard, durations) if options.shard else (list(whole), "")
    )
    if profile is None:
        selection.check_names(options.require, suite.backends)
        for hint in unmatched(options.select, suite.cases):
            output.note(hint)
        if not selected and only is None:
            output.note(_why_nothing(len(suite.cases), options, len(whole), not_requested))
    waivers = Waivers(files, today=datetime.now(UTC).date())

    seconds: Mapping[str, float] = {}  # nothing orders one case
    if len(selected) > 1:
        seconds = {**durations, **seconds_of_run(REPORTS / LATEST / JOURNAL)}
    seed = options.shuffle
    if isinstance(seed, str):
        seed = secrets.randbelow(1 << 32)
        output.note(f"the cases run in a random order, which --shuffle {seed} repeats")
    judged_by = judging_files(suite, waivers)
    if profile is not None and record is not None:
        judged_by |= {record.file: profile.document.digest}
        record = replace(
            record, waivers=tuple(map(redacted_record, record.waivers))
        )  # as the results that name them are
    header = RunHeader(
        run_id=run_id,
        started=now(),
        version=__version__,
        command=tuple(map(redacted, sys.argv)),
        environment=redacted_texts(
            {
                **facts_of_files(installed_torch()),
                **(profiles().changed_files() if options.profile else {}),
                **declarations(
                    suite.backends.by_name[name] for name in {case.backend for case in whole}
                ),
            }
        ),
        variables=environment_variables(os.environ),
        specs={**suite.digests, **judged_by},
        selected=len(selected),
        shuffle="" if seed is None else str(seed),
        selected_whole=len(whole),
        selection=digest_of_selection({case.id: digest_of(case) for case in whole}),
        assignment=assignment,
        options=option_texts(options),
        # who names specs or a backend knows which cases are meant
        not_requested=0 if options.paths or options.backend else not_requested,
        profile=() if record is None else (record,),
    )
    return Prepared(
        options=options,
        suite=suite,
        waivers=waivers,
        whole=whole,
        selected=selected,
        policy=policy,
        workers=workers,
        scheduling=schedule.SchedulingOptions(
            seconds=seconds, seed=seed, memory_limit=memory_limit
        ),
        header=header,
        judged_by=judged_by,
        seconds=time.monotonic() - begin,
    )


def _bounds_of_groups(texts: Sequence[str], cases: Iterable[Case]) -> Mapping[str, int]:
    """Return the bounds of ``--group``; raise ``UsageError`` for a group of no case."""
    bounds: dict[str, int] = {}
    names = sorted({case.group.name for case in cases if case.group}) if texts else []
    for name, _, most in (text.partition("=") for text in texts):
        require_known("group", [name], names, "--group")
        bounds[name] = int(most)
    return bounds


def option_texts(options: RunOptions) -> dict[str, str]:
    """Return every option by its name on the command line, as text; empty where it was not given.

    ``--resume`` and ``merge`` compare these texts with those of other runs.
    """
    names = sorted(field.name for field in fields(options))
    return redacted_texts(
        {name.replace("_", "-"): option_text(getattr(options, name)) for name in names}
    )


def option_text(value: object) -> str:
    """Return the value of one option as a header has it."""
    if value is None or value is False:
        return ""
    return (
        shlex.join(redacted(str(part)) for part in value)
        if isinstance(value, tuple)
        else str(value)
    )


def judging_files(suite: Suite, waivers: Waivers) -> dict[str, str]:
    """Return the digests of the files that decide how cases are judged: backends and waivers."""
    documents = [
        document
        for backend in suite.backends.by_name.values()
        for document in (backend.document, backend.claims.file, backend.expected[0])
        if document
    ]
    return {**{document.file: document.digest for document in documents}, **waivers.digests}


def now() -> str:
    """Return the current time in UTC, as a journal records it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


# -- shards ----------------------------------------------------------------------------------------


def known_durations(
    name: str | None, paths: Sequence[Path]
) -> tuple[str | None, Mapping[str, float]]:
    """Return the run or file that ``--durations`` names, ``latest`` as its id, and the seconds of
    cases, by id; raise ``UsageError``.

    They are those of the tables next to the specs, and of what the option names. The last run is
    none of them unless it is named: shards of machines that have other last runs would leave out
    cases.
    """
    seconds = seconds_of_tables([root / TABLE for root in roots_of(paths)])
    if name is not None:
        path = Path(name)
        if not path.is_file():
            recorded = recorded_run(name)
            if name == LATEST and (shard := recorded.run.header.shard):
                raise UsageError(
                    f"--durations {name}: the latest run is shard {shard}: name the run whose "
                    "durations the other shards have"
                )
            path = recorded.folder.resolve() / JOURNAL
            name = path.parent.name if name == LATEST else name
        if not (more := {**seconds_of_tables([path]), **seconds_of_run(path)}):
            raise UsageError(
                f"--durations {name}: it has no seconds of cases: name a run that executed "
                "some, or a file with lines as '1.5 ID'"
            )
        seconds.update(more)
    return name, seconds


def take_shard(
    cases: Sequence[Case], text: str, seconds: Mapping[str, float]
) -> tuple[list[Case], str]:
    """Return the cases of the shard ``I/N``, and the digest of how all shards share the cases;
    print how long they take.
    """
    index, count = read_shard(text)
    shards, loads = shards_of(cases, seconds, count)
    selected = [case for case in cases if shards[case.id] == index]
    timed = sum(case.id in seconds for case in cases)
    work = (
        f"{loads[index - 1]:.0f} s of work (the longest shard: {max(loads):.0f} s), by the "
        f"durations of {counted(timed, 'case')}"
    )
    output.note(
        f"shard {text}: {len(selected)} of {len(cases)} cases, "
        f"{work if timed else 'of unknown duration'}"
    )
    return selected, digest_of_selection(
        {case_id: str(number) for case_id, number in shards.items()}
    )


# -- how long each case took: a hint, and so no error where it is malformed ------------------------

TABLE = "durations.txt"
"""Beside specs, for a machine without earlier runs.

A line has seconds and the id of a case; ``#`` begins a comment.
"""

_MOST_BYTES = 1 << 28
"""Bytes that are read of a journal or a table; the rest is ignored."""

_ROW = re.compile(rb"^([0-9]{1,6}(?:\.[0-9]{1,3})?) ([^\n]+)$", re.MULTILINE)

# JSON escapes a quote within a string as \", so an unescaped quote begins a key. Decoding whole
# lines is three times slower.
_CASE = re.compile(
    rb'^\{"kind": "case", "case_id": ("(?:[^"\\\n]|\\.)*").*?"seconds": ([0-9][0-9.e+-]*)[,}]',
    re.MULTILINE,
)


def seconds_of_run(journal: Path) -> dict[str, float]:
    """Return the seconds of each executed case, by id; empty if the journal is missing or cannot be
    read.
    """
    seconds_of: dict[str, float] = {}
    for case_id, text in _CASE.findall(_beginning(journal)):
        try:
            name, seconds = json.loads(case_id), float(text)
        except ValueError:
            continue
        if 0 < seconds < 1e9:  # 0: the case was not executed
            seconds_of[name] = seconds
    return seconds_of


def seconds_of_tables(tables: Iterable[Path]) -> dict[str, float]:
    """Return the seconds of the cases in tables, by id; empty where there is none that can be
    read.
    """
    rows = [row for table in tables for row in _ROW.findall(_beginning(table))]
    return {case_id.decode("utf-8", "replace"): float(seconds) for seconds, case_id in rows}


def _beginning(path: Path) -> bytes:
    try:
        with open_untrusted(path) as stream:
            return stream.read(_MOST_BYTES)
    except OSError:
        return b""


def roots_of(paths: Sequence[Path]) -> list[Path]:
    """Return the folders where tables of the given specs lie: the folders, those of the files, the
    shipped specs for paths within them.
    """
    shipped = cache_dirs.folder("specs").resolve()
    roots = [
        shipped if path.is_relative_to(shipped) else path if path.is_dir() else path.parent
        for path in (name.resolve() for name in paths)
    ]
    return list(dict.fromkeys(roots or [shipped]))
