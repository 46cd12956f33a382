"""The two callbacks of PyTorch's cross-repository CI relay, from a recorded run. Pure: nothing is sent.

Sources: RFC-0050 and RFC-0054 of pytorch/rfcs (the body of a callback, the table of stored fields, its limits), and the callback action of
pytorch/test-infra, ``.github/actions/cross-repo-ci-relay-callback`` (the keys of ``workflow``; a nightly run has no dispatch and sends
``completed`` alone).

The format has counts for passed, failed and skipped, and the conclusions success and failure: nothing for a case that was not executed. So
``conclusion`` is success only where the run's own statement is good, and ``environment``, which is stored as free JSON, has the rest.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.core.conformance import Conformance, Statement
from runner.core.exit_codes import ExitCode
from runner.core.header import RunFooter, RunHeader
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult, executed

SCHEMA_VERSION = "1"

MOST_BYTES = 2_000_000
"""RFC-0054: the HUD refuses a body above 2 MB."""

MOST_ENTRIES = 1_000
MOST_MESSAGE = 1_024
"""RFC-0054: entries of failed tests, and the length of each message."""

IN_PROGRESS, COMPLETED = "in_progress", "completed"


class Oversized(Exception):
    """The callback is above the limit with no failed test in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """The job of the downstream CI that ran the cases, as its CI names it."""

    name: str
    url: str
    job_name: str
    run_id: str
    run_attempt: str
    check_run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """What the relay sent to the downstream CI; it goes back as it came."""

    event_type: str
    delivery_id: str
    payload: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_self_report(self) -> bool:
        """Whether no relay sent it: the downstream CI began by itself, each night for example."""
        return self.event_type in ("nightly", "periodic")


def nightly(commit: str) -> Dispatch:
    """Return what a nightly run of the downstream CI says in place of a dispatch: the commit of torch that it ran."""
    return Dispatch(event_type="nightly", delivery_id=commit, payload={"repository": {"full_name": "pytorch/pytorch"}, "head_sha": commit})


def callbacks(
    header: RunHeader, results: Sequence[CaseResult], footer: RunFooter, *, dispatch: Dispatch, workflow: Workflow, artifact_url: str = ""
) -> dict[str, bytes]:
    """Return the bodies of the callbacks, by status; raise ``Oversized``."""
    found: dict[str, bytes] = {}
    if not dispatch.is_self_report:
        found[IN_PROGRESS] = _encoded(_body(dispatch, _workflow(workflow, IN_PROGRESS, started_at=header.started)))
    statement = header.statement(results)
    said = {
        **_workflow(workflow, COMPLETED, conclusion=conclusion(footer, statement), completed_at=footer.ended),
        "test_results": counts_of(results, statement, flaky_passes=header.lets_flaky_pass),
        "environment": _text(_environment(header, results, statement)),
        **({"artifact_url": artifact_url} if artifact_url else {}),
    }
    entries = [*_failed(results, flaky_passes=header.lets_flaky_pass), *_not_executed(statement)]
    found[COMPLETED] = _fitted(dispatch, said, entries)
    return found


def conclusion(footer: RunFooter, statement: Statement | None) -> str:
    """Return success for a run that ended well, whole, and with a conformant profile; otherwise failure, also where nothing failed."""
    good = footer.exit_code == ExitCode.OK and not footer.interrupted
    return "success" if good and (statement is None or statement.conformance is Conformance.CONFORMANT) else "failure"


def counts_of(results: Sequence[CaseResult], statement: Statement | None, *, flaky_passes: bool) -> dict[str, int]:
    """Return the counts of the format, whose sum is the number of results, and what it has no word for.

    A known failure and a case that was not executed are both skipped here: neither passed.
    """
    passed = sum(result.outcome is Outcome.PASS for result in results)
    failed = sum(_is_failed(result, flaky_passes=flaky_passes) for result in results)
    counts = {
        "passed": passed,
        "failed": failed,
        "skipped": len(results) - passed - failed,
        "total": len(results),
        "executed": executed(results),
        "unavailable": sum(result.outcome is Outcome.UNAVAILABLE for result in results),
        "known_failures": sum(result.outcome is Outcome.XFAIL for result in results),
    }
    return counts if statement is None else {**counts, "required": statement.required, "required_executed": statement.executed}


def _is_failed(result: CaseResult, *, flaky_passes: bool) -> bool:
    return result.outcome.is_failure and not (flaky_passes and result.outcome is Outcome.FLAKY)


def _workflow(workflow: Workflow, status: str, **times: str) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "status": status,
        "conclusion": None,
        "name": workflow.name,
        "url": workflow.url,
        "run_id": workflow.run_id,
        "run_attempt": workflow.run_attempt,
        "job_name": workflow.job_name,
        "check_run_id": workflow.check_run_id,
        "started_at": None,
        "completed_at": None,
        **times,
    }


def _environment(header: RunHeader, results: Sequence[CaseResult], statement: Statement | None) -> dict[str, str]:
    """Return what the HUD stores as free JSON: the machine, and what the counts of the format cannot say."""
    found = {
        **header.environment,
        "torch_conformance": header.version,
        "run": header.run_id,
        "executed": f"{executed(results)} of {len(results)} selected",
        "unavailable": str(sum(result.outcome is Outcome.UNAVAILABLE for result in results)),
    }
    if header.shard:
        found["shard"] = header.shard
    if statement is not None:
        found["profile"] = f"{statement.profile} {statement.version}, sha256 {statement.digest}"
        found["statement"] = f"{statement.conformance.value}: {statement.executed} executed of {statement.required} required"
        for level in statement.levels:
            found[f"statement_{level.level}"] = f"{level.conformance.value}: {level.executed} executed of {level.required} required"
    return {name: _cut(value) for name, value in found.items()}


def _failed(results: Sequence[CaseResult], *, flaky_passes: bool) -> Iterator[dict[str, Any]]:
    for result in results:
        if _is_failed(result, flaky_passes=flaky_passes):
            message = _cut(f"{result.outcome.label}: {result.reason}")
            yield {"name": result.case_id, "classname": result.spec, "message": message, "duration": round(result.seconds, 3)}


def _not_executed(statement: Statement | None) -> Iterator[dict[str, Any]]:
    """Yield the required cases that were not executed: the format has no other place where a reader would find them."""
    for case_id, reason in statement.not_executed.items() if statement else ():
        yield {"name": case_id, "classname": "required, not executed", "message": _cut(f"not executed, not counted as failed: {reason}")}


def _fitted(dispatch: Dispatch, workflow: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the body with as many entries as the limits allow; where some are left out, the last entry says how many."""

    def body(kept: int) -> bytes:
        listed = [*entries[:kept], *([_left_out(len(entries) - kept, len(entries))] if kept < len(entries) else [])]
        return _encoded(_body(dispatch, {**workflow, "failed_tests_json": _text(listed)} if listed else workflow))

    kept = len(entries) if len(entries) <= MOST_ENTRIES else MOST_ENTRIES - 1
    if len(found := body(kept)) <= MOST_BYTES:
        return found
    if len(body(0)) > MOST_BYTES:
        raise Oversized(f"without its failed tests the callback has {len(body(0))} bytes, and the relay takes {MOST_BYTES}")
    fits, too_many = 0, kept
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if len(body(middle)) <= MOST_BYTES else (fits, middle)
    return body(fits)


def _left_out(count: int, of: int) -> dict[str, Any]:
    message = f"{count} of {of} entries are left out: the relay takes {MOST_ENTRIES} entries and {MOST_BYTES} bytes; the counts are whole"
    return {"name": "truncated", "classname": "torch-conformance", "message": message}


def _body(dispatch: Dispatch, workflow: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "event_type": dispatch.event_type,
        "delivery_id": dispatch.delivery_id,
        "payload": dispatch.payload,
        "workflow": workflow,
    }


def _cut(text: str) -> str:
    """Return a text of at most ``MOST_MESSAGE`` bytes."""
    data = text.encode("utf-8", "replace")
    if len(data) <= MOST_MESSAGE:
        return data.decode("utf-8")
    return data[: MOST_MESSAGE - 3].decode("utf-8", "ignore") + "..."


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"
