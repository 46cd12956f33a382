"""Calls that make tensors, as inputs of the language."""

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.naming import DTYPES, device_named, dotted
from runner.language.authoring.reading import Reading
from runner.language.authoring.values import Device, Dotted, Items, Known, NotCarried, Parameter, Tensor, Token, Value

_SHAPED = {"torch.randn": "randn", "torch.rand": "rand", "torch.zeros": "zeros", "torch.ones": "ones", "torch.empty": "rand"}
_STRIDED = {"torch._dynamo.testing.rand_strided": "randn", "torch.empty_strided": "randn"}
_OPTIONS = frozenset(["dtype", "device", "requires_grad"])
_LARGEST_VALUES = 256
"""How many numbers a tensor that is written out may have."""


def tensor_of(path: str, node: ast.Call, reading: Reading) -> Tensor | None:
    """Return the input that a call of torch makes; None where the language has no word for it."""
    keywords = {word.arg: word.value for word in node.keywords if word.arg}
    if any(word.arg is None for word in node.keywords):
        keywords = {**keywords, **_unpacked_keywords(node, reading)}
    try:
        entry = _kind(path, node, keywords, reading)
        if entry is None:
            return None
        return _with_options(entry, {name: value for name, value in keywords.items() if name in _OPTIONS}, reading)
    except NotCarried:
        return None


def _unpacked_keywords(node: ast.Call, reading: Reading) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for word in node.keywords:
        if word.arg is None:
            found = evaluate(word.value, reading)
            if not (isinstance(found, Known) and isinstance(found.value, dict)):
                raise NotCarried("unpacked keywords")
            made.update(found.value)
    return made


def _kind(path: str, node: ast.Call, keywords: Mapping[str, Any], reading: Reading) -> dict[str, Any] | None:
    extra = {name: value for name, value in keywords.items() if name not in _OPTIONS}
    if any(isinstance(argument, ast.Starred) for argument in node.args) and path not in _SHAPED:
        return None
    if path in _SHAPED:
        size = [extra.pop("size")] if "size" in extra else list(node.args)
        return None if extra else {_SHAPED[path]: shape(size, reading)}
    if path in _STRIDED and len(node.args) == 2 and not extra:
        return {_STRIDED[path]: shape([node.args[0]], reading), "strides": shape([node.args[1]], reading)}
    if path == "torch.full":
        given = [*node.args, *extra.values()]
        return {"full": shape(given[:1], reading), "value": number(evaluate(given[1], reading))} if len(given) == 2 else None
    if path == "torch.randint":
        return _randint(node, extra, reading)
    if path == "torch.arange" and not extra and 1 <= len(node.args) <= 3:
        bounds = [number(evaluate(argument, reading)) for argument in node.args]
        return {"arange": bounds if len(bounds) > 1 else bounds[0]}
    if path == "torch.tensor" and len(node.args) == 1 and not extra:
        return _values(evaluate(node.args[0], reading))
    return None


def _randint(node: ast.Call, extra: dict[str, ast.expr], reading: Reading) -> dict[str, Any] | None:
    words = dict(zip(("low", "high", "size") if len(node.args) + len(extra) == 3 else ("high", "size"), node.args, strict=False))
    words.update(extra)
    if set(words) not in ({"high", "size"}, {"low", "high", "size"}):
        return None
    low = {"low": number(evaluate(words["low"], reading))} if "low" in words else {}
    return {"randint": shape([words["size"]], reading), **low, "high": number(evaluate(words["high"], reading))}


def _values(value: Value) -> dict[str, Any] | None:
    if isinstance(value, Items):
        return None
    if not isinstance(value, Known):
        return None
    found = value.value
    if isinstance(found, list | tuple) and len(repr(found)) > _LARGEST_VALUES * 8:
        return None
    numbers = _as_lists(found)
    return {"values": numbers} if isinstance(numbers, list | int | float | bool) and _finite(numbers) and numbers != [] else None


def _as_lists(found: Any) -> Any:
    return [_as_lists(item) for item in found] if isinstance(found, list | tuple) else found


def _finite(found: Any) -> bool:
    if isinstance(found, list):
        return all(_finite(item) for item in found)
    return isinstance(found, int | float) and found == found and abs(found) != float("inf")


def shape(arguments: list[ast.expr], reading: Reading) -> list[Any]:
    """Return a shape that is given as one list, or as numbers."""
    values: list[Value] = []
    for argument in arguments:
        if isinstance(argument, ast.Starred):
            found = evaluate(argument.value, reading)
            values += [Known(item) for item in found.value] if isinstance(found, Known) else list(getattr(found, "items", ()))
        else:
            values.append(evaluate(argument, reading))
    if len(values) == 1 and isinstance(values[0], Items):
        values = list(values[0].items)
    if len(values) == 1 and isinstance(values[0], Known) and isinstance(values[0].value, list | tuple):
        values = [Known(size) for size in values[0].value]
    sizes = [number(value) for value in values]
    if not all(isinstance(size, str) or (isinstance(size, int) and not isinstance(size, bool) and size >= 0) for size in sizes):
        raise NotCarried("a shape that is no list of numbers")
    return sizes


def number(value: Value) -> Any:
    """Return a number, or the template of a parameter."""
    if isinstance(value, Parameter) and not value.is_dtype:
        return value.template
    if isinstance(value, Known) and isinstance(value.value, int | float | bool):
        return value.value
    raise NotCarried("a number that is no constant")


def dtype_text(value: Value) -> str:
    """Return a dtype of the language, or the template of a parameter."""
    if isinstance(value, Parameter) and value.is_dtype:
        return value.template
    if isinstance(value, Dotted):
        head, _, last = value.path.rpartition(".")
        if head == "torch" and last in DTYPES:
            return DTYPES[last]
    raise NotCarried("a dtype that the language does not have")


def device_of(value: Value) -> str:
    """Return the kind of a device; raise ``NotCarried`` for others."""
    if isinstance(value, Device):
        return value.where
    if isinstance(value, Known) and isinstance(value.value, str) and device_named(value.value):
        return device_named(value.value)
    raise NotCarried("a device that is neither the CPU nor the GPU")


def _with_options(entry: dict[str, Any], options: Mapping[str, Any], reading: Reading) -> Tensor:
    device = reading.default_device
    for name, given in options.items():
        value = evaluate(given, reading) if isinstance(given, ast.expr) else given if isinstance(given, Value) else Known(given)
        if name == "dtype":
            if not (isinstance(value, Known) and value.value is None):
                entry["dtype"] = dtype_text(value)
        elif name == "device":
            if not (isinstance(value, Known) and value.value is None):
                device = device_of(value)
                reading.devices.add(device)
        elif isinstance(value, Known) and isinstance(value.value, bool):
            if value.value:
                entry["requires_grad"] = True
        else:
            raise NotCarried("requires_grad that is no constant")
    return Tensor(entry, device)


def method_of_tensor(tensor: Tensor, node: ast.Call, reading: Reading) -> Tensor | None:
    """Return the tensor after a method that the language has a word for; None for other methods."""
    if not isinstance(node.func, ast.Attribute):
        return None
    name = node.func.attr
    entry = dict(tensor.entry)
    keywords = {word.arg: word.value for word in node.keywords}
    if name in ("clone", "detach") and not node.args and not keywords:
        if name == "detach":
            entry.pop("requires_grad", None)
        return replace(tensor, entry=entry)
    if name == "requires_grad_" and not keywords:
        wanted = [evaluate(argument, reading) for argument in node.args]
        if all(isinstance(value, Known) and value.value is True for value in wanted):
            return replace(tensor, entry={**entry, "requires_grad": True})
        return None
    if name in ("cuda", "cpu") and not node.args and not keywords:
        return _moved(tensor, "gpu" if name == "cuda" else "cpu", reading)
    if name in ("half", "float", "double", "bfloat16", "int", "long", "bool") and not node.args and not keywords:
        return _converted(tensor, DTYPES[name])
    if name in ("to", "contiguous"):
        return _to(tensor, node, reading)
    return None


def _moved(tensor: Tensor, device: str, reading: Reading) -> Tensor:
    reading.devices.add(device)
    return replace(tensor, device=device, token=Token())


def _converted(tensor: Tensor, dtype: str) -> Tensor | None:
    if "requires_grad" in tensor.entry or "arange" in tensor.entry or ("randn" in tensor.entry and dtype in ("int32", "int64", "bool")):
        return None
    if "rand" in tensor.entry and dtype in ("int32", "int64", "bool"):
        return None
    return replace(tensor, entry={**tensor.entry, "dtype": dtype}, token=Token())


def _to(tensor: Tensor, node: ast.Call, reading: Reading) -> Tensor | None:
    made: Tensor | None = tensor
    for argument in (*node.args, *(word.value for word in node.keywords)):
        if made is None:
            return None
        path = dotted(argument, reading)
        if path in ("torch.channels_last", "torch.channels_last_3d", "torch.contiguous_format"):
            if "strides" in made.entry:
                return None
            made = replace(made, entry={**made.entry, "memory_format": path.removeprefix("torch.")}, token=Token())
            continue
        value = evaluate(argument, reading)
        try:
            made = (
                _converted(made, dtype_text(value))
                if isinstance(value, Dotted) or (isinstance(value, Parameter) and value.is_dtype)
                else _moved(made, device_of(value), reading)
            )
        except NotCarried:
            return None
    return made
