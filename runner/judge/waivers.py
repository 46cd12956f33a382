"""Applies waivers of known failures to judged cases; the result is final. Pure.

| judged                        | a waiver that applies to the case here             | outcome  |
|-------------------------------|----------------------------------------------------|----------|
| PASS, OFFLINE_PASS            | is not expired                                     | XPASS    |
| PASS of some samples of an operator | any                                          | the same |
| FAIL, FELL_BACK, OFFLINE_FAIL, CRASH, TIMEOUT | is not expired, and names the failure | XFAIL  |
| FAIL, FELL_BACK, OFFLINE_FAIL, CRASH, TIMEOUT | names another failure, or is expired | the same |
| anything else                 | any                                                | the same |

A waiver names a failure if every failed expectation matches one of its signatures, so that a waiver never hides a second defect. If
several waivers apply, the first in the order of the files counts.

| waiver                                                        | is removed |
|---------------------------------------------------------------|------------|
| its last day is past                                          | yes        |
| it is for none of the cases that were read                    | yes        |
| cases for which it is passed, and it matched no failure       | yes        |
| cases passed, and it matched the failure of others            | no: narrow its glob or its condition |
"""

import bisect
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from runner.core.case import Case
from runner.core.conditions import Surroundings, holds
from runner.core.diagnostics import Diagnostic, Position, Severity, UsageError
from runner.core.expectation import Status
from runner.core.globs import glob
from runner.core.matching.patterns import search
from runner.core.matching.time_limit import PatternTooSlow
from runner.core.outcomes import PASSED, WAIVABLE, Outcome
from runner.core.results import AppliedWaiver, CaseResult, Verdict, WaiverEffect
from runner.language.read.document import Document
from runner.language.waivers import Signature, Waiver, WaiverFiles
from runner.vocabulary.steps import is_partial


@dataclass(frozen=True, slots=True)
class Waivers:
    """The waivers that were read, and the day of the run (UTC)."""

    files: WaiverFiles
    today: date

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of each file, by its name as shown."""
        return {document.file: document.digest for document in self.files.documents}

    def is_expired(self, waiver: Waiver) -> bool:
        """Whether a waiver's last day is past."""
        return waiver.until < self.today

    def of(self, case_id: str, here: Surroundings) -> list[Waiver]:
        """Return the waivers that apply to a case here, including expired ones, in order."""
        return [waiver for waiver in self.files.waivers if _glob(waiver.cases).fullmatch(case_id) and holds(waiver.when, here)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failure of a case, as signatures see it."""

    type: str
    message: str
    phase: str
    """Where it happened; empty for a failed expectation."""


@functools.cache
def _glob(pattern: str) -> re.Pattern[str]:
    return glob(pattern)


def warnings(waivers: Waivers, ids: Sequence[str]) -> Iterator[str]:
    """Yield the warnings before a run: expired waivers, and waivers of ``--waivers`` that match no case.

    A shipped waiver without a case is not reported: the run may have read other specs.
    """
    for remark in remarks(waivers, ids):
        yield f"{remark.position}: {remark.message} ({remark.hint})"


def remarks(waivers: Waivers, ids: Sequence[str] | None, *, shipped: bool = False) -> Iterator[Diagnostic]:
    """Yield a warning for each waiver that is expired or matches no case; shipped waivers are compared with the cases if ``shipped``.

    ``ids`` is None if not all cases are known; then no waiver is compared with the cases.
    """
    ids = None if ids is None else sorted(ids)
    for waiver in waivers.files.waivers:
        who = f"the waiver of '{waiver.cases}'"
        if waivers.is_expired(waiver):
            message, hint = f"{who} ended on {waiver.until} and is void: {waiver.issue}", "remove it, or set a later date"
        elif ids is not None and (shipped or waiver.position.file in waivers.files.given) and not _has_case(waiver, ids):
            message, hint = f"{who} is for none of the {len(ids)} cases that were read", "only * and ? are special"
        else:
            continue
        yield Diagnostic(position=waiver.position, message=message, hint=hint, severity=Severity.WARNING)


def _has_case(waiver: Waiver, ids: Sequence[str]) -> bool:
    """Whether a waiver is for one of these cases, which are sorted: only those that begin as its glob does are compared."""
    begin = re.split(r"[*?]", waiver.cases, maxsplit=1)[0]
    alike = ids[bisect.bisect_left(ids, begin) : bisect.bisect_left(ids, f"{begin}\U0010ffff")]
    return any(map(_glob(waiver.cases).fullmatch, alike))


def apply(judged: CaseResult, case: Case, here: Surroundings, waivers: Waivers) -> CaseResult:
    """Return the outcome of a case once it is held against the waivers that are for it."""
    candidates = waivers.of(case.id, here)
    if not candidates or judged.outcome not in (*PASSED, *WAIVABLE):
        return judged
    failures = failures_of(judged)
    passed = judged.outcome in PASSED
    passing = WaiverEffect.PART_PASSED if any(map(is_partial, case.steps)) else WaiverEffect.PASSED
    effects = (passing if passed and not waivers.is_expired(waiver) else _effect(waiver, failures, waivers) for waiver in candidates)
    notes = tuple(_note(waiver, effect) for waiver, effect in zip(candidates, effects, strict=True))
    if passed:
        return _passed(replace(judged, waivers=notes))
    matched = next((note for note in notes if note.effect is WaiverEffect.MATCHED), None)
    if matched is not None:
        return replace(judged, outcome=Outcome.XFAIL, reason=f"{matched.reason} ({matched.issue})", waivers=notes)
    remarks = "; ".join(f"the waiver at {note.position} {_REMARKS[note.effect].format(until=note.until)}" for note in notes)
    return replace(judged, reason=f"{judged.reason}; {remarks}", waivers=notes)


_REMARKS = {
    WaiverEffect.OTHER_FAILURE: "names another failure",
    WaiverEffect.TOO_SLOW: "has a pattern that gave no answer in time",
    WaiverEffect.EXPIRED: "ended on {until} and is void",
}


def _passed(judged: CaseResult) -> CaseResult:
    unexpected = [note for note in judged.waivers if note.effect is WaiverEffect.PASSED]
    if not unexpected:
        return judged
    places = " and ".join(f"{note.position} ({note.issue})" for note in unexpected)
    waiver = "the waiver" if len(unexpected) == 1 else "the waivers"
    reason = f"passed, though waived: remove {waiver} at {places}, or narrow the glob"
    return replace(judged, outcome=Outcome.XPASS, reason=reason, level="", failure_type="xpass", position=unexpected[0].position)


def _effect(waiver: Waiver, failures: Sequence[Failure], waivers: Waivers) -> WaiverEffect:
    if waivers.is_expired(waiver):
        return WaiverEffect.EXPIRED
    try:
        known = bool(failures) and all(any(_has(signature, failure) for signature in waiver.failures) for failure in failures)
    except PatternTooSlow:
        return WaiverEffect.TOO_SLOW
    return WaiverEffect.MATCHED if known else WaiverEffect.OTHER_FAILURE


def _has(signature: Signature, failure: Failure) -> bool:
    if signature.type != failure.type or (signature.phases and failure.phase not in signature.phases):
        return False
    return search(signature.match, failure.message) is not None


def failures_of(judged: CaseResult) -> list[Failure]:
    """Return every failure of a result. After an exception, a failed proof is no failure of its own."""
    failed = [verdict for verdict in judged.verdicts if verdict.status in (Status.FAILED, Status.ERROR)]
    raised = any(verdict.kind == "raised" for verdict in failed)
    counted = [verdict for verdict in failed if not (raised and verdict.kind == "proof")]
    return [Failure(type=_type(verdict), message=verdict.message, phase=judged.phase or _phase(verdict)) for verdict in counted]


_RAISED_IN = re.compile(r"\S+ in phase '([^']*)'")


def _phase(verdict: Verdict) -> str:
    """Return the phase of an exception: the runner writes it behind the type, and the worker's words follow."""
    found = _RAISED_IN.match(verdict.observed) if verdict.kind == "raised" else None
    return found[1] if found else ""


def _type(verdict: Verdict) -> str:
    return "fell-back" if verdict.kind == "proof" else verdict.kind


def _note(waiver: Waiver, effect: WaiverEffect) -> AppliedWaiver:
    return AppliedWaiver(
        effect=effect,
        cases=waiver.cases,
        position=waiver.position,
        reason=waiver.reason,
        issue=waiver.issue,
        until=waiver.until.isoformat(),
    )


# -- void waivers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class VoidWaiver:
    """A waiver to remove, and why."""

    waiver: Waiver
    why: str


def void_waivers(waivers: Waivers, results: Iterable[CaseResult], ids: Sequence[str] | None = None) -> Iterator[VoidWaiver]:
    """Yield the waivers to remove. ``ids`` are all cases that were read; None where they are not known.

    A shipped waiver is not compared with ``ids``, because the run may have read other specs.
    """
    effects = _effects(results)
    ids = None if ids is None else sorted(ids)
    for waiver in waivers.files.waivers:
        passed, matched = effects.get(waiver.position, (0, 0))
        if waivers.is_expired(waiver):
            yield VoidWaiver(waiver=waiver, why=f"ended on {waiver.until}")
        elif passed and not matched:
            yield VoidWaiver(waiver=waiver, why=f"{passed} of its cases passed, and no failure matched")
        elif ids is not None and waiver.position.file in waivers.files.given and not _has_case(waiver, ids):
            yield VoidWaiver(waiver=waiver, why=f"is for none of the {len(ids)} cases")


def _effects(results: Iterable[CaseResult]) -> Mapping[Position, tuple[int, int]]:
    """Return for the place of each waiver how many cases passed in spite of it, and how many failed in any way."""
    counts: dict[Position, tuple[int, int]] = {}
    for result in results:
        for one in result.waivers:
            passed, failed = counts.get(one.position, (0, 0))
            if one.effect is WaiverEffect.PASSED and result.outcome is not Outcome.FLAKY:
                counts[one.position] = (passed + 1, failed)
            elif one.effect not in (WaiverEffect.EXPIRED, WaiverEffect.PART_PASSED):
                counts[one.position] = (passed, failed + 1)
    return counts


def patches(found: Sequence[VoidWaiver], documents: Iterable[Document]) -> Iterator[str]:
    """Yield the unified diff for each file, or a line that says why a file cannot be changed as text."""
    from runner.language.waiver_text import removal_patch  # only where there is something to remove

    for document in documents:
        lines = {one.waiver.position for one in found}
        indices = [index for index, _ in enumerate(document.data["waivers"]) if document.position(("waivers", index)) in lines]
        if indices:
            try:
                yield removal_patch(document, indices)
            except UsageError as error:
                yield f"{error}\n"


def lines_of(found: Sequence[VoidWaiver], documents: Iterable[Document]) -> list[str]:
    """Return the waivers to remove with the reasons, and the patch; nothing where there is none."""
    if not found:
        return []
    count = "1 waiver" if len(found) == 1 else f"{len(found)} waivers"
    reasons = [f"  {one.waiver.position}: {one.why} ({one.waiver.issue})" for one in found]
    diffs = [line for patch in patches(found, documents) for line in _shown(patch)]
    applied = "'waive RUN --remove' prints the patch for 'git apply', without waivers that are for no case"
    return [f"\n{count} to remove ({applied}):", *reasons, *diffs]


def _shown(patch: str) -> list[str]:
    """Return the lines of a patch for a report. Its first two are commands to a CI system, so the file is named in other words."""
    lines = patch.splitlines()
    return [f"in {lines[0].partition('/')[2]}:", *lines[2:]] if lines[0].startswith("--- ") else lines
