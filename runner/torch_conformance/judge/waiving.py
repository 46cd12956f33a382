"""Applies waivers of known failures to judged cases; the result is final. Pure.

| judged                        | a waiver that applies to the case here             | outcome  |
|-------------------------------|----------------------------------------------------|----------|
| PASS, OFFLINE_PASS            | is not expired, and not flaky                      | XPASS    |
| PASS, OFFLINE_PASS            | is flaky                                           | the same |
| PASS of some samples of an operator | any                                          | the same |
| FAIL, FELL_BACK, OFFLINE_FAIL, CRASH, TIMEOUT | is not expired, and names the failure | XFAIL  |
| FAIL, FELL_BACK, OFFLINE_FAIL, CRASH, TIMEOUT | names another failure, or is expired | the same |
| anything else                 | any                                                | the same |

A waiver names a failure if every failed expectation, and every wrong value of a comparison, matches
one of its signatures, so that a waiver never hides a second defect. If several waivers apply, the
first in the order of the files counts. Many attempts with one outcome make a flaky waiver void
(``model/results``).
"""

import functools
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import NamedTuple

from torch_conformance.matching.patterns import glob, search
from torch_conformance.matching.time_limit import PatternTooSlow
from torch_conformance.model.case import Case
from torch_conformance.model.conditions import Surroundings, holds
from torch_conformance.model.diagnostics import Diagnostic, Severity
from torch_conformance.model.expectation import WrongValue
from torch_conformance.model.outcomes import PASSED, WAIVABLE, Outcome
from torch_conformance.model.results import AppliedWaiver, Judged, Judgement, WaiverEffect, waived
from torch_conformance.model.waivers import Signature, Waiver, WaiverFiles
from torch_conformance.vocabulary.steps import is_partial


@dataclass(frozen=True, slots=True)
class Waivers:
    """The waivers that were read, and the day of the run (UTC)."""

    files: WaiverFiles = field(default_factory=WaiverFiles)
    today: date = date.min

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of each file, by its name as shown."""
        return {document.file: document.digest for document in self.files.documents}

    def is_expired(self, waiver: Waiver) -> bool:
        """Whether a waiver's last day is past."""
        return waiver.until < self.today

    def of(self, case_id: str, surroundings: Surroundings) -> list[Waiver]:
        """Return the waivers that apply to a case here, including expired ones, in order."""
        return [
            waiver
            for waiver in self.files.waivers
            if _glob(waiver.cases).fullmatch(case_id) and holds(waiver.when, surroundings)
        ]


class Failure(NamedTuple):
    """One failure of a case, as signatures see it."""

    type: str
    message: str
    phase: str
    """Where it happened; empty for a failed expectation."""
    numbers: Mapping[str, float]
    """What is known of wrong numbers; empty for another failure."""


_glob = functools.cache(glob)


def _beginning_with(text: str, ordered: Sequence[str]) -> Sequence[str]:
    """Return those of sorted texts that begin with a text."""
    return ordered[bisect_left(ordered, text) : bisect_left(ordered, f"{text}\U0010ffff")]


def remarks(
    waivers: Waivers, ids: Sequence[str] | None, *, shipped: bool = False
) -> Iterator[Diagnostic]:
    """Yield a warning for each waiver that is expired or matches no case; shipped waivers are
    compared with the cases if ``shipped``.

    ``ids`` is None if not all cases are known; then no waiver is compared with the cases.
    """
    ordered = sorted(ids or ())  # those that begin as a glob does are together
    for waiver in waivers.files.waivers:
        if waivers.is_expired(waiver):
            remark = Diagnostic.of(
                "expired-waiver", cases=waiver.cases, until=str(waiver.until), issue=waiver.issue
            )
        elif (
            ids is not None
            and (shipped or waiver.position.file in waivers.files.user_files)
            and not any(
                map(
                    _glob(waiver.cases).fullmatch,
                    _beginning_with(re.split(r"[*?]", waiver.cases)[0], ordered),
                )
            )
        ):
            remark = Diagnostic.of("waiver-without-case", cases=waiver.cases, count=str(len(ids)))
        else:
            continue
        yield replace(remark, position=waiver.position, severity=Severity.WARNING)


def apply(judged: Judged, case: Case, surroundings: Surroundings, waivers: Waivers) -> Judged:
    """Return the outcome of a case after the waivers that are for it were applied."""
    candidates = [
        waiver
        for waiver in waivers.of(case.id, surroundings)
        if not (waiver.is_cell and judged.by_aten and judged.outcome in PASSED)
    ]  # what an entry allows ATen passes, and is ATen's as expected
    if not candidates or judged.outcome not in (*PASSED, *WAIVABLE):
        return judged
    failures = failures_of(judged)
    passed = judged.outcome in PASSED
    notes = []
    for waiver in candidates:
        effect = WaiverEffect.OTHER_FAILURE
        if waivers.is_expired(waiver):
            effect = WaiverEffect.EXPIRED
        elif passed:
            effect = (
                WaiverEffect.PART_PASSED
                if any(map(is_partial, case.steps)) and not waiver.is_cell
                else WaiverEffect.PASSED
            )
        else:
            try:
                if failures and all(
                    any(_names(signature, failure) for signature in waiver.failures)
                    for failure in failures
                ):
                    effect = WaiverEffect.MATCHED
            except PatternTooSlow:
                effect = WaiverEffect.TOO_SLOW
        notes.append(
            AppliedWaiver(
                effect=effect,
                cases=waiver.cases,
                position=waiver.position,
                reason=waiver.reason,
                issue=waiver.issue,
                until=waiver.until.isoformat(),
                flaky=waiver.flaky,
            )
        )
    judged = replace(judged, waivers=tuple(notes))
    outcome = waived(judged.outcome, notes)
    if passed:
        if outcome is not Outcome.XPASS:
            return judged
        unexpected = [
            note for note in notes if note.effect is WaiverEffect.PASSED and not note.flaky
        ]
        places = " and ".join(f"{note.position} ({note.issue})" for note in unexpected)
        reason = (
            "passed, though waived: remove "
            f"{'the waiver' if len(unexpected) == 1 else 'the waivers'} at {places}, or narrow "
            "the glob"
        )
        return replace(
            judged,
            outcome=outcome,
            reason=reason,
            level="",
            failure_type="xpass",
            position=unexpected[0].position,
        )
    matched = next((note for note in notes if note.effect is WaiverEffect.MATCHED), None)
    if matched is not None:
        flaky = f", by the flaky waiver at {matched.position}" if matched.flaky else ""
        return replace(judged, outcome=outcome, reason=f"{matched.reason} ({matched.issue}){flaky}")
    remarks = "; ".join(
        f"the waiver at {note.position} {_REMARKS[note.effect].format(until=note.until)}"
        for note in notes
    )
    return replace(judged, reason=f"{judged.reason}; {remarks}")


_REMARKS = {
    WaiverEffect.OTHER_FAILURE: "names another failure",
    WaiverEffect.TOO_SLOW: "has a pattern that gave no answer in time",
    WaiverEffect.EXPIRED: "ended on {until} and is void",
}


def _names(signature: Signature, failure: Failure) -> bool:
    if signature.type != failure.type or (
        signature.phases and failure.phase not in signature.phases
    ):
        return False
    return (
        signature.covers(failure.numbers) and search(signature.match, failure.message) is not None
    )


def failures_of(judged: Judgement) -> list[Failure]:
    """Return every failure of a result: of a comparison one for each wrong value.

    After an exception, a failed proof is not a failure.
    """
    failed, of_process = judged.failed, judged.phase if isinstance(judged, Judged) else ""
    raised = any(verdict.kind == "raised" for verdict in failed)
    failures = []
    for verdict in failed:
        if not (raised and verdict.kind == "proof"):
            # the runner writes the phase of an exception behind the type, and the worker's words
            # follow
            phase = _RAISED_IN.match(verdict.observed) if verdict.kind == "raised" else None
            kind = "fell-back" if verdict.kind == "proof" else verdict.kind
            where = of_process or (phase[1] if phase else "")
            for value in verdict.wrong or (WrongValue(message=""),):
                message = f"{kind}: {value.message}" if value.message else verdict.message
                failures.append(
                    Failure(type=kind, message=message, phase=where, numbers=value.numbers)
                )
    return failures


_RAISED_IN = re.compile(r"\S+ in phase '([^']*)'")
