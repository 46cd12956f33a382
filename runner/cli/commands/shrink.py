"""``shrink``: a smaller case that fails in the same way, as a spec and a script, and the stage of the compiler that breaks."""

from runner.core.diagnostics import UsageError
from runner.core.exit_codes import ExitCode
from runner.core.options import ShrinkOptions
from runner.language.load import load
from runner.plan.selection import select, unmatched
from runner.run.shrinking.shrinking import shrink
from runner.system import output, scratch


def main(options: ShrinkOptions) -> ExitCode:
    """Shrink the one case that the id selects. Exit 130 where an interrupt ended the search; the best so far is written all the same."""
    suite = load(options.paths, options.backends)
    cases = select(suite.cases, suite.backends, globs=[options.case])
    if len(cases) != 1:
        raise UsageError(
            f"{len(cases)} cases match '{options.case}': name one by its id" if cases else unmatched([options.case], suite.cases)[0]
        )
    with scratch.make() as place:
        found = shrink(cases[0], suite, options, place.path, output.note)
    ended = f", ended early: {found.ended}" if found.ended else ""
    output.line(f"spec: {found.spec}")
    output.line(f"script: {found.script or f'none: {found.why_no_script}'}")
    output.line(f"stage: {found.stage}")
    output.line(f"{found.runs} runs{ended}")
    return ExitCode.INTERRUPTED if found.ended == "interrupted" else ExitCode.OK
