"""What must stay the same of a failure while its case becomes smaller. Pure.

As between attempts (``core.attempts``) the observed values do not count. Lines change here, so that an expectation is known by its kind
and by what it expects, without numbers that a smaller shape changes.
"""

import re
from dataclasses import dataclass

from runner.core.outcomes import Outcome
from runner.core.results import CaseResult, Verdict

_NUMBERS = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_PARTS = re.compile(r"\[[^\]]*\]")
_RAISED = re.compile(r"(?P<type>[\w.]+) in phase '(?P<phase>[^']*)'(?:: *(?P<text>[^\n]*))?")
_WRAPPED = re.compile(r"\bgot [A-Za-z]\w*\(.*")
"""What dynamo says of an error that it wraps, with a text that is the same for all of them before it."""
_OF_NUMBERS = re.compile(r" within | bit for bit| close to ")

FAILED = (Outcome.FAIL, Outcome.FELL_BACK, Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT)
"""The outcomes that can be shrunk."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A failure without what is different in a smaller case."""

    outcome: Outcome
    failure_type: str
    verdicts: frozenset[tuple[str, str, str]]
    phase: str

    def __str__(self) -> str:
        kinds = ", ".join(sorted({kind for kind, _, _ in self.verdicts})) or self.failure_type
        return f"{self.outcome.label} ({kinds}{f', {self.phase}' if self.phase else ''})"


def signature_of(result: CaseResult) -> Signature | None:
    """Return the signature of a failure; None for any other result."""
    if result.outcome not in FAILED:
        return None
    verdicts = result.failed
    raised = any(verdict.kind == "raised" for verdict in verdicts)
    kept = [verdict for verdict in verdicts if not (raised and verdict.kind == "proof")]
    return Signature(
        outcome=result.outcome,
        failure_type=result.failure_type,
        verdicts=frozenset((verdict.kind, verdict.status.value, _said(verdict)) for verdict in kept),
        phase=result.phase,
    )


def _said(verdict: Verdict) -> str:
    if verdict.kind in ("raised", "raises"):
        found = _RAISED.match(verdict.observed)
        text = verdict.observed if found is None else f"{found['type']} {found['text'] or ''}"
        wrapped = _WRAPPED.search(verdict.detail)
        return " ".join(_masked(part)[:200] for part in (text, wrapped[0] if wrapped else "", verdict.expected))
    if verdict.kind == "close" and _OF_NUMBERS.search(verdict.expected):
        return "numbers"
    if verdict.kind == "close":
        return "not of the form of its reference"
    return _masked(verdict.expected)


def _masked(text: str) -> str:
    first = text.splitlines()[0] if text else ""
    return _NUMBERS.sub("#", _PARTS.sub("[]", first))
