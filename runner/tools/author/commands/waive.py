"""``waive``: proposals of waivers from runs, and the patch that removes void ones."""

from runner.language.read.document import WAIVERS
from runner.language.read.yaml_source import parse
from runner.machine import output
from runner.model.diagnostics import UsageError, one_line
from runner.model.outcomes import ExitCode
from runner.report import replace
from runner.tools.author.waiver_proposals import FILL_IN, WaiveOptions, document_of, proposals, removals


def main(options: WaiveOptions) -> ExitCode:
    """Print a file with the drafts, or add them to ``--to``; raise ``InvalidSpecs`` for a file that they cannot follow.

    With ``--remove``: print the patch.
    """
    if options.remove:
        if options.to:
            raise UsageError("--remove prints a patch: --to does not go with it")
        patch, lines = removals(options)
        for line in lines or ["no waiver is to be removed"]:
            output.note(one_line(line))
        output.raw(patch)
        return ExitCode.OK
    drafts, notes = proposals(options)
    for note in notes:
        output.note(one_line(note))
    if options.to is None:
        output.raw(document_of(drafts))
    else:
        text = document_of(drafts, options.to.read_text("utf-8") if options.to.exists() else "")
        parse(text, path=options.to, kind=WAIVERS)  # a file of another form stays as it is
        replace(options.to, text.encode("utf-8"))
    unfinished = sum(FILL_IN in document_of([draft]) for draft in drafts)
    left = f"; {FILL_IN} stands in {unfinished} of them where a person must write something (--issue ID gives the issue)"
    output.note(f"{len(drafts)} waiver{'' if len(drafts) == 1 else 's'} proposed{left if unfinished else ''}")
    return ExitCode.OK
