"""Combines the verdicts of a case into one outcome. Used by the judge, and by all readers of a journal to check it. Pure."""

from collections.abc import Sequence

from runner.model.expectation import Status
from runner.model.outcomes import Outcome
from runner.model.results import Verdict

PROOF = "proof"
FELL_BACK = "fell-back"
COULD_NOT_HAVE_FAILED = "could-not-have-failed"
"""The kind of the verdict of an expectation that also holds for changed facts."""
WEAK = "weak"
"""The kind of the verdict of such an expectation where the spec says why."""
ENDINGS = {"crash": Outcome.CRASH, "timeout": Outcome.TIMEOUT}
"""Kinds of the single verdict of a process that crashed or timed out. No expectation has these names."""


OFFLINE = {Outcome.PASS: Outcome.OFFLINE_PASS, Outcome.FAIL: Outcome.OFFLINE_FAIL, Outcome.FELL_BACK: Outcome.OFFLINE_FAIL}
"""The outcomes of a case that is compiled for a target and not executed. It never passes."""


def fold(verdicts: Sequence[Verdict], target: str = "") -> tuple[Outcome, str, Verdict | None]:
    """Return the outcome of a case with these verdicts, its failure type, and the verdict that decided it (None for a PASS).

    An ERROR comes before a FAIL, and a FAIL before a missing proof.
    """
    errors = [verdict for verdict in verdicts if verdict.status is Status.ERROR]
    failed = [verdict for verdict in verdicts if verdict.status is Status.FAILED]
    claims = [verdict for verdict in failed if verdict.kind != PROOF]
    first = next(iter([*errors, *claims, *failed]), None)
    if first is None:
        outcome, failure_type = Outcome.PASS, ""
    elif errors:
        outcome, failure_type = ENDINGS.get(first.kind, Outcome.ERROR), first.kind
    elif claims:
        outcome, failure_type = Outcome.FAIL, first.kind
    else:
        outcome, failure_type = Outcome.FELL_BACK, FELL_BACK
    return OFFLINE.get(outcome, outcome) if target else outcome, failure_type, first
