"""Recorded runs made by hand: a result, a run of results, and its folder.

Nothing here imports torch.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.results import as_outcome, footer_of
from torch_conformance.model.case import CaseId
from torch_conformance.model.diagnostics import Position
from torch_conformance.model.header import RunFooter, RunHeader
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import JournalWriter, Run

MACHINE = {"torch": "2.13.0+cpu", "python": "3.11.7", "cpu": "x86_64", "gpus": "0"}
NOT_EXECUTED = (Outcome.UNAVAILABLE, Outcome.NOT_RUN)


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
    with JournalWriter(path) as journal:
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
