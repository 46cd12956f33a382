"""Rules of names and summaries."""

import re
from collections.abc import Iterator

from runner.language.lint.base import Finding, Fix, Rule, Scene

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LEAST, _MOST = 2, 5
_LONGEST = 160
_COMMANDS = ("test", "tests", "check", "checks", "verify", "verifies", "ensure", "ensures", "make")
"""Words that begin an order and no claim."""


def spec_name(scene: Scene) -> Iterator[Finding]:
    """Yield each spec whose name is not two to five words in lower case with hyphens."""
    for spec in scene.specs:
        name = spec.anatomy.spec.name
        count = len(name.split("-"))
        if not _NAME.fullmatch(name):
            message = f"the name '{name}' is not of words in lower case with hyphens between them"
        elif not _LEAST <= count <= _MOST:
            message = f"the name '{name}' has {count} word{'' if count == 1 else 's'}, and {_LEAST} to {_MOST} are readable in a report"
        else:
            continue
        yield Finding(rule="spec-name", position=spec.document.position(()), message=message, hint="rename the file: fx-cache-hit.yaml")


def summary_form(scene: Scene) -> Iterator[Finding]:
    """Yield each summary that is no sentence of one line: a full stop, spaces, an order instead of a claim, too long, too short."""
    for spec in scene.specs:
        text = str(spec.anatomy.data["summary"])
        place = spec.document.position(("summary",))
        better = " ".join(text.split()).rstrip(".")
        first = text.split()[0].lower() if text.split() else ""
        if better != text and not text.endswith("..."):
            fix = Fix(document=spec.document, value=(("summary",), better))
            message = "the summary ends with a full stop, or has line breaks or more than one space between words"
            yield Finding(rule="summary-form", position=place, message=message, hint=f"write: {better[:_LONGEST]}", fix=fix)
        if first in _COMMANDS:
            message, hint = f"the summary begins with '{first}', as an order", "say what is true: a claim has a subject and a verb"
            yield Finding(rule="summary-form", position=place, message=message, hint=hint)
        if len(text) > _LONGEST:
            message = f"the summary has {len(text)} characters; a report shows {_LONGEST}"
            yield Finding(rule="summary-form", position=place, message=message, hint="leave out what the YAML says")
        if len(text.split()) < 3:
            message = "the summary has fewer than three words: no claim is so short"
            yield Finding(rule="summary-form", position=place, message=message, hint="say what is true of what")


RULES = (
    Rule(
        id="spec-name",
        summary="The name of a spec is not two to five words in lower case with hyphens between them",
        why="The name is the id of the cases in every report, glob and waiver. One word says too little, six do not fit on a line.",
        bad="# specs/codecache/hit.yaml, specs/codecache/FX_cacheHit.yaml",
        good="# specs/codecache/fx-cache-hit.yaml",
        check=spec_name,
    ),
    Rule(
        id="summary-form",
        summary="A summary is no claim of one line: a full stop at its end, an order, too long or too short",
        why="Reports print the summary of a red case as the claim that does not hold. An order (`Test that ...`) is not true or false.",
        bad="summary: Test that the FX graph cache serves a second compile",
        good="summary: A second compile of the same function is served from the FX graph cache",
        check=summary_form,
        fixes="removes the full stop, line breaks and repeated spaces",
    ),
)
