"""The search for the smallest document with a failure: delta debugging over the edits of each pass. Deterministic, and without torch.

What must stay the same of a failure is its signature. As between attempts (``model.attempts``) the observed values do not count. Lines
change here, so that an expectation is known by its kind and by what it expects, without numbers that a smaller shape changes.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runner.model.outcomes import Outcome
from runner.model.results import CaseResult, Verdict
from runner.tools.author.case_document import Document, text_of
from runner.tools.author.shrinking.edits import PASSES, Edit, Pass, applied

Attempt = Callable[[Document], bool]
"""Whether a document fails as the first one did."""


class OutOfBudget(Exception):
    """No further attempt may be made; the text says why."""


@dataclass(slots=True)
class Search:
    """A search. ``best`` is the smallest document so far, whenever the search ends; ``ended`` says why it ended early."""

    best: Document
    attempt: Attempt
    taken: Callable[[str], None] = lambda words: None
    """Hears of each edit that was kept."""
    ended: str = ""
    _known: set[str] = field(default_factory=set)

    def run(self, passes: Sequence[Pass] = PASSES) -> Document:
        """Repeat the passes until none changes the document, or an attempt ends the search."""
        try:
            before = None
            while before != text_of(self.best):
                before = text_of(self.best)
                for reduction in passes:
                    self._reduce(reduction)
        except OutOfBudget as error:
            self.ended = str(error)
        except KeyboardInterrupt:
            self.ended = "interrupted"
        return self.best

    def _reduce(self, reduction: Pass) -> None:
        """Try all edits of a pass at once, then halves, down to single ones. Edits that were kept change what is proposed."""
        size = len(reduction.propose(self.best)) if reduction.together else 1
        while size >= 1:
            at = 0
            while at < len(edits := reduction.propose(self.best)):
                if not self._takes(edits[at : at + size]):
                    at += size
                elif not reduction.together:
                    at = 0  # alternatives: another list, of which the first ones are the smallest
            size //= 2

    def _takes(self, edits: Sequence[Edit]) -> bool:
        candidate = applied(self.best, edits)
        text = text_of(candidate)
        if text in self._known or candidate == self.best:
            return False
        self._known.add(text)
        if not self.attempt(candidate):
            return False
        self.best = candidate
        self.taken("; ".join(edit.words for edit in edits[:3]) + (f"; and {len(edits) - 3} more" if len(edits) > 3 else ""))
        return True


# -- what is the same failure -----------------------------------------------------------------------------------------

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
        match = _RAISED.match(verdict.observed)
        text = verdict.observed if match is None else f"{match['type']} {match['text'] or ''}"
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
