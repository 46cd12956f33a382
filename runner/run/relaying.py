"""``submit --format crcr``: the callbacks of PyTorch's CI relay for a recorded run, with what the relay and the CI say of the job."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.core.diagnostics import UsageError, shown_path
from runner.core.header import RunHeader
from runner.core.options import SubmitOptions
from runner.record.submission.crcr import MOST_BYTES, Dispatch, Oversized, Workflow, callbacks, nightly
from runner.record.submission.packing import Altered, recorded
from runner.system.safe_open import open_untrusted

UNKNOWN_COMMIT = ("", "Unknown", "None")
"""What a build of torch says that does not know its commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """The bodies of the callbacks of a run, by status."""

    header: RunHeader
    bodies: Mapping[str, bytes]


def relayed(options: SubmitOptions, environ: Mapping[str, str]) -> Callbacks:
    """Return the callbacks; raise ``UsageError`` for a run or a dispatch that does not fit, ``Altered`` for a run that was changed."""
    _, run = recorded(options.run)
    assert run.footer is not None  # ``recorded`` refuses a run without one
    dispatch = _dispatch(options.dispatch) if options.dispatch else _self_report(run.header)
    workflow = workflow_of(environ, run.header)
    try:
        bodies = callbacks(run.header, run.results, run.footer, dispatch=dispatch, workflow=workflow, artifact_url=options.artifact_url)
    except Oversized as error:
        raise UsageError(f"{options.run}: {error} (correct --dispatch: it is sent back whole)") from error
    return Callbacks(header=run.header, bodies=bodies)


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


__all__ = ["Altered", "Callbacks", "relayed", "workflow_of"]
