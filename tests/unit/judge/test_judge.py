"""What the corpus cannot hold of judging: time limits, facts that no file can show, words that
waivers read, kinds of steps.
"""

from functools import partial
from typing import Any

import pytest

from tests.fakes import (
    COUNTED,
    backend,
    case,
    close_facts,
    close_leaf,
    effects,
    exception,
    expected,
    observation,
    seen,
    step,
    verdict_of,
)
from torch_conformance.matching import filecheck, patterns
from torch_conformance.model.case_facts import Ending, ServiceReport
from torch_conformance.model.outcomes import Outcome
from torch_conformance.vocabulary.backend import Choices

FAILS = expected("counter", {"inductor.fxgraph_cache_miss": 2}, line=11)
RAISES = expected("raises", {"type": "RuntimeError", "match": "broken"}, line=14)
EAGERLY: dict[str, Any] = {"graphs": [], "executed": {}, "executed_others": {}}


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (Ending(signal=9, timed_out=True, phase="codegen"), ("deadline", "codegen")),
        (Ending(signal=11, phase="run"), ("SIGSEGV", "run", "(the zygote ended)")),
        (Ending(signal=250, phase="run"), ("signal 250",)),
        (Ending(exit_code=3, phase="run"), ("exit code 3",)),
    ],
)
def test_how_the_process_ended_is_what_a_waiver_reads(ending: Ending, words: tuple[str, ...]):
    found = verdict_of(case(step(COUNTED)), None, ending=ending, note="the zygote ended")
    assert not [word for word in words if word not in found.reason]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("no\nmore", "no"),
        (
            "backend='inductor' raised:\n\n  KeyError: 'x'\nmore",
            "backend='inductor' raised: KeyError: 'x'",
        ),
        (
            "from a.cpp:84:\nfailed at b.cpp:117:\nno such file\nmore",
            "from a.cpp:84: failed at b.cpp:117: no such file",
        ),
        ("announces:", "announces"),
        ("", ""),
    ],
)
def test_an_exception_shows_the_line_that_says_what_is_wrong(message: str, shown: str):
    """A waiver reads this line: torch's wrappers begin with one that is the same for every
    defect.
    """
    (raised,) = verdict_of(
        case(step(COUNTED)), observation(seen(raised=exception(message=message)))
    ).verdicts
    assert raised.observed.partition("in phase 'trace'")[2].removeprefix(": ") == shown
    assert "Traceback" in raised.detail


def test_a_long_complaint_is_cut():
    assert len(verdict_of(case(step(COUNTED)), observation(seen(), more="x" * 10_000)).reason) < 500


def test_a_measurement_that_walks_too_deep_is_an_error():
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    found = verdict_of(
        case(step(expected("equals", {"x": 1}))),
        observation(seen(measured={"0": {"x": {"value": deep}}})),
    )
    assert found.outcome is Outcome.ERROR


def test_infinity_written_rightly_is_read():
    leaf = close_leaf(
        excess={"$float": "inf"},
        max_abs={"$float": "inf"},
        mismatches=1,
        worst_value={"$float": "-inf"},
    )
    found = verdict_of(
        case(step(expected("close", {"to": "eager"}))),
        observation(seen(measured={"0": close_facts(leaf)})),
    )
    assert found.outcome is Outcome.FAIL
    assert "-inf against 1.0" in found.reason


def test_a_proof_that_takes_for_ever_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "torch_conformance.judge.proof.search", partial(patterns.search, seconds=0.2)
    )
    monkeypatch.setattr(
        "torch_conformance.judge.proof.check_text", partial(filecheck.run, seconds=0.2)
    )
    slow = "a" * 40 + "b"
    by_name = backend(choices=Choices(match="(a+)+$", least=1))
    facts = observation(seen(choices=[[{"name": slow, "class": ""}]]))
    assert verdict_of(case(step(COUNTED)), facts, by=by_name).outcome is Outcome.ERROR
    by_code = backend(code="CHECK: {{(a+)+$}}")
    assert (
        verdict_of(
            case(step(COUNTED)), observation(seen(code=1)), by=by_code, code={(0, 0): slow}
        ).outcome
        is Outcome.ERROR
    )


def test_each_step_has_its_own_code():
    steps = step(expected("filecheck", "CHECK: one")), step(expected("filecheck", "CHECK: two"))
    facts = observation(seen(code=1), seen(code=1))
    assert (
        verdict_of(case(*steps), facts, code={(0, 0): "one", (1, 0): "two"}).outcome is Outcome.PASS
    )
    assert (
        verdict_of(case(*steps), facts, code={(0, 0): "two", (1, 0): "one"}).outcome is Outcome.FAIL
    )


def test_a_step_that_goes_on_after_the_expected_exception():
    facts = observation(seen(raised=exception()), seen())
    assert verdict_of(case(step(RAISES), step(COUNTED)), facts).outcome is Outcome.PASS
    assert verdict_of(case(step(RAISES), step(FAILS)), facts).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [("aot", Outcome.PASS), ("backward", Outcome.FELL_BACK), ("call", Outcome.FELL_BACK)],
)
def test_only_a_package_may_run_what_other_code_compiled(kind: str, outcome: Outcome):
    facts = observation(seen(), seen(executed={}, executed_others={"cpu": 1}))
    assert verdict_of(case(step(COUNTED), step(COUNTED, kind=kind)), facts).outcome is outcome
    assert (
        verdict_of(
            case(step(COUNTED), step(COUNTED, kind=kind)), observation(seen(), seen(**EAGERLY))
        ).outcome
        is Outcome.FELL_BACK
    )


@pytest.mark.parametrize(
    ("kind", "arguments"), [("api", {}), ("reset", {}), ("call", {"eager": True})]
)
def test_a_step_that_runs_nothing_compiled_needs_no_graph(kind: str, arguments: dict[str, Any]):
    facts = observation(seen(), seen(**EAGERLY))
    assert (
        verdict_of(case(step(COUNTED), step(COUNTED, kind=kind, **arguments)), facts).outcome
        is Outcome.PASS
    )


def test_the_tolerance_of_another_step_holds_where_a_step_has_none():
    wide = expected("close", {"to": "eager", "atol": 2.0, "rtol": 0.0})
    leaf = close_leaf(path="argument [0]", excess=1.0, max_abs=1.0, atol=2.0, rtol=0.0)
    facts = observation(
        seen(effects=effects(leaf)),
        seen(measured={"0": close_facts(close_leaf(atol=2.0, rtol=0.0))}),
    )
    assert verdict_of(case(step(COUNTED), step(wide)), facts).outcome is Outcome.PASS


# -- services: what torch counts goes on from step to step -----------------------------------------

COUNTS = {"RemoteFxGraphCache": {"hit": 3, "miss": 1, "put": 1, "exception": 0}}
ONE_MISS = {"RemoteFxGraphCache": {"hit": 0, "miss": 1, "put": 0, "exception": 0}}
RAISED = {"RemoteFxGraphCache": {"hit": 3, "miss": 1, "put": 1, "exception": 1}}
COMPILES, CLEARS, CHILD, API = (
    step(COUNTED),
    step(kind="clear_counters"),
    step(kind="spawn"),
    step(COUNTED, kind="api"),
)
CLEARS_OTHERS = step(kind="clear_counters", only="metrics")


@pytest.mark.parametrize(
    ("answered", "steps", "counts", "agrees"),
    [
        (
            (7, 2),
            [COMPILES, CLEARS, COMPILES, CLEARS_OTHERS, COMPILES],
            [COUNTS, {}, ONE_MISS, ONE_MISS, "more"],
            True,
        ),
        (
            (8, 2),
            [COMPILES, CLEARS, COMPILES, CLEARS_OTHERS, COMPILES],
            [COUNTS, {}, ONE_MISS, ONE_MISS, "more"],
            False,
        ),
        # a look-up that raised, and a child, may add to what was answered
        ((5, 1), [COMPILES], [RAISED], True),
        ((5, 1), [COMPILES], [COUNTS], False),
        ((5, 1), [COMPILES, CHILD], [COUNTS, COUNTS], True),
        # traffic outside of every compile shows nothing
        ((4, 1), [API, COMPILES], [{"by hand": COUNTS}, COUNTS], False),
        ((4, 1), [COMPILES, API], [COUNTS, {"by hand": COUNTS}], True),
    ],
)
def test_what_was_answered_is_what_torch_counted(
    answered: tuple[int, int], steps: list[Any], counts: list[Any], agrees: bool
):
    facts = []
    for remote in counts:
        if remote == "more":
            facts.append(seen(remote={"RemoteAutotuneCache": {"hit": 2, "put": 1}, **ONE_MISS}))
        else:
            facts.append(
                seen(remote=remote["by hand"], entered=0, graphs=[])
                if "by hand" in remote
                else seen(remote=remote)
            )
    service = ServiceReport(name="redis", answered=dict(zip(("GET", "SET"), answered, strict=True)))
    found = verdict_of(case(*steps), observation(*facts), services=[service])
    assert [verdict.kind for verdict in found.verdicts if verdict.kind == "service"] == (
        [] if agrees else ["service"]
    )
