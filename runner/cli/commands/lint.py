"""``lint``: print what is valid in specs and waivers, but unsound; with ``--fix`` change what is safe."""

from runner.core.diagnostics import one_line
from runner.core.exit_codes import ExitCode
from runner.core.options import LintOptions
from runner.language.lint.base import Finding
from runner.report.files import replace
from runner.run.linting import Linted, lint
from runner.system import output


def main(options: LintOptions) -> ExitCode:
    """Print a line for each finding, then a count; exit 1 when there is one."""
    found = lint(options)
    for document in found.changed:
        replace(document.path, document.content)
    if options.json:
        output.document(_as_json(found))
    else:
        output.lines(map(line_of, found.findings))
        output.line(_count(found))
    for note in found.notes:
        output.note(one_line(note))
    return ExitCode.FAILED if found.findings else ExitCode.OK


def line_of(finding: Finding) -> str:
    """Return a finding as one line."""
    fixable = "; --fix does it" if finding.fix is not None else ""
    return one_line(f"{finding.position}: {finding.rule}: {finding.message} ({finding.hint}{fixable})")


def _count(found: Linted) -> str:
    count = len(found.findings)
    written = f", {len(found.changed)} file{'' if len(found.changed) == 1 else 's'} fixed" if found.changed else ""
    return f"{found.specs} spec{'' if found.specs == 1 else 's'}, {count or 'no'} finding{'' if count == 1 else 's'}{written}"


def _as_json(found: Linted) -> dict[str, object]:
    return {
        "format": 1,
        "specs": found.specs,
        "fixed": [document.file for document in found.changed],
        "findings": [
            {
                "rule": one.rule,
                "file": one.position.file,
                "line": one.position.line,
                "column": one.position.column,
                "message": one.message,
                "hint": one.hint,
                "fixable": one.fix is not None,
            }
            for one in found.findings
        ],
    }
