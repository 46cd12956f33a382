"""``merge``: the runs of shards as the one run that they are parts of, or every reason why they are not."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.core.diagnostics import UsageError, shown_path
from runner.core.exit_codes import ExitCode
from runner.language.backends import load_backends
from runner.record.consistency import of_machine
from runner.record.evidence import alterations
from runner.record.journal import JournalError, JournalWriter, lines_of, read_run
from runner.record.merge import Joined, Part, folders_of, join, moved, problems, shifts
from runner.record.run_folder import JOURNAL, RunFolder, copy_evidence, find_run, open_run, require_free_report, require_still
from runner.report.console import print_report, wants_color, why_nothing
from runner.report.junit import write_junit, write_stub
from runner.run.recorded import Unjudged, judge_again
from runner.system import output
from runner.system.redaction import redacted_command


def main(arguments: argparse.Namespace) -> ExitCode:
    """Join the runs; exit as the whole run would have, or 2 when they do not belong together."""
    parts: list[Part] = []
    places: list[Path] = []
    found: list[str] = []
    for name in arguments.runs:
        try:
            place = find_run(name)
            require_still(name, place)
            parts.append(Part(name, read_run(place / JOURNAL)))
            places.append(place)
        except JournalError as error:
            found.append(f"{place / JOURNAL}:{error.line}: {error.reason}")
        except UsageError as error:
            found.append(str(error))
        except OSError as error:
            found.append(f"{name}: {error}")
    found += problems(parts)
    found = found or list(_altered(parts, places)) or list(_judged_otherwise(parts, places))
    if found:
        _refuse(found, as_json=arguments.json)
        return ExitCode.USAGE
    require_free_report(arguments.junit)
    folder = open_run(arguments.out)
    try:
        folder.claim_junit(arguments.junit)
        joined = join(parts, run_id=folder.run_id, command=redacted_command(sys.argv))
        _write(joined, parts, places, folder)
    finally:
        folder.release()
    if arguments.json:
        output.document(_as_json(joined, folder))
    else:
        print_report(
            output.stdout(),
            joined.results,
            joined.header.selected,
            folder.shown_junit,
            color=wants_color(output.stdout(), os.environ),
            lets_flaky_pass=joined.header.lets_flaky_pass,
            folder=Path(shown_path(folder.path)),
        )
    _say_why_nothing(joined)
    return ExitCode(joined.footer.exit_code)


def _say_why_nothing(joined: Joined) -> None:
    """Print why a run in which nothing failed is no success: as ``run`` would, names of ``--require`` first."""
    if joined.footer.exit_code != ExitCode.NOTHING:
        return
    for line in joined.unexercised:
        output.note(line)
    least = int(joined.header.options.get("min-executed", "1"))
    if not joined.unexercised or sum(result.outcome.is_executed for result in joined.results) < max(least, 1):
        output.note(why_nothing(joined.results, least, joined.header.selected))


def _altered(parts: Sequence[Part], places: Sequence[Path]) -> Iterator[str]:
    """Yield what the files beside a journal, and the machine that it names, contradict."""
    devices = {name: backend.device for name, backend in load_backends().by_name.items()}
    for part, place in zip(parts, places, strict=True):
        if problem := of_machine(part.run.results, part.header.environment, devices):
            yield f"{place / JOURNAL}: {problem}"
        for result in part.run.results:
            yield from alterations(place, result)


def _judged_otherwise(parts: Sequence[Part], places: Sequence[Path]) -> Iterator[str]:
    """Yield the verdicts that the files beside a journal do not come to; say on standard error which ones were not judged again."""
    unjudged: dict[str, None] = {}
    for part, place in zip(parts, places, strict=True):
        for found in judge_again(part.header, part.run.results, place):
            if isinstance(found, Unjudged):
                unjudged[found.why] = None
            else:
                yield f"{place / JOURNAL}:{lines_of(place / JOURNAL)[found.case_id]}: {found.problem}; run it again"
    if unjudged:
        reasons = list(unjudged)
        more = f"; and {len(reasons) - 1} more reasons" if len(reasons) > 1 else ""
        output.note(f"warning: verdicts were merged as recorded and not judged again: {reasons[0]}{more}")


def _refuse(found: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        output.document({"format": 1, "problems": list(found)})
        return
    for problem in found:
        output.note(problem)
    output.note(f"{len(found)} problem{'' if len(found) == 1 else 's'}; nothing was merged")


def _write(joined: Joined, parts: Sequence[Part], places: Sequence[Path], folder: RunFolder) -> None:
    for path in folder.junit_files:
        write_stub(path, joined.header)
    with JournalWriter(folder.journal) as journal:
        journal.write_header(joined.header)
        for part, place, by in zip(parts, places, shifts(parts), strict=True):
            _copy(part, place, by, folder)
        for result in joined.results:
            journal.write_case(result)
        for path in folder.junit_files:
            write_junit(path, joined.header, joined.results, folder=folder.path)
        journal.write_footer(joined.footer)


def _copy(part: Part, place: Path, by: int, folder: RunFolder) -> None:
    names = {old: new for result in part.run.results for old, new in zip(folders_of(result), folders_of(moved(result, by)), strict=True)}
    left = copy_evidence(place, names, folder.path)
    if left:
        more = f", and {len(left) - 1} more" if len(left) > 1 else ""
        output.note(f"warning: left behind: {left[0]}{more}")


def _as_json(joined: Joined, folder: RunFolder) -> dict[str, object]:
    return {
        "format": 1,
        "problems": [],
        "run": joined.header.run_id,
        "folder": str(folder.path),
        "merged": list(joined.header.merged),
        "selected": joined.header.selected,
        "totals": dict(joined.footer.totals),
        "exit_code": joined.footer.exit_code,
    }
