"""``lint``: print what is valid in specs, but unsound."""

from runner.machine import output
from runner.model.diagnostics import one_line
from runner.model.outcomes import ExitCode
from runner.tools.author.lint.linting import LintOptions, lint
from runner.tools.author.lint.rules import Finding


def main(options: LintOptions) -> ExitCode:
    """Print a line for each finding, then a count; exit 1 when there is one."""
    linted = lint(options)
    if options.json:
        output.document({"format": 1, "specs": linted.specs, "findings": list(map(_as_json, linted.findings))})
    else:
        lines = (f"{finding.position}: {finding.rule}: {finding.message} ({finding.hint})" for finding in linted.findings)
        output.lines(map(one_line, lines))
        count = len(linted.findings)
        output.line(f"{linted.specs} spec{'' if linted.specs == 1 else 's'}, {count or 'no'} finding{'' if count == 1 else 's'}")
    return ExitCode.FAILED if linted.findings else ExitCode.OK


def _as_json(finding: Finding) -> dict[str, object]:
    place = finding.position
    return {
        "rule": finding.rule,
        "file": place.file,
        "line": place.line,
        "column": place.column,
        "message": finding.message,
        "hint": finding.hint,
    }
