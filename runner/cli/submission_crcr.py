"""``submit --format crcr``: write the callbacks of PyTorch's cross-repository CI relay as files. Nothing is sent."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.core.diagnostics import UsageError, shown_path
from runner.core.exit_codes import ExitCode
from runner.core.header import RunHeader
from runner.core.options import SubmitOptions
from runner.record.submission.crcr import MOST_BYTES, Dispatch, Oversized, Workflow, callbacks, nightly
from runner.record.submission.packing import Altered, recorded
from runner.report.files import replace
from runner.system import output
from runner.system.safe_open import open_untrusted

UNKNOWN_COMMIT = ("", "Unknown", "None")


def main(options: SubmitOptions) -> ExitCode:
    """Write ``in_progress.json`` and ``completed.json``; exit 1 where the files of the run were changed."""
    if options.key is not None:
        raise UsageError("--format crcr takes no --key: a callback is authenticated by the CI that sends it (remove --key)")
    try:
        _, run = recorded(options.run)
    except Altered as error:
        output.note(f"torch-conformance: {error}; nothing was written")
        return ExitCode.FAILED
    assert run.footer is not None  # ``recorded`` refuses a run without one
    dispatch = _dispatch(options.dispatch) if options.dispatch else _self_report(run.header)
    try:
        bodies = callbacks(
            run.header,
            run.results,
            run.footer,
            dispatch=dispatch,
            workflow=workflow_of(os.environ, run.header),
            artifact_url=options.artifact_url,
        )
    except Oversized as error:
        raise UsageError(f"{options.run}: {error} (correct --dispatch: it is sent back whole)") from error
    folder = options.out or Path(f"crcr-{run.header.run_id}")
    paths = {folder / f"{status}.json": body for status, body in bodies.items()}
    for path in paths:
        if path.exists() and (not options.replace or not path.is_file()):
            raise UsageError(f"--out {shown_path(folder)}: {path.name} exists there already (add --replace, or name another folder)")
    for path, body in paths.items():
        replace(path, body)
    _show(options, run.header, paths)
    return ExitCode.OK


def workflow_of(environ: Mapping[str, str], header: RunHeader) -> Workflow:
    """Return the job as GitHub Actions describes it in variables; elsewhere the run stands for it."""
    run_id, attempt = environ.get("GITHUB_RUN_ID", ""), environ.get("GITHUB_RUN_ATTEMPT", "1")
    place = "/".join(filter(None, [environ.get("GITHUB_SERVER_URL", ""), environ.get("GITHUB_REPOSITORY", "")]))
    profile = header.profile[0].name if header.profile else "run"
    return Workflow(
        name=environ.get("GITHUB_WORKFLOW", "torch-conformance"),
        url=f"{place}/actions/runs/{run_id}" if place and run_id else "",
        job_name=environ.get("GITHUB_JOB", profile),
        run_id=run_id or header.run_id,
        run_attempt=attempt,
        check_run_id=f"{run_id or header.run_id}-{attempt}",
    )


def _self_report(header: RunHeader) -> Dispatch:
    commit = header.environment.get("torch_git", "")
    if commit in UNKNOWN_COMMIT:
        raise UsageError("the run does not say which commit of torch it ran (name what the relay sent: --dispatch FILE)")
    return nightly(commit)


def _dispatch(path: Path) -> Dispatch:
    """Return what the relay sent, read from a file: ``github.event.client_payload``, or the event that has it."""
    try:
        with open_untrusted(path) as stream:
            found: Any = json.loads(stream.read(MOST_BYTES + 1))
    except (OSError, ValueError) as error:
        raise UsageError(f"--dispatch {shown_path(path)}: {error}") from error
    if isinstance(found, dict) and isinstance(found.get("client_payload"), dict):
        found = found["client_payload"]
    wanted = {"event_type": str, "delivery_id": str, "payload": dict}
    if not isinstance(found, dict) or any(not isinstance(found.get(key), kind) or not found[key] for key, kind in wanted.items()):
        hint = "write github.event.client_payload, or name $GITHUB_EVENT_PATH"
        raise UsageError(f"--dispatch {shown_path(path)}: this is no dispatch of the relay: it needs {', '.join(wanted)} ({hint})")
    return Dispatch(event_type=found["event_type"], delivery_id=found["delivery_id"], payload=found["payload"])


def _show(options: SubmitOptions, header: RunHeader, paths: Mapping[Path, bytes]) -> None:
    if options.json:
        files = [{"file": str(path), "bytes": len(body)} for path, body in paths.items()]
        output.document({"format": 1, "run": header.run_id, "files": files})
        return
    for path in paths:
        output.raw(f"{shown_path(path)}\n")
