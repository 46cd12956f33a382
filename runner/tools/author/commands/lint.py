"""``lint``: print what is valid in specs, but unsound."""

from dataclasses import asdict, dataclass
from pathlib import Path

from runner.language.load import inspect
from runner.machine import output
from runner.model.case import Case
from runner.model.diagnostics import InvalidSpecs, Position, UsageError, errors, one_line, unknown
from runner.model.options import backend_files, flag, paths, several
from runner.model.outcomes import ExitCode
from runner.tools.author.lint_rules import RULES, Scene, Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class LintOptions:
    """The options of ``lint``."""

    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    select: tuple[str, ...] = several("RULE", "apply this rule alone")
    ignore: tuple[str, ...] = several("RULE", "do not apply this rule")
    json: bool = flag("print one object")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Finding:
    """What a rule says of one place. Ordered by place, then by rule."""

    position: Position
    rule: str
    message: str
    hint: str


def lint(options: LintOptions) -> tuple[list[Finding], int]:
    """Return the findings, and the number of specs. Raise ``InvalidSpecs`` or ``UsageError``."""
    for name in (*options.select, *options.ignore):
        if name not in RULES:
            message, hint = unknown("rule", one_line(name), RULES)
            raise UsageError(f"{message} ({hint})")
    inspection = inspect(options.paths, options.backends)
    if wrong := errors(inspection.problems):
        raise InvalidSpecs(wrong)
    suite, cases = inspection.suite, dict[str, list[Case]]()
    for case in suite.cases:
        cases.setdefault(case.spec, []).append(case)
    specs = tuple(Spec(anatomy=anatomy, cases=tuple(cases.get(anatomy.document.file, ()))) for anatomy in inspection.anatomies)
    scene = Scene(specs=specs, backends=suite.backends)
    applied = [rule for name, rule in RULES.items() if (not options.select or name in options.select) and name not in options.ignore]
    findings = [
        Finding(position=position, rule=rule.id, message=message, hint=hint)
        for rule in applied
        for position, message, hint in rule.check(scene)
    ]
    return sorted(findings), len(specs)


def main(options: LintOptions) -> ExitCode:
    """Print a line for each finding, then a count; exit 1 when there is one."""
    findings, specs = lint(options)
    if options.json:
        shown = [
            {"rule": finding.rule, **asdict(finding.position), "message": finding.message, "hint": finding.hint} for finding in findings
        ]
        output.document({"format": 1, "specs": specs, "findings": shown})
    else:
        lines = (f"{finding.position}: {finding.rule}: {finding.message} ({finding.hint})" for finding in findings)
        output.lines(map(one_line, lines))
        count = len(findings)
        output.line(f"{specs} spec{'' if specs == 1 else 's'}, {count or 'no'} finding{'' if count == 1 else 's'}")
    return ExitCode.FAILED if findings else ExitCode.OK
