"""Judges a recorded case again from its recorded files: a line of a journal is accepted if both verdicts are equal."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

from runner.core.case import Case
from runner.core.conditions import Surroundings
from runner.core.expectation import Status
from runner.core.folding import fold
from runner.core.observation import Ending
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult, Verdict
from runner.judge.evidence import Evidence
from runner.judge.judge import judge
from runner.judge.reading import read_observation
from runner.judge.waivers import Waivers, apply
from runner.language.backends import Backend
from runner.plan.selection import without_benches
from runner.record.evidence import OBSERVATION, EvidenceAltered, RecordedFiles, alterations
from runner.run.machines_then import here_of
from runner.system.redaction import MASK, redacted

JUDGED_BY_FACTS = (Outcome.PASS, Outcome.FAIL, Outcome.FELL_BACK, Outcome.OFFLINE_PASS, Outcome.OFFLINE_FAIL)
"""Outcomes that follow from the worker's facts; after a crash there may be no facts."""

BY_FACTS = (*JUDGED_BY_FACTS, Outcome.XFAIL, Outcome.XPASS, Outcome.FLAKY)
"""The same with what waivers and retries make of them."""

_TOO_SLOW = "pattern too slow"


def problems(case: Case, backend: Backend, known: Surroundings, result: CaseResult, run: Path) -> Iterator[str]:
    """Yield why a recorded result is not accepted: altered files, or verdicts that differ when judged again.

    ``known`` are the surroundings of the machine of the run, here and below; what names a node is judged by the facts of that node.
    """
    altered = list(alterations(run, result))
    yield from altered
    if altered:
        return
    if found := disagreement(case, backend, known, result, run / result.folder) or of_attempts(case, backend, known, result, run):
        yield found


def disagreement(case: Case, backend: Backend, known: Surroundings, result: CaseResult, folder: Path) -> str:
    """Return how the verdicts of a result differ when judged again; empty if they do not, or if no facts decided the outcome."""
    if result.outcome is Outcome.NOT_RUN or fold(result.verdicts, result.target).outcome not in JUDGED_BY_FACTS or not result.evidence:
        return ""
    now = _judged(case, backend, here_of(case, backend, result, known), result, RecordedFiles(folder, result.evidence), folder)
    return now if isinstance(now, str) else _difference(case, result.verdicts, now)


def of_attempts(case: Case, backend: Backend, known: Surroundings, result: CaseResult, run: Path) -> str:
    """Return how the failed verdicts of an attempt differ when judged again, as ``disagreement`` does for a result."""
    for attempt in result.attempts:
        if not attempt.evidence or fold(attempt.verdicts, result.target).outcome not in JUDGED_BY_FACTS:
            continue
        folder = run / attempt.folder
        here = here_of(case, backend, attempt, known)
        now = _judged(case, backend, here, result, RecordedFiles(folder, attempt.evidence), folder)
        if isinstance(now, str):
            return now
        failed = tuple(verdict for verdict in now if verdict.status in (Status.FAILED, Status.ERROR))
        if found := _difference(case, attempt.verdicts, failed):
            return f"{attempt.folder}: {found}"
    return ""


def _judged(
    case: Case, backend: Backend, here: Surroundings, result: CaseResult, files: RecordedFiles, folder: Path
) -> tuple[Verdict, ...] | str:
    """Return the verdicts of recorded files, or why they cannot be judged."""
    found = judged_again(case, backend, here, result, files, folder)
    return found if isinstance(found, str) else found.verdicts


def judged_again(
    case: Case, backend: Backend, here: Surroundings, result: CaseResult, files: RecordedFiles, folder: Path
) -> CaseResult | str:
    """Return what recorded files give, or why they cannot be judged; ``folder`` is named in that reason."""
    if result.benches_left_out:
        case = without_benches(case)
    try:
        observation, services = read_observation(files.observation()), files.services()
        evidence = Evidence(ending=Ending(exit_code=0), observation=observation, code=files.code, services=services)
        return judge(case, backend, here, evidence)
    except EvidenceAltered as error:
        return str(error)
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"{folder}: not what a run leaves: {error}"


def _difference(case: Case, then: tuple[Verdict, ...], now: tuple[Verdict, ...]) -> str:
    if any(_TOO_SLOW in verdict.observed for verdict in now if verdict.status is Status.ERROR):
        return ""  # this machine was too slow for a verdict
    if len(then) != len(now):
        return f"{case.id}: {len(then)} verdicts are recorded, and judging its files again gives {len(now)}"
    for old, new in zip(then, now, strict=True):
        if _judgement(old) != _judgement(new):
            words = (
                f"{old.kind} {old.status.value} is recorded, and judging its files again gives {new.kind} {new.status.value}: {new.message}"
            )
            return f"{case.id}: {old.position}: {words}"
    return ""


def _judgement(verdict: Verdict) -> tuple[str, Status, int, int]:
    return verdict.kind, verdict.status, verdict.position.line, verdict.position.column


def not_excused(case: Case, result: CaseResult, here: Surroundings, waivers: Waivers) -> str:
    """Return why no waiver makes this an XFAIL or XPASS; empty if one does, expired or not, and for any other outcome."""
    texts = [verdict.message for verdict in result.verdicts]
    if result.outcome not in (Outcome.XFAIL, Outcome.XPASS) or any(MASK in text for text in texts):
        return ""
    folded = fold(result.verdicts, result.target)
    judged = replace(result, outcome=folded.outcome, failure_type=folded.failure_type, waivers=())
    found = apply(judged, case, here, replace(waivers, today=date.min)).outcome
    return "" if found is result.outcome else f"{case.id}: {result.outcome.label} is recorded, and no waiver gives this outcome"


def is_text(recorded: str, now: str) -> bool:
    """Whether a recorded text is the one of now; what is masked may differ."""
    now = redacted(now)
    return MASK in recorded or MASK in now or recorded == now


def is_same_text(old: Verdict, new: Verdict) -> bool:
    """Whether two verdicts have the same texts. The frames of a traceback are folded by their folders, which a submission does not have."""
    texts = [(old.expected, new.expected), (old.observed, new.observed), *([] if old.kind == "raised" else [(old.detail, new.detail)])]
    return all(is_text(recorded, now) for recorded, now in texts)


__all__ = [
    "BY_FACTS",
    "JUDGED_BY_FACTS",
    "OBSERVATION",
    "disagreement",
    "is_same_text",
    "is_text",
    "judged_again",
    "not_excused",
    "of_attempts",
    "problems",
]
