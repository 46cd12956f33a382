"""What a service saw of a case decides whether the case claims anything: torch goes on in silence without a cache."""

import dataclasses
from typing import Any

import pytest

from runner.judge import verdicts
from runner.model.case_facts import Ending, ServiceReport
from runner.model.outcomes import Outcome
from tests.fakes import COUNTED, ENDED, backend, case, exception, expected, observation, observed_steps, seen, step, verdict_of

USED = ServiceReport(name="redis", answered={"GET": 4, "SET": 1})
ONLY_ASKED = ServiceReport(name="redis", answered={"GET": 1})
UNUSED = ServiceReport(name="redis")
DIED = ServiceReport(name="redis", answered={"GET": 1}, problem="its server ended before the case did")

COUNTS = {"RemoteFxGraphCache": {"hit": 3, "miss": 1, "put": 1, "exception": 0}}
ONE_MISS = {"RemoteFxGraphCache": {"hit": 0, "miss": 1, "put": 0, "exception": 0}}
FOREIGN = ServiceReport(name="redis", foreign=3)
FAILS = expected("counter", {"inductor.fxgraph_cache_miss": 2})
RAISES = expected("raises", {"type": "RuntimeError"})
NEVER_SPOKEN = "service: expected traffic of the case with redis, observed the case uses redis, but torch sent it no request"

OTHERS = (
    "service: expected traffic of the case with redis, observed redis answered {} look-ups and {} writes, "
    "and torch's remote caches counted {} and {}"
)


@pytest.mark.parametrize(
    ("service", "facts", "expectation", "ending", "outcome", "reason"),
    [
        (USED, observation(seen(remote=COUNTS)), COUNTED, ENDED, Outcome.PASS, ""),
        (ONLY_ASKED, observation(seen(remote=ONE_MISS)), COUNTED, ENDED, Outcome.PASS, ""),
        (USED, observation(seen()), COUNTED, ENDED, Outcome.ERROR, OTHERS.format(4, 1, 0, 0)),
        (USED, observation(seen(remote=ONE_MISS)), COUNTED, ENDED, Outcome.ERROR, OTHERS.format(4, 1, 1, 0)),
        (ONLY_ASKED, observation(seen(remote=COUNTS)), COUNTED, ENDED, Outcome.ERROR, OTHERS.format(1, 0, 4, 1)),
        (FOREIGN, observation(seen()), COUNTED, ENDED, Outcome.ERROR, f"{NEVER_SPOKEN} (another client of the case sent 3)"),
        (UNUSED, observation(seen()), COUNTED, ENDED, Outcome.ERROR, NEVER_SPOKEN),
        (dataclasses.replace(UNUSED, answered={"GET": 0}), observation(seen()), COUNTED, ENDED, Outcome.ERROR, NEVER_SPOKEN),
        (UNUSED, observation(seen()), FAILS, ENDED, Outcome.ERROR, NEVER_SPOKEN),
        (UNUSED, observation(seen(raised=exception())), RAISES, ENDED, Outcome.ERROR, NEVER_SPOKEN),
        (UNUSED, observation(seen(raised=exception())), COUNTED, ENDED, Outcome.FAIL, "raised: expected no exception, observed"),
        (DIED, observation(seen()), COUNTED, ENDED, Outcome.ERROR, "redis: its server ended before the case did"),
        (DIED, observation(seen(raised=exception())), COUNTED, ENDED, Outcome.ERROR, "redis: its server ended before the case did"),
        (DIED, observation(error=exception()), COUNTED, ENDED, Outcome.ERROR, "redis: its server ended before the case did"),
        (DIED, None, COUNTED, Ending(signal=11, phase="run"), Outcome.CRASH, "killed by SIGSEGV while in phase 'run'"),
        (UNUSED, None, COUNTED, Ending(signal=9, timed_out=True, phase="run"), Outcome.TIMEOUT, "outlived its deadline"),
        (UNUSED, observation(error=exception()), COUNTED, ENDED, Outcome.ERROR, "trace: builtins.RuntimeError: broken"),
    ],
)
def test_the_table(service: ServiceReport, facts: Any, expectation: Any, ending: Ending, outcome: Outcome, reason: str):
    found = verdict_of(case(step(expectation)), facts, ending=ending, services=[service])
    assert found.outcome is outcome
    assert found.reason.startswith(reason)


def test_silence_comes_before_a_backend_that_did_not_run():
    found = verdict_of(case(step(COUNTED)), observation(seen(graphs=[], executed={})), services=[UNUSED], by=backend())
    assert (found.outcome, found.failure_type) == (Outcome.ERROR, "service")


def test_what_torch_counts_goes_on_from_step_to_step_until_it_is_cleared():
    steps = [step(COUNTED), step(kind="clear_counters"), step(COUNTED), step(kind="clear_counters", only="metrics"), step(COUNTED)]
    counts = (COUNTS, {}, ONE_MISS, ONE_MISS, {"RemoteAutotuneCache": {"hit": 2, "put": 1}, **ONE_MISS})
    facts = observed_steps(*(seen(remote=remote) for remote in counts))
    exact = ServiceReport(name="redis", answered={"GET": 7, "SET": 2})
    assert verdicts.problem_of_traffic(exact, steps, facts) == ""
    assert "counted 7 and 2" in verdicts.problem_of_traffic(dataclasses.replace(exact, answered={"GET": 8, "SET": 2}), steps, facts)


def test_traffic_of_torchs_client_outside_of_every_compile_shows_nothing():
    used = ServiceReport(name="redis", answered={"GET": 4, "SET": 1})
    by_hand = observed_steps(seen(remote=COUNTS, entered=0, graphs=[]), seen(remote=COUNTS))
    assert "in no step that compiled anything" in verdicts.problem_of_traffic(used, [step(kind="api"), step(COUNTED)], by_hand)
    assert verdicts.problem_of_traffic(used, [step(COUNTED), step(kind="api")], by_hand[::-1]) == ""
    assert verdicts.problem_of_traffic(used, [step(kind="api")], by_hand[:1]) == "", "a case that compiles nothing"


def test_a_look_up_that_raised_and_a_child_may_add_to_what_was_answered():
    raised = {"RemoteFxGraphCache": {"hit": 3, "miss": 1, "put": 1, "exception": 1}}
    more = ServiceReport(name="redis", answered={"GET": 5, "SET": 1})
    assert verdicts.problem_of_traffic(more, [step(COUNTED)], observed_steps(seen(remote=raised))) == ""
    assert verdicts.problem_of_traffic(more, [step(COUNTED)], observed_steps(seen(remote=COUNTS))) != ""
    assert (
        verdicts.problem_of_traffic(more, [step(COUNTED), step(kind="spawn")], observed_steps(seen(remote=COUNTS), seen(remote=COUNTS)))
        == ""
    )
    assert verdicts.problem_of_traffic(more, [step(kind="spawn")], observed_steps(seen())) != ""


def test_a_case_that_asked_for_nothing_needs_no_traffic():
    assert verdict_of(case(step(COUNTED)), observation(seen())).outcome is Outcome.PASS
