"""Joins the shards of a run; refuses missing, duplicate and incompatible shards.

The headers have the digest of the whole selection, so that a missing case is detected. The tables of ``compatibility`` list what may
differ between the parts.
"""

import itertools
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.core.header import RunFooter, RunHeader
from runner.core.results import CaseResult
from runner.record.compatibility import differences, machine_differences
from runner.record.journal import Run, digest_of_selection, totals
from runner.system.output import naming
from runner.system.safe_open import open_untrusted

_SHARD = re.compile(r"([1-9][0-9]*)/([1-9][0-9]*)")
_FOLDER = re.compile(r"cases/([0-9]{5,9})")
_SHOWN = 3
"""How many names one problem lists."""

_DEEPEST = 8
_LARGEST = 256 << 20
"""The maximum size in bytes of a file that a merge copies; the limits of a worker's messages, code and traces are much smaller."""

_LISTED = 100
"""How many missing shards are listed by name."""


@dataclass(frozen=True, slots=True)
class Part:
    """A run of a shard, with its name on the command line, and its folder."""

    name: str
    run: Run
    folder: Path = Path()

    @property
    def header(self) -> RunHeader:
        """The run's header."""
        return self.run.header

    @property
    def is_of_nodes(self) -> bool:
        """Whether every result names the node of a fleet that it came from: then none depends on the machine of the header."""
        ran = [result for result in self.run.results if result.folder]
        return bool(ran) and all(result.node for result in ran)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The content of the merged run's journal."""

    header: RunHeader
    results: tuple[CaseResult, ...]
    footer: RunFooter
    unexercised: tuple[str, ...] = ()
    """A line for each name of ``--require`` that no executed case uses."""

    @property
    def totals(self) -> dict[str, int]:
        """How many cases had each outcome."""
        return totals(self.results)


# -- problems -------------------------------------------------------------------------------------------------------


def problems(parts: Sequence[Part]) -> list[str]:
    """Return every reason why these runs are not the shards of one run, a line each."""
    wrong: list[str] = []
    for part in parts:
        header, footer = part.header, part.run.footer
        if header.merged or not _SHARD.fullmatch(header.shard):
            how = "merged already" if header.merged else "run without --shard"
            wrong.append(f"{part.name}: not a shard: it was {how}")
        if footer is None or footer.interrupted:
            how = "cut off" if footer is None else "interrupted"
            wrong.append(f"{part.name}: it was {how}; resume it with 'run ... --resume', then merge")
    runs = Counter(part.header.run_id for part in parts)
    wrong += [f"the run {run_id} is given {count} times" for run_id, count in runs.items() if count > 1]
    shards = [part for part in parts if _SHARD.fullmatch(part.header.shard)]
    for part in shards[1:]:
        first, mine, other = shards[0], part.header, shards[0].header
        if mine.shard.split("/")[1] != other.shard.split("/")[1]:
            wrong.append(f"{part.name}: it is shard {mine.shard}, and {first.name} is {other.shard}")
        if (mine.selection, mine.selected_whole) != (other.selection, other.selected_whole):
            selection = f"another selection, of {mine.selected_whole} cases, than in {first.name}, of {other.selected_whole}"
            wrong.append(f"{part.name}: {selection}")
        for difference in differences(mine, other, same_machine=not (part.is_of_nodes and first.is_of_nodes)):
            wrong.append(f"{part.name}: {difference.between('here', f'in {first.name}')}")
    if len(runs) == len(parts):
        wrong += _shards(shards)
        # the cases that are in two different shards
        holders: dict[str, Part] = {}
        twice: dict[tuple[str, str], list[str]] = {}
        for part in parts:
            for result in part.run.results:
                holder = holders.setdefault(result.case_id, part)
                if holder is not part and holder.header.shard != part.header.shard:
                    twice.setdefault((holder.name, part.name), []).append(result.case_id)
        for (first_name, second_name), cases in twice.items():
            more = f" and {len(cases) - _SHOWN} more" if len(cases) > _SHOWN else ""
            wrong.append(f"{', '.join(cases[:_SHOWN])}{more} in both {first_name} and {second_name}")
    # problems of the whole follow from problems of the parts, so they are reported only without those
    if parts and not wrong:
        whole = parts[0].header
        digests: dict[str, str] = {result.case_id: result.digest for part in parts for result in part.run.results}
        if len(digests) != whole.selected_whole:
            wrong.append(f"together they hold {len(digests)} of the {whole.selected_whole} cases that were selected")
        elif digest_of_selection(digests) != whole.selection:
            wrong.append("together they hold other cases than were selected")
    return wrong


def _shards(parts: Sequence[Part]) -> Iterator[str]:
    """Yield the shards that are missing or duplicate."""
    names: dict[str, list[str]] = {}
    for part in parts:
        names.setdefault(part.header.shard, []).append(part.name)
    for shard, holders in sorted(names.items()):
        if len(holders) > 1:
            yield f"{shard} is given {len(holders)} times: {', '.join(holders)}"
    counts = {shard.split("/")[1] for shard in names}
    if len(counts) == 1:
        count = int(counts.pop())
        missing = count - len(names)
        unseen = (f"{index}/{count}" for index in range(1, count + 1) if f"{index}/{count}" not in names)
        yield from (f"{shard} is missing" for shard in itertools.islice(unseen, _LISTED))
        if missing > _LISTED:
            yield f"{missing - _LISTED} more shards are missing"


# -- joining --------------------------------------------------------------------------------------------------------


def folders_of(result: CaseResult) -> tuple[str, ...]:
    """Return the folders of a case below its run's."""
    folders = (result.folder, *(attempt.folder for attempt in result.attempts))
    return tuple(dict.fromkeys(folder for folder in folders if folder))  # the case's folder is also that of one of its attempts


def moved(result: CaseResult, by: int) -> CaseResult:
    """Return a result with ``by`` added to the numbers of its folders."""
    attempts = tuple(replace(attempt, folder=_moved(attempt.folder, by)) for attempt in result.attempts)
    return replace(result, folder=_moved(result.folder, by), attempts=attempts)


def _moved(folder: str, by: int) -> str:
    return f"cases/{_number(folder) + by:05d}" if folder else ""


def _number(folder: str) -> int:
    match = _FOLDER.fullmatch(folder)
    assert match is not None, "a reader of the journal checks it"
    return int(match[1])


def shifts(parts: Sequence[Part]) -> list[int]:
    """Return for each part the offset that makes its folder numbers unique in the merged run."""
    found, highest = [], 0
    for part in parts:
        found.append(highest)
        highest += max((_number(folder) for result in part.run.results for folder in folders_of(result)), default=0)
    return found


def join(parts: Sequence[Part], *, run_id: str, command: tuple[str, ...]) -> Joined:
    """Return the merged run: spec files in the order of the header, the cases of each by id."""
    first = parts[0].header
    headers = [part.header for part in parts]
    # the facts of the first part where their machines differ, as those of parts that ran on nodes may
    machines = [header.environment for header in headers]
    differ = any(machine_differences(machines[0], other) for other in machines[1:])
    header = replace(
        first,
        run_id=run_id,
        started=min(header.started for header in headers),
        command=command,
        environment=machines[0] if differ else _together(machines),
        variables=_together([header.variables for header in headers]),
        selected=first.selected_whole,
        options={name: value for name, value in first.options.items() if name != "shard"},
        merged=tuple(header.run_id for header in headers),
    )
    place = {file: index for index, file in enumerate(first.specs)}
    results = [moved(result, by) for part, by in zip(parts, shifts(parts), strict=True) for result in part.run.results]
    results.sort(key=lambda result: (place.get(result.spec, len(place)), result.spec, _by_number(result.case_id)))
    code, unexercised = header.conclusion(results)
    statement = header.statement(results)
    footers = [part.run.footer for part in parts if part.run.footer is not None]
    footer = RunFooter(
        ended=max(footer.ended for footer in footers),
        seconds=max(footer.seconds for footer in footers),
        exit_code=code,
        statement=(statement,) if statement else (),
    )
    return Joined(header=header, results=tuple(results), footer=footer, unexercised=unexercised)


def _together(sides: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the values of the parts by name; different values are joined."""
    names = dict.fromkeys(name for side in sides for name in side)
    return {name: " | ".join(dict.fromkeys(side[name] for side in sides if name in side)) for name in names}


def _by_number(case_id: str) -> list[tuple[int, str]]:
    """Return a sort key with numeric order: 2 before 10."""
    return [(int(piece), "") if piece.isdecimal() and len(piece) < 18 else (-1, piece) for piece in re.split(r"([0-9]+)", case_id)]


# -- artifacts -----------------------------------------------------------------------------------------------------


def copy_evidence(source: Path, folders: Mapping[str, str], target: Path) -> list[str]:
    """Copy the artifacts of cases from one run's folder to another's; ``folders`` maps old to new names.

    The files are untrusted: no link is followed, and special files are not copied. Returns the files that were not copied, with reasons.
    """
    left: list[str] = []

    def unread(error: OSError) -> None:
        left.append(f"{error.filename}: {error.strerror}")

    for name, new in folders.items():
        if any((source / part).is_symlink() for part in (name, Path(name).parent)):
            left.append(f"{source / name}: this is a link")
            continue
        for folder, below, files in os.walk(source / name, onerror=unread):
            within = Path(folder).relative_to(source / name)
            copy = target / new / within
            copy.mkdir(parents=True, exist_ok=True)
            links = [entry for entry in below if os.path.islink(os.path.join(folder, entry))]
            left += [f"{os.path.join(folder, entry)}: this is a link" for entry in links]
            if len(within.parts) >= _DEEPEST and below:
                left.append(f"{folder}/{below[0]}: it lies too deep")
                below.clear()
            for file in sorted(files):
                if why := _copy_file(Path(folder, file), copy / file):
                    left.append(f"{Path(folder, file)}: {why}")
    return left


def _copy_file(source: Path, target: Path) -> str:
    """Copy a file; return why it was not copied, empty if it was."""
    try:
        stream = open_untrusted(source)
    except OSError as error:
        return error.strerror or str(error)
    with stream:
        if os.fstat(stream.fileno()).st_size > _LARGEST:
            return f"it is larger than {_LARGEST >> 20} MiB"
        with naming(target), target.open("xb") as copy:
            shutil.copyfileobj(stream, copy)
    return ""
