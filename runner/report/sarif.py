"""SARIF 2.1.0: one result for each case that fails the run, at its line of the spec. GitHub code scanning and editors read it."""

import hashlib
from urllib.parse import quote

from runner.core.results import CaseResult
from runner.report import one_line, plain, verdict_text, visible_name
from runner.report.run_report import NAME, Problem, RunReport, failure_type, file_of, reason_of

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

MOST_RESULTS = 25_000
"""GitHub refuses a file with more results. What is left out is counted in a notification."""

_RULES = {
    "close": "An answer is not close to its reference",
    "counter": "A counter of torch has another value",
    "filecheck": "The generated code does not match the FileCheck directives",
    "raised": "torch raised an exception",
    "fell-back": "The answer is right, and the claimed backend did not run",
    "crash": "The process of a case died",
    "timeout": "A case outlived its deadline",
    "error": "Inputs, reference or judging failed",
    "flaky": "A case has different outcomes",
    "xpass": "A waived case passed: remove the waiver",
    "not-run": "A case was not run",
    "unavailable": "What --require names is not available",
    "truncated": "The run did not reach its end",
    "interrupted": "The run was interrupted",
    "nothing-executed": "No case was executed",
    "too-few-executed": "Too few cases were executed",
    "incomplete": "The profile is INCOMPLETE",
    "not-conformant": "The profile is NOT CONFORMANT",
}
"""Descriptions of rules; any other kind of expectation is described by its word."""


def document(report: RunReport, limit: int) -> dict[str, object]:
    """Return the log; ``limit`` is how many bytes of text each result has."""
    red = report.red
    problems = report.problems
    kept = red[: MOST_RESULTS - len(problems)]
    found = [_of_run(report, problem) for problem in problems] + [_of_case(result, limit) for result in kept]
    rules = list(dict.fromkeys(str(result["ruleId"]) for result in found))
    for result in found:
        result["ruleIndex"] = rules.index(str(result["ruleId"]))
    driver = {
        "name": NAME,
        "version": one_line(report.header.version) or "0",
        "informationUri": "https://github.com/torch-conformance/torch-conformance",
        "rules": [
            {"id": rule, "shortDescription": {"text": _RULES.get(rule, f"An expectation of the kind {rule} does not hold")}}
            for rule in rules
        ],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"{NAME}/{one_line(report.header.run_id)}"},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report, len(red) - len(kept))],
        "results": found,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _invocation(report: RunReport, left_out: int) -> dict[str, object]:
    """Return how the program ran: successful is a run that ended and judged what it selected, whatever failed."""
    notes = [{"level": "error", "message": {"text": problem.text}} for problem in report.problems]
    if left_out:
        notes.append({"level": "warning", "message": {"text": f"{left_out} more cases failed, and are left out of this file"}})
    ended = {"exitCode": report.footer.exit_code} if report.footer is not None else {}
    return {"executionSuccessful": not report.problems, **ended, "toolExecutionNotifications": notes}


def _of_run(report: RunReport, problem: Problem) -> dict[str, object]:
    return _result(problem.kind, problem.text, _location(report.first_file(), 1, 1), problem.kind)


def _of_case(result: CaseResult, limit: int) -> dict[str, object]:
    head = f"{visible_name(result.case_id)}: {reason_of(result)}"
    text = f"{head}\n\n{plain(verdict_text(result, limit=limit // 4))}" if limit >= 1_000 else head
    at = result.position
    found = _result(failure_type(result), text, _location(file_of(result), at.line, at.column), result.case_id)
    return {
        **found,
        "properties": {"case": visible_name(result.case_id), "outcome": result.outcome.label, "backend": visible_name(result.backend)},
    }


def _result(kind: str, text: str, location: dict[str, object], about: str) -> dict[str, object]:
    digest = hashlib.sha256(f"{kind}\n{about}".encode("utf-8", "surrogatepass")).hexdigest()
    return {
        "ruleId": kind,
        "level": "error",
        "message": {"text": text},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"case/v1": digest},
    }


def _location(file: str, line: int, column: int) -> dict[str, object]:
    """Return a place; a path that is not relative to the repository becomes a URI with a scheme."""
    uri = f"file://{quote(file)}" if file.startswith("/") else quote(file.removeprefix("./"))
    return {"artifactLocation": {"uri": uri}, "region": {"startLine": max(line, 1), "startColumn": max(column, 1)}}
