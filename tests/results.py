"""Results that do not contradict themselves: what a journal's readers accept."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch_conformance.model.diagnostics import Position
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.header import RunFooter
from torch_conformance.model.outcomes import ExitCode, Outcome, exit_code
from torch_conformance.model.results import AppliedWaiver, CaseResult, WaiverEffect, executed

EVIDENCE = {"observation.json": "e" * 64}
_STATUS = {
    **dict.fromkeys((Outcome.PASS, Outcome.XPASS, Outcome.OFFLINE_PASS), Status.HELD),
    **dict.fromkeys((Outcome.ERROR, Outcome.CRASH), Status.ERROR),
}
_OFFLINE = (Outcome.OFFLINE_PASS, Outcome.OFFLINE_FAIL)
_KINDS = {
    Outcome.CRASH: "crash",
    Outcome.TIMEOUT: "timeout",
    Outcome.ERROR: "error",
    Outcome.FELL_BACK: "proof",
}
_EFFECTS = {Outcome.XFAIL: WaiverEffect.MATCHED, Outcome.XPASS: WaiverEffect.PASSED}
_NOTHING_RAN = (Outcome.NOT_RUN, Outcome.UNAVAILABLE)


def verdict_for(outcome: Outcome, position: Position) -> Verdict:
    """Return the one verdict of a case of this outcome."""
    status = Status.ERROR if outcome is Outcome.TIMEOUT else _STATUS.get(outcome, Status.FAILED)
    return Verdict(
        kind=_KINDS.get(outcome, "counter"),
        status=status,
        position=position,
        expected="1",
        observed="0",
    )


def as_outcome(result: CaseResult, outcome: Outcome, **changes: Any) -> CaseResult:
    """Return a result as a run would have recorded it with this outcome; a reason that is given
    stays.
    """
    reason = "" if outcome is Outcome.PASS else result.reason or "because"
    if outcome in _NOTHING_RAN:
        kind = "not-run" if outcome is Outcome.NOT_RUN else "unavailable"
        ran: dict[str, Any] = {
            "verdicts": (),
            "folder": "",
            "isolation": "",
            "seconds": 0.0,
            "evidence": {},
            "waivers": (),
            "timings": (),
        }
        return replace(
            result,
            **{
                "outcome": outcome,
                "reason": reason,
                "failure_type": kind,
                "attempts": (),
                **ran,
                **changes,
            },
        )
    verdict = verdict_for(outcome, result.position)
    own_kind = {
        Outcome.FELL_BACK: "fell-back",
        Outcome.XPASS: "xpass",
        Outcome.FLAKY: "flaky",
        Outcome.PASS: "",
        Outcome.OFFLINE_PASS: "",
    }
    waivers = (
        (waiver_of(_EFFECTS[outcome], reason, result.position),) if outcome in _EFFECTS else ()
    )
    made = {
        "outcome": outcome,
        "reason": reason,
        "failure_type": own_kind.get(outcome, verdict.kind),
        "verdicts": (verdict,),
        "folder": result.folder or "cases/00001",
        "evidence": dict(EVIDENCE),
        "waivers": waivers,
        "attempts": (),
        "target": "hip:gfx942" if outcome in _OFFLINE else "",
        "level": "O3" if outcome is Outcome.OFFLINE_PASS else "",
    }
    return replace(result, **{**made, **changes})


def waiver_of(effect: WaiverEffect, reason: str, position: Position) -> AppliedWaiver:
    return AppliedWaiver(
        effect=effect,
        cases="*",
        position=position,
        reason=reason,
        issue="https://example.org/1",
        until="2027-03-01",
    )


def footer_of(results: Sequence[CaseResult], **changes: Any) -> RunFooter:
    """Return the footer of a run with these results."""
    least, lets_flaky_pass = changes.pop("least", 1), changes.pop("lets_flaky_pass", False)
    whole = exit_code(
        (result.outcome for result in results),
        least,
        lets_flaky_pass=lets_flaky_pass,
        executed=executed(results),
    )
    code = ExitCode.INTERRUPTED if changes.get("interrupted") else whole
    made = RunFooter(ended="2026-01-01T00:00:01+00:00", seconds=1.0, exit_code=int(code))
    return replace(made, **changes)
