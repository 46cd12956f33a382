"""Patches are exact, loud where their place is gone, and leave a note each time they bite."""

import functools
import sys
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

from tests.fakes import AT
from tools import planting
from tools.faults import __main__ as command
from tools.faults.catalogue import FAULTS
from tools.planting import Unplantable, answers, edit, replace, replace_item
from tools.running import Ended, Trial, matching, named
from torch_conformance.model.case import CaseId
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult


def outer():
    bound = 10

    def reads_closure(x):
        return x + bound

    return reads_closure


class Base:
    def answer(self):
        return 1


class Owner(Base):
    table: ClassVar = {"a": len}

    def plain(self, x):
        return x + 1

    @staticmethod
    def static(x):
        return x + 1

    @classmethod
    def of_class(cls, x):
        return (cls, x + 1)

    def answer(self):
        return super().answer() + 1

    closed = outer()

    @functools.cache  # noqa: B019 - a decorator that an edit must apply again
    def cached(self):
        return 5


@pytest.fixture
def target(monkeypatch):
    """Return a module with an owner of its own, as ``import`` finds it, and another that took a
    function from it by name.
    """
    made = ModuleType("planting_target")
    made.Owner = type(
        "Owner",
        (Owner,),
        {
            name: value
            for name, value in vars(Owner).items()
            if name not in ("__dict__", "__weakref__")
        },
    )
    made.free = outer()
    taker = ModuleType("planting_taker")
    taker.taken = made.free
    for module in (made, taker):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    made.taker = taker
    return made


@pytest.fixture
def notes(tmp_path, monkeypatch):
    monkeypatch.setattr(planting, "_descriptor", None)
    planting.begin(tmp_path)
    return tmp_path / planting.NOTES


def test_an_edit_changes_one_text_and_each_execution_leaves_a_byte(target, notes):
    edit("planting_target:Owner.plain", "x + 1", "bite(x - 1)")
    assert notes.stat().st_size == 0
    assert [target.Owner().plain(1), target.Owner().plain(2)] == [0, 1]
    assert notes.stat().st_size == 2


def test_several_texts_of_one_function(target):
    path = "planting_target:Owner.plain"
    edit(path, "x + 1", "x - y", "plain(self, x)", "plain(self, x, y=3)")
    assert target.Owner().plain(1) == -2


def test_a_function_that_does_nothing(target, notes):
    answers("planting_target:Owner.of_class", 7)()
    assert (target.Owner.of_class(1), notes.stat().st_size) == (7, 1)


def test_static_and_class_methods_stay_what_they_are(target):
    edit("planting_target:Owner.static", "x + 1", "x - 1")
    edit("planting_target:Owner.of_class", "x + 1", "x - 1")
    assert target.Owner.static(1) == 0
    assert target.Owner.of_class(1) == (target.Owner, 0)
    replace("planting_target:Owner.static", lambda old: lambda x: old(x) * 10)
    assert target.Owner().static(3) == 20


def test_closures_decorators_and_super_survive_an_edit(target):
    edit("planting_target:Owner.closed", "x + bound", "x - bound")
    edit("planting_target:Owner.cached", "return 5", "return bite(6)")
    edit("planting_target:Owner.answer", "+ 1", "+ 2")
    assert target.Owner.closed(1) == -9
    assert (target.Owner().cached(), hasattr(target.Owner.cached, "cache_info")) == (6, True)
    assert Owner().answer() == 2


def test_a_function_is_replaced_where_it_was_imported_by_name_too(target):
    edit("planting_target:free", "x + bound", "x - bound")
    assert (target.free(1), target.taker.taken(1)) == (-9, -9)


def test_a_table_of_functions(target):
    replace_item("planting_target:Owner.table", "a", lambda old: lambda x: old(x) + 1)
    assert target.Owner.table["a"]("xy") == 3
    Owner.table["a"] = len


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (
            lambda: edit("planting_target:Owner.plain", "x + 2", "x"),
            "0 times, and not once: x \\+ 2",
        ),
        (lambda: edit("planting_target:Owner.plain", "x", "y"), "times, and not once: x"),
        (lambda: edit("planting_target:Owner.gone", "x", "y"), "has no 'gone' of its own"),
        (lambda: edit("planting_target:Nobody.plain", "x", "y"), "no attribute 'Nobody'"),
        (lambda: replace("no_such_module:f", lambda old: old), "No module named 'no_such_module'"),
        (lambda: edit("builtins:len", "x", "y"), "builtins:len"),
        (lambda: replace_item("planting_target:Owner.table", "b", lambda old: old), "no b"),
    ],
)
def test_a_place_that_is_gone_is_an_error(target, plant, says):
    with pytest.raises(Unplantable, match=says):
        plant()


# -- the table -------------------------------------------------------------------------------------


FAULT = next(iter(FAULTS.values()))


def ended(outcome: Outcome, bites: int | None, stderr: str = "") -> Ended:
    result = CaseResult(
        case_id=CaseId("a/b[backend=cpu]"),
        spec="a/b.yaml",
        outcome=outcome,
        reason="because",
        failure_type="close",
        verdicts=(),
        position=AT,
        seconds=1.0,
        stderr=stderr,
    )
    return Ended(Trial(FAULT.name, result.case_id), result, bites, Path())


@pytest.mark.parametrize(
    ("found", "seen", "says"),
    [
        ([ended(Outcome.FAIL, 3)], True, "FAIL close       a/b[backend=cpu] (3 executions)"),
        ([ended(Outcome.FELL_BACK, 1)], True, "FELL_BACK"),
        (
            [ended(Outcome.PASS, 2), ended(Outcome.PASS, 5)],
            False,
            "planted in 2 cases, executed 7 times, seen by none",
        ),
        ([ended(Outcome.PASS, 0)], False, "planted in 1 cases, executed 0 times, seen by none"),
        ([ended(Outcome.FAIL, 0)], False, "executed 0 times, seen by none"),
        ([ended(Outcome.ERROR, 3)], False, "no detection, 3 executions"),
        (
            [ended(Outcome.CRASH, None, "x\nUnplantable: no such text")],
            False,
            "Unplantable: no such text",
        ),
        ([ended(Outcome.CRASH, None)], False, "could not be planted"),
    ],
)
def test_a_row_says_whether_the_fault_was_seen_executed_or_not_planted(capsys, found, seen, says):
    assert command.show(FAULT, found) is seen
    assert says in capsys.readouterr().out


def test_an_unknown_fault_is_a_mistake_of_usage(capsys):
    assert command.main(["--fault", "no-such"]) == 2
    assert FAULT.name in capsys.readouterr().err


def test_a_case_of_several_trials_has_several_copies():
    trials = [Trial(*pair) for pair in ("xa", "xb", "ya", "zc", "za", "xa")]
    found = {name: trial.change for name, trial in named(trials).items()}
    assert found == {"0/a": "x", "0/b": "x", "1/a": "y", "0/c": "z", "2/a": "z"}


def test_a_glob_that_names_no_case_is_an_error():
    with pytest.raises(LookupError, match="no case on a CPU is called b"):
        matching("b", ["a"])
    assert matching("a[*]", ["a[x=1]", "ax"]) == ["a[x=1]"]
