"""Converts an execution to the result of its case: reads the files, judges the case, applies waivers."""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner.core.case import Case
from runner.core.conditions import Surroundings
from runner.core.observation import Observation
from runner.core.outcomes import PASSED, Outcome
from runner.core.results import CaseResult, result_of
from runner.execute.base import Execution
from runner.judge.evidence import Evidence, read_observation
from runner.judge.judge import judge
from runner.judge.waivers import Waivers, apply
from runner.language.backends import Backend
from runner.language.expand.cases import surroundings
from runner.language.flow import flow
from runner.plan.worker_plan import digest_of, seed_of
from runner.record.evidence import OBSERVATION, SERVICES, CaseFiles
from runner.run import artifacts
from runner.run.artifacts import code_files, keep, printed, stack_text
from runner.system import scratch
from runner.system.availability import Verdict
from runner.system.redaction import MASK, is_secret_name


class Results:
    """Judges executions; ``folder`` is the folder of the run."""

    def __init__(self, folder: Path, backends: Mapping[str, Backend], waivers: Waivers) -> None:
        self._folder = folder
        self._backends = backends
        self._waivers = waivers

    def of(self, case: Case, execution: Execution, known: Surroundings, repro: str) -> CaseResult:
        """Return the result of a case."""
        folder = self._folder / execution.job.folder
        files = CaseFiles(folder)
        backend = self._backends[case.backend]
        here = surroundings(backend, known, case.target)
        evidence = _evidence(folder, files, execution)
        observation = evidence.observation if isinstance(evidence.observation, Observation) else None
        judged = apply(_judged(case, backend, here, evidence, execution), case, here, self._waivers)
        benches = artifacts.Benches() if evidence.problem else artifacts.benches(folder, observation)
        return _case_result(
            case,
            judged,
            seconds=round(execution.seconds, 3),
            phases=artifacts.phases(observation),
            isolation=execution.isolation,
            begun=_moment(execution.begun),
            worker=execution.worker,
            gpus=execution.gpus,
            warmup_begun=_moment(execution.warmup.begun),
            warmup=round(execution.warmup.seconds, 3),
            folder=execution.job.folder,
            evidence=files.digests,
            repro=repro,
            code=code_files(execution.files),
            stdout=printed(folder / "stdout.txt"),
            stderr=printed(folder / "stderr.txt"),
            benches_left_out=len(case.left_out),
            timings=benches.timings,
            attachments=benches.attachments,
            notes=(*benches.notes, *filter(None, [execution.left_over])),
        )


def _moment(seconds: float) -> str:
    """Return a moment as the journal records it; empty where it is unknown."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds") if seconds else ""


def _evidence(folder: Path, files: CaseFiles, execution: Execution) -> Evidence:
    """Write the observation to the folder of the case; return the evidence, with the files of that folder."""
    problem = execution.problem or keep(files, folder / OBSERVATION, execution.observation)
    if execution.services:
        problem = problem or keep(files, folder / SERVICES, [dataclasses.asdict(service) for service in execution.services])
    return Evidence(
        ending=execution.ending,
        observation=read_observation(execution.observation),
        code=files.code,
        note=execution.note,
        problem=problem,
        services=execution.services,
        stderr=stack_text(folder / "stderr.txt", execution),
    )


def _judged(case: Case, backend: Backend, here: Surroundings, evidence: Evidence, execution: Execution) -> CaseResult:
    """Judge a case; a failure with no space left on the device is an ERROR."""
    judged = judge(case, backend, here, evidence)
    if judged.outcome in PASSED or evidence.problem or execution.space is None:
        return judged
    said = "\n".join(f"{verdict.observed}\n{verdict.detail}" for verdict in judged.verdicts)
    problem = scratch.shortage(execution.space, said)
    return judged if not problem else judge(case, backend, here, dataclasses.replace(evidence, problem=problem))


def _case_result(case: Case, judged: CaseResult, **more: Any) -> CaseResult:
    """Return a result with the report's data about the case and its execution."""
    if judged.outcome is not Outcome.PASS:
        more = {"summary": case.summary, "options": _options(case), **more}
    else:
        more["code"] = ()
    return dataclasses.replace(judged, digest=digest_of(case), **more)


def _options(case: Case) -> tuple[str, ...]:
    """Return the options in force, as a spec would write them, and the seed, which follows from the id where the spec gives none."""
    written = [
        f"{section}.{name}: {MASK if section == 'env' and is_secret_name(name) else flow(option.value)}"
        for section, found in case.options.items()
        for name, option in found.items()
    ]
    is_given = "seed" in case.body.settings.torch
    return (*written, *([] if is_given else [f"torch.seed: {seed_of(case)}"]))


def result_of_unavailable(case: Case, verdict: Verdict, required: Sequence[str], repro: str) -> CaseResult:
    """Return the result of a case that cannot run here: an ERROR if ``--require`` names the missing capability or backend."""
    reason = verdict.reason
    if case.backend in required or verdict.capability in required:
        name = case.backend if case.backend in required else verdict.capability
        judged = result_of(case, Outcome.ERROR, f"--require {name}: {reason}", "unavailable")
    else:
        judged = result_of(case, Outcome.UNAVAILABLE, reason, "unavailable")
    return _case_result(case, judged, repro=repro)


def result_of_unrun(case: Case, reason: str, repro: str) -> CaseResult:
    """Return the result of a case that the run did not start."""
    return _case_result(case, result_of(case, Outcome.NOT_RUN, reason, "not-run"), repro=repro)
