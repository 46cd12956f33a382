"""``# lint: ignore RULE -- REASON``: a finding that a person has looked at. A suppression is checked itself."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from runner.core.diagnostics import Position, unknown
from runner.language.lint.base import Finding, Fix, Rule, Rules
from runner.language.read.document import Document
from runner.language.text_edits import Comment, Edit, Layout

_FORM = re.compile(r"#\s*lint:\s*ignore\s+(?P<rules>[a-z0-9-]+(?:\s*,\s*[a-z0-9-]+)*)\s+--\s+(?P<reason>\S.*)")
_BEGUN = re.compile(r"#\s*lint\s*:", re.IGNORECASE)
UNUSED, WRONG = "unused-suppression", "wrong-suppression"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """One rule that a comment suppresses, at one line."""

    rule: str
    line: int
    """The line of the findings that it suppresses."""
    comment: Comment
    document: Document


def read(document: Document, rules: Rules) -> tuple[list[Suppression], list[Finding]]:
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
            if name not in rules or name in (UNUSED, WRONG):
                wrong.append(
                    _finding(WRONG, document, comment, *unknown("rule", name, [one for one in rules if one not in (UNUSED, WRONG)]))
                )
            else:
                found.append(Suppression(rule=name, line=_target(rows, comment), comment=comment, document=document))
    return found, wrong


def _target(rows: Sequence[str], comment: Comment) -> int:
    """Return the line that a comment is for: its own, or the next one that is no comment."""
    line = comment.line
    while comment.alone and line < len(rows) and (line == comment.line or not rows[line - 1].strip() or rows[line - 1].strip()[0] == "#"):
        line += 1
    return line


def _finding(rule: str, document: Document, comment: Comment, message: str, hint: str, fix: Fix | None = None) -> Finding:
    position = Position(file=document.file, line=comment.line, column=comment.column)
    return Finding(rule=rule, position=position, message=message, hint=hint, fix=fix)


def unsuppressed(
    findings: Sequence[Finding], found: Sequence[Suppression], applied: Mapping[str, Rule]
) -> tuple[list[Finding], list[Finding]]:
    """Return the findings that nothing suppresses, and one for each suppression of an applied rule that suppresses nothing."""
    used: set[int] = set()
    left: list[Finding] = []
    for finding in findings:
        own = [
            one for one in found if (one.rule, one.document.file, one.line) == (finding.rule, finding.position.file, finding.position.line)
        ]
        used |= {id(one) for one in own}
        left += [] if own else [finding]
    unused = [one for one in found if id(one) not in used and one.rule in applied]
    return left, [_unused(one, alone=len([other for other in found if other.comment is one.comment]) == 1) for one in unused]


def _unused(one: Suppression, *, alone: bool) -> Finding:
    fix = Fix(document=one.document, edit=_without(one.document, one.comment)) if alone else None
    message = f"nothing on line {one.line} is a finding of {one.rule}"
    return _finding(UNUSED, one.document, one.comment, message, "remove the suppression", fix)


def _without(document: Document, comment: Comment) -> Edit:
    layout = Layout(document)
    start = layout.start_of_line(comment.line)
    if comment.alone:
        return Edit(start, layout.start_of_line(comment.line + 1), "")
    own = layout.line(comment.line)
    return Edit(start + len(own[: comment.column - 1].rstrip()), start + len(own), "")


def _nothing(_: object) -> Iterator[Finding]:
    yield from ()


RULES = (
    Rule(
        id=UNUSED,
        summary="A suppression that suppresses nothing",
        why="The finding is gone, and the next one of the rule on that line would be hidden. It cannot be suppressed.",
        bad="summary: Right   # lint: ignore summary-form -- it is a name",
        good="summary: A product of two matrices is right",
        check=_nothing,
        fixes="removes the comment",
    ),
    Rule(
        id=WRONG,
        summary="A suppression without a reason, or of a rule that does not exist",
        why="It suppresses nothing. The reason is for the next reader. It cannot be suppressed.",
        bad="# lint: ignore same-summary",
        good="# lint: ignore same-summary -- the other spec is of another vendor, and goes in 2027",
        check=_nothing,
    ),
)
