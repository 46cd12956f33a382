"""Rules of tolerances that hide errors."""

import re
from collections.abc import Iterator
from typing import Any

from runner.core.case import Case, Expected
from runner.language.lint.base import Finding, Rule, Scene, Spec
from runner.language.text_edits import CannotEdit, Layout
from runner.vocabulary.expectations.close import Close
from runner.vocabulary.expectations.close_rules import DEFAULTS, Judge, default_tolerance

OVER_DEFAULT = 1000
"""How many times the default of its dtypes a tolerance may be without a reason: 1e-3 for float32 is usual in PyTorch's tests."""

OVER_OBSERVED = 100
"""How many times the observed difference a tolerance may be."""


def loose_tolerance(scene: Scene) -> Iterator[Finding]:
    """Yield tolerances far above the default of every dtype of the case, of which neither a covered test nor a comment says why."""
    for spec in scene.specs:
        found: dict[tuple[int, int], tuple[Expected, float, tuple[str, ...]]] = {}
        for case, expected in ((one, judged) for one in spec.cases for step in one.steps for judged in step.expectations):
            if isinstance(expected.check, Close):
                dtypes = _dtypes(case)
                times = _times(expected, dtypes)
                place = (expected.position.line, expected.position.column)
                if times > OVER_DEFAULT and times > found.get(place, (None, 0.0))[1]:
                    found[place] = (expected, times, dtypes)
        if not found or _has_origin(spec):
            continue
        reasons = _lines_with_reasons(spec)
        for expected, times, dtypes in found.values():
            if expected.position.line not in reasons:
                message = f"the tolerance is {times:.0f} times the default of {' and '.join(dtypes)}, and nothing says why"
                hint = "remove atol and rtol, so that errors are compared with eager's own; or say the reason in a comment"
                yield Finding(rule="loose-tolerance", position=expected.position, message=message, hint=hint)


def _times(expected: Expected, dtypes: tuple[str, ...]) -> float:
    """Return how many times the default a tolerance is: the smaller figure of the two, because the default allows both."""
    check = expected.check
    if not isinstance(check, Close) or check.judge_kind is not Judge.TOLERANCE or check.atol is None or check.rtol is None:
        return 0.0
    rtol, atol = default_tolerance(*dtypes)
    return max(check.rtol / rtol, check.atol / atol) if rtol and atol else 0.0


_DTYPE = re.compile(r"(?<![a-z0-9])(b?float(?:16|32|64)|complex(?:64|128)|half|double)(?![a-z0-9_])")
_OTHER = {"half": "float16", "double": "float64"}


def _dtypes(case: Case) -> tuple[str, ...]:
    """Return the floating dtypes that a case names anywhere; float32 where an input names none."""
    texts = [str(case.body.inputs), str(case.body.let), str(dict(case.params)), str(case.body.context)]
    texts += [block.text for block in case.body.blocks]
    named = {_OTHER.get(word, word) for text in texts for word in _DTYPE.findall(text)} & set(DEFAULTS)
    if not named or any(isinstance(one, dict) and "dtype" not in one for one in case.body.inputs):
        named.add("float32")
    return tuple(sorted(named))


def _has_origin(spec: Spec) -> bool:
    """Whether a test of PyTorch that the spec restates gives the tolerance."""
    return bool(spec.anatomy.data.get("covers")) or any("restates " in text for _, text in _comments(spec))


def _comments(spec: Spec) -> list[tuple[int, str]]:
    try:
        return [(comment.line, comment.text) for comment in Layout(spec.document).comments()]
    except CannotEdit:
        return []


def _lines_with_reasons(spec: Spec) -> set[int]:
    """Return the lines that have a comment, and those below lines that are comments alone."""
    found: set[int] = set()
    rows = spec.document.content.decode("utf-8", "replace").split("\n")
    for line, text in _comments(spec):
        if text.startswith("# lint:"):
            continue  # a suppression is about a rule, also where it names another one
        found.add(line)
        below = line
        while below < len(rows) and rows[below - 1].strip().startswith("#"):
            below += 1
        found.add(below)
    return found


def needless_tolerance(scene: Scene) -> Iterator[Finding]:
    """Yield tolerances far above the differences that a recorded run saw."""
    linted = {spec.document.file for spec in scene.specs}
    for one in scene.run.closeness if scene.run else ():
        if one.position.file not in linted:
            continue
        if one.atol > OVER_OBSERVED * one.observed:
            seen = f"{one.observed:.3g}" if one.observed else "0"
            cases = "1 case" if one.cases == 1 else f"{one.cases} cases"
            message = f"atol is {one.atol:g}, and the greatest difference in {cases} of the run was {seen}"
            hint = "remove atol and rtol, or claim exact: true" if not one.observed else "remove atol and rtol, or lower atol"
            yield Finding(rule="needless-tolerance", position=one.position, message=message, hint=hint)


def weak_spec(scene: Scene) -> Iterator[Finding]:
    """Yield the expectations that could not have failed in a recorded run: mutants of their facts survive, and no ``audit:`` says why."""
    seen: set[Any] = set()
    linted = {spec.document.file for spec in scene.specs}
    for one in scene.run.weaknesses if scene.run else ():
        key = (one.position, one.kind, one.leaf, one.mutant)
        if key not in seen and one.position.file in linted:
            seen.add(key)
            message = f"{one.kind} {one.leaf}".rstrip() + f" holds for the mutant '{one.mutant}' of its facts (in {one.case_id})"
            yield Finding(
                rule="weak-spec", position=one.position, message=message, hint="claim more, or say under 'audit:' why it may survive"
            )


RULES = (
    Rule(
        id="loose-tolerance",
        summary=f"A tolerance is more than {OVER_DEFAULT} times the default of the dtypes, and nothing says why",
        why="Without `atol` and `rtol`, the error is compared with eager's own against a float64 reference, which is tighter. "
        "A reason is a comment on the line or above it, or an upstream test under `covers` (or `restates` in a comment), whose tolerance "
        "the spec has.",
        bad="expect: [{close: {to: eager, atol: 0.01, rtol: 0.01}}]",
        good="expect: [{close: {to: eager}}]",
        check=loose_tolerance,
    ),
    Rule(
        id="needless-tolerance",
        summary=f"`atol` is more than {OVER_OBSERVED} times the greatest difference that a recorded run saw",
        why="An error as large as the tolerance would pass. The run shows one machine: look at the others before you lower it.",
        bad="expect: [{close: {to: eager, atol: 1e-2, rtol: 0}}]   # observed: 3e-7",
        good="expect: [{close: {to: eager}}]",
        check=needless_tolerance,
        needs_run=True,
    ),
    Rule(
        id="weak-spec",
        summary="An expectation of a recorded run could not have failed",
        why="`audit` judges the recorded facts again with changes under which an expectation must fail. One that holds claims nothing.",
        bad="expect: [{counter: {inductor.fxgraph_cache_hit: {max: 1000}}}]",
        good="expect: [{counter: {inductor.fxgraph_cache_hit: 1}}]",
        check=weak_spec,
        needs_run=True,
    ),
)
