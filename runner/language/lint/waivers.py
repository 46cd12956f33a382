"""Rules of waivers."""

import re
from collections.abc import Iterator

from runner.core.case import Case
from runner.core.globs import glob
from runner.language.lint.base import Finding, Fix, Rule, Scene
from runner.language.lint.conditions import may_hold
from runner.language.read.document import DataPath, Document
from runner.language.waivers import OUTSIDE_OF_EXPECTATIONS, Waiver
from runner.vocabulary.steps import traits_of


def _compared(scene: Scene) -> Iterator[tuple[Waiver, Document, int]]:
    """Yield the waivers that are compared with the cases, with file and index: given ones, and the shipped where all shipped specs are."""
    for document in scene.waivers.documents:
        if not (scene.whole or document.file in scene.waivers.given):
            continue
        for index, _ in enumerate(document.data["waivers"]):
            place = document.position(("waivers", index))
            waiver = next((one for one in scene.waivers.waivers if one.position == place), None)
            if waiver is not None:
                yield waiver, document, index


def dead_waiver(scene: Scene) -> Iterator[Finding]:
    """Yield waivers that are for no case: by their glob, by their condition, or by the types of their failures."""
    cases = [case for spec in scene.specs for case in spec.cases]
    for waiver, document, index in _compared(scene):
        matches, begin = glob(waiver.cases).fullmatch, re.split(r"[*?]", waiver.cases)[0]
        own = [case for case in cases if case.id.startswith(begin) and matches(case.id)]
        fix = None
        if not own:
            message = f"the waiver is for none of the {len(cases)} cases"
            fix = Fix(document=document, removed=_entry(document, index))
        elif not any(may_hold(waiver.when, case, scene.backends) for case in own):
            message = f"the condition of the waiver holds for none of its {len(own)} cases"
        elif not any(one.type in OUTSIDE_OF_EXPECTATIONS or one.type in _kinds(own) for one in waiver.failures):
            types = ", ".join(one.type for one in waiver.failures)
            message = f"none of its {len(own)} cases expects anything of the type {types}"
        else:
            continue
        yield Finding(rule="dead-waiver", position=waiver.position, message=message, hint="correct it, or remove it", fix=fix)


def _entry(document: Document, index: int) -> DataPath | None:
    return ("waivers", index) if len(document.data["waivers"]) > 1 else None


def _kinds(cases: list[Case]) -> frozenset[str]:
    """Return the kinds of verdicts of cases; each step of samples of operators is judged by ``close`` too."""
    kinds = {one.kind for case in cases for step in case.steps for one in step.expectations}
    return frozenset(kinds | {"close" for case in cases for step in case.steps if traits_of(step).python == "" and step.kind == "samples"})


_LINK = re.compile(r"https?://[^\s/]+/\S+|[\w./-]+\.(md|html|rst)(#\S*)?")
"""An address, or a page of the project's documentation."""
_EXAMPLES = re.compile(r"example\.(com|org)|/issues/(0+|1|123|1234|12345|123456)$|#0+$|^(none|todo|tbd|n/?a)\b", re.IGNORECASE)


def issue_link(scene: Scene) -> Iterator[Finding]:
    """Yield waivers whose issue is no link, or the link of an example."""
    for waiver in scene.waivers.waivers:
        if _LINK.fullmatch(waiver.issue) and not _EXAMPLES.search(waiver.issue):
            continue
        what = "is an example" if _EXAMPLES.search(waiver.issue) else "is no link"
        message = f"the issue '{waiver.issue}' {what}, so that readers cannot check whether the defect still exists"
        yield Finding(rule="issue-link", position=waiver.position, message=message, hint="write the address of the issue")


RULES = (
    Rule(
        id="dead-waiver",
        summary="A waiver is for no case: its glob, its condition or its type of failure fits none",
        why="It looks like a known defect, and excuses nothing; the next case with a fitting name inherits it. Shipped ones are compared "
        "only where all shipped specs are linted.",
        bad="# a file of waivers\nwaivers:\n  - {cases: 'codecache/fx-cach-hit*', failure: {type: counter, match: observed 0}}",
        good="# a file of waivers\nwaivers:\n  - {cases: 'codecache/fx-cache-hit*', failure: {type: counter, match: observed 0}}",
        check=dead_waiver,
        fixes="removes a waiver whose glob matches no case",
    ),
    Rule(
        id="issue-link",
        summary="The issue of a waiver is no link, or the link of an example",
        why="A waiver ends when its defect is repaired. Readers outside of the company cannot look up an id. Ignore the rule where only "
        "people with the tracker read the waivers.",
        bad="# a waiver\nissue: JIRA-123",
        good="# a waiver\nissue: https://github.com/pytorch/pytorch/issues/149743",
        check=issue_link,
    ),
)
