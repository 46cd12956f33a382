"""Inputs of a spec: each value of a test as an entry of the language."""

import ast
import re
from collections.abc import Sequence
from typing import Any

from runner.language.authoring.hoisting import Prelude, free_names
from runner.language.authoring.reading import Reading
from runner.language.authoring.values import (
    Class,
    Device,
    Dotted,
    Expression,
    Items,
    Known,
    Module,
    NotCarried,
    Parameter,
    Result,
    Step,
    Tensor,
    Token,
    Value,
)

_MOVED = """def as_input(value):
    if not isinstance(value, torch.Tensor):
        return value
    value = value.to(params.device)
    return value.half() if HALF and value.dtype == torch.float32 else value"""

HALF_DTYPE = "{{ 'float16' if half else 'float32' }}"
"""The dtype of an input that torch's check halves on a GPU."""


class Inputs:
    """Makes entries; values that several places use become named values."""

    def __init__(self, reading: Reading, prelude: Prelude) -> None:
        self._reading = reading
        self._prelude = prelude
        self.named: dict[str, Any] = {}
        self._names: dict[Token, str] = {}
        self._shared: set[Token] = set()
        self.halves = False
        """Whether a matrix key halves the float32 inputs."""

    def share(self, lists: Sequence[Sequence[Value]]) -> None:
        """Remember which values several lists use."""
        seen: dict[Token, int] = {}
        for values in lists:
            for token in [token for value in values for token in tokens(value)]:
                seen[token] = seen.get(token, 0) + 1
        self._shared = {token for token, count in seen.items() if count > 1}

    def entry(self, value: Value) -> Any:
        """Return the entry of a value."""
        token = getattr(value, "token", None)
        if token is not None and token in self._shared:
            if token not in self._names:
                name = f"value_{len(self._names) + 1}"
                self._names[token] = name
                made = self._own_entry(value)
                self.named[name] = made
            return {"ref": self._names[token]}
        return self._own_entry(value)

    def called(self, value: Value) -> dict[str, Any]:
        """Return the call that makes a value, for a step."""
        made = self._own_entry(value)
        if not (isinstance(made, dict) and "call" in made):
            raise NotCarried("a comparison of inputs")
        return made

    def named_value(self, value: Value, wanted: str) -> str:
        """Return the name of a value that an expectation compares with."""
        name = f"{wanted}_{len(self.named) + 1}"
        made = self.entry(value)
        if isinstance(made, dict) and list(made) == ["ref"]:
            return str(made["ref"])
        self.named[name] = made
        return name

    def _own_entry(self, value: Value) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, Module):
            return self._module(value)
        if isinstance(value, Known):
            return self._constant(value)
        if isinstance(value, Parameter) and not value.is_dtype:
            return value.template
        if isinstance(value, Result):
            return {"ref": ".".join(map(str, (_step_name(value.step, self._reading), *value.path)))}
        if isinstance(value, Items):
            self._prelude.add("as_tuple", "def as_tuple(*items):\n    return items")
            return {"call": "as_tuple", "args": [self.entry(item) for item in value.items]}
        if isinstance(value, Expression | Device | Dotted | Parameter):
            return self._made(value)
        raise NotCarried(f"an input that is a {type(value).__name__.lower()}")

    def _tensor(self, value: Tensor) -> dict[str, Any]:
        made = dict(value.entry)
        if self.halves and _is_float32(made):
            made["dtype"] = HALF_DTYPE
        if self._is_on_cpu(value.device):
            made["device"] = "cpu"
        if value.marks:
            made["mark_dynamic"] = list(value.marks)
        return made

    def _is_on_cpu(self, device: str) -> bool:
        if self._reading.is_common or not {"gpu", "backend"} & self._reading.devices:
            return False
        return device == "cpu" or (device == "default" and self._reading.default_device == "default")

    def _constant(self, value: Known) -> Any:
        found = value.value
        if (
            found is None
            or isinstance(found, bool | int | str)
            or (isinstance(found, float) and found == found and abs(found) != float("inf"))
        ):
            return found
        if isinstance(found, list) and all(isinstance(item, int | float | str | bool) for item in found):
            return {"value": found}
        return self._maker(self._prelude.made(value), [])

    def _module(self, value: Module) -> dict[str, Any]:
        made = self._module_source(value)
        made.update({key: given for key, given in value.entry.items() if key != "eval" or given})
        if self.halves and "dtype" not in made:
            made["dtype"] = HALF_DTYPE
        if self._is_on_cpu(value.device):
            made["device"] = "cpu"
        return made

    def _module_source(self, value: Module) -> dict[str, Any]:
        """Return class and arguments, or a function of the prelude that makes the module."""
        node = value.node
        own = value.scope.get(node.func.id) if isinstance(node.func, ast.Name) else None
        simple = _literals(node, value)
        if simple is not None and isinstance(own, Class) and isinstance(node.func, ast.Name):
            return {"module": self._prelude.need(node.func.id, value.scope), **simple}
        name = self._name_of_maker()
        self._prelude.add(name, f"def {name}():\n    return {self._prelude.rewritten(node, value.scope)}")
        return {"module": name}

    def _name_of_maker(self) -> str:
        count = len(re.findall(r"def make_\d+\(", self._prelude.text))
        return f"make_{count + 1}"

    def _made(self, value: Value) -> dict[str, Any]:
        """Return a call of a function of the prelude that makes a value."""
        if not isinstance(value, Expression):
            return self._maker(self._prelude.need("value_of_test", {"value_of_test": value}), [])
        names = sorted(name for name in free_names(value.node) if _is_argument(value.scope.get(name)))
        scope = {name: given for name, given in value.scope.items() if name not in names}
        text = self._prelude.rewritten(value.node, scope, own=frozenset(names))
        return self._maker(text, names, [self.entry(value.scope[name]) for name in names])

    def _maker(self, text: str, names: Sequence[str], entries: Sequence[Any] = ()) -> dict[str, Any]:
        if self._reading.is_common:
            self._prelude.add("as_input", _MOVED.replace("HALF", "params.half" if self.halves else "False"))
            text = f"as_input({text})"
        name = self._name_of_maker()
        self._prelude.add(name, f"def {name}({', '.join(names)}):\n    return {text}")
        return {"call": name, **({"args": list(entries)} if entries else {})}


def _is_argument(value: Value | None) -> bool:
    """Whether a maker gets a value as an argument, because it is made for each case."""
    return isinstance(value, Tensor | Module | Items | Result) or (isinstance(value, Expression) and not isinstance(value.node, ast.Name))


def _is_float32(entry: dict[str, Any]) -> bool:
    if entry.get("dtype", "float32") != "float32" or "randint" in entry or "arange" in entry:
        return False
    given = entry.get("values", entry.get("value", 0.5))
    return "dtype" in entry or _has_float(given)


def _has_float(given: Any) -> bool:
    return any(_has_float(item) for item in given) if isinstance(given, list) else isinstance(given, float)


def _literals(node: ast.Call, module: Module) -> dict[str, Any] | None:
    """Return the arguments of a call that are constants; None when some are not."""
    found = [_literal(part, module) for part in (*node.args, *(word.value for word in node.keywords))]
    if None in [word.arg for word in node.keywords] or not all(is_plain for is_plain, _ in found):
        return None
    values = [value for _, value in found]
    args, words = values[: len(node.args)], values[len(node.args) :]
    kwargs = dict(zip((str(word.arg) for word in node.keywords), words, strict=True))
    return {**({"args": args} if args else {}), **({"kwargs": kwargs} if kwargs else {})}


def _literal(node: ast.expr, module: Module) -> tuple[bool, Any]:
    """Return whether an argument is a plain constant, and the constant."""
    if isinstance(node, ast.Name) and node.id in module.scope:
        value = module.scope[node.id]
        if isinstance(value, Parameter) and not value.is_dtype:
            return True, value.template
        found: Any = value.value if isinstance(value, Known) else ...
    else:
        try:
            found = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError):
            return False, None
    return isinstance(found, int | float | str | bool | None), found


def tokens(value: Value) -> list[Token]:
    """Return the identities of the values that an entry is made of."""
    if isinstance(value, Items):
        return [token for item in value.items for token in tokens(item)]
    if isinstance(value, Expression):
        names = free_names(value.node)
        inner = [token for name, given in value.scope.items() if name in names and _is_argument(given) for token in tokens(given)]
        return [value.token, *inner]
    token = getattr(value, "token", None)
    return [token] if token is not None else []


def results_in(value: Value) -> list[Result]:
    """Return the results of compiled calls that a value is made of."""
    if isinstance(value, Result):
        return [value]
    if isinstance(value, Items):
        return [result for item in value.items for result in results_in(item)]
    if isinstance(value, Expression):
        names = free_names(value.node)
        return [result for name, given in value.scope.items() if name in names for result in results_in(given)]
    return []


def _step_name(step: Step, reading: Reading) -> str:
    from runner.language.authoring.comparisons import named

    return named(step, reading)
