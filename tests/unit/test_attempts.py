"""What several attempts of a case come to: every rule of the table, and no failure that another attempt hides."""

from dataclasses import replace
from typing import Any

import pytest

from runner.core.attempts import Policy
from runner.core.case import CaseId
from runner.core.diagnostics import Position, UsageError
from runner.core.expectation import Status
from runner.core.outcomes import RETRIED, Outcome
from runner.core.results import CaseResult, Verdict

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


def test_without_a_word_every_case_is_run_once():
    policy = Policy.of(retries=0, repeat=1, fail_fast=True)
    assert (policy.bound, policy.remaining([])) == ("1", 1)
    assert all(policy.is_done(attempts(outcome)) for outcome in Outcome)


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


@pytest.mark.parametrize("outcome", [PASS, FAIL, XFAIL, XPASS, CRASH])
def test_what_is_repeated_is_run_so_often_whatever_comes(outcome):
    assert [REPEAT.is_done(attempts(*[outcome] * count)) for count in (1, 2, 3, 4)] == [False, False, True, True]
    assert [REPEAT.remaining(attempts(*[outcome] * count)) for count in (0, 1, 3, 4)] == [3, 2, 0, 0]
    assert REPEAT.bound == "3"


def test_what_cannot_run_here_is_not_repeated():
    assert REPEAT.is_done(attempts(UNAVAILABLE))


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


def test_what_does_not_contradict_itself_is_taken():
    assert Policy.of(retries=0, repeat=5, fail_fast=True) == Policy(repeat=5)
    assert Policy.of(retries=5, repeat=1, fail_fast=False) == Policy(retries=5)


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


def test_one_attempt_is_its_own_result():
    for result in (attempt(PASS), attempt(FAIL)):
        assert RETRIES.fold([result]) is result
        assert REPEAT.fold([result]) is result


def test_a_flaky_case_shows_its_first_failure():
    folded = RETRIES.fold(attempts(FAIL, CRASH, PASS))
    assert folded.reason == (
        "failed 2 of 3 attempts: because of FAIL; another failure in attempt 2: CRASH: because of CRASH; passed when retried alone"
    )
    assert (folded.failure_type, folded.folder, folded.position, folded.verdicts) == ("flaky", "cases/00001", AT, (HELD, COUNTER))
    assert folded.seconds == 4.5


def test_a_case_that_always_fails_says_how_often():
    assert RETRIES.fold(attempts(FAIL, FAIL, FAIL)).reason == "failed 3 of 3 attempts: because of FAIL"
    assert RETRIES.fold(attempts(FAIL, FAIL, FAIL)).failure_type == "fail"


def test_a_waiver_of_a_later_failure_is_said_and_excuses_nothing():
    folded = RETRIES.fold(attempts(CRASH, XFAIL))
    assert folded.reason == "failed 1 of 2 attempts: because of CRASH; another failure in attempt 2: XFAIL: because of XFAIL"


def test_repeated_attempts_are_counted_by_outcome():
    folded = Policy(repeat=5).fold(attempts(PASS, CRASH, PASS, FAIL, PASS))
    assert folded.reason == (
        "5 attempts had the outcomes 3 PASS, 1 FAIL, 1 CRASH: because of CRASH; another failure in attempt 4: FAIL: because of FAIL"
    )
    assert folded.folder == "cases/00002"


def test_of_a_waived_case_that_passes_now_and_then_the_pass_is_shown():
    folded = REPEAT.fold(attempts(XFAIL, XPASS, XFAIL))
    assert folded.reason.startswith("3 attempts had the outcomes 2 XFAIL, 1 XPASS: because of XPASS")
    assert folded.folder == "cases/00002"


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


def test_a_waived_failure_that_looks_otherwise_is_named():
    folded = REPEAT.fold([attempt(XFAIL), attempt(XFAIL, 2), attempt(XFAIL, 3, verdicts=(OTHER_KIND,))])
    assert folded.outcome is XFAIL
    assert folded.reason == "because of XFAIL; another failure in attempt 3: XFAIL: because of XFAIL"


def test_a_reason_stays_a_line_that_can_be_read():
    made = [attempt(CRASH, number, reason=f"{number} " + "x" * 2000) for number in range(1, 100)]
    folded = Policy(repeat=99).fold(made)
    assert folded.reason.endswith("; and other failures in 96 more")
    assert len(folded.reason) < 1100


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
