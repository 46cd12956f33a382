"""Inputs that are objects: modules, results of calls, named values, and plain data."""

from typing import TYPE_CHECKING, Any, ClassVar

from runner.vocabulary.inputs.base import OF_CALLS, Entry, InputKind, Maker

if TYPE_CHECKING:
    import torch


def _called(function: Any, entry: Entry, maker: Maker) -> Any:
    return function(*maker.value(entry.get("args", []), maker), **maker.value(entry.get("kwargs", {}), maker))


def module(entry: Entry, maker: Maker) -> "torch.nn.Module":
    """Make a module: its class or maker is called on the CPU, from the case's seed, then it is converted and moved."""
    import torch

    made = _called(maker.scope.find(entry["module"]), entry, maker)
    if not isinstance(made, torch.nn.Module):
        raise TypeError(f"{entry['module']} made a {type(made).__name__}, not a torch.nn.Module")
    if "dtype" in entry:
        made = made.to(getattr(torch, entry["dtype"]))
    made = made.to(entry.get("device", maker.device))
    return made.eval() if entry.get("eval") else made


class Module(InputKind):
    """``{module: CLASS, args: [...], kwargs: {...}}``."""

    kind: ClassVar[str] = "module"
    keys: ClassVar[tuple[str, ...]] = (*OF_CALLS, "eval", "dtype", "device")
    names: ClassVar[bool] = True
    makes = staticmethod(module)


def _call(entry: Entry, maker: Maker) -> Any:
    made = _called(maker.scope.callable(entry["call"]), entry, maker)
    if "close" in entry:
        maker.closing.callback(getattr(made, entry["close"]))
    return made


class Call(InputKind):
    """``{call: FUNCTION, args: [...], kwargs: {...}}``."""

    kind: ClassVar[str] = "call"
    keys: ClassVar[tuple[str, ...]] = (*OF_CALLS, "close")
    names: ClassVar[bool] = True
    is_finished: ClassVar[bool] = True
    makes = staticmethod(_call)


def _ref(entry: Entry, maker: Maker) -> Any:
    return maker.scope.named(entry["ref"])


class Ref(InputKind):
    """``{ref: NAME}``: the object itself."""

    kind: ClassVar[str] = "ref"
    is_finished: ClassVar[bool] = True
    makes = staticmethod(_ref)


def _value(entry: Entry, maker: Maker) -> Any:
    return entry["value"]


class Value(InputKind):
    """``{value: DATA}``."""

    kind: ClassVar[str] = "value"
    is_finished: ClassVar[bool] = True
    makes = staticmethod(_value)
