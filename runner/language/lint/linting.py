"""``lint``: the table of rules, what is linted, and the comments that suppress findings."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from runner.core.case import Case
from runner.core.diagnostics import Diagnostic, InvalidSpecs, Position, UsageError, errors, one_line, unknown
from runner.core.options import LintOptions
from runner.language.lint import claims, conditions
from runner.language.lint.base import Finding, Rule, Scene, Spec
from runner.language.load import Inspection, inspect
from runner.language.read.document import Document
from runner.language.read.files import discover, names_shipped
from runner.language.text_edits import Comment, Layout
from runner.language.waivers import WaiverFiles, load_waivers

UNUSED, WRONG = "unused-suppression", "wrong-suppression"


def _nothing(_: object) -> Iterator[Finding]:
    yield from ()


OF_SUPPRESSIONS = (
    Rule(
        id=UNUSED,
        summary="A suppression that suppresses nothing",
        why="The finding is gone, and the next one of the rule on that line would be hidden. It cannot be suppressed.",
        bad="expect: [{close: {to: eager}}]   # lint: ignore loose-tolerance -- a sum",
        good="expect: [{close: {to: eager}}]",
        check=_nothing,
    ),
    Rule(
        id=WRONG,
        summary="A suppression without a reason, or of a rule that does not exist",
        why="It suppresses nothing. The reason is for the next reader. It cannot be suppressed.",
        bad="# lint: ignore same-body",
        good="# lint: ignore same-body -- the other spec is of another vendor, and goes in 2027",
        check=_nothing,
    ),
)

CHECKED: Mapping[str, Rule] = {rule.id: rule for rule in (*claims.RULES, *conditions.RULES)}
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
    applied = _applied(options)
    inspection = inspect(options.paths, options.backends)
    if wrong := errors(inspection.problems):
        raise InvalidSpecs(wrong)
    scene = _scene(inspection, load_waivers(options.waivers, inspection.suite.backends), options)
    return Linted(findings=tuple(findings_of(scene, applied)), specs=len(scene.specs))


def _applied(options: LintOptions) -> dict[str, Rule]:
    for name in (*options.select, *options.ignore):
        if name not in RULES:
            message, hint = unknown("rule", one_line(name), RULES)
            raise UsageError(f"{message} ({hint})")
    return {name: rule for name, rule in RULES.items() if (not options.select or name in options.select) and name not in options.ignore}


def _scene(inspection: Inspection, waivers: WaiverFiles, options: LintOptions) -> Scene:
    cases: dict[str, list[Case]] = {}
    for case in inspection.suite.cases:
        cases.setdefault(case.spec, []).append(case)
    specs = tuple(Spec(anatomy=one, cases=tuple(cases.get(one.document.file, ()))) for one in inspection.anatomies)
    return Scene(
        specs=specs,
        backends=inspection.suite.backends,
        waivers=waivers,
        whole=names_shipped(options.paths),
        is_complete=_Completeness(specs),
    )


class _Completeness:
    """Whether every spec below the folder of a file of defaults is linted, and no other one inherits it."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        self._paths = {os.path.realpath(spec.document.path) for spec in specs}
        self._inheriting: dict[str, set[str]] = {}
        for spec in specs:
            for one in spec.anatomy.spec.defaults:
                self._inheriting.setdefault(one.file, set()).add(os.path.realpath(spec.document.path))

    def __call__(self, document: Document) -> bool:
        """Look at the folder of a file of defaults."""
        problems: list[Diagnostic] = []
        below = {os.path.realpath(one.path) for one in discover([document.path.parent], problems)}
        return below <= self._paths and self._inheriting.get(document.file, set()) <= below


def findings_of(scene: Scene, applied: Mapping[str, Rule]) -> list[Finding]:
    """Return the findings of rules, in the order of the files, without those that a comment suppresses."""
    documents = {document.file: document for spec in scene.specs for document in (*spec.anatomy.spec.defaults, spec.document)}
    documents |= {document.file: document for document in scene.waivers.documents}
    suppressions: list[Suppression] = []
    findings: list[Finding] = []
    for document in documents.values():
        own, wrong = _suppressions(document)
        suppressions += own
        findings += wrong if WRONG in applied else []
    used: set[int] = set()
    for finding in (finding for rule in applied.values() for finding in rule.check(scene)):
        place = (finding.rule, finding.position.file, finding.position.line)
        own = [one for one in suppressions if (one.rule, one.document.file, one.line) == place]
        used |= {id(one) for one in own}
        findings += [] if own else [finding]
    for one in suppressions if UNUSED in applied else ():
        if id(one) not in used and one.rule in applied:
            message = f"nothing on line {one.line} is a finding of {one.rule}"
            findings.append(_finding(UNUSED, one.document, one.comment, message, "remove the suppression"))
    return sorted(findings, key=lambda one: one.order)


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
        for name in re.split(r"\s*,\s*", match["rules"]):
            if name not in CHECKED:
                wrong.append(_finding(WRONG, document, comment, *unknown("rule", name, CHECKED)))
            else:
                found.append(Suppression(rule=name, line=_target(rows, comment), comment=comment, document=document))
    return found, wrong


def _target(rows: Sequence[str], comment: Comment) -> int:
    """Return the line that a comment is for: its own, or the next one that is no comment."""
    line = comment.line
    while comment.alone and line < len(rows) and (line == comment.line or not rows[line - 1].strip() or rows[line - 1].strip()[0] == "#"):
        line += 1
    return line


def _finding(rule: str, document: Document, comment: Comment, message: str, hint: str) -> Finding:
    position = Position(file=document.file, line=comment.line, column=comment.column)
    return Finding(rule=rule, position=position, message=message, hint=hint)
