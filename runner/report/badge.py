"""A badge in the endpoint format of shields.io. It is green only for a whole run that ended, executed something and failed nothing."""

from collections import Counter

from runner.core.conformance import Conformance
from runner.core.outcomes import Outcome
from runner.report import one_line
from runner.report.run_report import NAME, RunReport

_PROBLEMS = {
    "truncated": "incomplete: the run did not end",
    "interrupted": "incomplete: interrupted",
    "nothing-executed": "incomplete: nothing was executed",
    "too-few-executed": "incomplete: too little was executed",
    "incomplete": "INCOMPLETE",
    "not-conformant": "NOT CONFORMANT",
}


def document(report: RunReport, limit: int = 0) -> dict[str, object]:
    """Return the badge. It has no texts of cases, so ``limit`` does not matter."""
    message, color = _said(report)
    return {
        "schemaVersion": 1,
        "label": one_line(_label(report), 60),
        "message": message,
        "color": color,
        "isError": color == "red",
        "cacheSeconds": 300,
    }


def _label(report: RunReport) -> str:
    (profile,) = report.header.profile or (None,)
    return f"{NAME} {profile.name} {profile.version}" if profile is not None else NAME


def _said(report: RunReport) -> tuple[str, str]:
    """Return message and colour. Failures come first, then what is wrong with the run, then the kinds of success."""
    problems, failed = report.problems, len(report.red)
    if any(problem.kind != "not-conformant" for problem in problems):
        word = next(_PROBLEMS.get(problem.kind, "incomplete") for problem in problems if problem.kind != "not-conformant")
        return (f"{failed} failed; {word}", "red") if failed else (word, "lightgrey")
    if problems:
        return f"{_PROBLEMS['not-conformant']}: {failed} failed of {report.executed}", "red"
    if failed:
        return f"{failed} failed of {report.executed}", "red"
    return _success(report)


def _success(report: RunReport) -> tuple[str, str]:
    counts = Counter(result.outcome for result in report.results)
    words = f"{counts[Outcome.PASS]} passed"
    rest = (("expected failures", counts[Outcome.XFAIL]), ("flaky", counts[Outcome.FLAKY]), ("unavailable", counts[Outcome.UNAVAILABLE]))
    words += "".join(f", {count} {word}" for word, count in rest if count)
    if report.header.shard and report.header.shard != "1/1":
        return f"shard {one_line(report.header.shard, 20)}: {words}", "blue"  # a part of a run says nothing of the whole
    assert report.footer is not None
    if any(stated.conformance is Conformance.CONFORMANT for stated in report.footer.statement):
        words = f"CONFORMANT, {words}"
    return words, "brightgreen" if counts[Outcome.PASS] and not counts[Outcome.FLAKY] else "yellow"
