"""From a case to what its worker is told: the seed, the digest, the measurements, whether the
reference is needed.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import ELSEWHERE, HERE, ROOT, case, expected, shipped, step
from torch_conformance.execute.executor_protocol import with_paths
from torch_conformance.language.expand import surroundings_for
from torch_conformance.language.load import load, surroundings_of
from torch_conformance.language.read.templates import Deferred, TemplateError, parse
from torch_conformance.model.case import Case
from torch_conformance.model.protocol import decode
from torch_conformance.plan.worker_plan import digest_of, make_plan, seed_of
from torch_conformance.vocabulary.steps import expects_raise

SPEC = """
summary: A spec that the plans are made from
backends: [cpu, cuda]
matrix: {size: [2, 3]}
config: {max_autotune: false, freezing: false}
function: |
  def fn(x):
      return x + 1
inputs: [{rand: ["{{ size }}"]}]
steps:
  - call: {as: first}
    expect: [{close: {to: eager}}, {counter: {inductor.fxgraph_cache_miss: 1}}, {strides: {equals: [1]}}]
  - call: {}
    expect: [{equals: {first: [.nan, 1]}}]
"""  # noqa: E501 - text that is read by its lines


def cases_of(text: str, folder: Path, name: str = "spec") -> dict[str, Case]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return {one.id: one for one in load([path]).cases}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    return cases_of(SPEC, tmp_path_factory.mktemp("specs"))


def plan_of(one: Case, facts: Any = None) -> dict[str, Any]:
    here = surroundings_for(shipped()[one.backend], HERE)
    return with_paths(
        make_plan(one, here, facts or {}), Path("/run/cases/00001"), Path("/scratch/00001")
    )


def test_a_plan_is_plain_json_and_says_where_to_work(cases):
    plan = plan_of(cases["spec[backend=cpu,size=2]"])
    assert json.loads(json.dumps(plan, allow_nan=False)) == plan
    assert (plan["id"], plan["device"], plan["backend"]) == (
        "spec[backend=cpu,size=2]",
        "cpu",
        "cpu",
    )
    assert (plan["folder"], plan["cache"]) == ("/run/cases/00001", "/scratch/00001")
    assert plan["params"] == {"size": 2}
    assert plan["body"]["config"] == {"max_autotune": False, "freezing": False}
    assert plan["body"]["inputs"] == [{"rand": [2]}]


def test_the_worker_is_asked_for_what_needs_measuring_by_index(cases):
    first, second = plan_of(cases["spec[backend=cpu,size=2]"])["steps"]
    assert [(one["index"], one["kind"]) for one in first["measure"]] == [
        (0, "close"),
        (2, "strides"),
    ]
    assert second["measure"] == [
        {"index": 0, "kind": "equals", "arguments": {"pairs": {"first": [{"$float": "nan"}, 1]}}}
    ]
    assert decode(second["measure"][0]["arguments"])["pairs"]["first"][1] == 1
    assert (first["kind"], first["arguments"], first["expects_raise"]) == (
        "call",
        {"as": "first"},
        False,
    )


def test_the_reference_is_run_only_where_something_is_compared_with_it():
    close, named = expected("close", {"to": "eager"}), expected("close", {"of": "a", "to": "b"})
    body = {"compiles": True, "config": {}}
    for steps, needed in (
        [(step(named), step(close)), True],
        [(step(named),), False],
        [(step(),), False],
    ):
        assert make_plan(case(*steps, body=body), HERE, {})["needs_eager"] is needed


def test_every_backend_sees_the_same_numbers_and_every_point_others(cases):
    seeds = {name: seed_of(one) for name, one in cases.items()}
    assert seeds["spec[backend=cpu,size=2]"] == seeds["spec[backend=cuda,size=2]"]
    assert seeds["spec[backend=cpu,size=2]"] != seeds["spec[backend=cpu,size=3]"]
    assert all(0 <= seed < 2**32 for seed in seeds.values())


def test_the_seed_depends_on_nothing_but_the_id(cases, tmp_path):
    other = SPEC.replace("x + 1", "x + 2").replace("max_autotune: false", "max_autotune: true")
    again = cases_of(other, tmp_path / "elsewhere")
    renamed = cases_of(SPEC, tmp_path, "renamed")
    assert seed_of(again["spec[backend=cpu,size=2]"]) == seed_of(cases["spec[backend=cpu,size=2]"])
    assert seed_of(renamed["renamed[backend=cpu,size=2]"]) != seed_of(
        cases["spec[backend=cpu,size=2]"]
    )


CHANGES = [
    ("x + 1", "x + 2"),
    ("max_autotune: false", "max_autotune: true"),
    ("fxgraph_cache_miss: 1", "fxgraph_cache_miss: 2"),
    ("{to: eager}", "{to: eager, atol: 1, rtol: 1}"),
    ("equals: [1]", "equals: [2]"),
    ('{rand: ["{{ size }}"]}', '{rand: ["{{ size + 1 }}"]}'),
    ("{rand: [", "{randn: ["),
    ("  - call: {}", "  - call: {eager: true}"),
    ("function: |", "context: [no_grad]\nfunction: |"),
    ("function: |", "prelude: |\n  a = 1\nfunction: |"),
    ("function: |", "compile: {dynamic: true}\nfunction: |"),
    ("function: |", "env: {A: '1'}\nfunction: |"),
    ("function: |", "torch: {seed: 1}\nfunction: |"),
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_whatever_is_run_or_judged_is_in_the_digest(cases, tmp_path, old, new):
    assert SPEC.count(old) == 1
    name = "spec[backend=cpu,size=3]"
    assert digest_of(cases_of(SPEC.replace(old, new), tmp_path)[name]) != digest_of(cases[name])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A spec that", "Another that"),
        ("function: |", "# a line\n\nfunction: |"),
        ("function: |", "tags: [a]\nfunction: |"),
        ("{max_autotune: false, freezing: false}", "{freezing: false, max_autotune: false}"),
    ],
)
def test_what_is_only_said_is_not(cases, tmp_path, old, new):
    again = cases_of(SPEC.replace(old, new), tmp_path)
    assert {name: digest_of(one) for name, one in again.items()} == {
        name: digest_of(one) for name, one in cases.items()
    }


def test_an_exception_is_expected_where_the_condition_holds():
    raises = {"type": "ValueError"}
    assert expects_raise(step(expected("counter", {"a.b": 1}), expected("raises", raises)), HERE)
    assert not expects_raise(step(expected("raises", {**raises, "when": ELSEWHERE})), HERE)
    assert not expects_raise(step(expected("runs", {})), HERE)
    assert not expects_raise(step(), HERE)


def test_facts_are_filled_in_and_one_that_is_missing_is_told():
    deferred = Deferred(parse("{{ facts.ck_dir }}"), {})
    wanting = case(step(kind="api", args=[deferred]), body={"config": {"rocm.ck_dir": deferred}})
    plan = make_plan(wanting, HERE, {"ck_dir": "/ck"})
    assert plan["body"]["config"] == {"rocm.ck_dir": "/ck"}
    assert plan["steps"][0]["arguments"] == {"call": "operator.add", "args": ["/ck"]}
    with pytest.raises(TemplateError):
        make_plan(wanting, HERE, {})


# -- the form of a plan ----------------------------------------------------------------------------

PLANS = ROOT / "tests" / "data" / "plan"
DIGESTS = {
    2: "f1c6a5f81daa2da4c686ec50f6a9401785a0b04b1ed27cabd92110e24393d33d",
    3: "ddaee6407bb5ebce24698a286cc90cb0e912320ad9b552834997d754c5777d5d",
}


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> dict[int, Case]:
    """The cases of a spec with every section, by size; their backend stands beside it."""
    monkeypatch.chdir(ROOT)
    suite = load([PLANS / "area"], [PLANS / "backends.yaml"], surroundings_of("2.13.0", None))
    return {one.params["size"]: one for one in suite.cases}


def test_digests_are_those_of_recorded_runs(planned: dict[int, Case]) -> None:
    """A journal's digests tie it to its cases for --resume, merge and audit: another digest makes
    every recorded run another run.
    """
    assert {size: digest_of(one) for size, one in planned.items()} == DIGESTS


def test_a_plan_has_the_form_that_a_worker_reads(planned: dict[int, Case]) -> None:
    """The recorded plan has every key of the body, each with a value that a spec wrote where it may
    write one.
    """
    plan = with_paths(
        make_plan(planned[3], HERE, {"ck_dir": "/opt/ck"}),
        Path("/run/cases/00001"),
        Path("/scratch/00001"),
    )
    assert (
        json.dumps(plan, indent=1).replace(str(PLANS), "tests/data/plan") + "\n"
        == (PLANS / "every-section.json").read_text()
    )
    empty = {name for name, value in plan["body"].items() if value in ({}, [], None)}
    assert empty == {"handlers"}
