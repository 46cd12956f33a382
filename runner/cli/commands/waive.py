"""``waive``: proposals of waivers from runs."""

from runner.core.diagnostics import UsageError, one_line, shown_path
from runner.core.exit_codes import ExitCode
from runner.report.files import replace
from runner.run.waiver_proposals import FILL_IN, WaiveOptions, document_of, proposals
from runner.system import output


def main(options: WaiveOptions) -> ExitCode:
    """Print a file with the drafts, or write it to ``--to``."""
    if options.to is not None and options.to.exists():
        raise UsageError(f"--to {shown_path(options.to)}: this exists already (name another, or copy what is printed without --to)")
    drafts, notes = proposals(options)
    for note in notes:
        output.note(one_line(note))
    if options.to is None:
        output.raw(document_of(drafts))
    else:
        replace(options.to, document_of(drafts).encode("utf-8"))
    unfinished = sum(FILL_IN in document_of([draft]) for draft in drafts)
    left = f"; {FILL_IN} stands in {unfinished} of them where a person must write something (--issue ID gives the issue)"
    output.note(f"{len(drafts)} waiver{'' if len(drafts) == 1 else 's'} proposed{left if unfinished else ''}")
    return ExitCode.OK
