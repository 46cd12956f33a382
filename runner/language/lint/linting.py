"""``lint``: the table of rules, what is linted, and the comments that suppress findings."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.core.case import Case
from runner.core.diagnostics import InvalidSpecs, Position, UsageError, errors, one_line, unknown
from runner.core.options import backend_files, flag, paths, several, waiver_files
from runner.language.lint import rules
from runner.language.lint.rules import Finding, Rule, Scene, Spec
from runner.language.load import inspect
from runner.language.read.document import Document
from runner.language.read.files import names_shipped
from runner.language.text_edits import Comment, Layout
from runner.language.waivers import load_waivers


@dataclass(frozen=True, slots=True, kw_only=True)
class LintOptions:
    """The options of ``lint``."""

    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    waivers: tuple[Path, ...] = waiver_files()
    select: tuple[str, ...] = several("RULE", "apply this rule alone")
    ignore: tuple[str, ...] = several("RULE", "do not apply this rule")
    json: bool = flag("print one object")


UNUSED, WRONG = "unused-suppression", "wrong-suppression"


OF_SUPPRESSIONS = (
    Rule(
        id=UNUSED,
        summary="A suppression that suppresses nothing",
        why="The finding is gone, and the next one of the rule on that line would be hidden. It cannot be suppressed.",
        bad="expect: [{close: {to: eager}}]   # lint: ignore loose-tolerance -- a sum",
        good="expect: [{close: {to: eager}}]",
    ),
    Rule(
        id=WRONG,
        summary="A suppression without a reason, or of a rule that does not exist",
        why="It suppresses nothing. The reason is for the next reader. It cannot be suppressed.",
        bad="# lint: ignore same-body",
        good="# lint: ignore same-body -- the other spec is of another vendor, and goes in 2027",
    ),
)

CHECKED: Mapping[str, Rule] = {rule.id: rule for rule in rules.RULES}
"""The rules of specs and waivers, by id."""

RULES: Mapping[str, Rule] = {**CHECKED, **{rule.id: rule for rule in OF_SUPPRESSIONS}}
"""Every rule, in the order of the reference."""


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
    applied = [name for name in RULES if (not options.select or name in options.select) and name not in options.ignore]
    inspection = inspect(options.paths, options.backends)
    if wrong := errors(inspection.problems):
        raise InvalidSpecs(wrong)
    suite, cases = inspection.suite, dict[str, list[Case]]()
    for case in suite.cases:
        cases.setdefault(case.spec, []).append(case)
    specs = tuple(Spec(anatomy=anatomy, cases=tuple(cases.get(anatomy.document.file, ()))) for anatomy in inspection.anatomies)
    waivers = load_waivers(options.waivers, suite.backends)
    scene = Scene(specs=specs, backends=suite.backends, waivers=waivers, whole=names_shipped(options.paths))
    documents = {document.file: document for spec in specs for document in spec.documents}
    documents |= {document.file: document for document in waivers.documents}
    suppressions: list[Suppression] = []
    findings: list[Finding] = []
    for document in documents.values():
        own, invalid = _suppressions(document)
        suppressions += own
        findings += invalid if WRONG in applied else []
    used: set[int] = set()
    for finding in (finding for name in applied for finding in RULES[name].check(scene)):
        place = (finding.rule, finding.position.file, finding.position.line)
        own = [each for each in suppressions if (each.rule, each.document.file, each.line) == place]
        used |= set(map(id, own))
        findings += [] if own else [finding]
    for each in suppressions if UNUSED in applied else ():
        if id(each) not in used and each.rule in applied:
            message = f"nothing on line {each.line} is a finding of {each.rule}"
            findings.append(_finding(UNUSED, each.document, each.comment, message, "remove the suppression"))
    return Linted(findings=tuple(sorted(findings)), specs=len(specs))


# -- suppressions -----------------------------------------------------------------------------------------------------

_FORM = re.compile(r"#\s*lint:\s*ignore\s+(?P<rules>[a-z0-9-]+(?:\s*,\s*[a-z0-9-]+)*)\s+--\s+(?P<reason>\S.*)")
_BEGUN = re.compile(r"#\s*lint\s*:", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """One rule that a comment suppresses, at one line."""

    rule: str
    line: int
    """The line of the findings that it suppresses."""
    comment: Comment
    document: Document


def _suppressions(document: Document) -> tuple[list[Suppression], list[Finding]]:
    """Return the suppressions of a file, and findings for those that are wrong."""
    if b"lint" not in document.content:
        return [], []
    layout = Layout(document)
    rows = layout.text.split("\n")
    found: list[Suppression] = []
    wrong: list[Finding] = []
    for comment in layout.comments():
        if not _BEGUN.match(comment.text):
            continue
        match = _FORM.fullmatch(comment.text.rstrip())
        if match is None:
            hint = "write # lint: ignore RULE -- REASON"
            wrong.append(_finding(WRONG, document, comment, "this suppression names no rule, or gives no reason", hint))
            continue
        line = comment.line  # of a comment alone on its line the next one that is no comment
        while (
            comment.alone and line < len(rows) and (line == comment.line or not rows[line - 1].strip() or rows[line - 1].strip()[0] == "#")
        ):
            line += 1
        for name in re.split(r"\s*,\s*", match["rules"]):
            if name not in CHECKED:
                wrong.append(_finding(WRONG, document, comment, *unknown("rule", name, CHECKED)))
            else:
                found.append(Suppression(rule=name, line=line, comment=comment, document=document))
    return found, wrong


def _finding(rule: str, document: Document, comment: Comment, message: str, hint: str) -> Finding:
    position = Position(file=document.file, line=comment.line, column=comment.column)
    return Finding(rule=rule, position=position, message=message, hint=hint)
