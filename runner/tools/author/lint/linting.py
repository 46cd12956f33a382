"""``lint``: applies the rules to specs."""

from dataclasses import dataclass
from pathlib import Path

from runner.language.load import inspect
from runner.model.case import Case
from runner.model.diagnostics import InvalidSpecs, UsageError, errors, one_line, unknown
from runner.model.options import backend_files, flag, paths, several
from runner.tools.author.lint.rules import RULES, Finding, Scene, Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class LintOptions:
    """The options of ``lint``."""

    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    select: tuple[str, ...] = several("RULE", "apply this rule alone")
    ignore: tuple[str, ...] = several("RULE", "do not apply this rule")
    json: bool = flag("print one object")


@dataclass(frozen=True, slots=True, kw_only=True)
class Linted:
    """The findings, and the number of specs."""

    findings: tuple[Finding, ...]
    specs: int


def lint(options: LintOptions) -> Linted:
    """Return the findings. Raise ``InvalidSpecs`` or ``UsageError``."""
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
    return Linted(findings=tuple(sorted(finding for rule in applied for finding in rule.check(scene))), specs=len(specs))
