"""What several attempts of a case come to: every rule of the table, and no failure that another attempt hides."""

from dataclasses import replace
from typing import Any

import pytest

from runner.model.case import CaseId
from runner.model.diagnostics import Position, UsageError
from runner.model.expectation import Status, Verdict
from runner.model.outcomes import RETRIED, Outcome
from runner.model.results import CaseResult, Policy

AT = Position(file="specs/a/one.yaml", line=7, column=5)
COUNTER = Verdict(kind="counter", status=Status.FAILED, position=AT, expected="1", observed="0")
HELD = Verdict(kind="close", status=Status.HELD, position=AT)

PASS, FAIL, FELL_BACK, ERROR, CRASH, TIMEOUT = (
    *(Outcome.PASS, Outcome.FAIL, Outcome.FELL_BACK, Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT),
)
XFAIL, XPASS, UNAVAILABLE, NOT_RUN, FLAKY = Outcome.XFAIL, Outcome.XPASS, Outcome.UNAVAILABLE, Outcome.NOT_RUN, Outcome.FLAKY


def attempt(outcome: Outcome, number: int = 1, **changes: Any) -> CaseResult:
    passed = outcome is PASS
    made = CaseResult(
        case_id=CaseId("a/one[backend=cpu]"),
        spec=AT.file,
        area="a",
        name="one",
        backend="cpu",
        outcome=outcome,
        reason="" if passed else f"because of {outcome.label}",
        failure_type="" if passed else outcome.label.lower(),
        verdicts=(HELD,) if passed else (HELD, COUNTER),
        position=AT,
        seconds=1.5,
        isolation="fork",
        folder=f"cases/{number:05d}",
        stdout="said",
        stderr="cried",
    )
    return replace(made, **changes)


def attempts(*outcomes: Outcome) -> list[CaseResult]:
    return [attempt(outcome, number) for number, outcome in enumerate(outcomes, start=1)]


RETRIES = Policy(retries=2)
REPEAT = Policy(repeat=3)


# -- how often ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", Outcome)
def test_what_failed_is_run_again_and_nothing_else(outcome):
    assert RETRIES.is_done(attempts(outcome)) is (outcome not in (FAIL, FELL_BACK, ERROR, CRASH, TIMEOUT))
    assert RETRIED == (FAIL, FELL_BACK, ERROR, CRASH, TIMEOUT)


@pytest.mark.parametrize(
    ("outcomes", "done"),
    [
        ([FAIL], False),
        ([FAIL, CRASH], False),
        ([FAIL, CRASH, FAIL], True),
        ([FAIL, PASS], True),
        ([FAIL, XPASS], True),
        ([FAIL, XFAIL], True),
        ([FAIL, FAIL, FAIL, FAIL], True),
    ],
)
def test_retries_end_with_the_first_pass_or_when_they_are_used_up(outcomes, done):
    assert RETRIES.is_done(attempts(*outcomes)) is done
    assert RETRIES.bound == "at most 3"
    assert RETRIES.remaining(attempts(*outcomes)) == 0
    assert RETRIES.remaining([]) == 1


# -- what they come to ----------------------------------------------------------------------------------------------

FOLDED = [
    (RETRIES, [PASS], PASS),
    (RETRIES, [XFAIL], XFAIL),
    *((RETRIES, [failure, PASS], FLAKY) for failure in RETRIED),
    *((RETRIES, [failure, XPASS], FLAKY) for failure in RETRIED),
    *((RETRIES, [failure, failure, PASS], FLAKY) for failure in RETRIED),
    *((RETRIES, [failure, failure, failure], failure) for failure in RETRIED),
    *((RETRIES, [failure, XFAIL], failure) for failure in RETRIED),
    (RETRIES, [FAIL, CRASH, PASS], FLAKY),
    (RETRIES, [FAIL, CRASH, TIMEOUT], FAIL),
    (RETRIES, [CRASH, FAIL, FAIL], CRASH),
    *((REPEAT, [outcome] * 3, outcome) for outcome in (PASS, FAIL, FELL_BACK, ERROR, CRASH, TIMEOUT, XFAIL, XPASS)),
    (REPEAT, [PASS, PASS, FAIL], FLAKY),
    (REPEAT, [FAIL, PASS, PASS], FLAKY),
    (REPEAT, [FAIL, CRASH, FAIL], FLAKY),
    (REPEAT, [XFAIL, XPASS, XFAIL], FLAKY),
    (REPEAT, [XFAIL, FAIL, XFAIL], FLAKY),
    (REPEAT, [TIMEOUT, ERROR, FELL_BACK], FLAKY),
]


@pytest.mark.parametrize(
    ("policy", "outcomes", "expected"), FOLDED, ids=[f"{p.repeat} {'-'.join(o.label for o in os)}" for p, os, _ in FOLDED]
)
def test_several_attempts_come_to_one_outcome(policy, outcomes, expected):
    folded = policy.fold(attempts(*outcomes))
    assert folded.outcome is expected
    assert bool(folded.reason.strip()) is (expected is not PASS)
    assert [one.outcome for one in folded.attempts] == (outcomes if len(outcomes) > 1 else [])


# -- attempts that failed otherwise ---------------------------------------------------------------------------------

OTHER_PLACE = replace(COUNTER, position=replace(AT, line=9))
OTHER_KIND = replace(COUNTER, kind="close")


@pytest.mark.parametrize("policy", [RETRIES, REPEAT])
@pytest.mark.parametrize(
    ("outcome", "changes", "differs"),
    [
        (FAIL, {}, False),
        (FAIL, {"seconds": 9.0, "stdout": "other"}, False),
        (FAIL, {"reason": "the greatest difference is another number"}, False),
        (FAIL, {"verdicts": (replace(COUNTER, observed="another number"),)}, False),
        (FAIL, {"verdicts": (OTHER_PLACE,)}, True),
        (FAIL, {"verdicts": (OTHER_KIND,)}, True),
        (FAIL, {"verdicts": (COUNTER, OTHER_KIND)}, True),
        (FAIL, {"failure_type": "close"}, True),
        (CRASH, {"reason": "killed by SIGABRT"}, True),
        (TIMEOUT, {"reason": "outlived its deadline in another phase"}, True),
        (ERROR, {"reason": "another error"}, True),
    ],
)
def test_failures_that_look_otherwise_are_named(policy, outcome, changes, differs):
    made = [attempt(outcome), attempt(outcome, 2), attempt(outcome, 3, **changes)]
    folded = policy.fold(made)
    assert folded.outcome is outcome
    assert (f"; another failure in attempt 3: {outcome.label}: {made[2].reason}" in folded.reason) is differs


# -- a run that was stopped -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcomes", [[FAIL], [FAIL, CRASH]])
def test_a_failure_that_was_not_run_again_stays_one(outcomes):
    folded = RETRIES.fold(attempts(*outcomes), "stopped")
    assert folded.outcome is FAIL
    assert folded.reason.endswith(f"; stopped after {len(outcomes)} of at most 3 attempts")
    assert len(folded.attempts) == (len(outcomes) if len(outcomes) > 1 else 0)


@pytest.mark.parametrize(("outcomes", "expected"), [([FAIL], FAIL), ([XPASS], XPASS), ([FAIL, PASS], FLAKY), ([XFAIL, XPASS], FLAKY)])
def test_a_difference_that_was_seen_stays_one(outcomes, expected):
    folded = REPEAT.fold(attempts(*outcomes), "stopped at the first failure")
    assert folded.outcome is expected
    assert folded.reason.endswith(f"; stopped at the first failure after {len(outcomes)} of 3 attempts")


@pytest.mark.parametrize("outcomes", [[PASS], [PASS, PASS], [XFAIL], [XFAIL, XFAIL]])
def test_what_was_not_repeated_often_enough_is_no_pass(outcomes):
    folded = REPEAT.fold(attempts(*outcomes), "stopped")
    assert (folded.outcome, folded.reason) == (NOT_RUN, f"stopped after {len(outcomes)} of 3 attempts")
    assert (folded.failure_type, folded.verdicts) == ("not-run", ())
    assert [one.outcome for one in folded.attempts] == outcomes


@pytest.mark.parametrize(
    ("policy", "outcomes", "reason"),
    [
        (RETRIES, [FAIL], "interrupted after 1 of at most 3 attempts: because of FAIL"),
        (RETRIES, [FAIL, FAIL], "interrupted after 2 of at most 3 attempts: failed 2 of 2 attempts: because of FAIL"),
        (REPEAT, [PASS, PASS], "interrupted after 2 of 3 attempts"),
        (REPEAT, [XFAIL], "interrupted after 1 of 3 attempts"),
        (REPEAT, [PASS, CRASH], "interrupted after 2 of 3 attempts: 2 attempts had the outcomes 1 PASS, 1 CRASH: because of CRASH"),
    ],
)
def test_an_interrupted_case_has_attempts_left_and_says_what_was_seen(policy, outcomes, reason):
    folded = policy.interrupted(attempts(*outcomes))
    assert (folded.outcome, folded.reason, folded.failure_type, folded.verdicts) == (NOT_RUN, reason, "not-run", ())
    assert [one.outcome for one in folded.attempts] == outcomes


# -- what is kept of an attempt -------------------------------------------------------------------------------------


def test_an_attempt_keeps_what_speaks_against_it_and_what_it_printed():
    failed, passed = RETRIES.fold([attempt(FAIL, stdout="x" * 100_000 + "end"), attempt(PASS, 2)]).attempts
    assert (failed.reason, failed.failure_type, failed.seconds) == ("because of FAIL", "fail", 1.5)
    assert (failed.isolation, failed.folder, failed.verdicts) == ("fork", "cases/00001", (COUNTER,))
    assert failed.stdout.endswith("end")
    assert len(failed.stdout) == 16_000
    assert (passed.outcome, passed.folder, passed.verdicts, passed.stdout, passed.stderr) == (PASS, "cases/00002", (), "", "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retries": 1, "repeat": 2, "fail_fast": False}, "--retries 1 with --repeat 2"),
        ({"retries": 3, "repeat": 1, "fail_fast": True}, "--retries 3 with --fail-fast"),
    ],
)
def test_what_contradicts_itself_is_refused(options, words):
    with pytest.raises(UsageError, match=words) as caught:
        Policy.of(**options)
    assert "use one of them" in str(caught.value)
