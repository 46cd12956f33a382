"""Combines the verdicts of a case into one outcome. Used by the judge, and by all readers of a journal to check it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runner.core.expectation import Status
from runner.core.outcomes import Outcome
from runner.core.results import Verdict

PROOF = "proof"
FELL_BACK = "fell-back"
ENDINGS = {"crash": Outcome.CRASH, "timeout": Outcome.TIMEOUT}
"""Kinds of the single verdict of a process that crashed or timed out. No expectation has these names."""


@dataclass(frozen=True, slots=True)
class Folded:
    """The outcome of verdicts, and the verdict that decided it (None for a PASS)."""

    outcome: Outcome
    failure_type: str
    first: Verdict | None


OFFLINE = {Outcome.PASS: Outcome.OFFLINE_PASS, Outcome.FAIL: Outcome.OFFLINE_FAIL, Outcome.FELL_BACK: Outcome.OFFLINE_FAIL}
"""The outcomes of a case that is compiled for a target and not executed. It never passes."""


def fold(verdicts: Sequence[Verdict], target: str = "") -> Folded:
    """Return the outcome of a case with these verdicts. An ERROR comes before a FAIL, and a FAIL before a missing proof."""
    found = _fold(verdicts)
    return replace(found, outcome=OFFLINE.get(found.outcome, found.outcome)) if target else found


def _fold(verdicts: Sequence[Verdict]) -> Folded:
    errors = [verdict for verdict in verdicts if verdict.status is Status.ERROR]
    failed = [verdict for verdict in verdicts if verdict.status is Status.FAILED]
    claims = [verdict for verdict in failed if verdict.kind != PROOF]
    if errors:
        return Folded(ENDINGS.get(errors[0].kind, Outcome.ERROR), errors[0].kind, errors[0])
    if claims:
        return Folded(Outcome.FAIL, claims[0].kind, claims[0])
    if failed:
        return Folded(Outcome.FELL_BACK, FELL_BACK, failed[0])
    return Folded(Outcome.PASS, "", None)
