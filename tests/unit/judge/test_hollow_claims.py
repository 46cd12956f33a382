"""Claims that cannot fail, in forms that a change of the facts does not show; and right claims that
are near to them.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.fakes import (
    HERE,
    case,
    expected,
    import_torch,
    observation,
    reading,
    seen,
    step,
    verdict_of,
)
from torch_conformance.judge.evidence import carried_out, read_facts
from torch_conformance.judge.mutants import TRIVIAL_CALLS, UNREACHED, Fate, try_case
from torch_conformance.language.waivers import read_waivers
from torch_conformance.model.case import Control
from torch_conformance.model.case_facts import ChildExit, Raised
from torch_conformance.model.expectation import Status
from torch_conformance.model.outcomes import Outcome
from torch_conformance.vocabulary.expectations import EXPECTATIONS

GRAPH = "torch._inductor.graph.GraphLowering.run"
LOOKUP = "torch._inductor.select_algorithm.AlgorithmSelectorCache.lookup"


def survivors(*steps: tuple[Any, Mapping[str, Any]], code: str = "", **changes: Any) -> set[str]:
    """Return the mutants that survive in a case with these steps: expectations, and facts."""
    of = case(*(step(*claims) for claims, _ in steps), **changes)
    facts = read_facts(observation(*(told for _, told in steps)), lambda *_: code)
    trials = try_case(of, HERE, carried_out(of, facts.steps))
    return {trial.mutant for trial in trials if trial.fate is Fate.SURVIVED}


def counted(**numbers: int) -> dict[str, Any]:
    return seen(counters={"inductor": {"fxgraph_cache_miss": 1, **numbers}})


NO_FUSION = expected("counter", {"inductor.fuse_attention": 0})


def test_a_count_of_0_that_nothing_reaches() -> None:
    assert survivors(((NO_FUSION,), seen())) == {UNREACHED}
    several = expected("counter", {"inductor.fuse_attention": {"any": [0, 3]}})
    assert UNREACHED in survivors(((several,), seen()))
    metric = expected("metric", {"num_bytes_accessed": 0})
    assert survivors(((metric,), seen(metrics={"num_bytes_accessed": 0}))) == {UNREACHED}


def test_a_count_of_0_that_could_be_another_number() -> None:
    control = Control(patch={"config": {"x": 1}}, fails=("counter",), position=NO_FUSION.position)
    assert survivors(((NO_FUSION,), seen()), control=control) == set()
    assert survivors(((NO_FUSION,), seen()), ((), counted(fuse_attention=1))) == set()
    on_gpus = [{"when": {"device": "cuda"}, "value": {"min": 1}}]
    elsewhere = expected("counter", {"inductor.fuse_attention": on_gpus})
    assert survivors(((NO_FUSION, elsewhere), seen())) == set()
    # a look-up may be a miss, and each function has frames
    assert survivors(((expected("counter", {"inductor.fxgraph_cache_hit": 0}),), seen())) == set()
    assert survivors(((expected("counter", {"stats.unique_graphs": 0}),), seen())) == set()


def spied(*entries: Mapping[str, Any], **body: Any) -> set[str]:
    path = body.pop("path", LOOKUP)
    calls = {"spy": {"count": len(entries), "entries": list(entries)}}
    spies = {"spy": {"method": path, **body.pop("spy", {})}}
    claims = (expected("calls", {"of": "spy", **body}),)
    return survivors((claims, seen(calls=calls)), body={"spies": spies})


def test_calls_that_nothing_reaches_or_any_function_makes() -> None:
    assert spied(count=0) == {UNREACHED}
    assert spied({"same": True}, where={"smae": True}, count=0) == {UNREACHED}
    assert spied({"same": True}, where={"same": False}, count=0) == set()
    assert spied({}, path=GRAPH) == spied({}, path=GRAPH, count={"min": 1}) == {TRIVIAL_CALLS}
    assert spied({}, path=GRAPH, count=1) == spied({}, path=LOOKUP) == set()
    assert spied({}, spy={"graph": "before_inner_compile"}) == {TRIVIAL_CALLS}
    # whether the change of a spy was made is worth a claim
    assert spied({}, path=GRAPH, spy={"around": "changed"}) == set()


@pytest.mark.parametrize(
    ("count", "facts", "is_hollow"),
    [
        ({"max": 1}, seen(), True),
        ({"max": 4}, seen(), True),
        (1, seen(), False),
        ({"max": 1}, counted(fxgraph_cache_hit=1), False),
        ({"min": 1}, seen(), False),
    ],
)
def test_every_number_of_look_ups_that_can_occur(count: Any, facts: Any, is_hollow: bool) -> None:
    claim = expected("counter", {"inductor.fxgraph_cache_miss": count})
    assert ("every count that can occur" in survivors(((claim,), facts))) == is_hollow


@pytest.mark.parametrize(
    ("count", "reused", "recompiled", "is_hollow"),
    [({"max": 1}, 1, 0, True), ({"max": 1}, 9, 1, False), (0, 1, 0, False)],
)
def test_every_number_of_recompiles_that_can_occur(
    count: Any, reused: int, recompiled: int, is_hollow: bool
) -> None:
    known = {"recorded": True, "frames": 0, "reused": reused, "count": recompiled, "events": []}
    found = survivors(((expected("recompiles", {"count": count}),), seen(measured={"0": known})))
    assert ("every count that can occur" in found) == is_hollow


def test_operators_that_aten_may_all_run() -> None:
    eager = ["aten.sin", "aten.add", "aten.mul"]
    known = {"done": True, "tensors": 1, "eager_calls": 0, "eager": eager, "residue": []}
    known |= {"replaces": {}}

    def served(body: Any) -> set[str]:
        return survivors(((expected("served", body),), seen(measured={"0": known})))

    assert served({"allow": eager}) == {"every operator by ATen"}
    assert served({"min": 1e-6}) == {"every operator but one by ATen"}
    assert served({"min": 0.5}) == served({"allow": eager[:2]}) == served("all") == set()


VECTORIZED = """\
cpp_fused_sin_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
    auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x0));
    auto tmp1 = tmp0.sin();
    tmp1.store(out_ptr0 + static_cast<int64_t>(x0));
    tmp_acc0 = tmp_acc0 + tmp1;
''')
"""


@pytest.mark.parametrize(
    ("checks", "mutant"),
    [
        ("CHECK: cpp_fused\nCHECK: loadu(\nCHECK: store(", "the code of a trivial function"),
        ("CHECK: tmp_acc0", "the code of a trivial function"),
        ("CHECK: sin\nCHECK-NOT: empty_strided_cuda", "any code"),
        ("CHECK: sin\nCHECK-NOT: triton_poi", "any code"),
        ("CHECK: sin\nCHECK-NOT: tl.load(", "any code"),
        ("CHECK: tmp0.sin()", ""),
        ("CHECK: cpp_fused_sin", ""),
        ("CHECK: sin\nCHECK-NOT: cos", ""),
        ("CHECK: sin\nCHECK-NOT: extern_kernels", ""),
    ],
)
def test_code_of_any_function_or_of_another_device(checks: str, mutant: str) -> None:
    claim = expected("filecheck", checks)
    found = survivors(((claim,), seen(code=1)), code=VECTORIZED)
    assert found == ({mutant} if mutant else set())


def test_the_forbidden_words_of_a_graph_are_looked_up_too() -> None:
    claim = {"stage": "post_grad", "checks": "CHECK: aten.sin\nCHECK-NOT: aten.sinnh"}
    check = EXPECTATIONS["graph"].parse(claim)
    assert check.measurement() == {
        "stage": "post_grad",
        "ops": [],
        "words": ["aten", "sinnh"],
    }
    guards = EXPECTATIONS["guards"].parse({"checks": "CHECK: L['x']\nCHECK-NOT: DUPLICATE_INPUT"})
    assert guards.measurement() == {"words": ["DUPLICATE_INPUT"]}


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "is_decomposed"),
    [
        *((name, True) for name in ("aten.linear", "aten.batch_norm", "aten.silu.default")),
        *((name, True) for name in ("aten.relu_", "aten.matmul", "aten.layer_norm")),
        *((name, False) for name in ("aten.mm", "aten.addmm.default", "aten.sin", "aten.copy_")),
        *((name, False) for name in ("aten.convolution", "prims.exp", "aten.to", "placeholder")),
    ],
)
def test_operators_that_are_in_no_graph_below_autograd(name: str, is_decomposed: bool) -> None:
    import_torch()
    from torch_conformance.worker.torch_compat.compiling import is_decomposed as is_in_none

    assert is_in_none(name) is is_decomposed


def test_an_operator_that_torch_decomposes_is_an_error_where_it_does_not_occur() -> None:
    check = EXPECTATIONS["graph"].parse({"stage": "post_grad", "ops": {"aten.linear": 0}})

    def judged(ops: Mapping[str, int]) -> Status:
        graph = {"ops": ops, "text": "", "cut": False, "problem": ""}
        measured = {"available": True, "graphs": [graph], "unknown": [], "decomposed": []}
        measured["decomposed"] = ["aten.linear"]
        return check.judge(reading(measured=measured))[0].status

    assert judged({"aten.mm.default": 1}) is Status.ERROR
    assert judged({"aten.linear.default": 1}) is Status.FAILED


SINE = {"ops": {"aten.sin.default": 1, "placeholder": 1}, "text": "", "cut": False, "problem": ""}


@pytest.mark.parametrize(
    ("ops", "elsewhere", "is_hollow"),
    [
        ({"aten.mm": 0}, {}, True),
        ({"aten.mm": 0, "aten.cos": {"max": 1}}, {}, True),
        ({"aten.mm": 0, "aten.sin": 1}, {}, False),
        ({"aten.relu": 0}, {"torch.relu": 1}, False),
    ],
)
def test_an_operator_that_no_graph_has(ops: Any, elsewhere: Any, is_hollow: bool) -> None:
    of_step = {"available": True, "unknown": [], "never": [], "decomposed": []}
    before = [of_step | {"graphs": [SINE | {"ops": elsewhere}]}] if elsewhere else []
    claims = [expected("graph", {"stage": "dynamo", "ops": elsewhere}) for _ in before]
    claims.append(expected("graph", {"stage": "post_grad", "ops": ops}))
    measured = dict(enumerate([*before, of_step | {"graphs": [SINE]}]))
    known = seen(measured={str(index): facts for index, facts in measured.items()})
    assert (UNREACHED in survivors((tuple(claims), known))) == is_hollow


def test_every_number_of_graph_breaks_that_can_occur() -> None:
    known = {"recorded": True, "frames": 1, "reused": 0, "count": 0, "events": []}
    for most, is_hollow in ((1, True), (5, True), (0, False)):
        claim = expected("graph_breaks", {"count": {"max": most} if most else 0})
        found = survivors(((claim,), seen(measured={"0": known})))
        assert ("every count that can occur" in found) == is_hollow


def conditional(**code: str) -> Any:
    return expected("close", {"to": "eager", "when": {"code": code}})


def test_no_comparison_is_selected_by_the_code() -> None:
    from tests.fakes import close_facts, close_leaf

    runs = expected("runs", {})

    def outcome(*claims: Any) -> Outcome:
        measured = {str(index): close_facts(close_leaf()) for index, _ in enumerate(claims)}
        facts = observation(seen(code=1, measured=measured))
        return verdict_of(case(step(*claims, runs)), facts, code={(0, 0): "x = mm(y)"}).outcome

    assert outcome(conditional(contains="mmm")) is Outcome.ERROR
    assert outcome(conditional(contains="mmm"), conditional(lacks="mm")) is Outcome.ERROR
    assert outcome(conditional(contains="mmm"), conditional(lacks="mmm")) is not Outcome.ERROR


def raised(name: str, message: str) -> Raised:
    names = (f"builtins.{name}", "builtins.Exception", "builtins.BaseException", "builtins.object")
    return Raised(type=names[0], ancestors=names, message=message, traceback="", phase="trace")


@pytest.mark.parametrize(
    ("body", "name", "message", "is_hollow"),
    [
        ({}, "AttributeError", "module 'torch' has no attribute 'sinn'", True),
        ({"match": "has no attribute"}, "AttributeError", "it has no attribute 'sinn'", True),
        (
            {"match": "cosinus"},
            "AttributeError",
            "'Tensor' has no attribute 'cosinus'",
            False,
        ),
        ({}, "ValueError", "a bad shape", False),
        ({}, "KeyError", "'wiegth'", True),
        ({"match": "wiegth"}, "KeyError", "'wiegth'", False),
        ({}, "TypeError", "sum() got an unexpected keyword argument 'dimm'", True),
        ({}, "TypeError", "unsupported operand type(s) for +", False),
    ],
)
def test_what_a_typo_raises_in_eager_too(
    body: Any, name: str, message: str, is_hollow: bool
) -> None:
    check = EXPECTATIONS["raises"].parse({"as": "eager", **body})
    eager = {"type": f"builtins.{name}", "message": message}
    facts = reading(raised=raised(name, message), measured={"eager": eager})
    assert [judged.status for judged in check.judge(facts)] == [Status.HELD]
    names = {mutant.name for mutant in check.mutants(facts)}
    assert ("a misspelt name in the function" in names) == is_hollow


TRACEBACK = """\
Process SpawnProcess-1:
Traceback (most recent call last):
  File "spec.yaml", line 6, in wrong_size
    return torch.nothing(4)
           ^^^^^^^^^^^^^
AttributeError: module 'torch' has no attribute 'nothing'
"""


@pytest.mark.parametrize(
    ("text", "status", "is_hollow"),
    [
        ("wrong_size", Status.FAILED, None),
        ("torch.nothing(4)", Status.FAILED, None),
        ("has no attribute 'nothing'", Status.HELD, True),
        ("AttributeError: module 'torch'", Status.HELD, False),
    ],
)
def test_a_text_of_a_traceback_is_no_word_of_the_failure(
    text: str, status: Status, is_hollow: bool | None
) -> None:
    check = EXPECTATIONS["exit"].parse({"nonzero": True, "stderr": text})
    facts = reading(exit=ChildExit(code=1, stderr=TRACEBACK))
    assert [judged.status for judged in check.judge(facts)] == [status]
    if is_hollow is not None:
        names = {mutant.name for mutant in check.mutants(facts)}
        assert ("any AttributeError" in names) == is_hollow


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        ("{type: fell-back, match: ran}", "waives-any-of-a-type"),
        ("{type: crash, match: in phase}", "waives-any-of-a-type"),
        ("{type: close, match: output, error: {max: 1.0e+9}}", "waives-any-number"),
        ("{type: close, match: output, error: {max: 16}}", ""),
        ("{type: fell-back, match: Data dependent operator}", ""),
        ("{type: crash, match: killed by SIGSEGV}", ""),
    ],
)
def test_a_waiver_of_anything(tmp_path: Any, failure: str, code: str) -> None:
    file = tmp_path / "waivers.yaml"
    file.write_text(
        f"waivers:\n  - cases: 'area/*'\n    failure: {failure}\n    reason: a defect of torch\n"
        "    issue: JIRA-1\n    until: 2030-01-01\n"
    )
    problems: list[Any] = []
    read_waivers([file], None, problems)
    assert [problem.code for problem in problems] == ([code] if code else [])
