"""GitLab's code quality report: one issue for each case that fails the run, and for each problem of the run itself."""

import hashlib

from runner.core.outcomes import Outcome
from runner.report import visible_name
from runner.report.run_report import NAME, RunReport, failure_type, file_of, reason_of

_SEVERITIES = {
    Outcome.CRASH: "critical",
    Outcome.TIMEOUT: "critical",
    Outcome.ERROR: "critical",
    Outcome.XPASS: "minor",
    Outcome.FLAKY: "minor",
    Outcome.NOT_RUN: "minor",
}
"""Others are ``major``."""


def document(report: RunReport, limit: int) -> list[dict[str, object]]:
    """Return the issues; ``limit`` is the most of a description."""
    found = [_issue(problem.kind, problem.text, "blocker", report.first_file(), 1, problem.kind) for problem in report.problems]
    for result in report.red:
        kind = failure_type(result)
        text = f"{visible_name(result.case_id)}: {reason_of(result, max(min(limit, 500), 60))}"
        severity = _SEVERITIES.get(result.outcome, "major")
        found.append(_issue(kind, text, severity, file_of(result), result.position.line, result.case_id))
    return found


def _issue(kind: str, text: str, severity: str, path: str, line: int, about: str) -> dict[str, object]:
    """Return an issue. GitLab shows one issue for a fingerprint; it holds neither line nor text, so that an edit makes no new issue."""
    return {
        "description": text,
        "check_name": f"{NAME}/{kind}",
        "fingerprint": hashlib.sha256(f"{kind}\n{about}".encode("utf-8", "surrogatepass")).hexdigest(),
        "severity": severity,
        "location": {"path": path.removeprefix("./"), "lines": {"begin": max(line, 1)}},
    }
