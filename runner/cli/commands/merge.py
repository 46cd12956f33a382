"""``merge``: join the runs of shards into one run, or print every reason why they cannot be joined."""

from runner.machine import output
from runner.model.options import MergeOptions
from runner.model.outcomes import ExitCode
from runner.report import reporters
from runner.report.terminal import show_end, why_no_success
from runner.run.merging import merge, read_parts, totals


def main(options: MergeOptions) -> ExitCode:
    """Join the runs; exit as the whole run would have, or 2 when they do not belong together."""
    parts, problems = read_parts(options.runs)
    if problems:
        if options.json:
            output.document({"format": 1, "problems": problems})
            return ExitCode.USAGE
        for problem in problems:
            output.note(problem)
        output.note(f"{len(problems)} problem{'' if len(problems) == 1 else 's'}; nothing was merged")
        return ExitCode.USAGE
    folder, run, unexercised = merge(parts, options, reporters.of_merge)
    header, footer = run.header, run.footer
    assert footer is not None, "a merged run has ended"
    if options.json:
        output.document(
            {
                "format": 1,
                "problems": [],
                "run": header.run_id,
                "folder": str(folder.path),
                "merged": list(header.merged),
                "selected": header.selected,
                "totals": totals(run.results),
                "exit_code": footer.exit_code,
                "statement": [stated.conformance.value for stated in footer.statement],
            }
        )
    else:
        show_end(folder, header, run.results, footer)
    if footer.exit_code == ExitCode.NOTHING and not footer.statement:
        for line in unexercised:
            output.note(line)
    for line in why_no_success(header, run.results, footer):
        output.note(line)
    return ExitCode(footer.exit_code)
