"""What several attempts of a case come to, also of a run that was stopped; the corpus has the same
for whole runs with their verdicts.
"""

from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import place
from tests.recorded import recorded
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.outcomes import RETRIED, Outcome
from torch_conformance.model.results import CaseResult, Policy

COUNTER = Verdict(
    kind="counter", status=Status.FAILED, position=place(7), expected="1", observed="0"
)
HELD = Verdict(kind="close", status=Status.HELD, position=place(7))
PASS, FAIL, FELL_BACK, ERROR = Outcome.PASS, Outcome.FAIL, Outcome.FELL_BACK, Outcome.ERROR
CRASH, TIMEOUT, FLAKY, NOT_RUN = Outcome.CRASH, Outcome.TIMEOUT, Outcome.FLAKY, Outcome.NOT_RUN
XFAIL, XPASS = Outcome.XFAIL, Outcome.XPASS
RETRIES, REPEAT = Policy(retries=2), Policy(repeat=3)


def attempt(outcome: Outcome, number: int = 1, **changes: Any) -> CaseResult:
    verdicts = (HELD,) if outcome is PASS else (HELD, COUNTER)
    reason = f"because of {outcome.label}"
    made = recorded(
        "one",
        outcome,
        reason=reason,
        folder=f"cases/{number:05d}",
        verdicts=verdicts,
        stdout="said",
        stderr="cried",
    )
    return replace(made, failure_type="" if outcome is PASS else outcome.label.lower(), **changes)


def attempts(*outcomes: Outcome) -> list[CaseResult]:
    return [attempt(outcome, number) for number, outcome in enumerate(outcomes, start=1)]


@pytest.mark.parametrize("outcome", Outcome)
def test_what_failed_is_run_again_and_nothing_else(outcome):
    assert RETRIES.is_done(attempts(outcome)) is (
        outcome not in (FAIL, FELL_BACK, ERROR, CRASH, TIMEOUT)
    )


@pytest.mark.parametrize(
    ("outcomes", "done"),
    [
        ([FAIL, CRASH], False),
        ([FAIL, CRASH, FAIL], True),
        ([FAIL, PASS], True),
        ([FAIL, XPASS], True),
        ([FAIL, XFAIL], True),
    ],
)
def test_retries_end_with_the_first_pass_or_when_they_are_used_up(outcomes, done):
    assert RETRIES.is_done(attempts(*outcomes)) is done
    assert (RETRIES.remaining(attempts(*outcomes)), RETRIES.remaining([])) == (0, 1)


FOLDED = [
    (RETRIES, "", [PASS], PASS),
    (RETRIES, "", [XFAIL], XFAIL),
    *(
        (RETRIES, "", [*failures, PASS], FLAKY)
        for failure in RETRIED
        for failures in ([failure], [failure] * 2)
    ),
    *((RETRIES, "", [failure, XPASS], FLAKY) for failure in RETRIED),
    *(
        (RETRIES, "", [failure, *others], failure)
        for failure in RETRIED
        for others in ([failure] * 2, [XFAIL], [CRASH, FAIL])
    ),
    *((REPEAT, "", [outcome] * 3, outcome) for outcome in (PASS, *RETRIED, XFAIL, XPASS)),
    *(
        (REPEAT, "", outcomes, FLAKY)
        for outcomes in (
            [PASS, PASS, FAIL],
            [FAIL, CRASH, FAIL],
            [XFAIL, XPASS, XFAIL],
            [XFAIL, FAIL, XFAIL],
        )
    ),
    # a stopped run: a failure or a difference stands; a case without all its repetitions is NOT_RUN
    *((RETRIES, "stopped", outcomes, FAIL) for outcomes in ([FAIL], [FAIL, CRASH])),
    *((REPEAT, "stopped", [outcome], outcome) for outcome in (FAIL, XPASS)),
    *((REPEAT, "stopped", outcomes, FLAKY) for outcomes in ([FAIL, PASS], [XFAIL, XPASS])),
    *(
        (REPEAT, "stopped", [outcome] * count, NOT_RUN)
        for outcome in (PASS, XFAIL)
        for count in (1, 2)
    ),
]


@pytest.mark.parametrize(("policy", "why", "outcomes", "expected"), FOLDED)
def test_several_attempts_come_to_one_outcome(policy, why, outcomes, expected):
    folded = policy.fold(attempts(*outcomes), why)
    assert folded.outcome is expected
    assert why in folded.reason
    assert bool(folded.reason.strip()) is (expected is not PASS)
    assert [one.outcome for one in folded.attempts] == (
        outcomes if len(outcomes) > 1 or expected is NOT_RUN else []
    )
    assert expected is not NOT_RUN or (folded.failure_type, folded.verdicts) == ("not-run", ())


@pytest.mark.parametrize(
    ("policy", "outcomes"),
    [(RETRIES, [FAIL]), (RETRIES, [FAIL, FAIL]), (REPEAT, [PASS, PASS]), (REPEAT, [PASS, CRASH])],
)
def test_an_interrupted_case_has_attempts_left_and_says_what_was_seen(policy, outcomes):
    folded = policy.interrupted(attempts(*outcomes))
    assert (folded.outcome, folded.failure_type, folded.verdicts) == (NOT_RUN, "not-run", ())
    assert [one.outcome for one in folded.attempts] == outcomes
    assert [
        outcome.label
        for outcome in outcomes
        if outcome is not PASS and outcome.label not in folded.reason
    ] == []


@pytest.mark.parametrize("policy", [RETRIES, REPEAT])
@pytest.mark.parametrize(
    ("outcome", "changes", "differs"),
    [
        (FAIL, {}, False),
        (FAIL, {"seconds": 9.0, "stdout": "other"}, False),
        (FAIL, {"reason": "the greatest difference is another number"}, False),
        (FAIL, {"verdicts": (replace(COUNTER, observed="another number"),)}, False),
        (FAIL, {"verdicts": (replace(COUNTER, position=place(9)),)}, True),
        (FAIL, {"verdicts": (replace(COUNTER, kind="close"),)}, True),
        (FAIL, {"verdicts": (COUNTER, replace(COUNTER, kind="close"))}, True),
        (CRASH, {"reason": "killed by SIGABRT"}, True),
        (TIMEOUT, {"reason": "outlived its deadline in another phase"}, True),
        (ERROR, {"reason": "another error"}, True),
    ],
)
def test_failures_that_look_otherwise_are_named(policy, outcome, changes, differs):
    made = [attempt(outcome), attempt(outcome, 2), attempt(outcome, 3, **changes)]
    folded = policy.fold(made)
    assert folded.outcome is outcome
    assert (
        f"another failure in attempt 3: {outcome.label}: {made[2].reason}" in folded.reason
    ) is differs


def test_an_attempt_keeps_what_speaks_against_it_and_what_it_printed():
    failed, passed = RETRIES.fold(
        [attempt(FAIL, stdout="x" * 100_000 + "end"), attempt(PASS, 2)]
    ).attempts
    assert (failed.reason, failed.folder, failed.verdicts) == (
        "because of FAIL",
        "cases/00001",
        (COUNTER,),
    )
    assert (failed.stdout[-3:], len(failed.stdout)) == ("end", 16_000)
    assert (passed.folder, passed.verdicts, passed.stdout, passed.stderr) == (
        "cases/00002",
        (),
        "",
        "",
    )


@pytest.mark.parametrize(
    ("policy", "retries", "most"),
    [
        (Policy(), 2, 3),
        (RETRIES, 0, 1),  # the spec's own number counts
        (RETRIES, None, 3),
        (REPEAT, 5, 3),
        (Policy.of(retries=0, repeat=1, max_failures=1), 1, 2),
        (Policy.of(retries=0, repeat=1, max_failures=0, has_profile=True), 2, 1),
    ],
)
def test_retries_of_a_spec(policy, retries, most):
    failures = [attempt(FAIL, number, retries=retries) for number in range(most)]
    assert [policy.is_done(failures[: n + 1]) for n in range(most)] == [False] * (most - 1) + [True]
    assert policy.bound(failures[0]).rpartition(" ")[2] == str(most)


@pytest.mark.parametrize(
    "options",
    [
        {"retries": 1, "repeat": 2, "max_failures": 0},
        {"retries": 3, "repeat": 1, "max_failures": 1},
    ],
)
def test_what_contradicts_itself_is_refused(options):
    with pytest.raises(UsageError, match=f"--retries {options['retries']} with --"):
        Policy.of(**options)
