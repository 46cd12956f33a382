"""``merge``: joins the runs of shards into one; refuses missing, duplicate, incompatible and
altered ones, and judges every case again.

The headers have the digest of the whole selection, so that a missing case is detected. The tables
of ``record.comparison`` list what may differ between the parts. Recorded files are untrusted: no
link is followed, and special files are not copied.
"""

import itertools
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TypeAlias, TypeVar

from torch_conformance import __version__
from torch_conformance.judge.waiving import Waivers
from torch_conformance.language.backends import load_backends
from torch_conformance.language.waivers import load_waivers
from torch_conformance.machine import output
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.machine.output import naming
from torch_conformance.machine.redaction import redacted
from torch_conformance.machine.scratch import open_untrusted
from torch_conformance.model import events
from torch_conformance.model.case import Case
from torch_conformance.model.diagnostics import InvalidSpecs, UsageError, one_line
from torch_conformance.model.header import RunFooter
from torch_conformance.model.results import Attempt, Redacted
from torch_conformance.optional.options import MergeOptions, report_files
from torch_conformance.plan.worker_plan import digest_of
from torch_conformance.record.case_files import alterations
from torch_conformance.record.comparison import differences
from torch_conformance.record.conclusion import conclusion_of
from torch_conformance.record.journal import NamedRun, Run, digest_of_selection, recorded_run
from torch_conformance.record.run_folder import JOURNAL, RunFolder, open_run, require_free_reports
from torch_conformance.run import rejudge
from torch_conformance.run.preparation import judging_files
from torch_conformance.vocabulary.backend import Backend

_Piece = TypeVar("_Piece", Attempt, Redacted)
OpenReporters: TypeAlias = Callable[[MergeOptions, RunFolder], events.Listener]

_SHARD = re.compile(r"([1-9][0-9]*)/([1-9][0-9]*)")
_SHOWN = 3
"""How many cases one problem lists."""

_LISTED = 100
"""How many missing shards are listed."""

_SAME_DURATIONS = "run one of them again with the --durations of the other"

_DEEPEST = 8
_LARGEST = 256 << 20
"""The maximum size in bytes of a file that is copied; the limits of a worker's messages, code and
traces are much smaller.
"""


def read_parts(names: Sequence[str]) -> tuple[list[NamedRun], list[str]]:
    """Read the runs; return them with every reason why they cannot be merged."""
    parts: list[NamedRun] = []
    wrong: list[str] = []
    for name in names:
        try:
            parts.append(recorded_run(name))
        except UsageError as error:
            wrong.append(str(error))
    wrong += problems(parts)
    unjudged: list[str] = []
    if not wrong:
        backends = load_backends().by_name
        for part in parts:
            impossible = rejudge.impossible_on_machine(
                part.run.results, part.run.header.environment, backends
            )
            reasons = [impossible] if impossible else _judged_otherwise(part, unjudged)
            wrong += [f"{part.folder / JOURNAL}: {problem}; run it again" for problem in reasons]
    if unjudged and not wrong:
        more = f", and {len(unjudged) - 1} more reasons" if len(unjudged) > 1 else ""
        output.note(f"warning: merged as recorded, not judged again: {unjudged[0]}{more}")
    return parts, wrong


def _judged_otherwise(part: NamedRun, unjudged: list[str]) -> Iterator[str]:
    """Yield how the recorded files of a run contradict its results; add to ``unjudged`` why results
    cannot be judged again here.
    """
    header = part.run.header
    ran = [result for result in part.run.results if result.folder or result.attempts]
    cases: dict[str, Case] = {}
    backends: Mapping[str, Backend] = {}
    waivers = Waivers()
    why = f"{part.name} is of version {header.version}, and this is {__version__}"
    if header.version == __version__:
        try:
            suite = rejudge.suite_of(header, ran)
            waivers = Waivers(
                load_waivers(rejudge.files_of(header, "waivers"), suite.backends), today=date.min
            )
            rejudge.require_same(judging_files(suite, waivers), header)
            cases = {case.id: case for case in suite.cases}
            backends = suite.backends.by_name
            why = ""
        except (InvalidSpecs, UsageError, ValueError) as error:
            # options of a forged header may not be split
            why = f"{part.name}: {one_line(str(error).splitlines()[0])}"
    installed, surroundings = installed_torch(), rejudge.surroundings_of_record(header.environment)
    for result in ran:
        case = cases.get(result.case_id)
        if case is not None and digest_of(case) == result.digest:
            yield from rejudge.problems(
                case, backends[case.backend], surroundings, result, part.folder, waivers
            )
            continue
        yield from alterations(part.folder, result)
        if (
            not why
            and installed
            and installed.version == (result.node or header.environment).get("torch")
        ):
            yield f"{result.case_id} is not a case of {result.spec}"
        elif (
            reason := why
            or f"{result.case_id} is another case with the torch that is installed here"
        ) not in unjudged:
            unjudged.append(reason)


def problems(parts: Sequence[NamedRun]) -> list[str]:
    """Return every reason why these runs are not the shards of one run, a line each."""
    by_shard: dict[str, list[NamedRun]] = {}
    for part in parts:
        if not part.run.header.merged and _SHARD.fullmatch(part.run.header.shard):
            by_shard.setdefault(part.run.header.shard, []).append(part)
    shards = [part for same in by_shard.values() for part in same]
    wrong = [
        *(problem for part in parts for problem in _of_part(part)),
        *(problem for part in shards[1:] for problem in _of_pair(shards[0], part)),
        *_of_numbers(by_shard),
        *_repeated_cases(parts),
    ]
    # problems of the whole follow from problems of the parts, so they are reported only without
    # those
    return wrong or list(_of_whole(parts))


def _of_part(part: NamedRun) -> Iterator[str]:
    header, footer = part.run.header, part.run.footer
    if header.merged or not _SHARD.fullmatch(header.shard):
        reason = "merged already" if header.merged else "run without --shard"
        yield f"{part.name}: not a shard: it was {reason}"
    if footer is None or footer.interrupted:
        reason = "cut off" if footer is None else "interrupted"
        yield f"{part.name}: it was {reason}; resume it with 'run ... --resume', then merge"


def _of_pair(first: NamedRun, part: NamedRun) -> Iterator[str]:
    """Yield why two parts are not shards of one run."""
    mine, other = part.run.header, first.run.header
    if mine.shard.split("/")[1] != other.shard.split("/")[1]:
        yield f"{part.name}: it is shard {mine.shard}, and {first.name} is {other.shard}"
    elif mine.selection == other.selection and mine.assignment != other.assignment:
        durations = " and ".join(
            header.options.get("durations") or "the tables of the specs" for header in (mine, other)
        )
        yield (
            f"{part.name}: its shards were made with other durations than those of "
            f"{first.name} ({durations}); {_SAME_DURATIONS}"
        )
    if (mine.selection, mine.selected_whole) != (other.selection, other.selected_whole):
        yield (
            f"{part.name}: another selection, of {mine.selected_whole} cases, than in "
            f"{first.name}, of {other.selected_whole}"
        )
    same_machine = not (_is_of_nodes(part.run) and _is_of_nodes(first.run))
    for difference in differences(mine, other, same_machine=same_machine):
        yield f"{part.name}: {difference.between('here', f'in {first.name}')}"


def _of_numbers(by_shard: Mapping[str, Sequence[NamedRun]]) -> Iterator[str]:
    """Yield the shards that are repeated, and those that are missing."""
    for shard, same in sorted(by_shard.items()):
        if len(same) > 1:
            yield f"{shard} is given {len(same)} times: {', '.join(part.name for part in same)}"
    counts = {shard.split("/")[1] for shard in by_shard}
    for count in counts if len(counts) == 1 else ():
        names = (f"{index}/{count}" for index in range(1, int(count) + 1))
        missing = (name for name in names if name not in by_shard)
        yield from (f"{shard} is missing" for shard in itertools.islice(missing, _LISTED))


def _repeated_cases(parts: Sequence[NamedRun]) -> Iterator[str]:
    """Yield the cases that two shards have."""
    holders: dict[str, NamedRun] = {}
    twice: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        for result in part.run.results:
            holder = holders.setdefault(result.case_id, part)
            if holder.run.header.shard != part.run.header.shard:
                twice.setdefault((holder.name, part.name), []).append(result.case_id)
    for names, cases in twice.items():
        more = f" and {len(cases) - _SHOWN} more" if len(cases) > _SHOWN else ""
        yield f"{', '.join(cases[:_SHOWN])}{more} in both {names[0]} and {names[1]}"


def _of_whole(parts: Sequence[NamedRun]) -> Iterator[str]:
    """Yield why the cases of all parts are not those that were selected."""
    digests: dict[str, str] = {
        result.case_id: result.digest for part in parts for result in part.run.results
    }
    for whole in [part.run.header for part in parts[:1]]:
        if len(digests) != whole.selected_whole:
            yield (
                f"together they hold {len(digests)} of the {whole.selected_whole} cases that "
                "were selected"
            )
        elif digest_of_selection(digests) != whole.selection:
            yield "together they hold other cases than were selected"


def _is_of_nodes(run: Run) -> bool:
    """Whether every result names the node of a fleet that it came from: then none depends on the
    machine of the header.
    """
    ran = [result for result in run.results if result.folder]
    return bool(ran) and all(result.node for result in ran)


# -- joining ---------------------------------------------------------------------------------------

Folders: TypeAlias = Mapping[tuple[int, str], str]
"""The folder of a case in the merged run, by the index of its part and its folder there."""


def join(
    parts: Sequence[NamedRun], *, run_id: str, command: tuple[str, ...]
) -> tuple[Run, Folders]:
    """Return the merged run, and the new folders of its cases and attempts.

    Spec files are in the order of the header, the cases of each by id. The machine is that of the
    first part.
    """
    first = parts[0].run.header
    header = replace(
        first,
        run_id=run_id,
        started=min(part.run.header.started for part in parts),
        command=command,
        selected=first.selected_whole,
        assignment="",
        options={name: value for name, value in first.options.items() if name != "shard"},
        merged=tuple(part.run.header.run_id for part in parts),
    )
    folders: dict[tuple[int, str], str] = {}

    def with_new_folder(index: int, piece: _Piece) -> _Piece:
        if not piece.folder:
            return piece
        return replace(
            piece, folder=folders.setdefault((index, piece.folder), f"cases/{len(folders) + 1:05d}")
        )

    results = [
        replace(
            with_new_folder(index, result),
            attempts=tuple(with_new_folder(index, attempt) for attempt in result.attempts),
        )
        for index, part in enumerate(parts)
        for result in part.run.results
    ]
    place = {file: index for index, file in enumerate(first.specs)}
    results.sort(
        key=lambda result: (
            place.get(result.spec, len(place)),
            result.spec,
            _by_number(result.case_id),
        )
    )
    footers = [part.run.footer for part in parts if part.run.footer is not None]
    ended = max(footer.ended for footer in footers)
    seconds = max(footer.seconds for footer in footers)
    warnings = tuple(itertools.chain.from_iterable(footer.warnings for footer in footers))
    footer = RunFooter(
        ended=ended, seconds=seconds, exit_code=conclusion_of(header, results)[0], warnings=warnings
    )
    return Run(header=header, results=tuple(results), footer=footer), folders


def _by_number(case_id: str) -> list[tuple[int, str]]:
    """Return a sort key with numeric order: 2 before 10."""
    return [
        (int(piece), "") if piece.isdecimal() and len(piece) < 18 else (-1, piece)
        for piece in re.split(r"([0-9]+)", case_id)
    ]


def merge(
    parts: Sequence[NamedRun], options: MergeOptions, open_reporters: OpenReporters
) -> tuple[RunFolder, Run]:
    """Write the merged run into a folder of its own; return both."""
    reports = report_files(options)
    require_free_reports(reports)
    folder = open_run(options.out)
    try:
        folder.claim_reports(reports)
        run, folders = join(parts, run_id=folder.run_id, command=tuple(map(redacted, sys.argv)))
        assert run.footer is not None, "a merged run has ended"
        with closing(open_reporters(options, folder)) as listener:
            listener.on_event(
                events.RunStarted(header=run.header, total=len(run.results), is_resumed=False)
            )
            listener.on_event(events.HeaderCompleted(header=run.header, is_resumed=False))
            not_copied = [
                line
                for (index, old), new in folders.items()
                for line in copy_files(parts[index].folder / old, folder.path / new)
            ]
            if not_copied:
                more = f", and {len(not_copied) - 1} more" if len(not_copied) > 1 else ""
                output.note(f"warning: not copied: {not_copied[0]}{more}")
            for result in run.results:
                listener.on_event(events.CaseFinished(result=result))
            results = run.footer.warned(run.results)
            listener.on_event(
                events.ResultsCompleted(header=run.header, results=results, footer=run.footer)
            )
            listener.on_event(
                events.RunEnded(header=run.header, results=results, footer=run.footer)
            )
    finally:
        folder.release()
    return folder, run


def copy_files(source: Path, target: Path) -> Iterator[str]:
    """Copy the plain files of a case below one folder to another; yield the others, with
    reasons.
    """
    if source.is_symlink() or source.parent.is_symlink():
        yield f"{source}: this is a link"
        return
    for folder, below, files in os.walk(source):
        copy = target / Path(folder).relative_to(source)
        if below and len(copy.relative_to(target).parts) >= _DEEPEST:
            yield f"{folder}/{below[0]}: it is nested too deeply"
            below.clear()
        copy.mkdir(parents=True, exist_ok=True)
        yield from (
            f"{folder}/{name}: this is a link"
            for name in below
            if os.path.islink(f"{folder}/{name}")
        )
        for name in sorted(files):
            try:
                with open_untrusted(Path(folder, name)) as stream:
                    if os.fstat(stream.fileno()).st_size > _LARGEST:
                        yield f"{folder}/{name}: it is larger than {_LARGEST >> 20} MiB"
                        continue
                    with naming(copy / name), (copy / name).open("xb") as written:
                        shutil.copyfileobj(stream, written)
            except OSError as error:
                if error.filename == str(copy / name):
                    raise
                yield f"{folder}/{name}: {error.strerror or error}"
