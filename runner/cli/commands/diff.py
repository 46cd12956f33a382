"""``diff``: what changed between two recorded runs."""

from dataclasses import dataclass
from pathlib import Path

from runner.machine import output
from runner.model.comparison import FAIL_ON
from runner.model.diagnostics import UsageError, shown_path, unknown
from runner.model.options import argument, flag, option, several
from runner.model.outcomes import ExitCode
from runner.report import replace
from runner.report.comparison_report import document_of, lines_of, page_of
from runner.run.compared_runs import compare, read_placed


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """The options of ``diff``."""

    before: str = argument("RUN", "the first run: its folder, its id, latest, or a journal (a .jsonl file) alone")
    after: str = argument("RUN", "the second run")
    fail_on: tuple[str, ...] = several(
        "WORDS",
        "exit 1 if a case has one of these words, with commas between them: broken, new-failure, gone, no-longer-executed, waived, "
        "changed, still-failing, fixed, new, now-executed, spec-changed",
    )
    code: bool = flag("print what differs in the generated code and the graphs of changed cases")
    html: Path | None = option("FILE", "also write one HTML page, with what differs in generated code and graphs", reads=Path)
    json: bool = flag("print one object")


def main(options: DiffOptions) -> ExitCode:
    """Compare the runs; exit 1 for a change of ``--fail-on``, 4 where nothing could be compared."""
    fail_on = [word.strip() for words in options.fail_on for word in words.split(",")]
    for word in fail_on:
        if word not in FAIL_ON:
            message, hint = unknown("change", word, FAIL_ON)
            raise UsageError(f"--fail-on: {message} ({hint})")
    comparison = compare(read_placed(options.before), read_placed(options.after))
    reached = comparison.reached(fail_on)
    code = ExitCode.FAILED if reached else ExitCode.OK if comparison.both else ExitCode.NOTHING
    if options.html is not None:
        if options.html.is_dir():
            raise UsageError(f"--html {shown_path(options.html)}: this is a folder; name a file")
        replace(options.html, page_of(comparison).encode("utf-8"))
        output.note(f"page: {shown_path(options.html)}")
    if options.json:
        output.document(document_of(comparison, fail_on=fail_on, exit_code=int(code)))
    else:
        output.lines(lines_of(comparison, with_code=options.code))
    for word, count in reached.items():
        output.note(f"--fail-on {word}: {count}")
    if code is ExitCode.NOTHING:
        output.note("nothing was compared: no case has a result in both runs")
    return code
