"""``raises``, ``runs`` and ``filecheck`` judged on facts alone."""

import dataclasses
from functools import partial
from typing import Any

import pytest

from runner.model.case_facts import Cause, Raised
from runner.model.expectation import Status
from runner.model.matching import filecheck, patterns
from runner.vocabulary.expectations.expectation_base import BadExpectation
from runner.vocabulary.expectations.filecheck import FileCheck
from runner.vocabulary.expectations.texts import Raises
from tests.fakes import ELSEWHERE, judged


def raised(type_: str = "builtins.KeyError", message: str = "'no such key'", *ancestors: str) -> Raised:
    every = (type_, *ancestors, "builtins.LookupError", "builtins.Exception", "builtins.BaseException", "builtins.object")
    return Raised(type=type_, ancestors=every, message=message, traceback="Traceback ...", phase="trace")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"type": "KeyError"}, Status.HELD),
        ({"type": "builtins.KeyError"}, Status.HELD),
        ({"type": "LookupError"}, Status.HELD),
        ({"type": "Exception"}, Status.HELD),
        ({"type": "ValueError"}, Status.FAILED),
        ({"type": "Key"}, Status.FAILED),
        ({"type": "other.KeyError"}, Status.FAILED),
        ({"type": "KeyError", "match": "such key"}, Status.HELD),
        ({"type": "KeyError", "match": "^'no"}, Status.HELD),
        ({"type": "KeyError", "match": "^such"}, Status.FAILED),
        ({"type": "KeyError", "match": "another"}, Status.FAILED),
        ({"type": "ValueError", "match": "such key"}, Status.FAILED),
    ],
)
def test_type_and_text(body: Any, status: Status):
    (judgement,) = judged("raises", body, raised=raised())
    assert judgement.status is status
    assert judgement.observed == "builtins.KeyError: 'no such key'"


BY_ZERO = Cause(type="builtins.ZeroDivisionError", ancestors=("builtins.ZeroDivisionError", "builtins.ArithmeticError"), message="by zero")
NO_KEY = Cause(type="builtins.KeyError", ancestors=("builtins.KeyError", "builtins.LookupError"), message="'x'")


@pytest.mark.parametrize(
    ("cause", "status"),
    [
        ({"type": "ZeroDivisionError"}, Status.HELD),
        ({"type": "ArithmeticError", "match": "zero$"}, Status.HELD),
        ({"type": "KeyError"}, Status.HELD),
        ({"type": "ValueError"}, Status.FAILED),
        ({"type": "KeyError", "match": "zero"}, Status.FAILED),
    ],
)
def test_a_cause_anywhere_in_the_chain(cause: Any, status: Status):
    facts = dataclasses.replace(raised("builtins.RuntimeError", "no answer"), causes=(BY_ZERO, NO_KEY))
    (judgement,) = judged("raises", {"type": "RuntimeError", "cause": cause}, raised=facts)
    assert judgement.status is status
    assert judgement.expected.startswith("RuntimeError, caused by ")
    if status is Status.FAILED:
        assert judgement.observed.endswith("caused by builtins.ZeroDivisionError: by zero; caused by builtins.KeyError: 'x'")


def test_the_exception_itself_is_no_cause_of_it():
    (judgement,) = judged("raises", {"type": "KeyError", "cause": {"type": "KeyError"}}, raised=raised())
    assert (judgement.status, judgement.observed) == (Status.FAILED, "builtins.KeyError: 'no such key'; caused by nothing")


def test_a_pattern_of_a_cause_is_checked_where_it_stands():
    with pytest.raises(BadExpectation, match="is not a regular expression") as caught:
        Raises.parse({"type": "KeyError", "cause": {"type": "KeyError", "match": "("}})
    assert caught.value.path == ("cause", "match")


def test_a_type_is_known_by_its_whole_path():
    facts = {"raised": raised("torch._dynamo.exc.BackendCompilerFailed", "x", "torch._dynamo.exc.TorchDynamoException")}
    assert judged("raises", {"type": "torch._dynamo.exc.TorchDynamoException"}, **facts)[0].status is Status.HELD
    assert judged("raises", {"type": "BackendCompilerFailed"}, **facts)[0].status is Status.FAILED
    assert judged("raises", {"type": "exc.BackendCompilerFailed"}, **facts)[0].status is Status.FAILED


def test_no_exception_fails():
    (judgement,) = judged("raises", {"type": "KeyError", "match": "x"})
    assert (judgement.status, judgement.observed) == (Status.FAILED, "no exception")
    assert judgement.expected == "KeyError with text matching /x/"


def test_a_pattern_that_takes_for_ever_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("runner.vocabulary.expectations.texts.search", partial(patterns.search, seconds=0.2))
    (judgement,) = judged("raises", {"type": "KeyError", "match": "(a+)+$"}, raised=raised(message="a" * 40 + "b"))
    assert (judgement.status, judgement.observed) == (Status.ERROR, "pattern too slow")


def test_a_pattern_that_is_none_is_refused():
    with pytest.raises(BadExpectation, match="not a regular expression") as caught:
        Raises.parse({"type": "KeyError", "match": "(unclosed"})
    assert caught.value.path == ("match",)


def test_runs_is_what_it_says():
    assert judged("runs", {})[0].status is Status.HELD
    (judgement,) = judged("runs", {}, raised=raised())
    assert (judgement.status, judgement.observed) == (Status.FAILED, "builtins.KeyError while trace")


@pytest.mark.parametrize(("kind", "body"), [("raises", {"type": "KeyError"}), ("runs", {}), ("filecheck", {"checks": "CHECK: one"})])
def test_where_the_condition_does_not_hold_nothing_is_claimed(kind: str, body: Any):
    assert judged(kind, {**body, "when": ELSEWHERE}, raised=raised(), code=())[0].status is Status.NOT_APPLICABLE


# -- filecheck ------------------------------------------------------------------------------------------------------

CODE = "def call(args):\n    buf0 = empty()\n    kernel.run(buf0)\n    return buf0\n"


@pytest.mark.parametrize(
    ("checks", "status"),
    [
        ("CHECK: kernel.run", Status.HELD),
        ("CHECK: other.run", Status.FAILED),
        ("CHECK: return\nCHECK: kernel.run", Status.FAILED),
        ("CHECK: kernel.run\nCHECK-NOT: kernel.run\nCHECK: return", Status.HELD),
        ("CHECK: def\nCHECK-NOT: kernel.run\nCHECK: return", Status.FAILED),
        ("CHECK-COUNT-2: buf0", Status.HELD),
        ("CHECK-COUNT-4: buf0", Status.FAILED),
    ],
)
def test_directives_on_the_only_piece(checks: str, status: Status):
    for body in (checks, {"checks": checks}, {"checks": checks, "code": 0}, {"checks": checks, "code": "all"}):
        (judgement,) = judged("filecheck", body, code=(CODE,))
        assert judgement.status is status
        assert (judgement.observed == "matched") is (status is Status.HELD)


@pytest.mark.parametrize(
    ("body", "code", "status"),
    [
        ({"checks": "CHECK: one"}, (), Status.ERROR),
        ({"checks": "CHECK: one", "code": "all"}, (), Status.ERROR),
        ({"checks": "CHECK: one", "code": 0}, (), Status.ERROR),
        ({"checks": "CHECK: one"}, ("one", "two"), Status.ERROR),
        ({"checks": "CHECK: one", "code": 0}, ("one", "two"), Status.HELD),
        ({"checks": "CHECK: one", "code": 1}, ("one", "two"), Status.FAILED),
        ({"checks": "CHECK: two", "code": 1}, ("one", "two"), Status.HELD),
        ({"checks": "CHECK: two", "code": 2}, ("one", "two"), Status.ERROR),
        ({"checks": "CHECK: one\nCHECK: two", "code": "all"}, ("one", "two"), Status.HELD),
        ({"checks": "CHECK: two\nCHECK: one", "code": "all"}, ("one", "two"), Status.FAILED),
        ({"checks": "CHECK: one"}, ("",), Status.ERROR),
        ({"checks": "CHECK: one"}, (" \n ",), Status.ERROR),
        ({"checks": "CHECK: one\nCHECK-NOT: two"}, ("",), Status.ERROR),
    ],
)
def test_which_piece_is_looked_at(body: Any, code: tuple[str, ...], status: Status):
    (judgement,) = judged("filecheck", body, code=code)
    assert judgement.status is status
    assert (judgement.observed == "the step generated no code") is (code == ())


def test_a_directive_that_takes_for_ever_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("runner.vocabulary.expectations.filecheck.run", partial(filecheck.run, seconds=0.2))
    (judgement,) = judged("filecheck", "CHECK: {{(aa+)+$}}", code=("a" * 40 + "b",))
    assert (judgement.status, judgement.observed) == (Status.ERROR, "pattern too slow")


@pytest.mark.parametrize("checks", ["", "not a directive", "CHECK-NOT: only", "CHEK: misspelt"])
def test_checks_that_claim_nothing_are_refused(checks: str):
    for body in (checks, {"checks": checks}):
        with pytest.raises(BadExpectation) as caught:
            FileCheck.parse(body)
        assert caught.value.path == (() if body == checks else ("checks",))
