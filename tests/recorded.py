"""Recorded runs made by hand, which a journal's readers accept: a result, a run of results, and its
folder.

Nothing here imports torch.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch_conformance.model.case import CaseId
from torch_conformance.model.diagnostics import Position
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.header import RunFooter, RunHeader
from torch_conformance.model.outcomes import ExitCode, Outcome, exit_code
from torch_conformance.model.results import AppliedWaiver, CaseResult, WaiverEffect, executed
from torch_conformance.record.journal import JournalWriter, Run

MACHINE = {"torch": "2.13.0+cpu", "python": "3.11.7", "cpu": "x86_64", "gpus": "0"}
NOT_EXECUTED = (Outcome.UNAVAILABLE, Outcome.NOT_RUN)

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
    if outcome in NOT_EXECUTED:
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


def recorded(
    name: str, outcome: Outcome = Outcome.PASS, *, backend: str = "cpu", **changes: Any
) -> CaseResult:
    """Return the result of ``area/NAME[backend=BACKEND]``; ``observed`` and ``expected`` change its
    verdict.
    """
    verdict = {word: changes.pop(word) for word in ("observed", "expected") if word in changes}
    spec = f"specs/area/{name}.yaml"
    made = CaseResult(
        case_id=CaseId(changes.pop("case_id", f"area/{name}[backend={backend}]")),
        spec=spec,
        outcome=outcome,
        reason=changes.pop("reason", ""),
        failure_type="",
        verdicts=(),
        position=Position(file=spec, line=7),
        seconds=0.0 if outcome in NOT_EXECUTED else 1.5,
        digest="f" * 64,
        isolation="" if outcome in NOT_EXECUTED else "fork",
        folder=changes.pop("folder", "cases/00001"),
    )
    found = as_outcome(made, outcome, **changes)
    return (
        replace(found, verdicts=tuple(replace(one, **verdict) for one in found.verdicts))
        if verdict
        else found
    )


def run_of(
    *results: CaseResult,
    run_id: str = "run-1",
    environment: Mapping[str, str] = MACHINE,
    **changes: Any,
) -> Run:
    """Return a run with these results; changes are those of its header, or ``footer``."""
    footer = changes.pop("footer", footer_of(results))
    header = RunHeader(
        run_id=run_id,
        started=changes.pop("started", "2026-10-07T12:00:00+00:00"),
        version="0.1.0",
        command=("torch-conformance", "run"),
        environment=environment,
        variables={},
        specs=changes.pop("specs", {result.spec: "1" * 64 for result in results}),
        selected=len(results),
        options=changes.pop("options", {"min-executed": "1"}),
    )
    return Run(header=replace(header, **changes), results=results, footer=footer)


def write_run(folder: Path, run: Run, code: Mapping[str, str] | None = None) -> Path:
    """Write a run's folder with the observations of its cases; ``code`` are files by which its
    first result was judged.
    """
    results = list(run.results)
    for index, result in enumerate(results):
        if result.folder:
            result = replace(result, folder=f"cases/{index + 1:05d}")
            observation = {
                "format": 2,
                "id": result.case_id,
                "steps": [],
                "error": None,
                "phases": {},
                "peak_bytes": 0,
            }
            files = {
                "observation.json": json.dumps(observation),
                **(code or {} if index == 0 else {}),
            }
            results[index] = replace(result, evidence=_written(folder / result.folder, files))
    return write_journal(folder / "run.jsonl", run.header, results, footer=run.footer).parent


def write_journal(
    path: Path,
    header: RunHeader,
    results: Iterable[CaseResult],
    *,
    attempts: Iterable[CaseResult] = (),
    footer: RunFooter | None = None,
) -> Path:
    """Write a journal; without ``footer`` it is that of a run that was killed. Return its path."""
    path.parent.mkdir(exist_ok=True, parents=True)
    lines = [
        ("header", header),
        *(("attempt", one) for one in attempts),
        *(("case", one) for one in results),
        ("footer", footer),
    ]
    with closing(JournalWriter(path)) as journal:
        for kind, record in lines:
            if record is not None:
                journal.write(kind, record)
    return path


def edit(path: Path, change: Callable[[list[dict[str, Any]]], object]) -> Path:
    """Change the lines of a journal; return its path."""
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _written(folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
