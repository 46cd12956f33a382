"""``source: {opinfo: ...}`` without torch: the cases that a table gives, what may stand beside a
source, and how samples are judged.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import (
    HERE,
    case,
    close_facts,
    close_leaf,
    expected,
    observation,
    reading,
    seen,
    step,
    verdict_of,
)
from torch_conformance.language import operators, torch_names
from torch_conformance.language.load import Suite, load
from torch_conformance.language.operators import JUDGED, operators_for
from torch_conformance.machine.installed_torch import installed_torch, minor
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.outcomes import Outcome
from torch_conformance.plan.selection import is_of_operator
from torch_conformance.plan.worker_plan import digest_of, make_plan, seed_of
from torch_conformance.vocabulary.expectations.close import Close
from torch_conformance.vocabulary.steps import is_partial
from torch_conformance.vocabulary.steps.samples import FORM, EachSample

LoadSuite = Callable[..., Suite]

SPEC = """\
summary: Some operators compute what eager computes
backends: [cpu]
source: {opinfo: {dtypes: [float32, int64], samples: first}}
compile: {dynamic: "{{ dynamic }}"}
matrix: {dynamic: [false, true]}
expect: [{close: {to: eager}}]
"""

LISTED = {
    "float32 int64; ; inplace out core-pointwise": ["add"],
    "float32; +int64; ": ["div-floor_rounding"],
    "float32; ; ": [
        "empty",
        "jiterator_unary",
        "sparse.mm-reduce",
        "torch.ops.aten._flash_attention_forward",
    ],
}


def write_list(
    file: Path, version: str, listed: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replace the committed list by one with operators alone."""
    names = [["operator", f"{minor(version)}-", said, labels] for said, labels in listed.items()]
    file.write_text(json.dumps({"torch": [version], "names": names}))
    monkeypatch.setattr(torch_names, "LIST", file)
    monkeypatch.setattr(operators, "committed_tables", torch_names.committed_tables.__wrapped__)
    monkeypatch.setattr(operators, "load", operators.load.__wrapped__)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some operators for any torch."""
    installed = installed_torch()
    write_list(
        tmp_path / "names.json", installed.version if installed else "9.1", LISTED, monkeypatch
    )


def ids(suite: Suite) -> list[str]:
    return [case.id for case in suite.cases]


# -- cases -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_each_operator_and_dtype_is_a_case_at_each_point(load_suite: LoadSuite) -> None:
    assert ids(load_suite({"ops/all.yaml": SPEC.replace("[false, true]", "[false]")})) == [
        "ops/all[backend=cpu,op=add,dtype=float32,dynamic=false]",
        "ops/all[backend=cpu,op=add,dtype=int64,dynamic=false]",
        "ops/all[backend=cpu,op=div-floor_rounding,dtype=float32,dynamic=false]",
        "ops/all[backend=cpu,op=empty,dtype=float32,dynamic=false]",
        "ops/all[backend=cpu,op=sparse.mm-reduce,dtype=float32,dynamic=false]",
        "ops/all[backend=cpu,op=torch.ops.aten._flash_attention_forward,dtype=float32,dynamic=false]",
    ]


@pytest.mark.usefixtures("small")
def test_operators_that_eager_refuses_on_a_device_have_no_case_there(load_suite: LoadSuite) -> None:
    found = {
        device: {
            case.params["op"] for case in load_suite(SPEC.replace("[cpu]", f"[{device}]")).cases
        }
        for device in ("cpu", "cuda")
    }
    assert found["cuda"] - found["cpu"] == {"jiterator_unary"}
    assert found["cpu"] - found["cuda"] == {"sparse.mm-reduce"}


REFUSING = {
    "bfloat16 bool float32 float64 int64; ; inplace out promotes": ["sqrt"],
    "bfloat16 bool float32 float64 int64; ; out": ["equal", "narrow_copy"],
    "bfloat16 bool float32 float64 int64; ; inplace out": ["float_power"],
}


@pytest.mark.parametrize(
    ("device", "dtype", "labels"),
    [
        ("cpu", "float32", "sqrt_ sqrt.out float_power.out narrow_copy.out"),
        ("cuda", "float32", "sqrt_ sqrt.out float_power.out"),
        ("cuda:1", "float32", "sqrt_ sqrt.out float_power.out"),
        ("cpu", "float64", "sqrt_ sqrt.out float_power_ float_power.out narrow_copy.out"),
        ("cpu", "bfloat16", "sqrt_ sqrt.out float_power.out narrow_copy.out"),
        ("cpu", "int64", "sqrt.out float_power.out narrow_copy.out"),
        ("cpu", "bool", "sqrt.out float_power.out narrow_copy.out"),
    ],
)
def test_calls_that_eager_refuses_have_no_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, dtype: str, labels: str
) -> None:
    write_list(tmp_path / "names.json", "9.2", REFUSING, monkeypatch)
    cases = operators.rows(operators.load("9.2"), device, [dtype], ["inplace", "out"])
    assert {operator.label(call) for operator, call, dtypes in cases if dtypes} == {*labels.split()}


@pytest.mark.usefixtures("small")
def test_calls_in_place_and_with_out_have_names_of_their_own(load_suite: LoadSuite) -> None:
    text = (
        SPEC.replace("samples: first", "calls: [inplace, out]")
        .replace("[false, true]", "[true]")
        .replace("float32, int64", "int64")
    )
    assert ids(load_suite(text)) == [
        "spec[backend=cpu,op=add_,dtype=int64,dynamic=true]",
        "spec[backend=cpu,op=add.out,dtype=int64,dynamic=true]",
    ]


@pytest.mark.usefixtures("small")
def test_core_operators_have_a_tag_and_can_be_taken_alone(load_suite: LoadSuite) -> None:
    every, core = (
        load_suite(SPEC.replace("samples: first", text)).cases
        for text in ("operators: all", "operators: core")
    )
    assert {case.params["op"]: case.tags for case in core} == {"add": ("core-pointwise",)}
    assert [case.id for case in core] == [case.id for case in every if case.tags]


@pytest.mark.usefixtures("small")
def test_each_case_names_its_operator_and_draws_numbers_of_its_own(load_suite: LoadSuite) -> None:
    cases = load_suite(SPEC).cases
    arguments = cases[0].steps[0].arguments
    assert (arguments["op"], arguments["dtype"], arguments["samples"], arguments["gradients"]) == (
        "add",
        "float32",
        "first",
        True,
    )
    assert cases[0].params == {"op": "add", "dtype": "float32", "dynamic": False}
    assert {is_partial(one.steps[0]) for one in cases} == {True}
    assert {
        is_partial(one.steps[0])
        for one in load_suite(SPEC.replace("samples: first", "samples: all")).cases
    } == {False}
    assert (
        len({seed_of(one) for one in cases}) == len({digest_of(one) for one in cases}) == len(cases)
    )
    (wanted,) = make_plan(cases[0], HERE, {})["steps"][0]["measure"]
    assert wanted["kind"] == "samples", "each sample is measured as close is"


@pytest.mark.usefixtures("small")
def test_an_operator_without_values_is_judged_by_its_form(load_suite: LoadSuite) -> None:
    rules = {
        one.steps[0].arguments["op"]: one.steps[0].expectations[0].check
        for one in load_suite(SPEC).cases
    }
    assert isinstance(rules["empty"], EachSample)
    assert (rules["empty"].rule, rules["add"].rule) == (FORM, "close")  # type: ignore[attr-defined]  # each is EachSample


@pytest.mark.usefixtures("small")
def test_parts_without_values_of_their_own_are_judged_by_their_form(load_suite: LoadSuite) -> None:
    checks = {
        one.steps[0].arguments["op"]: one.steps[0].expectations[0].check
        for one in load_suite(SPEC).cases
    }
    check = checks["torch.ops.aten._flash_attention_forward"]
    assert isinstance(check, EachSample)
    assert (check.rule, check.parts) == ("close", ("['result'][2]", "['result'][3]"))
    assert "memory" in check.reason


def test_a_torch_that_the_list_does_not_have_has_the_newest_ones_cases() -> None:
    newest = [*torch_names.committed_tables()][-1]
    assert operators_for("9.9") == operators_for(None) == operators_for(newest)


def test_the_list_gives_each_case_one_id() -> None:
    for of in torch_names.committed_tables():
        labels = [
            operator.label(call) for operator in operators.load(of) for call in operator.calls
        ]
        assert len(labels) == len(set(labels)), "a name would stand for two operators"
        assert all(
            set(label) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
            for label in labels
        )
        assert set(JUDGED) <= {operator.op for operator in operators.load(of)}, (
            "a rule for an operator that is not there"
        )
        assert set(operators.REFUSED) <= set(labels), "a call that is not there"


def test_the_shipped_specs_are_listed_from_the_table() -> None:
    root = Path(__file__).resolve().parents[3]
    cases = load([root / "specs" / "operators"]).cases
    assert all(one.on_request and is_of_operator(one) for one in cases)
    assert len({one.id for one in cases}) == len(cases) > 20_000


# -- what is wrong with a source -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("[cpu]", "[host]"), "3:10 step"),
        (("expect: [{close: {to: eager}}]\n", ""), "1:1 expects-nothing"),
        (("samples: first", "samples: some"), "3:54 unknown-word"),
        (("samples: first", 'samples: first, gradients: "{{ dynamic }}"'), "3:72 unknown-word"),
    ],
)
def test_a_source_that_makes_no_sense(
    codes_of: Callable[..., list[str]], change: tuple[str, str], code: str
) -> None:
    assert codes_of(SPEC.replace(*change)) == [code]


# -- the judge -------------------------------------------------------------------------------------


def entry(index: int, **changes: Any) -> dict[str, Any]:
    """Return what a worker measures of one sample: equal results."""
    clean = {
        "refused": "",
        "no_gradients": "",
        "raised": None,
        "graphs": 1,
        "value": close_facts(close_leaf()),
        "why_not": "",
    }
    return {"index": index, "text": f"0: float32[{index}] strides [1]", **clean, **changes}


JUDGED_BY = "{} values within tolerance (no float64 reference: none here)"
WRONG = close_facts(close_leaf(excess=1.0, max_abs=1.0, mismatches=1))
RAISED = {
    "type": "torch._inductor.exc.InductorError",
    "message": "no such lowering\nmore",
    "phase": "lower",
}


def judged(*entries: Any, rule: str = "close") -> Verdict:
    (found,) = EachSample(check=Close(), rule=rule).judge(
        reading(measured={"samples": list(entries)})
    )
    return found


def test_all_samples_close() -> None:
    found = judged(
        entry(0),
        entry(1, refused="ValueError: no"),
        entry(2, graphs=0),
        entry(3, no_gradients="RuntimeError: none"),
    )
    assert found.status is Status.HELD
    counted = (
        "3 samples compared, 1 refused by eager, 1 without gradients, 1 without a compiled graph"
    )
    assert found.observed == f"{counted}; {JUDGED_BY.format(4)}"


def test_the_first_failed_sample_is_shown_and_the_others_are_named() -> None:
    found = judged(entry(0), entry(1, value=WRONG), entry(2), entry(3, raised=RAISED, value=None))
    assert found.status is Status.FAILED
    assert found.expected.startswith("sample 1: output within atol=1e-05")
    assert "2 of 4 samples failed\nsample 1: 0: float32[1] strides [1]" in found.detail
    assert (
        "sample 3: torch._inductor.exc.InductorError in phase 'lower': no such lowering"
        in found.detail
    )


@pytest.mark.parametrize("entries", [[], [entry(0, refused="ValueError: no", value=None)]])
def test_samples_that_eager_refuses_claim_nothing(entries: list[Any]) -> None:
    assert judged(*entries).status is Status.ERROR


def test_equally_empty_results_claim_nothing() -> None:
    empty = entry(0, value=close_facts())
    assert judged(empty).status is Status.ERROR
    assert (
        judged(empty, entry(1)).observed
        == f"1 sample compared, 1 without a value; {JUDGED_BY.format(1)}"
    )
    assert judged(entry(1), entry(0, value=close_facts(structure="(*)"))).status is Status.FAILED


def test_a_value_that_was_not_compared_is_an_error() -> None:
    assert judged(entry(0), entry(1, value=None, why_not="TypeError: no")).status is Status.ERROR
    (nothing,) = EachSample(check=Close()).judge(reading())
    assert nothing.status is Status.ERROR


def test_the_form_is_judged_without_values() -> None:
    assert judged(entry(0, value=WRONG), rule=FORM).status is Status.HELD
    other = close_facts(close_leaf(dtype="float64"))
    assert judged(entry(0, value=other), rule=FORM).status is Status.FAILED
    assert (
        judged(entry(0, value={**WRONG, "structure": "other"}), rule=FORM).status is Status.FAILED
    )


def test_the_form_of_parts_is_judged_and_the_values_of_all_others() -> None:
    check = EachSample(check=Close(), parts=("[1]",), reason="it is uninitialised")
    right, wrong = (
        close_leaf(path="[0]"),
        close_leaf(path="[1]", excess=1.0, max_abs=1.0, mismatches=1),
    )

    def status(*leaves: Any) -> Status:
        (found,) = check.judge(
            reading(measured={"samples": [entry(0, value=close_facts(*leaves))]})
        )
        if found.status is Status.HELD:
            assert found.observed.endswith(
                f"{JUDGED_BY.format(1)}, 1 value by the form (it is uninitialised)"
            )
        return found.status

    assert status(right, wrong) is Status.HELD
    assert status({**wrong, "path": "[0]"}, {**right, "path": "[1]"}) is Status.FAILED
    assert status(right, {**wrong, "dtype": "float64"}) is Status.FAILED
    assert status(right, {**wrong, "shape": [7]}) is Status.FAILED
    stand_ins = {"stand_ins": {"zeros": {"excess": 2.0, "max_abs": 2.0, "mismatches": 3}}}
    facts = reading(
        measured={
            "samples": [entry(0, value=close_facts({**right, **stand_ins}, {**wrong, **stand_ins}))]
        }
    )
    (mutant,) = [one for one in check.mutants(facts) if one.facts is not None]
    assert check.judge(mutant.facts)[0].status is Status.FAILED


def test_mutants_are_those_of_the_first_sample_with_elements() -> None:
    leaf = close_leaf(stand_ins={"zeros": {"excess": 2.0, "max_abs": 2.0, "mismatches": 3}})
    check = EachSample(check=Close())
    nothing = entry(1, value=close_facts(close_leaf(numel=0, shape=[0], reference_shape=[0])))
    facts = reading(
        measured={
            "samples": [
                entry(0, refused="no", value=None),
                nothing,
                entry(2, value=close_facts(leaf)),
                entry(3),
            ]
        }
    )
    mutants = [mutant for mutant in check.mutants(facts) if mutant.facts is not None]
    assert [mutant.name for mutant in mutants] == ["zeros"]
    (found,) = check.judge(mutants[0].facts)
    assert found.status is Status.FAILED


# -- the proof -------------------------------------------------------------------------------------


def proven(**facts: Any) -> Outcome:
    measured = {"measured": {"0": {"samples": [entry(0, graphs=0)]}}}
    check = dataclasses.replace(step(kind="samples"), arguments={"op": "conj", "dtype": "float32"})
    close = dataclasses.replace(expected("close", {"to": "eager"}), check=EachSample(check=Close()))
    made = case(dataclasses.replace(check, expectations=(close,)))
    step_facts = seen(**{"entered": 0, "graphs": [], "executed": {}, **measured, **facts})
    del step_facts["effects"]  # the step compares none
    return verdict_of(made, observation(step_facts)).outcome


def test_an_operator_without_an_operation_needs_no_graph() -> None:
    whole = {"frames": {"total": 2, "ok": 2}}
    assert proven(counters=whole) is Outcome.PASS
    assert proven(counters=whole, graphs=[[]]) is Outcome.PASS, (
        "its result has no elements: the graph is for no device"
    )
    assert proven(counters=whole, graphs=[["cpu"]]) is Outcome.FELL_BACK, (
        "a graph that was not called"
    )
    assert proven(counters={**whole, "graph_break": {"data-dependent": 1}}) is Outcome.FELL_BACK
    assert proven(counters={"frames": {"total": 2, "ok": 1}}) is Outcome.FELL_BACK
    assert proven(counters={}) is Outcome.FELL_BACK
    assert proven(counters=whole, abandoned=["RecompileLimit: 8"]) is Outcome.FELL_BACK


def test_a_sample_that_ran_eagerly_fails_the_proof_though_others_ran_compiled() -> None:
    """Eager compared with eager cannot differ."""
    ran = {"entered": 3, "graphs": [["cpu"]], "executed": {"cpu": 3}}
    assert proven(**ran) is Outcome.PASS
    assert proven(**ran, uncompiled=[]) is Outcome.PASS
    assert proven(**ran, uncompiled=["sample 1: dynamo broke the graph: x"]) is Outcome.FELL_BACK
