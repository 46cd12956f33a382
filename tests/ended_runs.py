"""Runs that ended in each way, for the tests of what a run as a whole says."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tests.results import footer_of
from tests.unit.report.test_junit import HEADER, result
from torch_conformance.model.header import ProfileLevel, ProfileRecord
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.report.github import RunReport

TEXTS = [
    field.name
    for field in fields(CaseResult)
    if field.type is str and field.name not in ("target", "level")
]
"""The fields of a case that hold any text."""


def run(*results: CaseResult, header: Any = HEADER, **changes: Any) -> RunReport:
    """Return a run that ended, with these results."""
    header = replace(header, selected=len(results))
    footer = footer_of(results, lets_flaky_pass=header.lets_flaky_pass, **changes)
    return RunReport(header=header, results=results, footer=footer, folder=Path("/somewhere/run"))


PASSES = result(0, Outcome.PASS)


def profile_of(report: RunReport, *lost: str) -> RunReport:
    """Return the run of a profile that requires its results, and cases that it has no result of."""
    level = ProfileLevel(
        name="P0", required=(*(result.case_id for result in report.results), *lost)
    )
    record = ProfileRecord(
        name="inductor-cpu",
        version="1.1",
        file="p.yaml",
        digest="d" * 64,
        torch=">=2.11",
        levels=(level,),
    )
    header = replace(report.header, profile=(record,))
    assert report.footer is not None
    return replace(
        report,
        header=header,
        footer=replace(report.footer, exit_code=int(header.conclusion(report.results)[0])),
    )


NOT_GREEN = {
    "truncated": replace(run(PASSES), footer=None),
    "truncated at its begin": replace(run(), footer=None),
    "interrupted": run(PASSES, interrupted=True),
    "nothing selected": run(),
    "nothing executed": run(
        result(0, Outcome.UNAVAILABLE),
        result(1, Outcome.OFFLINE_PASS, target="hip:gfx942", level="O3"),
    ),
    "fewer than --min-executed": run(
        PASSES, header=replace(HEADER, options={"min-executed": "7"}), least=7
    ),
    "a name of --require": replace(
        run(PASSES, header=replace(HEADER, options={"require": "cuda"})),
        footer=replace(footer_of([PASSES]), exit_code=int(ExitCode.NOTHING)),
    ),
    "an exit code without a reason": replace(
        run(PASSES), footer=replace(footer_of([PASSES]), exit_code=int(ExitCode.FAILED))
    ),
    "INCOMPLETE": profile_of(run(PASSES), "lost"),
    "NOT CONFORMANT": profile_of(run(PASSES, result(1, Outcome.FAIL))),
    **{outcome.label: run(PASSES, result(1, outcome)) for outcome in Outcome if outcome.is_failure},
}
"""A run for each reason why it is no success."""
