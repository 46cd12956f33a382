"""``merge``: join the runs of shards into one run, or print every reason why they cannot be joined."""

import os
from collections.abc import Sequence
from pathlib import Path

from runner.core.conformance import Conformance
from runner.core.diagnostics import shown_path
from runner.core.exit_codes import ExitCode
from runner.core.options import MergeOptions
from runner.report import statement, table
from runner.report.console import print_report, wants_color, why_nothing
from runner.report.excerpts import Excerpts
from runner.run.merging import Merged, merge, read_parts
from runner.system import output


def main(options: MergeOptions) -> ExitCode:
    """Join the runs; exit as the whole run would have, or 2 when they do not belong together."""
    parts, problems = read_parts(options.runs)
    if problems:
        _refuse(problems, as_json=options.json)
        return ExitCode.USAGE
    merged = merge(parts, options, table.of_merge)
    if options.json:
        output.document(_as_json(merged))
    else:
        _print(merged)
    _print_why_nothing(merged)
    return ExitCode(merged.joined.footer.exit_code)


def _print_why_nothing(merged: Merged) -> None:
    """Print why a run in which nothing failed is no success: as ``run`` would, names of ``--require`` first."""
    joined = merged.joined
    for stated in joined.footer.statement:
        if stated.conformance is not Conformance.CONFORMANT:
            output.note(statement.why(stated))
    if joined.footer.statement or joined.footer.exit_code != ExitCode.NOTHING:
        return
    for line in joined.unexercised:
        output.note(line)
    least = int(joined.header.options.get("min-executed", "1"))
    if not joined.unexercised or sum(result.is_executed for result in joined.results) < max(least, 1):
        output.note(why_nothing(joined.results, least, joined.header.selected))


def _refuse(found: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        output.document({"format": 1, "problems": list(found)})
        return
    for problem in found:
        output.note(problem)
    output.note(f"{len(found)} problem{'' if len(found) == 1 else 's'}; nothing was merged")


def _print(merged: Merged) -> None:
    print_report(
        output.stdout(),
        merged.joined.results,
        merged.joined.header.selected,
        merged.folder.shown_junit,
        color=wants_color(output.stdout(), os.environ),
        lets_flaky_pass=merged.joined.header.lets_flaky_pass,
        folder=Path(shown_path(merged.folder.path)),
        not_requested=merged.joined.header.not_requested,
        source=Excerpts(merged.joined.header.specs),
        coverage=statement.lines_of(merged.joined.footer),
        page=merged.folder.page,
    )


def _as_json(merged: Merged) -> dict[str, object]:
    joined = merged.joined
    return {
        "format": 1,
        "problems": [],
        "run": joined.header.run_id,
        "folder": str(merged.folder.path),
        "merged": list(joined.header.merged),
        "selected": joined.header.selected,
        "totals": joined.totals,
        "exit_code": joined.footer.exit_code,
        "statement": [stated.conformance.value for stated in joined.footer.statement],
    }
