"""``merge``: joins the runs of shards into one; refuses missing, duplicate, incompatible and altered ones, and judges every case again.

The headers have the digest of the whole selection, so that a missing case is detected. The tables of ``compatibility`` list what may
differ between the parts. Recorded files are untrusted: no link is followed, and special files are not copied.
"""

import itertools
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TypeAlias

from runner import __version__
from runner.judge.waiving import Waivers
from runner.language.backends import load_backends
from runner.language.load import load_specs, surroundings_of
from runner.language.waivers import load_waivers
from runner.machine import output
from runner.machine.installed_torch import installed_torch
from runner.machine.output import naming
from runner.machine.redaction import redacted
from runner.machine.scratch import open_untrusted
from runner.model.case import Case
from runner.model.diagnostics import InvalidSpecs, UsageError, one_line
from runner.model.events import CaseFinished, HeaderCompleted, Listener, ResultsCompleted, RunEnded, RunStarted
from runner.model.header import RunFooter
from runner.model.options import MergeOptions, report_files
from runner.model.results import Attempt, CaseResult
from runner.plan.worker_plan import digest_of
from runner.record.case_files import alterations
from runner.record.compatibility import differences
from runner.record.journal import JournalError, Run, digest_of_selection, read_run
from runner.record.journal import totals as totals  # the command prints them
from runner.record.run_folder import JOURNAL, RunFolder, find_run, open_run, require_free_reports, require_still
from runner.run import rejudge
from runner.run.machines_then import impossible_on_machine, surroundings_then
from runner.run.preparation import judging_files

OpenReporters: TypeAlias = Callable[[MergeOptions, RunFolder], Listener]

_SHARD = re.compile(r"([1-9][0-9]*)/([1-9][0-9]*)")
_SHOWN = 3
"""How many cases one problem lists."""

_LISTED = 100
"""How many missing shards are listed."""

_DEEPEST = 8
_LARGEST = 256 << 20
"""The maximum size in bytes of a file that is copied; the limits of a worker's messages, code and traces are much smaller."""


@dataclass(frozen=True, slots=True)
class Part:
    """A run of a shard, with its name on the command line, and its folder."""

    name: str
    run: Run
    folder: Path = Path()

    @property
    def is_of_nodes(self) -> bool:
        """Whether every result names the node of a fleet that it came from: then none depends on the machine of the header."""
        ran = [result for result in self.run.results if result.folder]
        return bool(ran) and all(result.node for result in ran)


def read_parts(names: Sequence[str]) -> tuple[list[Part], list[str]]:
    """Read the runs; return them with every reason why they cannot be merged."""
    parts: list[Part] = []
    wrong: list[str] = []
    for name in names:
        try:
            folder = find_run(name)
            require_still(name, folder)
            parts.append(Part(name, read_run(folder / JOURNAL), folder))
        except JournalError as error:
            wrong.append(f"{folder / JOURNAL}:{error.line}: {error.reason}")
        except UsageError as error:
            wrong.append(str(error))
        except OSError as error:
            wrong.append(f"{name}: {error}")
    wrong += problems(parts)
    if not wrong:
        devices = {name: backend.device for name, backend in load_backends().by_name.items()}
        for part in parts:
            if problem := impossible_on_machine(part.run.results, part.run.header.environment, devices):
                wrong.append(f"{part.folder / JOURNAL}: {problem}")
            wrong += [problem for result in part.run.results for problem in alterations(part.folder, result)]
    unjudged: list[str] = []
    if not wrong:
        wrong = [f"{part.folder / JOURNAL}: {problem}; run it again" for part in parts for problem in _judged_otherwise(part, unjudged)]
    if unjudged:
        more = f", and {len(unjudged) - 1} more reasons" if len(unjudged) > 1 else ""
        output.note(f"warning: merged as recorded, not judged again: {unjudged[0]}{more}")
    return parts, wrong


def _judged_otherwise(part: Part, unjudged: list[str]) -> Iterator[str]:
    """Yield how the recorded files of a run contradict its results; add to ``unjudged`` why results cannot be judged again here."""
    header = part.run.header
    ran = [result for result in part.run.results if result.folder]
    if header.version != __version__:
        unjudged.append(f"{part.name} is of version {header.version}, and this is {__version__}")
        return
    try:
        torch = surroundings_of(header.environment.get("torch"), None)
        suite = load_specs(rejudge.specs_of(ran), rejudge.files_of(header, "backends"), torch)
        waivers = Waivers(load_waivers(rejudge.files_of(header, "waivers"), suite.backends), today=date.min)
        rejudge.require_same({**suite.digests, **judging_files(suite, waivers)}, header)
    except (InvalidSpecs, UsageError, ValueError) as error:  # options of a forged header may not be split
        unjudged.append(f"{part.name}: {one_line(str(error).splitlines()[0])}")
        return
    cases: dict[str, Case] = {case.id: case for case in suite.cases}
    installed, known = installed_torch(), surroundings_then(header)
    for result in ran:
        case = cases.get(result.case_id)
        if case is not None and digest_of(case) == result.digest:
            backend = suite.backends.by_name[case.backend]
            if problem := rejudge.contradiction(case, backend, known, result, part.folder, waivers):
                yield problem
        elif installed and installed.version == (result.node or header.environment).get("torch"):
            yield f"{result.case_id} is not a case of {result.spec}"
        else:
            unjudged.append(f"{result.case_id} is another case with the torch that is installed here")


def problems(parts: Sequence[Part]) -> list[str]:
    """Return every reason why these runs are not the shards of one run, a line each."""
    wrong: list[str] = []
    by_shard: dict[str, list[Part]] = {}
    for part in parts:
        header, footer = part.run.header, part.run.footer
        if header.merged or not _SHARD.fullmatch(header.shard):
            wrong.append(f"{part.name}: not a shard: it was {'merged already' if header.merged else 'run without --shard'}")
        else:
            by_shard.setdefault(header.shard, []).append(part)
        if footer is None or footer.interrupted:
            how = "cut off" if footer is None else "interrupted"
            wrong.append(f"{part.name}: it was {how}; resume it with 'run ... --resume', then merge")
    shards = [part for same in by_shard.values() for part in same]
    for part in shards[1:]:
        first, mine, other = shards[0], part.run.header, shards[0].run.header
        if mine.shard.split("/")[1] != other.shard.split("/")[1]:
            wrong.append(f"{part.name}: it is shard {mine.shard}, and {first.name} is {other.shard}")
        if (mine.selection, mine.selected_whole) != (other.selection, other.selected_whole):
            selection = f"another selection, of {mine.selected_whole} cases, than in {first.name}, of {other.selected_whole}"
            wrong.append(f"{part.name}: {selection}")
        for difference in differences(mine, other, same_machine=not (part.is_of_nodes and first.is_of_nodes)):
            wrong.append(f"{part.name}: {difference.between('here', f'in {first.name}')}")
    for shard, same in sorted(by_shard.items()):
        if len(same) > 1:
            wrong.append(f"{shard} is given {len(same)} times: {', '.join(part.name for part in same)}")
    counts = {shard.split("/")[1] for shard in by_shard}
    if len(counts) == 1:
        (count,) = counts
        missing = (f"{index}/{count}" for index in range(1, int(count) + 1) if f"{index}/{count}" not in by_shard)
        wrong += [f"{shard} is missing" for shard in itertools.islice(missing, _LISTED)]
    holders: dict[str, Part] = {}
    twice: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        for result in part.run.results:
            holder = holders.setdefault(result.case_id, part)
            if holder.run.header.shard != part.run.header.shard:
                twice.setdefault((holder.name, part.name), []).append(result.case_id)
    for (first_name, second_name), cases in twice.items():
        more = f" and {len(cases) - _SHOWN} more" if len(cases) > _SHOWN else ""
        wrong.append(f"{', '.join(cases[:_SHOWN])}{more} in both {first_name} and {second_name}")
    # problems of the whole follow from problems of the parts, so they are reported only without those
    if parts and not wrong:
        whole = parts[0].run.header
        digests: dict[str, str] = {result.case_id: result.digest for part in parts for result in part.run.results}
        if len(digests) != whole.selected_whole:
            wrong.append(f"together they hold {len(digests)} of the {whole.selected_whole} cases that were selected")
        elif digest_of_selection(digests) != whole.selection:
            wrong.append("together they hold other cases than were selected")
    return wrong


# -- joining --------------------------------------------------------------------------------------------------------

Folders: TypeAlias = Mapping[tuple[int, str], str]
"""The folder of a case in the merged run, by the index of its part and its folder there."""


def new_folders(parts: Sequence[Part]) -> Folders:
    """Return a folder in the merged run for each folder of a case or of one of its attempts."""
    folders: dict[tuple[int, str], str] = {}
    for index, part in enumerate(parts):
        for folder in (piece.folder for result in part.run.results for piece in (result, *result.attempts) if piece.folder):
            folders.setdefault((index, folder), f"cases/{len(folders) + 1:05d}")
    return folders


def join(parts: Sequence[Part], folders: Folders, *, run_id: str, command: tuple[str, ...]) -> tuple[Run, tuple[str, ...]]:
    """Return the merged run, and a line for each name of ``--require`` that no executed case uses.

    Spec files are in the order of the header, the cases of each by id. The machine is that of the first part.
    """
    first = parts[0].run.header
    header = replace(
        first,
        run_id=run_id,
        started=min(part.run.header.started for part in parts),
        command=command,
        selected=first.selected_whole,
        options={name: value for name, value in first.options.items() if name != "shard"},
        merged=tuple(part.run.header.run_id for part in parts),
    )

    def moved(index: int, result: CaseResult) -> CaseResult:
        attempts: list[Attempt] = [replace(attempt, folder=folders.get((index, attempt.folder), "")) for attempt in result.attempts]
        return replace(result, folder=folders.get((index, result.folder), ""), attempts=tuple(attempts))

    place = {file: index for index, file in enumerate(first.specs)}
    results = [moved(index, result) for index, part in enumerate(parts) for result in part.run.results]
    results.sort(key=lambda result: (place.get(result.spec, len(place)), result.spec, _by_number(result.case_id)))
    code, unexercised = header.conclusion(results)
    footers = [part.run.footer for part in parts if part.run.footer is not None]
    footer = RunFooter(
        ended=max(footer.ended for footer in footers),
        seconds=max(footer.seconds for footer in footers),
        exit_code=code,
    )
    return Run(header=header, results=tuple(results), footer=footer), unexercised


def _by_number(case_id: str) -> list[tuple[int, str]]:
    """Return a sort key with numeric order: 2 before 10."""
    return [(int(piece), "") if piece.isdecimal() and len(piece) < 18 else (-1, piece) for piece in re.split(r"([0-9]+)", case_id)]


def merge(parts: Sequence[Part], options: MergeOptions, open_reporters: OpenReporters) -> tuple[RunFolder, Run, tuple[str, ...]]:
    """Write the merged run into a folder of its own; return that with what ``join`` returns."""
    reports = report_files(options)
    require_free_reports(reports)
    folder = open_run(options.out)
    try:
        folder.claim_reports(reports)
        folders = new_folders(parts)
        run, unexercised = join(parts, folders, run_id=folder.run_id, command=tuple(map(redacted, sys.argv)))
        assert run.footer is not None, "a merged run has ended"
        with closing(open_reporters(options, folder)) as listener:
            listener.on_event(RunStarted(header=run.header, total=len(run.results), is_resumed=False))
            listener.on_event(HeaderCompleted(header=run.header, is_resumed=False))
            left = [line for (index, old), new in folders.items() for line in copy_files(parts[index].folder / old, folder.path / new)]
            if left:
                more = f", and {len(left) - 1} more" if len(left) > 1 else ""
                output.note(f"warning: not copied: {left[0]}{more}")
            for result in run.results:
                listener.on_event(CaseFinished(result=result))
            listener.on_event(ResultsCompleted(header=run.header, results=run.results, footer=run.footer))
            listener.on_event(RunEnded(header=run.header, results=run.results, footer=run.footer))
    finally:
        folder.release()
    return folder, run, unexercised


def copy_files(source: Path, target: Path) -> Iterator[str]:
    """Copy the plain files of a case below one folder to another; yield the others, with reasons."""
    if source.is_symlink() or source.parent.is_symlink():
        yield f"{source}: this is a link"
        return
    for folder, below, files in os.walk(source):
        copy = target / Path(folder).relative_to(source)
        if below and len(Path(folder).relative_to(source).parts) >= _DEEPEST:
            yield f"{folder}/{below[0]}: it lies too deep"
            below.clear()
        copy.mkdir(parents=True, exist_ok=True)
        yield from (f"{folder}/{name}: this is a link" for name in below if os.path.islink(f"{folder}/{name}"))
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
