"""The seal: what it detects as replaced, also in modules that were sealed ahead in the zygote."""

import os
import re
import sys
import types
from collections.abc import Callable, Mapping
from operator import is_
from pathlib import Path

import pytest

from torch_conformance.vocabulary.expectations import comparing
from torch_conformance.worker.process import seal
from torch_conformance.worker.process.seal import Broken, Seal

SOURCE = """\
def helper(value, scale=2): return value * scale
def other(value): return value
class Measure:
    limit = 1
    def take(self): return 1
    @classmethod
    def make(cls): return cls()
    @property
    def size(self): return 3
TABLE = {"close": helper}
SEEN = {}
"""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A package of one module, sealed alone."""
    made = types.ModuleType("sealed_package.measures")
    exec(compile(SOURCE, "measures.py", "exec"), vars(made))
    monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.setattr(seal, "_prepared", {})
    return made


def replace_code(module: types.ModuleType) -> None:
    module.other.__code__ = module.helper.__code__


def add_member(module: types.ModuleType) -> None:
    module.Measure.extra = lambda self: 2


def rename_last(module: types.ModuleType) -> None:
    """The same values in the same order, under another name."""
    vars(module)["renamed"] = vars(module).pop("SEEN")


CHANGES: dict[str, tuple[Callable[[types.ModuleType], object], str]] = {
    "a function": (lambda module: setattr(module, "helper", module.other), "measures.helper"),
    "an entry of a table": (
        lambda module: module.TABLE.update(close=module.other),
        "measures.TABLE.close",
    ),
    "a whole table": (
        lambda module: setattr(module, "TABLE", dict(module.TABLE)),
        "measures.TABLE",
    ),
    "a method": (
        lambda module: setattr(module.Measure, "take", lambda self: 2),
        "measures.Measure.take",
    ),
    "a class method": (
        lambda module: setattr(module.Measure, "make", classmethod(lambda cls: None)),
        "measures.Measure.make",
    ),
    "a property": (lambda module: setattr(module.Measure, "size", 4), "measures.Measure.size"),
    "a constant of a class": (
        lambda module: setattr(module.Measure, "limit", 9),
        "measures.Measure.limit",
    ),
    "a new member": (add_member, "measures.Measure.extra"),
    "the code of a function": (replace_code, "measures.other"),
    "the defaults of a function": (
        lambda module: setattr(module.other, "__defaults__", (0,)),
        "measures.other",
    ),
    "a name that went": (rename_last, "measures.SEEN"),
}


@pytest.mark.parametrize("is_ahead", [False, True], ids=["sealed now", "sealed ahead"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_replaced_part_is_named(module: types.ModuleType, change: str, is_ahead: bool) -> None:
    if is_ahead:
        seal.prepare(("sealed_package",))
    taken = Seal(("sealed_package",))
    taken.check()
    act, path = CHANGES[change]
    act(module)
    with pytest.raises(
        Broken, match=re.escape(f"code of the case replaced sealed_package.{path}:")
    ):
        taken.check()


def test_a_value_that_claims_to_equal_what_it_replaced_is_found(module: types.ModuleType) -> None:
    class Equal:
        __hash__ = None  # type: ignore[assignment]  # as for any class with an __eq__ of its own

        def __eq__(self, other: object) -> bool:
            return True

    seal.prepare(("sealed_package",))
    taken = Seal(("sealed_package",))
    module.helper = Equal()  # type: ignore[attr-defined]  # a module has no declared members
    with pytest.raises(Broken, match=r"measures\.helper"):
        taken.check()


@pytest.mark.torch
def test_the_zygote_imports_no_module_that_replaces_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_conformance.worker.process import zygote

    lie = "from torch_conformance.model import devices\ndevices.kind_of = len\n"
    for name, text in {"vendor_lies": lie, "vendor_is_honest": ""}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(zygote, "danger", str)
    for name in ("vendor_lies", "vendor_is_honest"):
        zygote._import_where_safe(name, seal.take_seal())
        assert (name in sys.modules) == (name == "vendor_is_honest")
        sys.modules.pop(name, None)


WATCHED = """\
import json, math, sys, torch
from torch.overrides import TorchFunctionMode

class Mode(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))

def other(*values, **named):
    return values
"""

LIES: Mapping[str, tuple[str, str]] = {
    "what sends an observation": ("json.dumps = other", "json.dumps"),
    "a function of Python": ("__builtins__['abs'] = other", "builtins.abs"),
    "arithmetic": ("math.isfinite = other", "math.isfinite"),
    "the code of a function of Python": ("json.loads.__code__ = other.__code__", "loads"),
    "what eager computes": ("torch.sin = other", "torch.sin"),
    "an operator that tensors inherit": ("torch.Tensor.__eq__ = other", "torch.Tensor.__eq__"),
    "a method that tensors inherit": ("torch.Tensor.sin = other", "torch.Tensor.sin"),
    "a kernel of ATen": (
        "import warnings\nwarnings.simplefilter('ignore')\n"
        "library = torch.library.Library('aten', 'IMPL')\nlibrary.impl('sin', other, 'CPU')",
        "the kernel aten/sin/CPU",
    ),
    "a mode that sees each call": ("Mode().__enter__()", "mode 0 of torch functions"),
    "a function that sees each frame": ("sys.settrace(lambda *values: None)", "sys.settrace"),
    "a table of numbers": (
        "from torch_conformance.vocabulary.expectations import comparing\n"
        "comparing.DEFAULTS['float32'] = (1e9, 1e9)",
        "comparing.DEFAULTS.float32",
    ),
}


@pytest.mark.torch
@pytest.mark.parametrize("lie", LIES)
def test_what_measuring_calls_outside_of_the_runner_is_sealed(lie: str) -> None:
    import torch  # noqa: F401 - the seal covers the torch that is imported

    from torch_conformance.worker.case import run_case  # noqa: F401 - and what it imports

    act, path = LIES[lie]
    (read, write), send = os.pipe(), os.write
    child = os.fork()  # what is replaced is replaced in this process alone
    if child == 0:
        try:
            taken = seal.take_seal()
            taken.check()
            exec(f"{WATCHED}\n{act}", kept := dict[str, object]())
            taken.check("the module x")
            assert kept
        except BaseException as error:
            send(write, str(error).encode())
        os._exit(0)
    os.close(write)
    said = os.read(read, 10_000).decode()
    os.waitpid(child, 0)
    assert said.startswith("the module x replaced ")
    assert path in said


def test_entries_of_tables_of_values_and_new_names_are_no_replacement(
    module: types.ModuleType,
) -> None:
    seal.prepare(("sealed_package",))
    taken = Seal(("sealed_package",))
    module.SEEN["new"] = 1
    module.later = 2  # type: ignore[attr-defined]  # a module has no declared members
    taken.check()
    assert not taken.modules[module.__name__].is_untouched()


def test_what_changed_since_the_zygote_took_the_seal_is_found_and_put_back(
    module: types.ModuleType,
) -> None:
    seal.prepare(("sealed_package",))
    helper, code, take = module.helper, module.other.__code__, module.Measure.take
    module.helper = len  # as the module of a backend may, which the zygote imports
    module.other.__code__ = (lambda value: 0).__code__
    module.Measure.take = lambda self: 2
    taken = Seal(("sealed_package",))
    assert taken.modules[module.__name__] is seal._prepared[module.__name__]
    with pytest.raises(Broken, match=r"the module x replaced \S+measures\.helper and 2 more"):
        taken.check("the module x")
    assert (module.helper, module.other.__code__, module.Measure.take) == (helper, code, take)
    taken.check()


@pytest.mark.parametrize("is_ahead", [False, True], ids=["sealed now", "sealed ahead"])
def test_a_seal_cannot_be_replaced_by_its_names(
    monkeypatch: pytest.MonkeyPatch, is_ahead: bool
) -> None:
    monkeypatch.setattr(seal, "_prepared", {})
    if is_ahead:
        seal.prepare()
    taken = seal.take_seal()
    for name in ("check", "__init__"):
        monkeypatch.setattr(seal.Seal, name, lambda *values: None)
    monkeypatch.setattr(seal.SealedModule, "is_untouched", lambda self: True)
    monkeypatch.setattr(seal, "is_", lambda *values: True)
    with pytest.raises(Exception, match=r"replaced torch_conformance\S+seal\."):
        taken.check()


def test_the_torch_of_the_vocabulary_is_that_of_a_worker_and_has_nothing_to_replace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(AttributeError):
        comparing.torch.equal = print
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(equal=is_))
    assert comparing.torch.equal is is_
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(AttributeError):
        print(comparing.torch.equal)
    assert "torch" not in sys.modules
