"""``history``: recorded runs in one file, with the pass rate, time, flake rate and first bad run of each case."""

from pathlib import Path

from runner.core.diagnostics import UsageError, shown_path
from runner.core.exit_codes import ExitCode
from runner.core.options import HistoryOptions
from runner.report.history_json import document_of
from runner.report.history_text import RESULTS, case_lines, failing_lines, ranked_lines, run_lines
from runner.report.pages import write_page
from runner.run.history import MOST, Shown, add_runs, history_file, ranked, shown, whole
from runner.system import output

_TARGETS = {"add": (1, 9999, "RUN"), "show": (0, 1, "GLOB"), "flaky": (0, 0, ""), "slowest": (0, 0, ""), "html": (1, 1, "FILE")}
"""How many targets each action takes, and their name."""


def main(options: HistoryOptions) -> ExitCode:
    """Do what the action says."""
    least, most, name = _TARGETS[options.action]
    if not least <= len(options.targets) <= most:
        wanted = f"write 'history {options.action} {name}'" if least else f"'history {options.action}' takes {name or 'nothing'}"
        raise UsageError(f"history {options.action}: {len(options.targets)} given ({wanted})")
    path = history_file(options.history)
    match options.action:
        case "add":
            return _add(path, options)
        case "show":
            return _show(shown(path, *options.targets, results=MOST if options.json else RESULTS + 1), options)
        case "html":
            return _html(path, Path(options.targets[0]))
        case _:
            found = ranked(path, options.action, MOST if options.json else options.limit + 1)
            if options.json:
                _document(found, found)
            else:
                output.lines(ranked_lines(found.cases, options.action, options.limit))
            return ExitCode.OK


def _add(path: Path, options: HistoryOptions) -> ExitCode:
    refused = 0
    for name, found in add_runs(path, options.targets):
        if isinstance(found, UsageError):
            output.note(f"not added: {found}")
            refused += 1
        else:
            output.line(f"{name}: {found.value}")
    if refused:
        output.note(f"{refused} of {len(options.targets)} runs were not added")
    return ExitCode.USAGE if refused else ExitCode.OK


def _show(found: Shown, options: HistoryOptions) -> ExitCode:
    if options.json:
        _document(found, found)
    elif options.targets:
        output.lines(case_lines(found.cases, found.runs, found.results, options.limit))
    else:
        output.lines(run_lines(found.runs))
        output.lines(failing_lines(found.failing, found.runs))
    return ExitCode.OK


def _document(found: Shown, of: Shown) -> None:
    output.document(document_of(shown_path(of.file), found.runs, found.cases or found.failing, found.results))


def _html(path: Path, target: Path) -> ExitCode:
    from runner.report.history_html import page_of

    found = whole(path)
    page = page_of(shown_path(path), found.runs, failing=found.failing, flaky=found.flaky, slowest=found.slowest)
    write_page("history html", target, page)
    output.line(f"{shown_path(target)}: {len(found.runs)} runs")
    return ExitCode.OK
