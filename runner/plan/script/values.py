"""Python expressions for the data and the inputs of a plan. Every text becomes an ASCII literal, so that no text ends one."""

import keyword
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runner.core.devices import CPU
from runner.core.protocol import Json
from runner.vocabulary.inputs import INPUTS, REPEAT, kind_of


def literal(value: Any) -> str:
    """Return a Python expression of plain data; raise ``TypeError`` for any other value."""
    match value:
        case bool() | None | int() | str() | bytes():
            return ascii(value)
        case float():
            return repr(value) if math.isfinite(value) else f'float("{value!r}")'
        case list():
            return f"[{', '.join(map(literal, value))}]"
        case tuple():
            return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
        case Mapping():
            return f"{{{', '.join(f'{literal(key)}: {literal(item)}' for key, item in value.items())}}}"
    raise TypeError(f"a {type(value).__name__} has no literal")


def attribute(owner: str, name: str) -> str:
    """Return the expression of an attribute, also of one whose name is no identifier."""
    if name.isascii() and name.isidentifier() and not keyword.iskeyword(name):
        return f"{owner}.{name}"
    return f"getattr({owner}, {literal(name)})"


def resolved(value: Json) -> str:
    """Return the expression of an option or a context, in which ``{ref: NAME}`` is a named value."""
    if isinstance(value, Mapping) and set(value) == {"ref"}:
        return f"repro_named({literal(str(value['ref']))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{literal(key)}: {resolved(item)}' for key, item in value.items())}}}"
    return f"[{', '.join(map(resolved, value))}]" if isinstance(value, list) else literal(value)


class Values:
    """Writes inputs for one device, and notes the helpers that they use."""

    def __init__(self, device: str, uses: Callable[[str], None]) -> None:
        self._device = device
        self._uses = uses

    def list_of(self, entries: Iterable[Json]) -> str:
        """Return the expression of a list of inputs; an entry with ``repeat`` is made as often as it says."""
        return f"[{', '.join(map(self._item, entries))}]"

    def _item(self, entry: Json) -> str:
        times = int(entry.get(REPEAT, 1)) if isinstance(entry, Mapping) and kind_of(entry) is not None else 1
        return self.one(entry) if times == 1 else f"*({self.one(entry)} for _ in range({times}))"

    def value(self, entry: Json) -> str:
        """Return the expression of a value with inputs at any depth; other maps are data."""
        if isinstance(entry, Mapping) and kind_of(entry) is None:
            return f"{{{', '.join(f'{literal(key)}: {self.value(item)}' for key, item in entry.items())}}}"
        if isinstance(entry, list):
            return f"[{', '.join(self._item(item) if isinstance(item, Mapping) else self.value(item) for item in entry)}]"
        return self.one(entry)

    def called(self, entry: Mapping[str, Any]) -> str:
        """Return the arguments of a call, with its parentheses left out."""
        return f"*{self.value(entry.get('args') or [])}, **{self.value(entry.get('kwargs') or {})}"

    def callable(self, entry: Json) -> str:
        """Return the expression of a function that is named by a path or by ``{ref: NAME}``."""
        if isinstance(entry, Mapping):
            return f"repro_named({literal(str(entry['ref']))})"
        return f"repro_find({literal(str(entry))})"

    def one(self, entry: Json) -> str:
        """Return the expression of one input; plain data is a literal."""
        if not isinstance(entry, Mapping):
            return literal(entry)
        kind = kind_of(entry)
        if kind is None:
            return self.value(entry)
        if kind in _OBJECTS:
            return _OBJECTS[kind](self, entry)
        made = _TENSORS[kind](entry, self._options(entry))
        return made if INPUTS[kind].is_finished else self._finished(made, entry)

    def module(self, entry: Mapping[str, Any]) -> str:
        """Return the expression of a module that a map describes."""
        self._uses("modules")
        args, kwargs = self.value(entry.get("args") or []), self.value(entry.get("kwargs") or {})
        more = f", dtype={attribute('torch', entry['dtype'])}" if "dtype" in entry else ""
        more += ", is_eval=True" if entry.get("eval") else ""
        return f"repro_module({literal(entry['module'])}, {args}, {kwargs}, {literal(entry.get('device', self._device))}{more})"

    def _options(self, entry: Mapping[str, Any]) -> str:
        options = f", dtype={attribute('torch', entry['dtype'])}" if "dtype" in entry else ""
        if entry.get("on_device"):
            options += f", device={literal(entry.get('device', self._device))}"
        return options

    def _finished(self, made: str, entry: Mapping[str, Any]) -> str:
        """Return the expression with layout, device and gradient, where it needs them."""
        device = entry.get("device", self._device)
        words = {word: literal(entry[word]) for word in ("strides", "requires_grad", "mark_dynamic") if entry.get(word)}
        if "memory_format" in entry:
            words["memory_format"] = attribute("torch", entry["memory_format"])
        if device == CPU and not words:
            return made
        self._uses("inputs")
        return f"repro_tensor({made}, {literal(device)}{''.join(f', {word}={value}' for word, value in words.items())})"


def _of_shape(entry: Mapping[str, Any], options: str) -> str:
    kind = kind_of(entry)
    assert kind is not None
    return f"torch.{kind}({literal(tuple(entry[kind]))}{options})"


def _full(entry: Mapping[str, Any], options: str) -> str:
    return f"torch.full({literal(tuple(entry['full']))}, {literal(entry['value'])}{options})"


def _randint(entry: Mapping[str, Any], options: str) -> str:
    return f"torch.randint({literal(entry.get('low', 0))}, {literal(entry['high'])}, {literal(tuple(entry['randint']))}{options})"


def _arange(entry: Mapping[str, Any], options: str) -> str:
    bounds = entry["arange"]
    return f"torch.arange({', '.join(map(literal, bounds if isinstance(bounds, list) else [bounds]))}{options})"


def _jagged(entry: Mapping[str, Any], options: str) -> str:
    parts = ", ".join(f"torch.rand({literal(tuple(shape))}{options})" for shape in entry["jagged"])
    return f"torch.nested.nested_tensor([{parts}], layout=torch.jagged)"


_TENSORS: Mapping[str, Callable[[Mapping[str, Any], str], str]] = {
    "rand": _of_shape,
    "randn": _of_shape,
    "zeros": _of_shape,
    "ones": _of_shape,
    "full": _full,
    "randint": _randint,
    "arange": _arange,
    "values": lambda entry, options: f"torch.tensor({literal(entry['values'])}{options})",
    "jagged": _jagged,
}
"""The expression of each kind of tensor, before it is laid out."""


def _call(values: Values, entry: Mapping[str, Any]) -> str:
    made = f"{values.callable(entry['call'])}({values.called(entry)})"
    if "close" not in entry:
        return made
    values._uses("closing")  # noqa: SLF001 - a function of this module's table, beside the class
    return f"repro_closing({made}, {literal(entry['close'])})"


_OBJECTS: Mapping[str, Callable[[Values, Mapping[str, Any]], str]] = {
    "module": Values.module,
    "call": _call,
    "ref": lambda values, entry: f"repro_named({literal(str(entry['ref']))})",
    "value": lambda values, entry: literal(entry["value"]),
}
"""The expression of each kind of object."""

WRITTEN = (*_TENSORS, *_OBJECTS)
"""The kinds of inputs that a script can make."""
