"""Joins the runs of shards: reads them, refuses incompatible or altered ones, and writes the merged run."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

from runner.core.diagnostics import UsageError
from runner.core.events import CaseFinished, HeaderCompleted, Listener, ResultsCompleted, RunEnded, RunStarted
from runner.core.options import MergeOptions
from runner.judge.cross_checks import impossible_on_machine
from runner.language.backends import load_backends
from runner.record.evidence import alterations
from runner.record.journal import JournalError, lines_of, read_run
from runner.record.merge import Joined, Part, copy_evidence, folders_of, join, moved, problems, shifts
from runner.record.run_folder import JOURNAL, RunFolder, find_run, open_run, require_free_report, require_still
from runner.run.rejudge import judge_again
from runner.system import output
from runner.system.redaction import redacted_command

OpenReporters: TypeAlias = Callable[[MergeOptions, RunFolder], Listener]


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged run, and its folder."""

    joined: Joined
    folder: RunFolder


def read_parts(names: Sequence[str]) -> tuple[list[Part], list[str]]:
    """Read the runs; return them with every reason why they cannot be merged."""
    parts: list[Part] = []
    found: list[str] = []
    for name in names:
        try:
            folder = find_run(name)
            require_still(name, folder)
            parts.append(Part(name, read_run(folder / JOURNAL), folder))
        except JournalError as error:
            found.append(f"{folder / JOURNAL}:{error.line}: {error.reason}")
        except UsageError as error:
            found.append(str(error))
        except OSError as error:
            found.append(f"{name}: {error}")
    found += problems(parts)
    return parts, found or list(_altered(parts)) or list(_judged_otherwise(parts))


def merge(parts: Sequence[Part], options: MergeOptions, open_reporters: OpenReporters) -> Merged:
    """Write the merged run into a folder of its own."""
    require_free_report(options.junit)
    folder = open_run(options.out)
    try:
        folder.claim_report(options.junit)
        joined = join(parts, run_id=folder.run_id, command=redacted_command(sys.argv))
        with closing(open_reporters(options, folder)) as listener:
            listener.on_event(RunStarted(header=joined.header, total=len(joined.results), is_resumed=False))
            listener.on_event(HeaderCompleted(header=joined.header, is_resumed=False))
            for part, by in zip(parts, shifts(parts), strict=True):
                results = part.run.results
                names = {old: new for result in results for old, new in zip(folders_of(result), folders_of(moved(result, by)), strict=True)}
                left = copy_evidence(part.folder, names, folder.path)
                if left:
                    more = f", and {len(left) - 1} more" if len(left) > 1 else ""
                    output.note(f"warning: not copied: {left[0]}{more}")
            for result in joined.results:
                listener.on_event(CaseFinished(result=result))
            listener.on_event(ResultsCompleted(header=joined.header, results=joined.results, footer=joined.footer))
            listener.on_event(RunEnded(header=joined.header, results=joined.results, footer=joined.footer))
    finally:
        folder.release()
    return Merged(joined, folder)


def _altered(parts: Sequence[Part]) -> Iterator[str]:
    """Yield each contradiction between a journal and its files, or the machine in its header."""
    devices = {name: backend.device for name, backend in load_backends().by_name.items()}
    for part in parts:
        run = part.run
        if problem := impossible_on_machine(run.results, run.header.environment, devices):
            yield f"{part.folder / JOURNAL}: {problem}"
        for result in run.results:
            yield from alterations(part.folder, result)


def _judged_otherwise(parts: Sequence[Part]) -> Iterator[str]:
    """Yield each recorded verdict that differs when judged again; warn of verdicts that could not be judged again."""
    unjudged: dict[str, None] = {}
    for part in parts:
        contradictions, reasons = judge_again(part.header, part.run.results, part.folder)
        unjudged |= dict.fromkeys(reasons)
        lines = lines_of(part.folder / JOURNAL) if contradictions else {}
        yield from (f"{part.folder / JOURNAL}:{lines[case_id]}: {problem}; run it again" for case_id, problem in contradictions.items())
    if unjudged:
        reasons = list(unjudged)
        more = f"; and {len(reasons) - 1} more reasons" if len(reasons) > 1 else ""
        output.note(f"warning: verdicts were merged as recorded and not judged again: {reasons[0]}{more}")
