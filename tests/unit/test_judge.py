"""One outcome from everything that is known: the table of ``judge`` row by row, the proofs, and observations that make no sense."""

import dataclasses
import signal
from functools import partial
from typing import Any

import pytest

from runner.language.backends import Choices
from runner.model.case import CodeBlock
from runner.model.case_facts import Ending
from runner.model.expectation import Status
from runner.model.matching import filecheck, patterns
from runner.model.outcomes import Outcome
from runner.vocabulary.expectations.expectation_base import Count
from tests.fakes import (
    COUNTED,
    ELSEWHERE,
    ENDED,
    ID,
    backend,
    case,
    close_facts,
    close_leaf,
    effects,
    exception,
    expected,
    observation,
    place,
    seen,
    step,
    verdict_of,
)

HOLDS = COUNTED
FAILS = expected("counter", {"inductor.fxgraph_cache_miss": 2}, line=11)
ERRS = expected("metric", {"no_such_metric": 1}, line=12)
ABSENT = expected("runs", {"when": ELSEWHERE}, line=13)
RAISES = expected("raises", {"type": "RuntimeError", "match": "broken"}, line=14)

TIMED_OUT = Ending(signal=9, timed_out=True, phase="codegen")
KILLED = Ending(signal=11, phase="run")
EXITED = Ending(exit_code=3, phase="run")

PROVEN: dict[str, Any] = {}
UNPROVEN: dict[str, Any] = {"graphs": [], "executed": {}}
CLOSE = expected("close", {"to": "eager"}, line=15)
BROKEN = observation(seen(), error=exception("builtins.ValueError", "bad shape", "inputs"))

TABLE = [
    # the process, the observation, the expectations, what speaks for the backend: the outcome
    ("timeout before a crash", TIMED_OUT, observation(seen()), [HOLDS], Outcome.TIMEOUT),
    ("timeout without an answer", TIMED_OUT, None, [FAILS], Outcome.TIMEOUT),
    ("timeout after an exit", dataclasses.replace(TIMED_OUT, signal=None, exit_code=0), observation(seen()), [HOLDS], Outcome.TIMEOUT),
    ("timeout before an error", TIMED_OUT, BROKEN, [ERRS], Outcome.TIMEOUT),
    ("a signal with an answer", KILLED, observation(seen()), [HOLDS], Outcome.CRASH),
    ("a signal without an answer", KILLED, None, [HOLDS], Outcome.CRASH),
    ("a signal before an error", KILLED, BROKEN, [ERRS], Outcome.CRASH),
    ("a signal before nonsense", KILLED, 7, [HOLDS], Outcome.CRASH),
    ("an exit code with an answer", EXITED, observation(seen()), [HOLDS], Outcome.CRASH),
    ("an exit code without an answer", EXITED, None, [FAILS], Outcome.CRASH),
    ("an end without an answer", ENDED, None, [HOLDS], Outcome.CRASH),
    ("an answer that is an error", ENDED, BROKEN, [HOLDS], Outcome.ERROR),
    ("an error before a failure", ENDED, BROKEN, [FAILS], Outcome.ERROR),
    ("nonsense", ENDED, 7, [HOLDS], Outcome.ERROR),
    ("one that cannot be judged before one that failed", ENDED, observation(seen()), [FAILS, ERRS], Outcome.ERROR),
    ("one that cannot be judged before no proof", ENDED, observation(seen(**UNPROVEN)), [ERRS], Outcome.ERROR),
    ("none that applies", ENDED, observation(seen()), [ABSENT], Outcome.ERROR),
    ("none at all", ENDED, observation(seen()), [], Outcome.ERROR),
    ("none that applies and no proof", ENDED, observation(seen(**UNPROVEN)), [ABSENT], Outcome.ERROR),
    ("one that failed", ENDED, observation(seen()), [HOLDS, FAILS], Outcome.FAIL),
    ("one that failed before no proof", ENDED, observation(seen(**UNPROVEN)), [FAILS], Outcome.FAIL),
    ("an exception that nobody expected", ENDED, observation(seen(raised=exception())), [HOLDS], Outcome.FAIL),
    ("an exception that nobody expected before no proof", ENDED, observation(seen(raised=exception(), **UNPROVEN)), [HOLDS], Outcome.FAIL),
    ("all hold and no proof", ENDED, observation(seen(**UNPROVEN)), [HOLDS], Outcome.FELL_BACK),
    ("all hold, one is absent", ENDED, observation(seen()), [ABSENT, HOLDS], Outcome.PASS),
    ("all hold", ENDED, observation(seen()), [HOLDS], Outcome.PASS),
]


@pytest.mark.parametrize(("ending", "facts", "expectations", "outcome"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_table(ending: Ending, facts: Any, expectations: list[Any], outcome: Outcome):
    found = verdict_of(case(step(*expectations)), facts, ending=ending)
    assert found.outcome is outcome
    assert bool(found.reason) is (outcome is not Outcome.PASS)
    assert bool(found.failure_type) is (outcome is not Outcome.PASS)


# -- the process ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "outcome", "reason"),
    [
        (TIMED_OUT, Outcome.TIMEOUT, "outlived its deadline while in phase 'codegen'"),
        (KILLED, Outcome.CRASH, "killed by SIGSEGV while in phase 'run'"),
        (Ending(signal=signal.SIGABRT, phase="x"), Outcome.CRASH, "killed by SIGABRT while in phase 'x'"),
        (Ending(signal=250, phase="x"), Outcome.CRASH, "killed by signal 250 while in phase 'x'"),
        (EXITED, Outcome.CRASH, "exit code 3 while in phase 'run'"),
        (Ending(exit_code=0, phase="inputs"), Outcome.CRASH, "ended without an answer while in phase 'inputs'"),
    ],
)
def test_how_the_process_ended_is_named_with_its_phase(ending: Ending, outcome: Outcome, reason: str):
    found = verdict_of(case(step(HOLDS)), None, ending=ending)
    assert (found.outcome, found.reason) == (outcome, reason)
    assert found.failure_type == outcome.label.lower()
    assert [verdict.status for verdict in found.verdicts] == [Status.ERROR]
    assert found.position == place(1)


def test_a_note_stands_beside_a_crash():
    found = verdict_of(case(step(HOLDS)), None, ending=KILLED, note="the zygote ended")
    assert found.reason.endswith("(the zygote ended)")


PROBLEM = "the worker answered twice"


@pytest.mark.parametrize(
    ("ending", "facts", "outcome"),
    [
        (ENDED, observation(seen()), Outcome.ERROR),
        (ENDED, None, Outcome.ERROR),
        (ENDED, BROKEN, Outcome.ERROR),
        (KILLED, None, Outcome.CRASH),
        (TIMED_OUT, None, Outcome.TIMEOUT),
    ],
)
def test_a_worker_that_broke_the_protocol_claims_nothing(ending: Ending, facts: Any, outcome: Outcome):
    found = verdict_of(case(step(HOLDS)), facts, ending=ending, problem=PROBLEM)
    assert found.outcome is outcome
    assert found.reason == PROBLEM if outcome is Outcome.ERROR else found.reason.endswith(f"({PROBLEM})")


def test_a_note_about_the_template_changes_nothing():
    assert verdict_of(case(step(HOLDS)), observation(seen()), note="the zygote has 2 threads").outcome is Outcome.PASS


# -- observations that make no sense --------------------------------------------------------------------------------


def without(facts: dict[str, Any], *path: Any) -> dict[str, Any]:
    """Return a copy that lacks the last key of a path."""
    key, *rest = path
    if not rest:
        return {name: value for name, value in facts.items() if name != key}
    if isinstance(facts, list):
        return [without(value, *rest) if index == key else value for index, value in enumerate(facts)]  # type: ignore[return-value]
    return {**facts, key: without(facts[key], *rest)}


def changed(**changes: Any) -> dict[str, Any]:
    return observation({**seen(), **changes})


NONSENSE = [
    7,
    "text",
    [],
    {},
    True,
    *(without(observation(seen()), key) for key in ("format", "id", "steps", "error", "phases", "peak_bytes")),
    *(without(observation(seen()), "steps", 0, key) for key in seen() if key != "effects"),
    observation(seen(), id="area/other[backend=cpu]"),
    observation(seen(), id=7),
    observation(seen(), format=1),
    observation(seen(), more=1),
    observation(seen(), error="text"),
    observation(seen(), error={}),
    observation(seen(), error=without(exception(), "phase")),
    observation(seen(), phases={"run": -1}),
    observation(seen(), phases={"run": {"$float": "nan"}}),
    observation(seen(), phases=[]),
    observation(seen(), peak_bytes=-1),
    observation(seen(), steps={}),
    observation(seen(), steps=[7]),
    observation(seen(), seen()),
    changed(more=1),
    changed(raised="text"),
    changed(raised=without(exception(), "type")),
    changed(raised={**exception(), "ancestors": "builtins.KeyError"}),
    changed(counters={"inductor": 1}),
    changed(counters={"inductor": {"hits": 1.5}}),
    changed(counters={"inductor": {"hits": "1"}}),
    changed(counters=[]),
    changed(metrics={"m": "1"}),
    changed(entered=-1),
    changed(entered=1.5),
    changed(graphs=["cpu"]),
    changed(graphs=1),
    changed(executed={"cpu": -1}),
    changed(executed={"cpu": "1"}),
    changed(executed_others={"cpu": -1}),
    changed(abandoned=[7]),
    changed(abandoned=["x"] * 21),
    changed(effects={}),
    changed(effects={**effects(), "compared": -1}),
    changed(effects={**effects(), "leaves": ["x"]}),
    changed(choices=[{"a": 1}]),
    changed(choices=[["a"]]),
    changed(code=-1),
    changed(code=10_001),
    changed(code="0"),
    changed(measured=[]),
    changed(unmeasured={"0": 7}),
]


@pytest.mark.parametrize("facts", NONSENSE, ids=range(len(NONSENSE)))
def test_an_observation_that_makes_no_sense_is_an_error(facts: Any):
    found = verdict_of(case(step(HOLDS)), facts)
    assert found.outcome is Outcome.ERROR
    assert found.reason.startswith("the worker's observation makes no sense: ")


def test_the_observation_that_the_others_spoil_makes_sense():
    assert verdict_of(case(step(HOLDS)), observation(seen())).outcome is Outcome.PASS


def test_a_long_complaint_is_cut():
    assert len(verdict_of(case(step(HOLDS)), observation(seen(), more="x" * 10_000)).reason) < 500


def test_nan_written_wrongly_is_an_error():
    for wrong in ("NaN", 7, None, [], "1.0"):
        facts = {"0": close_facts(close_leaf(excess={"$float": wrong}))}
        found = verdict_of(case(step(expected("close", {"to": "eager"}))), changed(measured=facts))
        assert found.outcome is Outcome.ERROR, wrong


def test_nan_and_infinity_written_rightly_are_read():
    facts = {
        "0": close_facts(close_leaf(excess={"$float": "inf"}, max_abs={"$float": "inf"}, mismatches=1, worst_value={"$float": "-inf"}))
    }
    found = verdict_of(case(step(expected("close", {"to": "eager"}))), changed(measured=facts))
    assert found.outcome is Outcome.FAIL
    assert "-inf against 1.0" in found.reason


def test_a_metric_that_is_no_number_is_an_error():
    found = verdict_of(case(step(expected("metric", {"m": 1}))), changed(metrics={"m": {"$float": "nan"}}))
    assert found.outcome is Outcome.ERROR


def test_a_measurement_that_walks_too_deep_is_an_error():
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    found = verdict_of(case(step(expected("equals", {"x": 1}))), changed(measured={"0": {"x": {"value": deep}}}))
    assert found.outcome is Outcome.ERROR


def test_code_that_is_missing_is_an_error():
    look = expected("filecheck", "CHECK: kernel_7")
    assert verdict_of(case(step(look)), changed(code=1)).outcome is Outcome.ERROR
    assert verdict_of(case(step(look)), changed(code=2), code={(0, 0): "kernel_7"}).outcome is Outcome.ERROR
    assert verdict_of(case(step(look)), changed(code=1), code={(0, 0): "kernel_7"}).outcome is Outcome.PASS


def test_each_step_has_its_own_code():
    steps = step(expected("filecheck", "CHECK: one")), step(expected("filecheck", "CHECK: two"))
    facts = observation(seen(code=1), seen(code=1))
    assert verdict_of(case(*steps), facts, code={(0, 0): "one", (1, 0): "two"}).outcome is Outcome.PASS
    assert verdict_of(case(*steps), facts, code={(0, 0): "two", (1, 0): "one"}).outcome is Outcome.FAIL


def test_an_error_of_the_worker_says_where_and_why():
    found = verdict_of(case(step(HOLDS)), BROKEN)
    assert found.reason == "inputs: builtins.ValueError: bad shape"
    assert found.failure_type == "error"
    assert "Traceback" in found.verdicts[0].detail
    assert [verdict.status for verdict in found.verdicts] == [Status.ERROR]


def test_what_cannot_be_judged_says_why():
    assert verdict_of(case(step(ERRS)), observation(seen())).reason.endswith("observed this torch has no such metric")


# -- steps ----------------------------------------------------------------------------------------------------------


def test_a_step_that_is_missing_is_an_error():
    found = verdict_of(case(step(HOLDS), step(HOLDS, line=20)), observation(seen()))
    assert (found.outcome, found.reason) == (Outcome.ERROR, "step 2 was not carried out")
    assert found.position == place(20)
    assert verdict_of(case(step(HOLDS)), observation()).outcome is Outcome.ERROR


def test_an_expectation_is_judged_on_its_own_step():
    steps = step(HOLDS), step(FAILS)
    first, second = seen(), seen(counters={"inductor": {"fxgraph_cache_miss": 2}})
    assert verdict_of(case(*steps), observation(first, second)).outcome is Outcome.PASS
    assert verdict_of(case(*steps), observation(second, first)).outcome is Outcome.FAIL


def test_an_exception_that_nobody_expected_ends_the_judging():
    found = verdict_of(
        case(step(HOLDS, line=9), step(FAILS)), observation(seen(raised=exception("torch.Broken", "no\nmore", "lower")), seen())
    )
    assert (found.outcome, found.failure_type) == (Outcome.FAIL, "raised")
    assert found.reason == "raised: expected no exception, observed torch.Broken in phase 'lower': no"
    assert found.position == place(9)
    assert [verdict.kind for verdict in found.verdicts] == ["raised"]
    assert "Traceback" in found.verdicts[0].detail


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("no\nmore", "no"),
        ("backend='inductor' raised:\n\n  KeyError: 'x'\nmore", "backend='inductor' raised: KeyError: 'x'"),
        ("announces:", "announces"),
        ("", ""),
    ],
)
def test_an_exception_shows_the_line_that_says_what_is_wrong(message: str, shown: str):
    """A waiver reads this line: torch's wrappers begin with one that is the same for every defect."""
    (raised,) = (
        verdict
        for verdict in verdict_of(case(step(HOLDS)), changed(raised=exception(message=message))).verdicts
        if verdict.kind == "raised"
    )
    assert raised.observed.partition("in phase ")[2].partition("'")[2].partition("'")[2].removeprefix(": ") == shown


def test_an_exception_under_a_raises_that_does_not_apply_here_is_not_expected():
    raises = expected("raises", {"type": "RuntimeError", "when": ELSEWHERE})
    found = verdict_of(case(step(raises, HOLDS)), changed(raised=exception()))
    assert (found.outcome, found.failure_type) == (Outcome.FAIL, "raised")


def test_another_exception_than_the_expected_one_fails():
    found = verdict_of(case(step(RAISES)), changed(raised=exception("builtins.KeyError")))
    assert (found.outcome, found.failure_type, found.position) == (Outcome.FAIL, "raises", place(14))
    assert verdict_of(case(step(RAISES)), changed(raised=exception(message="other"))).failure_type == "raises"
    assert verdict_of(case(step(RAISES)), observation(seen())).failure_type == "raises"


def test_a_step_that_goes_on_after_the_expected_exception():
    facts = observation(seen(raised=exception()), seen())
    assert verdict_of(case(step(RAISES), step(HOLDS)), facts).outcome is Outcome.PASS
    assert verdict_of(case(step(RAISES), step(FAILS)), facts).outcome is Outcome.FAIL


def test_the_first_failure_gives_type_and_place_and_all_are_kept():
    equals = expected("equals", {"x": 1}, line=30)
    found = verdict_of(case(step(HOLDS, FAILS, equals)), changed(measured={"2": {"x": {"value": 2}}}))
    assert (found.failure_type, found.position) == ("counter", place(11, 9))
    assert [(verdict.kind, verdict.status) for verdict in found.verdicts] == [
        ("counter", Status.HELD),
        ("counter", Status.FAILED),
        ("equals", Status.FAILED),
        ("proof", Status.HELD),
    ]


def test_each_counter_points_to_its_own_line():
    check = expected("counter", {"inductor.fxgraph_cache_miss": 1, "inductor.fxgraph_cache_hit": 1}, line=40)
    assert verdict_of(case(step(check)), observation(seen())).position == place(40, 10)


def test_a_measurement_belongs_to_the_expectation_with_its_index():
    steps = step(expected("equals", {"x": 1}), expected("equals", {"x": 2}))
    right = changed(measured={"0": {"x": {"value": 1}}, "1": {"x": {"value": 2}}})
    wrong = changed(measured={"0": {"x": {"value": 2}}, "1": {"x": {"value": 1}}})
    assert verdict_of(case(steps), right).outcome is Outcome.PASS
    assert verdict_of(case(steps), wrong).outcome is Outcome.FAIL
    assert verdict_of(case(steps), changed(measured={"1": {"x": {"value": 2}}})).outcome is Outcome.ERROR


def test_why_something_was_not_measured_hides_no_failure():
    found = verdict_of(case(step(expected("equals", {"x": 1}))), changed(measured={"0": {"x": {"value": 2}}}, unmeasured={"0": "a lie"}))
    assert found.outcome is Outcome.FAIL


# -- the proof ------------------------------------------------------------------------------------------------------


def proof_of(facts: dict[str, Any], **options: Any) -> Any:
    found = verdict_of(case(step(HOLDS)), facts, **options)
    return found.outcome, next(verdict for verdict in found.verdicts if verdict.kind == "proof")


GRAPHS = [
    ([["cpu"]], {"cpu": 1}, Outcome.PASS),
    ([["cpu", "cuda"]], {"cpu": 1, "cuda": 1}, Outcome.PASS),
    ([["cpu"], ["cpu"]], {"cpu": 5}, Outcome.PASS),
    ([["cpu"]], {}, Outcome.FELL_BACK),
    ([["cpu"]], {"cpu": 0}, Outcome.FELL_BACK),
    ([["cpu"]], {"cuda": 3}, Outcome.FELL_BACK),
    ([], {"cpu": 1}, Outcome.FELL_BACK),
    ([[]], {"cpu": 1}, Outcome.FELL_BACK),
    ([["cuda"]], {"cuda": 1}, Outcome.FELL_BACK),
    ([["cuda"]], {"cpu": 1}, Outcome.FELL_BACK),
]


@pytest.mark.parametrize(("graphs", "executed", "outcome"), GRAPHS)
def test_graphs_must_be_for_the_device_and_called(graphs: Any, executed: Any, outcome: Outcome):
    found, proof = proof_of(changed(graphs=graphs, executed=executed))
    assert found is outcome
    assert proof.status is (Status.HELD if outcome is Outcome.PASS else Status.FAILED)
    assert proof.position.file.endswith("backends.yaml")


def test_graphs_and_calls_of_all_steps_count():
    steps = step(HOLDS), step(HOLDS)
    compiled, called = seen(), seen(graphs=[])
    assert verdict_of(case(*steps), observation(compiled, called)).outcome is Outcome.PASS
    assert verdict_of(case(*steps), observation(called, called)).outcome is Outcome.FELL_BACK


def test_a_device_with_an_index_is_its_kind():
    second = dataclasses.replace(backend("cuda"), device="cuda:1")
    assert proof_of(changed(graphs=[["cuda"]], executed={"cuda": 1}), by=second)[0] is Outcome.PASS
    assert proof_of(changed(), by=second)[0] is Outcome.FELL_BACK


@pytest.mark.parametrize(
    ("graphs", "outcome"), [([["cpu"]], Outcome.FELL_BACK), ([["cpu"]] * 2, Outcome.PASS), ([["cpu"]] * 4, Outcome.FELL_BACK)]
)
def test_a_proof_may_ask_for_a_range_of_graphs(graphs: Any, outcome: Outcome):
    assert proof_of(changed(graphs=graphs), by=backend(graphs=Count(least=2, most=3)))[0] is outcome


@pytest.mark.parametrize(
    ("graphs", "executed", "outcome"),
    [([], {}, Outcome.PASS), ([["cpu"]], {"cpu": 1}, Outcome.FELL_BACK), ([["cuda"]], {}, Outcome.FELL_BACK)],
)
def test_eager_is_shown_by_no_graph_for_any_device(graphs: Any, executed: Any, outcome: Outcome):
    assert proof_of(changed(graphs=graphs, executed=executed), by=backend("eager"))[0] is outcome


def test_a_fallback_names_what_was_seen():
    found = verdict_of(case(step(HOLDS)), changed(**UNPROVEN))
    assert found.failure_type == "fell-back"
    assert found.position == place(1)
    assert (
        found.reason
        == "proof: expected at least 1 inductor graphs for cpu, compiled or from a cache, and called, observed 0 graphs, 0 calls"
    )
    found = verdict_of(case(step(HOLDS)), observation(seen()), by=backend("eager"))
    assert found.reason == "proof: expected 0 inductor graphs, observed 1 graphs, 1 calls"


# The lines that matter of what torch 2.13 writes for a product by Composable Kernel.
ON_CUDA: dict[str, Any] = {"graphs": [["cuda"]], "executed": {"cuda": 1}}

CK_CODE = """# AOT ID: ['0_inference']
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()


# kernel path: /tmp/cx/cxyz.py
rocm_fused_mm_0 = async_compile.rocm(r'''
/**
* Generated code for CK inductor backend
* See torch._inductor.codegen.rocm.ck_universal_gemm_template.CKGemmTemplate
*/
#include <exception>
// CK headers
#include "ck/ck.hpp"
extern "C" {
PT_EXPORT int rocm_fused_mm_0(const uint16_t* X, const uint16_t* W, uint16_t* Y) {
}
''', 'so', aot_compile=False)

def call(args):
    rocm_fused_mm_0.rocm_fused_mm_0(c_void_p(a_1.data_ptr()), c_void_p(b_1.data_ptr()), c_void_p(buf0.data_ptr()))
"""
OF_A_CASE = """def call(args):
    buf0 = torch.ops.mine.gemm.default(arg0_1, {})
    extern_kernels.mm(arg0_1, buf0, out=buf1)
"""
IN_A_TRITON_KERNEL = """kernel_0 = async_compile.triton('kernel_0', '''
import triton
@triton.jit
def kernel_0(x, n: tl.constexpr):
    {}
''', device_str='cuda')
"""


_TALLY = {"rendered": 1, "compiled": 1, "failed": 0, "timed": 1, "won": 1, "error": ""}
WON_BY_CK = {"count": 1, "found": [{"op": "mm", "how": "timed", "winner": "ck_0", "won_by": "CK", "backends": {"CK": _TALLY}}]}


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ({(0, 0): CK_CODE}, Outcome.PASS),
        ({(0, 0): CK_CODE.replace("ck/ck.hpp", "ck_tile/core.hpp")}, Outcome.PASS),
        ({(0, 0): CK_CODE.replace('#include "ck', '// #include "ck')}, Outcome.FELL_BACK),
        ({(0, 0): CK_CODE.replace("ck/ck.hpp", "hip/hip_runtime.h")}, Outcome.FELL_BACK),
        ({(0, 0): CK_CODE.replace("rocm_fused_mm_0.rocm", "extern_kernels.mm")}, Outcome.FELL_BACK),
        ({(0, 0): CK_CODE.replace("    rocm_fused_mm_0.rocm", "    # rocm_fused_mm_0.rocm")}, Outcome.FELL_BACK),
        ({(0, 0): CK_CODE.replace("    rocm_fused_mm_0.rocm", "    mine(rocm_fused_mm_0.rocm")}, Outcome.FELL_BACK),
        ({(0, 0): "extern_kernels.mm()"}, Outcome.FELL_BACK),
        ({(0, 0): ""}, Outcome.FELL_BACK),
        ({}, Outcome.FELL_BACK),
    ],
)
def test_the_code_must_show_the_backend(code: Any, outcome: Outcome):
    assert proof_of(changed(code=len(code), tunings=WON_BY_CK, **ON_CUDA), by=backend("rocm-ck"), code=code)[0] is outcome


FORGED = CK_CODE.replace("'''", "").replace("/**", "").replace("*/", "")


@pytest.mark.parametrize(
    "code",
    [
        OF_A_CASE.format(repr(FORGED)),
        OF_A_CASE.format(repr(FORGED.replace("\n", " "))),
        OF_A_CASE.format(f'"""{FORGED}"""'),
        OF_A_CASE.format("1") + "".join(f"# {line}\n" for line in FORGED.splitlines()),
        f'"""\n{FORGED}"""\n' + OF_A_CASE.format("1"),
        OF_A_CASE.format("1") + f'    """\n{FORGED}"""\n',
        IN_A_TRITON_KERNEL.format(f'"""{FORGED}"""') + OF_A_CASE.format("1"),
        IN_A_TRITON_KERNEL.format(f'x = """{FORGED}"""') + OF_A_CASE.format("1"),
        IN_A_TRITON_KERNEL.format(f"x = {chr(92)}'{chr(92)}'{chr(92)}'{FORGED}{chr(92)}'{chr(92)}'{chr(92)}'") + OF_A_CASE.format("1"),
        IN_A_TRITON_KERNEL.format("\n".join(f"# {line}" for line in FORGED.splitlines())) + OF_A_CASE.format("1"),
        IN_A_TRITON_KERNEL.format(f'y = f(\n"""{FORGED}"""\n)') + OF_A_CASE.format("1"),
        '#include <torch/x.h>\nauto s = R"(\n' + FORGED + ')";\n',
        "#include <torch/x.h>\n/*\n" + FORGED + "*/\nint x;\n",
    ],
)
def test_what_a_case_can_put_into_the_code_shows_no_backend(code: str):
    assert proof_of(changed(code=1), by=backend("rocm-ck"), code={(0, 0): code})[0] is Outcome.FELL_BACK


def test_the_code_of_any_step_shows_the_backend():
    facts = observation(seen(code=1, tunings=WON_BY_CK, **ON_CUDA), seen(code=1, **ON_CUDA))
    found = verdict_of(case(step(HOLDS), step(HOLDS)), facts, by=backend("rocm-ck"), code={(0, 0): "mm", (1, 0): CK_CODE})
    assert found.outcome is Outcome.PASS


CK = "torch._inductor.codegen.rocm.ck_universal_gemm_template.CKGemmTemplate"
EXTERN = "torch._inductor.select_algorithm.ExternKernelCaller"


def timed(*found: tuple[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "class": of} for name, of in found]


@pytest.mark.parametrize(
    ("choices", "outcome"),
    [
        ([timed(("rocm_ck_gemm_template_1", CK), ("mm", EXTERN))], Outcome.PASS),
        ([timed(("mm", EXTERN)), timed(("rocm_ck_gemm_template_2", CK))], Outcome.PASS),
        ([timed(("mm", EXTERN))], Outcome.FELL_BACK),
        ([timed(("ck_gemm", EXTERN))], Outcome.FELL_BACK),
        ([timed(("rocm_ck_gemm_template_1", EXTERN))], Outcome.FELL_BACK),
        ([timed(("rocm_ck_gemm_template_1", ""))], Outcome.FELL_BACK),
        ([timed(("rocm_ck_gemm_template_1", f"mine.{CK}"))], Outcome.FELL_BACK),
        ([timed(("rocm_ck_1", EXTERN), ("mm", CK))], Outcome.FELL_BACK),
        ([timed(("not_rocm_ck", CK))], Outcome.FELL_BACK),
        ([[]], Outcome.FELL_BACK),
        ([], Outcome.FELL_BACK),
    ],
)
def test_choices_must_have_been_timed(choices: Any, outcome: Outcome):
    assert proof_of(changed(choices=choices, **ON_CUDA), by=backend("rocm-mixed"))[0] is outcome


def test_a_choice_of_another_class_is_named():
    found = verdict_of(case(step(HOLDS)), changed(choices=[timed(("rocm_ck_1", EXTERN))], **ON_CUDA), by=backend("rocm-mixed"))
    assert f"0 of 1, rocm_ck_1 is of {EXTERN}" in found.reason


def test_as_many_choices_as_the_proof_asks_for():
    two = backend(choices=Choices(match="ck", least=2))
    assert proof_of(changed(choices=[timed(("ck_1", "")), timed(("ck_2", ""))]), by=two)[0] is Outcome.PASS
    assert proof_of(changed(choices=[timed(("ck_1", "")), timed(("mm", ""))]), by=two)[0] is Outcome.FELL_BACK


def test_every_part_of_a_proof_must_hold():
    both = backend(graphs=Count(least=1, most=None), choices=Choices(match="ck", least=1))
    ck, other = [timed(("ck", ""))], [timed(("mm", ""))]
    assert proof_of(changed(choices=ck), by=both)[0] is Outcome.PASS
    assert proof_of(changed(choices=other), by=both)[0] is Outcome.FELL_BACK
    assert proof_of(changed(choices=ck, **UNPROVEN), by=both)[0] is Outcome.FELL_BACK


def test_a_proof_that_takes_for_ever_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("runner.judge.proof.search", partial(patterns.search, seconds=0.2))
    monkeypatch.setattr("runner.judge.proof.run", partial(filecheck.run, seconds=0.2))
    slow = "a" * 40 + "b"
    assert proof_of(changed(choices=[timed((slow, ""))]), by=backend(choices=Choices(match="(a+)+$", least=1)))[0] is Outcome.ERROR
    checks = filecheck.parse("CHECK: {{(a+)+$}}")
    assert proof_of(changed(code=1), by=backend(code=checks), code={(0, 0): slow})[0] is Outcome.ERROR


def test_a_backend_that_compiles_nothing_asks_for_no_proof():
    found = verdict_of(case(step(HOLDS, kind="api")), changed(**UNPROVEN), by=backend("host"))
    assert found.outcome is Outcome.PASS
    assert [verdict.kind for verdict in found.verdicts] == ["counter"]


@pytest.mark.parametrize("phase", ["trace", "lower", "codegen", "kernel build", "autotune"])
@pytest.mark.parametrize(("entered", "outcome"), [(1, Outcome.PASS), (0, Outcome.FELL_BACK)])
def test_an_expected_exception_while_compiling_is_proven_by_entering_inductor(phase: str, entered: int, outcome: Outcome):
    facts = changed(raised=exception(phase=phase), entered=entered, **UNPROVEN)
    assert verdict_of(case(step(RAISES)), facts).outcome is outcome


@pytest.mark.parametrize("name", ["eager", "dynamo"])
@pytest.mark.parametrize(("proof", "outcome"), [({}, Outcome.FELL_BACK), (UNPROVEN, Outcome.PASS)])
def test_a_backend_without_inductor_does_not_enter_it_before_an_expected_exception(name: str, proof: Any, outcome: Outcome):
    facts = changed(raised=exception(phase="trace"), **{"entered": 0, **proof})
    assert verdict_of(case(step(RAISES)), facts, by=backend(name)).outcome is outcome


@pytest.mark.parametrize(("graphs", "outcome"), [({}, Outcome.PASS), (UNPROVEN, Outcome.FELL_BACK)])
def test_an_expected_exception_while_running_needs_the_whole_proof(graphs: Any, outcome: Outcome):
    assert verdict_of(case(step(RAISES)), changed(raised=exception(phase="run"), **graphs)).outcome is outcome


def test_an_expected_exception_of_the_wrong_kind_is_no_fallback():
    facts = changed(raised=exception("builtins.KeyError"), entered=0, **UNPROVEN)
    assert verdict_of(case(step(RAISES)), facts).outcome is Outcome.FAIL


def test_the_id_that_is_compared_is_the_cases():
    assert verdict_of(case(step(HOLDS), id="area/another[backend=cpu]"), observation(seen(), id=ID)).outcome is Outcome.ERROR


# -- the proof of each step -----------------------------------------------------------------------------------------

EAGERLY: dict[str, Any] = {"graphs": [], "executed": {}, "executed_others": {}}


def test_a_step_that_ran_eagerly_is_not_excused_by_another():
    found = verdict_of(case(step(HOLDS), step(HOLDS, line=20)), observation(seen(), seen(**EAGERLY)))
    assert found.outcome is Outcome.FELL_BACK
    assert found.reason.startswith("proof: expected step 2 (call, line 20) runs a graph for cpu")
    assert found.reason.endswith("it ran none: the call was eager")


def test_a_graph_that_other_code_compiled_shows_nothing_of_a_call():
    facts = seen(executed={}, executed_others={"cpu": 2})
    found = verdict_of(case(step(HOLDS)), observation(facts))
    assert found.outcome is Outcome.FELL_BACK
    assert found.reason.endswith("it ran 2 for cpu that other code compiled")


@pytest.mark.parametrize(("kind", "outcome"), [("aot", Outcome.PASS), ("backward", Outcome.FELL_BACK), ("call", Outcome.FELL_BACK)])
def test_only_a_package_may_run_what_other_code_compiled(kind: str, outcome: Outcome):
    facts = observation(seen(), seen(executed={}, executed_others={"cpu": 1}))
    assert verdict_of(case(step(HOLDS), step(HOLDS, kind=kind)), facts).outcome is outcome
    facts = observation(seen(), seen(**EAGERLY))
    assert verdict_of(case(step(HOLDS), step(HOLDS, kind=kind)), facts).outcome is Outcome.FELL_BACK


def test_a_graph_for_another_device_shows_nothing():
    found = verdict_of(case(step(HOLDS), step(HOLDS)), observation(seen(), seen(executed={"cuda": 1})))
    assert found.outcome is Outcome.FELL_BACK


@pytest.mark.parametrize(("kind", "arguments"), [("api", {}), ("reset", {}), ("call", {"eager": True})])
def test_a_step_that_runs_nothing_compiled_needs_no_graph(kind: str, arguments: dict[str, Any]):
    facts = observation(seen(), seen(**EAGERLY))
    assert verdict_of(case(step(HOLDS), step(HOLDS, kind=kind, **arguments)), facts).outcome is Outcome.PASS


def test_a_frame_that_dynamo_gave_up_is_a_fall_back():
    found = verdict_of(case(step(HOLDS)), observation(seen(abandoned=["InductorError: no lowering"])))
    assert found.outcome is Outcome.FELL_BACK
    assert "dynamo gave up a frame, which ran eagerly: InductorError: no lowering" in found.reason


def test_a_failed_claim_comes_before_a_step_without_proof():
    assert verdict_of(case(step(FAILS)), observation(seen(**EAGERLY))).outcome is Outcome.FAIL


# -- side effects ---------------------------------------------------------------------------------------------------

NEAR = {"0": close_facts(close_leaf())}
CHANGED = close_leaf(path="argument [0]", mismatches=1, excess=1.0, max_abs=1.0)


def test_a_side_effect_that_differs_from_eagers_fails():
    found = verdict_of(case(step(CLOSE)), changed(measured=NEAR, effects=effects(CHANGED)))
    assert (found.outcome, found.failure_type) == (Outcome.FAIL, "side-effects")
    assert found.reason.startswith("side-effects: expected argument [0] within atol=1e-05")


def test_side_effects_like_eagers_hold():
    found = verdict_of(case(step(CLOSE)), changed(measured=NEAR, effects=effects()))
    assert found.outcome is Outcome.PASS
    (held,) = [verdict for verdict in found.verdicts if verdict.kind == "side-effects"]
    assert held.observed == "2 values compared"


def test_values_that_differed_before_are_named():
    found = verdict_of(case(step(CLOSE)), changed(measured=NEAR, effects=effects(apart=["function.weight"])))
    assert "; 1 differed before the call" in next(v.observed for v in found.verdicts if v.kind == "side-effects")


def test_side_effects_that_were_not_measured_are_an_error():
    found = verdict_of(case(step(CLOSE)), observation(without(seen(measured=NEAR), "effects")))
    assert found.outcome is Outcome.ERROR


@pytest.mark.parametrize("arguments", [{"side_effects": False}, {"eager": True}])
def test_side_effects_that_are_not_compared(arguments: dict[str, Any]):
    facts = observation(seen(measured=NEAR), {**without(seen(), "effects")})
    found = verdict_of(case(step(CLOSE), step(HOLDS, **arguments)), facts | {"steps": [seen(measured=NEAR), facts["steps"][1]]})
    assert found.outcome is Outcome.PASS


def test_the_tolerance_of_another_step_holds_where_a_step_has_none():
    wide = expected("close", {"to": "eager", "atol": 2.0, "rtol": 0.0})
    leaf = {**CHANGED, "atol": 2.0, "rtol": 0.0, "mismatches": 0}
    facts = observation(seen(effects=effects(leaf)), seen(measured={"0": close_facts(close_leaf(atol=2.0, rtol=0.0))}))
    assert verdict_of(case(step(HOLDS), step(wide)), facts).outcome is Outcome.PASS


def test_a_case_without_a_reference_has_no_side_effects_to_compare():
    assert verdict_of(case(step(HOLDS)), observation(without(seen(), "effects"))).outcome is Outcome.PASS


def test_an_expected_exception_in_one_step_excuses_no_other():
    failing = seen(raised=exception(phase="codegen"), **EAGERLY)
    steps = step(HOLDS, line=20), step(RAISES, line=30)
    assert verdict_of(case(*steps), observation(seen(), failing)).outcome is Outcome.PASS
    found = verdict_of(case(*steps), observation(seen(**EAGERLY), failing))
    assert (found.outcome, "line 20" in found.reason) == (Outcome.FELL_BACK, True)
    assert verdict_of(case(*steps), observation(seen(), {**failing, "entered": 0})).outcome is Outcome.PASS
    assert verdict_of(case(step(RAISES)), observation({**failing, "entered": 0})).outcome is Outcome.FELL_BACK


# -- code of a case that asks for the end of the process ------------------------------------------------------------

OF_THE_SPEC = "/elsewhere/specs/area/fake.yaml"
LEFT = f'''Traceback (most recent call last):
  File "{OF_THE_SPEC}", line 6, in leave
    helper()
  File "{OF_THE_SPEC}", line 8, in helper
'''
WITH_A_PRELUDE = {"preludes": (CodeBlock(name="prelude", file=OF_THE_SPEC, line=3, text="pass"),)}


def left(**changes: Any) -> dict[str, Any]:
    return {**exception(), "traceback": LEFT, **changes}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"type": "builtins.SystemExit", "message": "exit code 7"}, "exit code 7 (SystemExit) while in phase 'api' of step 2 (api)"),
        ({"type": "builtins.KeyboardInterrupt", "message": ""}, "KeyboardInterrupt while in phase 'api' of step 2 (api)"),
    ],
)
def test_a_step_that_ends_the_interpreter_is_a_crash_with_its_place(error: Any, reason: str):
    raised = left(**error, phase="api")
    steps = step(HOLDS, line=20), step(HOLDS, kind="api", line=25)
    found = verdict_of(case(*steps, body=WITH_A_PRELUDE), observation(seen(), seen(raised=raised)))
    assert found.outcome is Outcome.CRASH
    assert found.reason == f"{reason}, in helper at line 8 of the spec"
    assert found.position == place(8)
    elsewhere = verdict_of(case(*steps), observation(seen(), seen(raised=raised)))
    assert (elsewhere.reason, elsewhere.position) == (reason, place(25))


def test_a_prelude_that_ends_the_interpreter_is_a_crash_in_no_step():
    error = left(type="builtins.SystemExit", message="exit code 1: no", phase="inputs")
    found = verdict_of(case(step(HOLDS), step(HOLDS), body=WITH_A_PRELUDE), observation(error=error))
    assert found.outcome is Outcome.CRASH
    assert found.reason == "exit code 1: no (SystemExit) while in phase 'inputs', in helper at line 8 of the spec"


def test_an_exit_that_a_spec_expects_is_an_exception():
    expects = step(expected("raises", {"type": "SystemExit"}))
    raised = left(type="builtins.SystemExit", message="exit code 7", ancestors=["builtins.SystemExit"], phase="run")
    assert verdict_of(case(expects), observation(seen(raised=raised))).outcome is Outcome.PASS


def test_an_error_names_the_line_of_the_spec():
    error = left(phase="inputs")
    assert verdict_of(case(step(HOLDS), body=WITH_A_PRELUDE), observation(error=error)).position == place(8)
    assert verdict_of(case(step(HOLDS)), observation(error=error)).position == case(step(HOLDS)).position
