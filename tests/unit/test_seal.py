"""The seal of a worker: which replacements it detects, and that what a zygote has looked at before its forks changes nothing of that."""

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runner.worker.process import seal
from runner.worker.process.seal import Broken, Seal

SOURCE = """
import os
NUMBER = 3
def judge(value, limit=(1, 2)): return value < limit[1]
def other(value, limit=(1, 2)): return True
class Base:
    def measure(self): return 1
class Measure(Base):
    _cache = 3
    shared = 4
    def own(self): return 2
    @staticmethod
    def still(): return 5
    @property
    def seen(self): return 6
TABLE = {"close": judge, 7: judge, "note": 1}
"""


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield a module that stands for the runner."""
    module = types.ModuleType("sealed_here.part")
    exec(SOURCE, vars(module))
    monkeypatch.setitem(sys.modules, "sealed_here.part", module)
    monkeypatch.setitem(sys.modules, "sealed_herein", types.ModuleType("sealed_herein"))
    monkeypatch.setattr(seal, "_PACKAGES", ("sealed_here",))
    yield module
    seal._made.clear()


def another_name(package: Any) -> None:
    value = vars(package.Measure)["seen"]
    del package.Measure.seen
    package.Measure.later = value


def new_code(package: Any) -> None:
    package.judge.__code__ = package.other.__code__


def new_code_of_a_property(package: Any) -> None:
    vars(package.Measure)["seen"].fget.__code__ = (lambda self: 8).__code__


DETECTED: dict[str, tuple[Callable[[Any], object], str]] = {
    "a function": (lambda p: setattr(p, "judge", p.other), "part.judge"),
    "a number": (lambda p: setattr(p, "NUMBER", 4), "part.NUMBER"),
    "a function is gone": (lambda p: delattr(p, "judge"), "part.judge"),
    "a class": (lambda p: setattr(p, "Measure", p.Base), "part.Measure"),
    "a method": (lambda p: setattr(p.Measure, "own", lambda self: 9), "part.Measure.own"),
    "a static method": (lambda p: setattr(p.Measure, "still", staticmethod(lambda: 9)), "part.Measure.still"),
    "a value of a class": (lambda p: setattr(p.Measure, "shared", 5), "part.Measure.shared"),
    "a method that hides an inherited one": (lambda p: setattr(p.Measure, "measure", lambda self: 9), "part.Measure.measure"),
    "a method in the place of private data": (lambda p: setattr(p.Measure, "_cache", lambda self: 9), "part.Measure._cache"),
    "a special method": (lambda p: setattr(p.Measure, "__getattribute__", lambda self, name: 9), "part.Measure.__getattribute__"),
    "a method under another name": (another_name, "part.Measure.seen"),
    "an entry of a table": (lambda p: p.TABLE.update(close=p.other), "part.TABLE.close"),
    "an entry of a table whose key is a number": (lambda p: p.TABLE.update({7: p.other}), "part.TABLE[7]"),
    "code": (new_code, "part.judge"),
    "code of a property": (new_code_of_a_property, "part.Measure.seen"),
    "a default": (lambda p: setattr(p.judge, "__defaults__", ((1, 3),)), "part.judge"),
    "a keyword default": (lambda p: setattr(p.judge, "__kwdefaults__", {"limit": 9}), "part.judge"),
}

ALLOWED: dict[str, Callable[[Any], object]] = {
    "nothing": lambda p: None,
    "a new name of a module": lambda p: setattr(p, "later", 1),
    "private data of a class": lambda p: setattr(p.Measure, "_cache", 4),
    "new private data of a class": lambda p: setattr(p.Measure, "_more", 4),
    "data in a table": lambda p: p.TABLE.update(note=2, more=3),
    "equal defaults": lambda p: setattr(p.judge, "__defaults__", ((1, 2),)),
    "a package with a longer name": lambda p: setattr(sys.modules["sealed_herein"], "judge", 1),
}


@pytest.mark.parametrize("is_made", [False, True], ids=["", "made by the zygote"])
@pytest.mark.parametrize("name", DETECTED)
def test_a_replacement_is_detected(name: str, is_made: bool, package: Any) -> None:
    if is_made:
        seal.make()
    change, path = DETECTED[name]
    taken = Seal(("sealed_here",))
    taken.check()
    change(package)
    with pytest.raises(Broken, match=rf"^code of the case replaced sealed_here\.{path}\b".replace("[", r"\[").replace(r"]\b", r"\]")):
        taken.check()


@pytest.mark.parametrize("is_made", [False, True], ids=["", "made by the zygote"])
@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_no_replacement_is_allowed(name: str, is_made: bool, package: Any) -> None:
    if is_made:
        seal.make()
    taken = Seal(("sealed_here",))
    ALLOWED[name](package)
    taken.check()


IN_PLACE = ("code", "code of a property", "a default", "a keyword default")
"""No module of the runner changes its functions, so these are detected from the zygote on."""


@pytest.mark.parametrize("name", [name for name in DETECTED if name not in IN_PLACE])
def test_a_change_between_the_zygote_and_the_seal_belongs_to_the_runner(name: str, package: Any) -> None:
    """Modules set names of their own in a worker, before code of the case runs."""
    seal.make()
    DETECTED[name][0](package)
    Seal(("sealed_here",)).check()


def test_a_module_that_was_imported_after_the_zygote_began_is_sealed(package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seal.make()
    late = types.ModuleType("sealed_here.late")
    exec(SOURCE, vars(late))
    monkeypatch.setitem(sys.modules, "sealed_here.late", late)
    taken = Seal(("sealed_here",))
    late.judge = late.other
    with pytest.raises(Broken, match=r"sealed_here\.late\.judge"):
        taken.check()


def test_the_second_case_of_a_worker_relies_on_nothing_that_the_zygote_made(package: Any) -> None:
    seal.make()
    assert seal._made
    Seal(("sealed_here",))
    assert not seal._made
