"""``merge``: join the runs of shards into one run, or print every reason why they cannot be joined."""

from collections.abc import Sequence

from runner.core.exit_codes import ExitCode
from runner.core.options import MergeOptions
from runner.report import table
from runner.report.terminal import show_end, why_no_success
from runner.run.merging import Merged, merge, read_parts
from runner.system import output


def main(options: MergeOptions) -> ExitCode:
    """Join the runs; exit as the whole run would have, or 2 when they do not belong together."""
    parts, problems = read_parts(options.runs)
    if problems:
        _refuse(problems, as_json=options.json)
        return ExitCode.USAGE
    merged = merge(parts, options, table.of_merge)
    joined = merged.joined
    if options.json:
        output.document(_as_json(merged))
    else:
        show_end(merged.folder, joined.header, joined.results, joined.footer)
    if joined.footer.exit_code == ExitCode.NOTHING and not joined.footer.statement:
        for line in joined.unexercised:
            output.note(line)
    for line in why_no_success(joined.header, joined.results, joined.footer):
        output.note(line)
    return ExitCode(joined.footer.exit_code)


def _refuse(found: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        output.document({"format": 1, "problems": list(found)})
        return
    for problem in found:
        output.note(problem)
    output.note(f"{len(found)} problem{'' if len(found) == 1 else 's'}; nothing was merged")


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
