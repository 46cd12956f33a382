"""The output of ``audit``: text lines and JSON. Pure."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.core.case import WrittenReason
from runner.core.diagnostics import Diagnostic, Position
from runner.judge.audit import Audit, ControlResult, Fate, Trial


def lines(found: Audit, controls: Sequence[ControlResult]) -> Iterator[str]:
    """Yield a line for each survivor, each stale reason, each control, and the score."""
    for trials in _by_expectation(found.survivors):
        yield f"{_what(trials[0])}: still passes with {_mutants(trials)}{_cases(trials)}"
    for reason in found.stale:
        yield str(_stale(reason))
    for trials in _by_expectation([trial for trial, _ in found.excused]):
        reasons = dict.fromkeys(reason.reason for trial, reason in found.excused if trial in trials)
        yield f"{_what(trials[0])}: may pass with {_mutants(trials)}{_cases(trials)}: {'; '.join(reasons)}"
    for control in controls:
        word = "fails as it must" if control.failed_as_it_must else "does not fail as it must"
        yield f"{control.position}: control {word} with {control.patch}: {control.words}  {shlex.quote(control.case_id)}"
    yield from _not_applicable(found.trials)
    yield _score(found, controls)


def _by_expectation(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Return the trials grouped by line of the spec: the cases of a line differ only in backend and matrix point."""
    found: dict[tuple[Position, str, str], list[Trial]] = {}
    for trial in trials:
        found.setdefault((trial.position, trial.kind, trial.leaf), []).append(trial)
    return list(found.values())


def _what(trial: Trial) -> str:
    return f"{trial.position}: {trial.kind}{' ' + trial.leaf if trial.leaf else ''}"


def _mutants(trials: Sequence[Trial]) -> str:
    return "; ".join(dict.fromkeys(f"{trial.mutant}{' of ' + trial.where if trial.where else ''} ({trial.observed})" for trial in trials))


def _cases(trials: Sequence[Trial]) -> str:
    cases = list(dict.fromkeys(trial.case_id for trial in trials))
    return f"  {shlex.quote(cases[0])}" + (f" and {len(cases) - 1} more" if len(cases) > 1 else "")


def _stale(reason: WrittenReason) -> Diagnostic:
    leaf = f" {reason.leaf}" if reason.leaf else ""
    message = f"{reason.expectation}{leaf} fails with '{reason.mutant}', or the mutant is not applicable: the reason is stale"
    return Diagnostic(position=reason.position, message=message, hint="remove it")


def _not_applicable(trials: Sequence[Trial]) -> Iterator[str]:
    counted = Counter((trial.kind, trial.mutant, trial.observed) for trial in trials if trial.fate is Fate.NOT_APPLICABLE)
    for (kind, mutant, why), count in sorted(counted.items()):
        yield f"not applicable: {count} x {kind}, {mutant}: {why}"


def _score(found: Audit, controls: Sequence[ControlResult]) -> str:
    parts = [f"{found.killed} of {found.applicable} mutants refused by {found.expectations} expectations of {found.cases} cases"]
    parts.append(f"{len(found.survivors)} survived")
    if found.excused:
        parts.append(f"{len(found.excused)} with a written reason")
    if found.stale:
        parts.append(f"{len(found.stale)} stale reasons")
    if controls:
        parts.append(f"{sum(control.failed_as_it_must for control in controls)} of {len(controls)} controls failed as they must")
    share = f"{found.killed / found.applicable:.1%}" if found.applicable else "none"
    return f"score {share}: {', '.join(parts)}"


def as_json(found: Audit, controls: Sequence[ControlResult]) -> Mapping[str, Any]:
    """Return the JSON of ``audit --json``."""
    return {
        "format": 1,
        "score": found.killed / found.applicable if found.applicable else None,
        "killed": found.killed,
        "applicable": found.applicable,
        "not_applicable": len(found.trials) - found.applicable,
        "expectations": found.expectations,
        "cases": found.cases,
        "survivors": [_trial_as_json(trial, None) for trial in found.survivors],
        "excused": [_trial_as_json(trial, reason.reason) for trial, reason in found.excused],
        "stale": [
            {
                **_place(reason.position),
                "expectation": reason.expectation,
                "mutant": reason.mutant,
                "leaf": reason.leaf,
                "reason": reason.reason,
            }
            for reason in found.stale
        ],
        "controls": [
            {**_place(control.position), "case": control.case_id, "failed": control.failed_as_it_must, "observed": control.words}
            for control in controls
        ],
    }


def _trial_as_json(trial: Trial, reason: str | None) -> Mapping[str, Any]:
    known = {"expectation": trial.kind, "leaf": trial.leaf, "mutant": trial.mutant, "where": trial.where, "observed": trial.observed}
    return {**_place(trial.position), "case": trial.case_id, **known, "reason": reason}


def _place(position: Position) -> dict[str, Any]:
    return {"file": position.file, "line": position.line, "column": position.column}
