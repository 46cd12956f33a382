"""The commands that run cases, or read runs: ``run``, ``merge``, ``report``.

Each imports what it needs when it runs.
"""

from dataclasses import replace
from functools import partial

from torch_conformance.machine import output
from torch_conformance.model.diagnostics import UsageError, shown_path
from torch_conformance.model.escaping import one_line
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.optional.options import MergeOptions, ReportOptions, RunOptions, report_files
from torch_conformance.record.conclusion import conclusion_of, profile_statement


def run(options: RunOptions) -> ExitCode:
    """Run the selected cases; return the exit code for CI systems.

    The stages are in ``run/controller``.
    """
    from torch_conformance.run.start import early_zygotes

    with early_zygotes(options) as make_executor:
        from torch_conformance.report.reporters import Reporters
        from torch_conformance.run.controller import run_prepared
        from torch_conformance.run.preparation import prepare

        prepared = replace(prepare(options), make_executor=make_executor)
        return run_prepared(prepared, partial(Reporters, "run"))


def merge(options: MergeOptions) -> ExitCode:
    """Join the runs of shards; exit as the whole run would have, or 2, with every reason, when they
    do not belong together.
    """
    from torch_conformance.record.journal import totals
    from torch_conformance.report.reporters import Reporters
    from torch_conformance.report.terminal import show_end, why_no_success
    from torch_conformance.run import merging

    parts, problems = merging.read_parts(options.runs)
    if problems:
        if options.json:
            output.document({"format": 1, "problems": problems})
            return ExitCode.USAGE
        for problem in problems:
            output.note(problem)
        output.note(
            f"{len(problems)} problem{'' if len(problems) == 1 else 's'}; nothing was merged"
        )
        return ExitCode.USAGE
    folder, run = merging.merge(parts, options, partial(Reporters, "merge"))
    header, footer = run.header, run.footer
    assert footer is not None, "a merged run has ended"
    statement = profile_statement(header, run.results)
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
                "statement": [statement.words] if statement else [],
            }
        )
    else:
        show_end(folder, options, run)
    if footer.exit_code == ExitCode.NOTHING and statement is None:
        for line in conclusion_of(header, run.results)[1]:
            output.note(line)
    for line in why_no_success(run):
        output.note(line)
    return ExitCode(footer.exit_code)


def report(options: ReportOptions) -> ExitCode:
    """Write the reports of a run again, from its journal and the files that are still there, and
    print the path of the page.

    Nothing is judged: the exit code says nothing about the outcomes of the run, and what is wrong
    with it is a note.
    """
    import webbrowser

    from torch_conformance.record.journal import recorded_run
    from torch_conformance.record.run_folder import RunFolder, require_free_reports
    from torch_conformance.report.github import problems_of
    from torch_conformance.report.reporters import Reporters

    require_free_reports(report_files(options))
    recorded = recorded_run(options.run)
    folder, run = recorded.folder, recorded.run
    opened = RunFolder(path=folder, run_id=run.header.run_id)
    try:
        page, *others = Reporters("report", options, opened).write(run)
    except PermissionError as error:
        why = f"{options.run}: cannot write to {folder}: {error.strerror}"
        raise UsageError(f"{why}; copy the run to a folder that you may write to") from error
    output.raw(f"{one_line(shown_path(page))}\n")
    for path in others:
        output.line(f"written: {shown_path(path)}")
    for problem in problems_of(run):
        output.note(problem)
    if options.open and not webbrowser.open(page.as_uri()):
        output.note("no browser could be opened; open the page yourself")
    return ExitCode.OK
