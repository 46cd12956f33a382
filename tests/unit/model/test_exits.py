"""Which exit code outcomes come to: 0 needs something that was executed, and nothing that
failed.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.recorded import footer_of, recorded, run_of
from torch_conformance.model.outcomes import ExitCode, Outcome, exit_code
from torch_conformance.record.conclusion import conclusion_of
from torch_conformance.report.terminal import why_no_success

HARMLESS = [Outcome.XFAIL, Outcome.UNAVAILABLE, Outcome.OFFLINE_PASS]


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome.is_failure])
def test_one_failure_fails_the_run(outcome: Outcome) -> None:
    assert exit_code([Outcome.PASS, outcome, *HARMLESS], 1) is ExitCode.FAILED


def test_a_pass_among_what_does_no_harm_is_a_success() -> None:
    assert exit_code([Outcome.PASS, *HARMLESS], 1) is ExitCode.OK


@pytest.mark.parametrize(
    "outcomes", [[], [Outcome.UNAVAILABLE], [Outcome.UNAVAILABLE, Outcome.OFFLINE_PASS]]
)
@pytest.mark.parametrize("least", [0, 1])
def test_where_nothing_was_executed_there_is_no_success(
    outcomes: Sequence[Outcome], least: int
) -> None:
    assert exit_code(outcomes, least) is ExitCode.NOTHING


def test_an_expected_failure_was_executed() -> None:
    assert exit_code([Outcome.XFAIL], 1) is ExitCode.OK
    assert exit_code(HARMLESS, 0) is ExitCode.OK


def test_what_is_flaky_was_executed_where_the_user_lets_it_pass() -> None:
    assert exit_code([Outcome.PASS, Outcome.FLAKY], 2, lets_flaky_pass=True) is ExitCode.OK
    assert (
        exit_code([Outcome.PASS, Outcome.FLAKY, Outcome.FAIL], 1, lets_flaky_pass=True)
        is ExitCode.FAILED
    )
    assert exit_code([Outcome.FLAKY], 1, lets_flaky_pass=True) is ExitCode.OK
    assert exit_code([Outcome.FLAKY], 1) is ExitCode.FAILED


def test_fewer_than_were_asked_for_is_no_success() -> None:
    outcomes = [Outcome.PASS, Outcome.XFAIL, Outcome.UNAVAILABLE]
    assert [exit_code(outcomes, least) for least in (2, 3)] == [ExitCode.OK, ExitCode.NOTHING]


@pytest.mark.parametrize(
    ("outcome", "options", "code"),
    [
        (Outcome.OFFLINE_PASS, {}, ExitCode.NOTHING),
        (Outcome.OFFLINE_PASS, {"count-offline": "True"}, ExitCode.OK),
        (Outcome.OFFLINE_PASS, {"count-offline": "True", "min-executed": "2"}, ExitCode.NOTHING),
        (Outcome.UNAVAILABLE, {"count-offline": "True"}, ExitCode.NOTHING),
    ],
)
def test_what_passed_offline_may_count_and_is_named(
    outcome: Outcome, options: dict[str, str], code: ExitCode
) -> None:
    run = run_of(recorded("one", outcome, target="cuda:sm_90"), options=options)
    assert conclusion_of(run.header, run.results)[0] is code
    footer = replace(run.footer or footer_of(run.results), exit_code=int(code))
    why = "".join(why_no_success(replace(run, footer=footer)))
    named = "1 passed offline, which --count-offline counts" in why
    assert named == (code is ExitCode.NOTHING and outcome is Outcome.OFFLINE_PASS)
