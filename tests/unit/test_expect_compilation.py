"""``kernels``, ``graph``, ``guards``, ``recompiles`` and ``graph_breaks`` judged on facts alone."""

from typing import Any

import pytest

from runner.model.case_facts import ChildExit
from runner.model.expectation import Judgement, Status
from runner.vocabulary.expectations import EXPECTATIONS
from runner.vocabulary.expectations.expectation_base import BadExpectation
from tests.fakes import ELSEWHERE, judged

HELD, FAILED, ERROR = Status.HELD, Status.FAILED, Status.ERROR

KINDS = ("kernels", "graph", "guards", "recompiles", "graph_breaks")
SMALLEST: dict[str, dict[str, Any]] = {
    "kernels": {"launched": 1},
    "graph": {"stage": "joint", "count": 1},
    "guards": {"count": 1},
    "recompiles": {"count": 0},
    "graph_breaks": {"count": 0},
}


def by_leaf(found: list[Judgement]) -> dict[str, Status]:
    return {one.leaf: one.status for one in found}


def refused(kind: str, body: Any) -> BadExpectation:
    with pytest.raises(BadExpectation) as caught:
        EXPECTATIONS[kind].parse(body)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_measurement_nothing_is_claimed(kind: str):
    assert {one.status for one in judged(kind, SMALLEST[kind])} == {ERROR}


@pytest.mark.parametrize("kind", KINDS)
def test_elsewhere_it_does_not_apply(kind: str):
    body = {**SMALLEST[kind], "when": ELSEWHERE}
    assert [one.status for one in judged(kind, body)] == [Status.NOT_APPLICABLE]


# -- kernels --------------------------------------------------------------------------------------------------------


def kernels(fused: int = 1, extern: int = 0, user: int = 0, **more: Any) -> dict[str, Any]:
    launched = {"fused": fused, "extern": extern, "user": user}
    known = {"recorded": True, "ran": 1, "uncounted": [], "uncompiled": [], "compiled": 1, "names": ["fused cpp_fused_add_0"]}
    return {"launched": launched, **known, **more}


@pytest.mark.parametrize(
    ("body", "facts", "status"),
    [
        ({"launched": 1}, kernels(1), HELD),
        ({"launched": 1}, kernels(2), FAILED),
        ({"launched": 1}, kernels(0), FAILED),
        ({"launched": 1}, kernels(0, 1), HELD),
        ({"launched": 1}, kernels(1, 1), FAILED),
        ({"launched": 1}, kernels(1, 0, 1), FAILED),
        ({"launched": 0}, kernels(0), HELD),
        ({"launched": {"min": 2}}, kernels(1, 1), HELD),
        ({"fused": 1}, kernels(1, 3, 2), HELD),
        ({"extern": 0}, kernels(1, 1), FAILED),
        ({"user": 1}, kernels(1, 0, 1), HELD),
        ({"compiled": 1}, kernels(5), HELD),
        ({"compiled": 1}, kernels(compiled=0), FAILED),
        ({"compiled": 0}, kernels(compiled=0), HELD),
        ({"compiled": 0}, kernels(compiled=0, ran=0), ERROR),
        ({"compiled": {"max": 2}}, kernels(compiled=0, ran=0), ERROR),
        ({"compiled": 1}, kernels(compiled=0, ran=0), FAILED),
        ({"compiled": 1}, kernels(compiled=1, ran=0), HELD),
    ],
)
def test_kernels(body: Any, facts: Any, status: Status):
    assert by_leaf(judged("kernels", body, measured=facts)) == {next(iter(body)): status}


@pytest.mark.parametrize("key", ["launched", "fused", "extern", "user"])
@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (kernels(ran=0), "the step ran no compiled graph of the case's function"),
        (kernels(uncounted=["a C++ wrapper"]), "a C++ wrapper"),
        (kernels(uncounted=["a C++ wrapper"], ran=0), "a C++ wrapper"),
        (kernels(recorded=False), "the backend of the case compiles nothing"),
    ],
)
def test_calls_that_were_not_counted_are_an_error(key: str, facts: Any, why: str):
    (judgement,) = judged("kernels", {key: 1}, measured=facts)
    assert (judgement.status, judgement.observed, judgement.leaf) == (ERROR, why, key)


def test_kernels_whose_compile_was_not_counted_are_an_error():
    found = judged("kernels", {"launched": 1, "compiled": 1}, measured=kernels(uncompiled=["a C++ wrapper"]))
    assert by_leaf(found) == {"launched": HELD, "compiled": ERROR}


def test_a_wrong_count_has_its_place():
    assert refused("kernels", {"launched": 1, "fused": {"min": 0}}).path == ("fused",)


# -- graph ----------------------------------------------------------------------------------------------------------

TEXT = """\
class <lambda>(torch.nn.Module):
    def forward(self, x: "f32[4, 4][4, 1]cpu"):
        # File: spec.yaml:5 in fn, code: return torch.relu(x @ x)
        mm: "f32[4, 4][4, 1]cpu" = torch.ops.aten.mm.default(x, x);  x = None
        return (mm,)
"""


def graph(text: str = TEXT, cut: bool = False, **ops: int) -> dict[str, Any]:
    return {"ops": {name.replace("_", "."): count for name, count in ops.items()}, "text": text, "cut": cut, "problem": ""}


def graphs(*found: dict[str, Any], unknown: tuple[str, ...] = (), available: bool = True) -> dict[str, Any]:
    return {"available": available, "unknown": list(unknown), "graphs": list(found)}


ONE = graphs(graph(aten_mm_default=1, aten_add_Tensor=2, aten_add_Scalar=1))
TWO = graphs(graph(aten_mm_default=1), graph(text="other = torch.ops.aten.sin.default(x)\n", aten_sin_default=2))


@pytest.mark.parametrize(
    ("body", "facts", "statuses"),
    [
        ({"count": 1}, ONE, {"count": HELD}),
        ({"count": 1}, TWO, {"count": FAILED}),
        ({"ops": {"aten.mm.default": 1}}, ONE, {"ops aten.mm.default": HELD}),
        ({"ops": {"aten.mm.default": 2}}, ONE, {"ops aten.mm.default": FAILED}),
        ({"ops": {"aten.sin": 0}}, ONE, {"ops aten.sin": HELD}),
        ({"ops": {"aten.add": 3, "aten.add.Tensor": 2}}, ONE, {"ops aten.add": HELD, "ops aten.add.Tensor": HELD}),
        ({"ops": {"aten.ad": 0}}, ONE, {"ops aten.ad": HELD}),
        ({"index": 1, "ops": {"aten.sin": 2, "aten.mm": 0}}, TWO, {"ops aten.sin": HELD, "ops aten.mm": HELD}),
        ({"index": "all", "ops": {"aten.sin": 2, "aten.mm": 1}}, TWO, {"ops aten.sin": HELD, "ops aten.mm": HELD}),
        ({"ops": {"aten.sin": 2}}, TWO, {"": ERROR}),
        ({"index": 2, "ops": {"aten.sin": 2}}, TWO, {"": ERROR}),
        ({"count": 2, "checks": "CHECK: mm"}, TWO, {"count": HELD, "": ERROR}),
        ({"checks": "CHECK: aten.mm.default"}, ONE, {"checks": HELD}),
        ({"checks": "CHECK: relu"}, ONE, {"checks": FAILED}),
        ({"index": 0, "checks": "CHECK: aten.sin"}, TWO, {"checks": FAILED}),
        ({"index": "all", "checks": "CHECK: aten.mm\nCHECK: aten.sin"}, TWO, {"checks": HELD}),
        ({"ops": {"torch.matmul": 0}}, graphs(graph(aten_mm=1)), {"ops torch.matmul": ERROR}),
        ({"ops": {"torch.sym_max": 0}}, graphs(graph(aten_mm=1)), {"ops torch.sym_max": HELD}),
        ({"ops": {"aten.mmm": 0}}, graphs(graph(aten_mm=1), unknown=("aten.mmm",)), {"ops aten.mmm": ERROR}),
        ({"checks": "CHECK: aten.mm"}, graphs(graph(cut=True)), {"checks": ERROR}),
        ({"count": 0}, graphs(), {"": ERROR}),
        ({"count": 1}, graphs(available=False), {"": ERROR}),
    ],
)
def test_graph(body: Any, facts: Any, statuses: dict[str, Status]):
    assert by_leaf(judged("graph", {"stage": "post_grad", **body}, measured=facts)) == statuses


def test_a_graph_that_could_not_be_read_is_an_error():
    facts = graphs({**graph(), "problem": "the graph cannot be read"})
    found = judged("graph", {"stage": "joint", "count": 1, "ops": {"aten.mm": 0}}, measured=facts)
    assert by_leaf(found) == {"count": HELD, "": ERROR}


def test_guards_that_could_not_be_read_are_an_error():
    assert by_leaf(judged("guards", {"count": {"max": 9}}, measured={**GUARDS, "problem": "guards cannot be read"})) == {"": ERROR}


def test_the_code_of_the_user_beside_a_graph_is_no_part_of_it():
    assert "torch.relu" in TEXT
    (judgement,) = judged("graph", {"stage": "joint", "checks": "CHECK: torch.relu"}, measured=ONE)
    assert judgement.status is FAILED


@pytest.mark.parametrize(
    ("body", "path", "words"),
    [
        ({"index": 1, "count": 2}, ("index",), "nothing is expected"),
        ({"ops": {"aten.mm": {"min": 0}}}, ("ops", "aten.mm"), "true for every count"),
        ({"ops": {"aten.mm": -1}}, ("ops", "aten.mm"), "less than 0"),
        ({"checks": "CHEKC: x"}, ("checks",), "CHEKC"),
        ({"checks": "CHECK-NOT: x"}, ("checks",), ""),
        ({"count": {"min": 0}}, ("count",), "true for every count"),
    ],
)
def test_a_graph_that_means_nothing_is_refused(body: Any, path: Any, words: str):
    error = refused("graph", {"stage": "dynamo", **body})
    assert error.path == path
    assert words in str(error)


# -- guards ---------------------------------------------------------------------------------------------------------

GUARDS = {
    "frames": 1,
    "problem": "",
    "count": 2,
    "texts": ["TENSOR_MATCH: check_tensor(L['x'], size=[4])", "LAMBDA_GUARD: 2 <= L['x'].size()[0]"],
}


@pytest.mark.parametrize(
    ("body", "statuses"),
    [
        ({"count": 2}, {"count": HELD}),
        ({"count": 1}, {"count": FAILED}),
        ({"contains": "L['x'].size()[0]"}, {"contains": HELD}),
        ({"contains": ["TENSOR_MATCH", "L['y']"]}, {"contains": FAILED}),
        ({"matches": "size=.4."}, {"matches": HELD}),
        ({"contains": "TENSOR_MATCH"}, {"contains": HELD}),
        ({"checks": "CHECK: TENSOR_MATCH"}, {"checks": HELD}),
        ({"matches": "size=.5."}, {"matches": FAILED}),
        ({"checks": "CHECK: TENSOR_MATCH\nCHECK-NEXT: 2 <= L['x']"}, {"checks": HELD}),
        ({"checks": "CHECK: TENSOR_MATCH\nCHECK-NOT: LAMBDA_GUARD"}, {"checks": FAILED}),
        (
            {"count": 2, "contains": "L['x']", "matches": "L.'x'", "checks": "CHECK: L['x']"},
            dict.fromkeys(["count", "contains", "matches", "checks"], HELD),
        ),
    ],
)
def test_guards(body: Any, statuses: dict[str, Status]):
    assert by_leaf(judged("guards", body, measured=GUARDS)) == statuses


def test_a_step_without_a_compile_has_no_guards_to_judge():
    (judgement,) = judged("guards", {"count": {"max": 3}}, measured={"frames": 0, "problem": "", "count": 0, "texts": []})
    assert judgement.status is ERROR


def test_guards_that_were_not_all_recorded_are_counted_and_not_read():
    found = judged("guards", {"count": 9, "checks": "CHECK: TENSOR_MATCH"}, measured={**GUARDS, "count": 9})
    assert by_leaf(found) == {"count": HELD, "": ERROR}


@pytest.mark.parametrize(
    ("body", "path"), [({"matches": "("}, ("matches",)), ({"matches": "x*"}, ("matches",)), ({"count": -1}, ("count",))]
)
def test_guards_with_wrong_arguments_are_refused(body: Any, path: Any):
    assert refused("guards", body).path == path


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"contains": "e"}, ("contains",)),
        ({"contains": ["L['x']", "']"]}, ("contains", 1)),
        ({"contains": "_GUARD"}, ("contains",)),
        ({"contains": "grad_mode"}, ("contains",)),
        ({"contains": "GLOBAL_STATE"}, ("contains",)),
        ({"contains": "LAMBDA_GUARD"}, ("contains",)),
        ({"contains": "check_tensor"}, ("contains",)),
        ({"contains": "_MATCH"}, ("contains",)),
        ({"contains": "torch.float32"}, ("contains",)),
        ({"matches": "."}, ("matches",)),
        ({"matches": "[A-Z_]+"}, ("matches",)),
        ({"matches": "[A-Z]+_MATCH: .*"}, ("matches",)),
        ({"matches": "size=.*"}, ("matches",)),
        ({"checks": "CHECK: e"}, ("checks",)),
        ({"checks": "CHECK: {{.+}}"}, ("checks",)),
        ({"checks": "CHECK: check_tensor\nCHECK-NOT: DUPLICATE"}, ("checks",)),
        ({"checks": "CHECK: STATE"}, ("checks",)),
    ],
)
def test_guards_that_mean_nothing_are_refused(body: Any, path: Any):
    assert refused("guards", body).path == path


# -- recompiles and graph breaks ------------------------------------------------------------------------------------


def events(*reasons: str, recorded: bool = True, count: int | None = None) -> dict[str, Any]:
    found = [{"frame": "fn", "reason": reason} for reason in reasons]
    return {"recorded": recorded, "frames": 1, "reused": 1, "count": len(found) if count is None else count, "events": found}


SIZE, DTYPE = "0/0: tensor 'x' size mismatch at index 0", "0/1: tensor 'x' dtype mismatch"


@pytest.mark.parametrize("kind", ["recompiles", "graph_breaks"])
@pytest.mark.parametrize(
    ("body", "facts", "statuses"),
    [
        ({"count": 0}, events(), {"count": HELD}),
        ({"count": 0}, events(SIZE), {"count": FAILED}),
        ({"count": 1}, events(SIZE), {"count": HELD}),
        ({"count": 1}, events(SIZE, SIZE), {"count": FAILED}),
        ({"count": 1}, events(), {"count": FAILED}),
        ({"count": 201}, events(SIZE, count=201), {"count": HELD}),
        ({"reason": {"contains": "size mismatch"}}, events(SIZE), {"count": HELD, "reason": HELD}),
        ({"reason": {"contains": "size mismatch"}}, events(), {"count": FAILED, "reason": FAILED}),
        ({"reason": {"contains": "size mismatch"}}, events(SIZE, DTYPE), {"count": HELD, "reason": FAILED}),
        ({"count": 2, "reason": {"contains": "mismatch"}}, events(SIZE, DTYPE), {"count": HELD, "reason": HELD}),
        ({"count": 2, "reason": {"matches": "(size|dtype) mismatch"}}, events(SIZE, DTYPE), {"count": HELD, "reason": HELD}),
        ({"reason": {"contains": "size", "matches": "index [12]"}}, events(SIZE), {"count": HELD, "reason": FAILED}),
        ({"count": 0}, events(recorded=False), {"": ERROR}),
    ],
)
def test_events(kind: str, body: Any, facts: Any, statuses: dict[str, Status]):
    assert by_leaf(judged(kind, body, measured=facts)) == statuses


def test_no_graph_break_of_nothing_that_was_traced_is_an_error():
    nothing = {**events(), "frames": 0}
    (judgement,) = judged("graph_breaks", {"count": 0}, measured=nothing)
    assert (judgement.status, judgement.expected) == (ERROR, "graph breaks: 0")
    assert "dynamo traced no frame" in judgement.observed
    assert by_leaf(judged("graph_breaks", {"count": 1}, measured=nothing)) == {"count": FAILED}
    assert by_leaf(judged("recompiles", {"count": 0}, measured=nothing)) == {"count": HELD}, "a call that is served compiles nothing again"


@pytest.mark.parametrize("body", [{"count": 0}, {"count": {"max": 2}}, {"count": {"any": [0, 1]}}])
@pytest.mark.parametrize(("frames", "why"), [(1, "compiled the functions of the step for the first time"), (0, "no code that dynamo had")])
def test_no_recompile_of_nothing_that_was_compiled_before_is_an_error(body: Any, frames: int, why: str):
    first = {**events(), "frames": frames, "reused": 0}
    (judgement,) = judged("recompiles", body, measured=first)
    assert judgement.status is ERROR
    assert judgement.observed.startswith(f"dynamo {why}" if frames else why)
    assert "add a call above this step" in judgement.observed
    assert by_leaf(judged("recompiles", {"count": 1}, measured=first)) == {"count": FAILED}
    assert by_leaf(judged("recompiles", body, measured={**first, "reused": 1})) == {"count": HELD}


@pytest.mark.parametrize("kind", ["recompiles", "graph_breaks"])
@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"count": 0, "reason": {"contains": "size"}}, ("reason",)),
        ({"reason": {"contains": "e"}}, ("reason", "contains")),
        ({"reason": {"contains": ["size", ": "]}}, ("reason", "contains", 1)),
        ({"reason": {"matches": "[a-z]+"}}, ("reason", "matches")),
        ({"reason": {"matches": "("}}, ("reason", "matches")),
        ({"count": {"min": 0}}, ("count",)),
    ],
)
def test_events_that_mean_nothing_are_refused(kind: str, body: Any, path: Any):
    assert refused(kind, body).path == path


# -- the output of a program ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "stdout", "statuses"),
    [
        ({"code": 0, "stdout": "ready"}, "it is ready\n", {"stdout": HELD}),
        ({"code": 0, "stdout": "ready"}, "", {"stdout": FAILED}),
        ({"code": 0, "stdout": ["it", "ready"], "stderr": "warned"}, "it is ready", {"": HELD, "stdout": HELD}),
        ({"code": 0, "stdout": "ready"}, None, {"stdout": ERROR}),
        ({"code": 1, "stdout": "ready"}, "ready", {"": FAILED}),
    ],
)
def test_standard_output(body: Any, stdout: str | None, statuses: dict[str, Status]):
    assert by_leaf(judged("exit", body, exit=ChildExit(code=0, stderr="it warned", stdout=stdout))) == statuses
