"""What a service saw of a case decides whether the case claims anything: torch goes on in silence without a cache."""

import dataclasses
from typing import Any

import pytest

from runner.model import Ending, ServiceReport
from runner.outcomes import Outcome
from tests.fakes import COUNTED, ENDED, backend, case, exception, expected, observation, seen, step, verdict_of

USED = ServiceReport(name="redis", answered={"GET": 4, "SET": 1})
ONLY_ASKED = ServiceReport(name="redis", answered={"GET": 1})
UNUSED = ServiceReport(name="redis")
DIED = ServiceReport(name="redis", answered={"GET": 1}, problem="its server ended before the case did")

FAILS = expected("counter", {"inductor.fxgraph_cache_miss": 2})
RAISES = expected("raises", {"type": "RuntimeError"})
NEVER_SPOKEN = "service: expected traffic of the case with redis, observed the case asked for redis and torch never spoke to it"


@pytest.mark.parametrize(
    ("service", "facts", "expectation", "ending", "outcome", "reason"),
    [
        (USED, observation(seen()), COUNTED, ENDED, Outcome.PASS, ""),
        (ONLY_ASKED, observation(seen()), COUNTED, ENDED, Outcome.PASS, ""),
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


def test_a_case_that_asked_for_nothing_needs_no_traffic():
    assert verdict_of(case(step(COUNTED)), observation(seen())).outcome is Outcome.PASS
