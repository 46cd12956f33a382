"""Converts an execution to the result of its case: reads the files, judges the case, applies waivers.

The files of a case are untrusted: its worker can write any file to the folder.
"""

import contextlib
import dataclasses
import json
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner.execute.executor_protocol import Execution
from runner.judge.evidence import read_facts
from runner.judge.judge import judge
from runner.judge.waiving import Waivers, apply
from runner.language.backends import Backend
from runner.language.expand.cases import surroundings_for
from runner.language.flow import flow
from runner.machine import scratch
from runner.machine.capabilities import Verdict
from runner.machine.output import OUT_OF_SPACE
from runner.machine.redaction import MASK, is_secret_name, redacted
from runner.machine.scratch import open_untrusted, tail
from runner.model.case import Case
from runner.model.case_facts import Facts, Timing
from runner.model.conditions import Surroundings
from runner.model.options import RunOptions
from runner.model.outcomes import PASSED, Outcome
from runner.model.protocol import MAX_ATTACHMENT
from runner.model.results import UNAVAILABLE, CaseResult, result_of
from runner.plan.selection import is_optional
from runner.plan.worker_plan import digest_of, seed_of
from runner.record.case_files import OBSERVATION, SERVICES, CaseFiles

_OUTPUT_BYTES = 64_000
"""The end of a worker's output that the journal records."""

_STACK_BYTES = 512_000
"""The end of standard error that is searched for the stack of a case that timed out: other threads may continue to print."""

_CODE_FILE = re.compile(r"(?P<what>code|graph)-(?P<step>[0-9]{1,4})(?P<stage>-[a-z_]{1,20})?-(?P<index>[0-9]{1,4})\.txt")
_MOST_CODE_FILES = 100


def result_of_execution(
    run_folder: Path, backends: Mapping[str, Backend], waivers: Waivers, case: Case, execution: Execution, known: Surroundings, repro: str
) -> CaseResult:
    """Judge an execution, and return the result of its case. Write the observation to the folder of the case in ``run_folder``."""
    folder = run_folder / execution.job.folder
    files = CaseFiles(folder)
    backend = backends[case.backend]
    surroundings = surroundings_for(backend, known, case.target)
    problem = execution.problem or _keep(files, folder / OBSERVATION, execution.observation)
    if execution.services:
        problem = problem or _keep(files, folder / SERVICES, [dataclasses.asdict(service) for service in execution.services])
    ending, stack = execution.ending, ""  # the text that may contain the stack of a case that timed out or died
    if ending.timed_out:
        stack = tail(folder / "stderr.txt", _STACK_BYTES, start=execution.stack_from)
    elif ending.signal or ending.exit_code or execution.observation is None:
        stack = tail(folder / "stderr.txt", _STACK_BYTES)
    facts = read_facts(
        execution.observation,
        files.code,
        ending=ending,
        note=execution.note,
        problem=problem,
        services=execution.services,
        stderr=stack,
    )
    judged = judge(case, backend, surroundings, facts)
    if judged.outcome not in PASSED and not problem and execution.space is not None:
        texts = "\n".join(f"{verdict.observed}\n{verdict.detail}" for verdict in judged.verdicts)
        if shortage := scratch.shortage(execution.space, texts):  # with no space left on the device a failure is an ERROR
            judged = judge(case, backend, surroundings, dataclasses.replace(facts, problem=shortage))
    timings, attachments, notes = ((), (), ()) if problem else benches_of(folder, facts)
    # the files of generated code, by step and piece, then those of graphs
    matches = [match for name in execution.files if (match := _CODE_FILE.fullmatch(name))]
    pieces = [match for match in matches if (match["what"] == "graph") is bool(match["stage"])]
    pieces.sort(key=lambda match: (match["what"], int(match["step"]), match["stage"] or "", int(match["index"])))
    return _case_result(
        case,
        apply(judged, case, surroundings, waivers),
        seconds=round(execution.seconds, 3),
        phases=phases_of(facts),
        isolation=execution.isolation,
        begun=_moment(execution.begun),
        worker=execution.worker,
        gpus=execution.gpus,
        warmup_begun=_moment(execution.warmup.begun),
        warmup=round(execution.warmup.seconds, 3),
        folder=execution.job.folder,
        evidence=files.digests,
        repro=repro,
        code=tuple(match[0] for match in pieces[:_MOST_CODE_FILES]),
        stdout=_printed(folder / "stdout.txt"),
        stderr=_printed(folder / "stderr.txt"),
        benches_left_out=len(case.left_out),
        timings=timings,
        attachments=attachments,
        notes=(*notes, *filter(None, [execution.left_over])),
    )


def _moment(seconds: float) -> str:
    """Return a moment as the journal records it; empty where it is unknown."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds") if seconds else ""


def _case_result(case: Case, judged: CaseResult, **more: Any) -> CaseResult:
    """Return a result with the report's data about the case and its execution."""
    if judged.outcome is Outcome.PASS:
        return dataclasses.replace(judged, digest=digest_of(case), **{**more, "code": ()})
    # the options in force, as a spec would write them, and the seed, which follows from the id where the spec gives none
    options = [
        f"{section}.{name}: {MASK if section == 'env' and is_secret_name(name) else flow(option.value)}"
        for section, named in case.options.items()
        for name, option in named.items()
    ]
    if "seed" not in case.body.settings.torch:
        options.append(f"torch.seed: {seed_of(case)}")
    return dataclasses.replace(judged, digest=digest_of(case), **{"summary": case.summary, "options": tuple(options), **more})


def result_of_unavailable(case: Case, verdict: Verdict, required: Sequence[str], repro: str) -> CaseResult:
    """Return the result of a case that cannot run here: an ERROR if ``--require`` names the missing capability or backend."""
    reason = verdict.reason
    if case.backend in required or verdict.capability in required:
        name = case.backend if case.backend in required else verdict.capability
        judged = result_of(case, Outcome.ERROR, f"--require {name}: {reason}", UNAVAILABLE)
    else:
        judged = result_of(case, Outcome.UNAVAILABLE, reason, UNAVAILABLE)
    return _case_result(case, judged, repro=repro)


def result_of_unrun(case: Case, reason: str, repro: str) -> CaseResult:
    """Return the result of a case that the run did not start."""
    return _case_result(case, result_of(case, Outcome.NOT_RUN, reason, "not-run"), repro=repro)


def repro(options: RunOptions, case: Case, required: Sequence[str] = ()) -> str:
    """Return the command that runs a case alone; ``required`` are the names of ``--require`` that caused the case's result."""
    parts = ["torch-conformance", "run", *map(str, options.paths)]
    for file in options.backends:
        parts += ["--backends", str(file)]
    for file in options.waivers:
        parts += ["--waivers", str(file)]
    if options.bench and not case.left_out and any(map(is_optional, case.steps)):
        parts.append("--bench")
    for name in required:
        parts += ["--require", name]
    return shlex.join(map(redacted, [*parts, "--select", case.id]))


def _keep(files: CaseFiles, path: Path, facts: object) -> str:
    """Write facts to the folder of the case, and add their digest to ``files``; return why that failed, empty if it did not."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if facts is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            data = json.dumps(facts, ensure_ascii=True).encode("ascii")
            path.write_bytes(data)
            files.note(path.name, data)
    except OSError as error:
        if error.errno in OUT_OF_SPACE:
            # no space left on the device is no fault of the worker: the run cannot be recorded
            raise OSError(error.errno, error.strerror, str(path)) from error
        return f"the worker left no room for its {path.stem}: {error.strerror}"
    return ""


def _printed(path: Path) -> str:
    """Return the end of a worker's output, with the size of the omitted beginning."""
    text = tail(path, _OUTPUT_BYTES)
    with contextlib.suppress(OSError), open_untrusted(path) as stream:
        left_out = stream.seek(0, 2) - _OUTPUT_BYTES
        return f"... {left_out} bytes before this are left out; {path.name} has them ...\n{text}" if left_out > 0 else text
    return text


def phases_of(facts: Facts) -> dict[str, float]:
    """Return the seconds of each phase, without impossible values."""
    return {name: round(seconds, 4) for name, seconds in facts.phases.items() if 0 <= seconds < 1e9}


def benches_of(folder: Path, facts: Facts) -> tuple[tuple[Timing, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the timings, attachments and notes of the bench steps; a file that cannot be attached to a report is in the notes."""
    benches = [step.bench for step in facts.steps if step.bench is not None]
    notes = [note for bench in benches for note in bench.notes]
    attachments: list[str] = []
    for name in dict.fromkeys(name for bench in benches for name in bench.attachments):
        try:
            with open_untrusted(folder / name) as stream:
                if stream.seek(0, 2) <= MAX_ATTACHMENT:
                    attachments.append(name)
                else:
                    notes.append(f"{name} was left out: it is larger than {MAX_ATTACHMENT >> 20} MiB")
        except OSError as error:
            notes.append(f"{name} was left out: {error.strerror or error}")
    return tuple(timing for bench in benches for timing in bench.timings), tuple(attachments), tuple(notes)
