"""The Common Test Report Format (CTRF), version 1: one JSON document for tools that read no JUnit.

CTRF has five words for a test; ``rawStatus`` keeps ours. A case that was not executed is never ``passed``.
"""

from collections import Counter
from pathlib import Path

from runner.core.outcomes import JUnitTag, Outcome
from runner.core.results import Attempt, CaseResult
from runner.core.targets import evidence_of
from runner.report import attempt_text, one_line, plain, slug, verdict_text, visible_name
from runner.report.junit_elements import properties_of, seconds_of, spec_file
from runner.report.run_report import NAME, RunReport, artifact, failure_type, file_of, lines, reason_of

VERSION = "1.0.0"
"""Of the format."""

_STATUSES = ("passed", "failed", "skipped", "pending", "other")


def document(report: RunReport, limit: int) -> dict[str, object]:
    """Return the report; ``limit`` is how many bytes of text each case has."""
    tests = [_problem(kind, text) for kind, text in ((problem.kind, problem.text) for problem in report.problems)]
    tests += [_test(report, result, limit) for result in report.results]
    counts = Counter(str(test["status"]) for test in tests)
    summary = {
        "tests": len(tests),
        **{status: counts[status] for status in _STATUSES},
        "flaky": sum(bool(test.get("flaky")) for test in tests),
        "suites": len({result.spec for result in report.results}),
        "start": report.started_ms,
        "stop": report.ended_ms,
        "duration": report.ended_ms - report.started_ms,
    }
    results = {
        "tool": {"name": NAME, "version": one_line(report.header.version)},
        "summary": summary,
        "tests": tests,
        "environment": _environment(report),
    }
    run_id = one_line(report.header.run_id) or "unknown"
    return {"reportFormat": "CTRF", "specVersion": VERSION, "runId": run_id, "generatedBy": NAME, "results": results}


def _environment(report: RunReport) -> dict[str, object]:
    shard = {"shardId": one_line(report.header.shard)} if report.header.shard else {}
    return {"reportName": NAME, **shard, "healthy": report.is_success, "extra": dict(properties_of(report.header, report.results))}


def _problem(kind: str, text: str) -> dict[str, object]:
    """Return a failed test for what is wrong with the run itself."""
    return {"name": "run", "status": "failed", "duration": 0, "message": text, "rawStatus": kind, "suite": [NAME]}


def _status(report: RunReport, result: CaseResult) -> str:
    if report.is_let_pass(result) or result.outcome is Outcome.PASS:
        return "passed"
    if result.outcome is Outcome.OFFLINE_PASS:
        return "other"  # every expectation held, and nothing was executed
    return "skipped" if result.outcome.junit is JUnitTag.SKIPPED else "failed"


def _test(report: RunReport, result: CaseResult, limit: int) -> dict[str, object]:
    test: dict[str, object] = {
        "testId": visible_name(result.case_id),
        "name": visible_name(result.case_id),
        "status": _status(report, result),
        "rawStatus": result.outcome.label,
        "duration": round(1000 * seconds_of(result)),
        "suite": [*map(visible_name, filter(None, result.area.split("/"))), visible_name(result.name)],
        "filePath": file_of(result),
        "line": result.position.line,
        "labels": {"backend": visible_name(result.backend)},
    }
    if result.attempts:
        test["retries"] = len(result.attempts) - 1
        share = limit // (4 * len(result.attempts))
        test["retryAttempts"] = [_attempt(number, attempt, share) for number, attempt in enumerate(result.attempts, 1)]
    if result.outcome is Outcome.PASS:
        return test
    if report.is_let_pass(result):
        test["flaky"] = True
    return {**test, **_said(report, result, limit), "extra": _extra(result)}


def _said(report: RunReport, result: CaseResult, limit: int) -> dict[str, object]:
    """Return what a case that did not pass has to say."""
    folder = Path(spec_file(str(report.folder))) if report.folder is not None else None
    found: dict[str, object] = {"message": reason_of(result, max(min(limit, 500), 60))}
    if limit:
        found["trace"] = verdict_text(result, limit=limit // 2, folder=folder)
    for name, text in (("stdout", result.stdout), ("stderr", result.stderr)):
        if shown := lines(plain(text), limit // 8):
            found[name] = shown
    names = [*result.code, *result.attachments] if result.folder and limit else []
    if names:
        found["attachments"] = [_attachment(name, artifact(report, result, name)) for name in names]
    return found


def _attachment(name: str, path: str) -> dict[str, str]:
    return {"name": visible_name(name), "contentType": "application/json" if name.endswith(".json") else "text/plain", "path": path}


def _extra(result: CaseResult) -> dict[str, object]:
    found = {
        "failureType": failure_type(result),
        "claim": one_line(result.summary),
        "options": [one_line(option) for option in result.options],
        "repro": one_line(result.repro, 2_000),
        "target": one_line(result.target),
        "evidence": evidence_of(result.level) if result.level else "",
        "waivers": [one_line(waiver.issue) for waiver in result.waivers],
    }
    return {name: value for name, value in found.items() if value}


def _attempt(number: int, attempt: Attempt, limit: int) -> dict[str, object]:
    found: dict[str, object] = {
        "attempt": number,
        "status": "failed" if attempt.outcome.is_failure else "passed" if attempt.outcome is Outcome.PASS else "skipped",
        "duration": round(1000 * max(attempt.seconds, 0.0)),
        "extra": {"outcome": attempt.outcome.label, "type": one_line(attempt.failure_type) or slug(attempt.outcome)},
    }
    if attempt.reason:
        found["message"] = one_line(attempt.reason, max(min(limit, 500), 60))
    if attempt.outcome.is_failure and limit:
        found["trace"] = attempt_text(attempt, limit=limit)
    return found
