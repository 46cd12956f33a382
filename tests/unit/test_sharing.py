"""Which cases share a worker: those whose specs say so, and none that uses what outlives a case."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from runner.language.load import Suite
from runner.plan.isolation import OWN_PROCESS, why_alone
from runner.vocabulary.steps import STEPS

FUNCTION = "function: |\n  def fn(x):\n      return x * 2\ninputs: [{rand: [2]}]\n"
EXPECT = "expect: [{runs: {}}]\n"
SPEC = f"summary: A case that says how it runs\nbackends: [cpu]\n{FUNCTION}"


@pytest.fixture
def why(load_suite: Callable[..., Suite]) -> Callable[..., str]:
    def of(text: str, **files: str) -> str:
        (case,) = load_suite({"spec.yaml": text, **files}).cases
        return why_alone(case)

    return of


Why = Callable[..., str]


def test_a_spec_that_says_nothing_is_alone(why: Why) -> None:
    assert why(SPEC + EXPECT) == "its spec does not have 'isolation: worker'"


def test_a_spec_that_says_case_is_alone(why: Why) -> None:
    assert why(SPEC + EXPECT + "isolation: case\n") == "its spec does not have 'isolation: worker'"


def test_a_spec_that_says_worker_shares(why: Why) -> None:
    assert why(SPEC + EXPECT + "isolation: worker\n") == ""


def test_a_folder_says_it_for_its_specs_and_a_spec_may_say_otherwise(why: Why) -> None:
    defaults = {"_defaults.yaml": "isolation: worker\n"}
    assert why(SPEC + EXPECT, **defaults) == ""
    assert why(SPEC + EXPECT + "isolation: case\n", **defaults) != ""


ALONE: dict[str, str] = {
    "spies": SPEC
    + "prelude: |\n  def seen(*args, **kwargs): return {}\n"
    + "spies: {lookup: {function: torch._inductor.compile_fx.compile_fx_inner, record: seen}}\n"
    + "expect: [{calls: {of: lookup, count: {min: 1}}}]\n",
    "handlers": "summary: A case with a handler\nbackends: [host]\nprelude: |\n  def quiet(): return 1\n  def check(): return 1\n"
    + "let: {one: {call: quiet}}\nhandlers: {debug: {ref: one}}\n"
    + "steps: [{api: {call: check, as: found}, expect: [{equals: {found: 1}}]}]\n",
    "services": SPEC + "services: [redis]\n" + EXPECT,
    "script": "summary: A case with a script\nbackends: [host]\n"
    + 'let: {one: {value: 1}}\nsteps: [{script: {code: "def run(one): return one", as: found}, expect: [{equals: {found: 1}}]}]\n',
    "spawn": "summary: A case with a child\nbackends: [host]\nprelude: |\n  def child(): pass\n"
    + "steps: [{spawn: {call: child}, expect: [{exit: {code: 0}}]}]\n",
    "aot": SPEC + "steps: [{aot: {}, expect: [{close: {to: eager}}]}]\n",
    "bench": SPEC + "steps: [{call: {}, expect: [{close: {to: eager}}]}, {bench: {eager: true}}]\n",
    "processes": SPEC + EXPECT + "config: {compile_threads: 2}\n",
}
"""For each row of the table, a spec that uses what it names."""


def test_every_row_has_a_spec() -> None:
    steps = {word for word, kind in STEPS.items() if kind.traits.own_process}
    assert set(ALONE) | {"device"} == set(OWN_PROCESS) | steps


def test_a_device_of_a_vendor_is_alone(load_suite: Callable[..., Suite]) -> None:
    """No spec uses it: a backend does."""
    (case,) = load_suite({"spec.yaml": SPEC + EXPECT + "isolation: worker\n"}).cases
    assert why_alone(dataclasses.replace(case, module="vendor.device")) == f"device: {OWN_PROCESS['device'][1]}"


@pytest.mark.parametrize("row", ALONE)
def test_what_outlives_a_case_is_alone(row: str, why: Why) -> None:
    reason = OWN_PROCESS[row][1] if row in OWN_PROCESS else STEPS[row].traits.own_process
    assert why(ALONE[row] + "isolation: worker\n") == f"{row}: {reason}"


@pytest.mark.parametrize(
    ("config", "shares"),
    [
        ("{max_autotune: false}", True),
        ("{compile_threads: 1}", True),
        ("{compile_threads: null}", True),
        ("{compile_threads: 2}", False),
        ("{autotune_in_subproc: true}", False),
        ("{autotune_in_subproc: false}", True),
        ("{worker_start_method: spawn}", True),
    ],
)
def test_what_starts_a_pool(config: str, shares: bool, why: Why) -> None:
    assert (why(SPEC + EXPECT + f"isolation: worker\nconfig: {config}\n") == "") is shares


def test_the_first_reason_is_given(why: Why) -> None:
    found = why(ALONE["spies"] + "isolation: worker\nconfig: {compile_threads: 2}\n")
    assert found.startswith("spies: ")


def test_each_reason_is_a_sentence_of_its_own() -> None:
    reasons: list[Any] = [reason for _, reason in OWN_PROCESS.values()]
    assert len(set(reasons)) == len(reasons)
    assert all(reasons)
