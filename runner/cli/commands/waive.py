"""``waive``: proposals of waivers from runs, and the patch that removes void ones."""

from collections.abc import Sequence
from pathlib import Path

from runner.core.diagnostics import UsageError, one_line, shown_path
from runner.core.exit_codes import ExitCode
from runner.judge.waivers import patches
from runner.language.read.document import WAIVERS
from runner.language.read.source import read_partly
from runner.language.waiver_text import FILL_IN, Draft, appended, document_of
from runner.language.waivers import load_waivers
from runner.report.files import replace
from runner.run.waiver_proposals import WaiveOptions, proposals, to_remove
from runner.system import output


def main(options: WaiveOptions) -> ExitCode:
    """Print the drafts, write them to ``--to``, or print the patch of ``--remove``."""
    if options.remove:
        if options.to:
            raise UsageError("--remove prints a patch: --to does not go with it")
        return _remove(options)
    proposed = proposals(options)
    for note in proposed.notes:
        output.note(one_line(note))
    if options.to is None:
        output.raw(document_of(proposed.drafts))
    else:
        _write(options.to, proposed.drafts)
    output.note(_count(proposed.drafts, options))
    return ExitCode.OK


def _remove(options: WaiveOptions) -> ExitCode:
    void, documents = to_remove(options)
    for waiver, why in void:
        output.note(f"{waiver.position}: {why} ({waiver.issue})")
    for patch in patches(void, documents):
        output.raw(patch)
    output.note("no waiver is to be removed" if not void else f"{len(void)} to remove: pass the output to 'git apply' or 'patch -p1'")
    return ExitCode.OK


def _write(path: Path, drafts: Sequence[Draft]) -> None:
    """Add drafts at the end of a file of waivers, and leave the rest of it as it is."""
    unfinished = [draft for draft in drafts if FILL_IN in (draft.issue, *draft.when.values(), *draft.signatures[0].values())]
    if unfinished:
        raise UsageError(
            f"--to {shown_path(path)}: the waiver of '{one_line(unfinished[0].cases)}' would not be valid (give --issue, "
            "or print the drafts, and complete them)"
        )
    if not path.exists():
        text = document_of(drafts)
    elif drafts:
        load_waivers([path], None)  # a file with problems is not changed
        text = appended(read_partly(path, WAIVERS), drafts)
    else:
        return
    replace(path, text.encode("utf-8"))


def _count(drafts: Sequence[Draft], options: WaiveOptions) -> str:
    count = "1 waiver" if len(drafts) == 1 else f"{len(drafts)} waivers"
    where = f", written to {shown_path(options.to)} (run --waivers {shown_path(options.to)} applies it)" if options.to and drafts else ""
    open_ones = sum(FILL_IN in document_of([draft]) for draft in drafts)
    left = f"; {FILL_IN} stands in {open_ones} of them where a person must write something (--issue ID gives the issue)"
    more = left if open_ones else ""
    return f"{count} proposed{where}{more}"
