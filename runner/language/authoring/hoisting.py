"""The Python that a spec takes over: functions, and in the prelude all that they name."""

import ast
import builtins
import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

from runner.language.authoring.file_names import of_file
from runner.language.authoring.naming import dotted
from runner.language.authoring.reading import Reading
from runner.language.authoring.values import (
    Class,
    Device,
    Dotted,
    Expression,
    Function,
    Items,
    Known,
    Module,
    NotCarried,
    Parameter,
    Tensor,
    Value,
)

_BUILTINS = frozenset(dir(builtins))
_GIVEN = frozenset(["torch", "params"])
"""Names that every spec's Python has."""


class Prelude:
    """The definitions of a prelude, each after those that it names."""

    def __init__(self, reading: Reading, *, keeps_decorators: bool = False) -> None:
        self._reading = reading
        self._keeps_decorators = keeps_decorators
        self._texts: dict[str, str] = {}
        self._values: dict[str, object] = {}
        self._open: list[str] = []

    @property
    def text(self) -> str:
        """The Python of the prelude."""
        imports = [text for text in self._texts.values() if text.startswith(("import ", "from "))]
        others = [text for text in self._texts.values() if text not in imports]
        parts = ["\n".join(dict.fromkeys(imports)), *others]
        return "\n\n".join(part for part in parts if part)

    def source(self, name: str, function: Function) -> str:
        """Return the text of a function; what it names goes into the prelude."""
        node = function.node
        if isinstance(node, ast.Lambda):
            made: ast.FunctionDef = ast.FunctionDef(name, node.args, [ast.Return(node.body)], [])
        else:
            made = copy.deepcopy(node)
            made.name = name
            made.decorator_list = [part for part in made.decorator_list if not self._is_compile(part)]
        return self.rewritten(ast.fix_missing_locations(made), function.scope, own=frozenset([name, getattr(node, "name", name)]))

    def _is_compile(self, node: ast.expr) -> bool:
        path = dotted(node.func if isinstance(node, ast.Call) else node, self._reading)
        return not self._keeps_decorators and path in ("torch.compile", "torch._dynamo.optimize", "staticmethod")

    def rewritten(self, node: ast.AST, scope: Mapping[str, Value], own: frozenset[str] = frozenset()) -> str:
        """Return the text of Python whose free names are in the prelude."""
        if any(isinstance(part, ast.Global | ast.Nonlocal) for part in ast.walk(node)):
            raise NotCarried("a function that changes a variable of the test")
        if any(isinstance(part, ast.Await | ast.AsyncFunctionDef) for part in ast.walk(node)):
            raise NotCarried("a function that waits")
        made = _Own().visit(copy.deepcopy(node))
        renamed = {name: self.need(name, scope) for name in sorted(free_names(made) - own)}
        for part in ast.walk(made):
            if isinstance(part, ast.Name) and part.id in renamed:
                part.id = renamed[part.id]
        return ast.unparse(made)

    def need(self, name: str, scope: Mapping[str, Value]) -> str:
        """Define a name that Python of the spec uses; return it, or another where the name has another value already."""
        if name in _GIVEN or name in self._open:
            return name
        if name not in scope and name in _BUILTINS and name not in self._reading.file.definitions:
            return name
        value = scope.get(name)
        if value is None:
            value = of_file(name, self._reading)
        identity = _identity(value)
        wanted, count = name, 1
        while name in self._texts or name in self._open:
            if self._values.get(name) == identity:
                return name
            count += 1
            name = f"{wanted}_{count}"
        self._open.append(name)
        try:
            text = self._definition(name, value)
        finally:
            self._open.remove(name)
        self._texts[name] = text
        self._values[name] = identity
        return name

    def define(self, values: Sequence[Value]) -> None:
        """Add definitions of operators, or of parts of them, whose names nothing needs to use."""
        for value in values:
            if isinstance(value, Function):
                self.need(value.name, {**value.scope, value.name: value})
            elif isinstance(value, Expression):
                text = self.rewritten(value.node, value.scope)
                self._texts.setdefault(text, text)

    def add(self, name: str, text: str) -> None:
        """Add a definition of the spec's own."""
        self._texts.setdefault(name, text)
        self._values.setdefault(name, text)

    def _definition(self, name: str, value: Value) -> str:
        if isinstance(value, Function):
            return self.source(name, value)
        if isinstance(value, Class):
            node = copy.deepcopy(value.node)
            if name != node.name and any(isinstance(part, ast.Name) and part.id == node.name for part in ast.walk(node)):
                raise NotCarried(f"the name '{node.name}' stands for two values")
            own = frozenset([name, node.name])
            node.name = name
            return self.rewritten(node, value.scope, own=own)
        if isinstance(value, Known):
            return f"{name} = {literal(value.value)}"
        if isinstance(value, Parameter):
            return f"{name} = getattr(torch, params.{value.name})" if value.is_dtype else f"{name} = params.{value.name}"
        if isinstance(value, Device):
            return f"{name} = {'params.device' if value.where != 'cpu' else repr('cpu')}"
        if isinstance(value, Dotted):
            return _import(name, value.path)
        return f"{name} = {self.made(value, name)}"

    def made(self, value: Value, name: str = "") -> str:
        """Return the Python expression that makes a value."""
        if isinstance(value, Tensor):
            return tensor_text(value)
        if isinstance(value, Module):
            return f"{self.rewritten(value.node, value.scope)}{conversions(value)}"
        if isinstance(value, Items):
            return f"({', '.join(self.made(item) for item in value.items)},)"
        if isinstance(value, Known):
            return literal(value.value)
        if isinstance(value, Expression):
            if isinstance(value.node, ast.Name) and value.node.id == name:
                return self._of_file(name)
            return self.rewritten(value.node, value.scope)
        raise NotCarried(f"it uses '{name}', a {type(value).__name__.lower()} of the test")

    def _of_file(self, name: str) -> str:
        found = self._reading.file.definitions.get(name)
        if isinstance(found, ast.Assign) and len(found.targets) == 1 and isinstance(found.targets[0], ast.Name):
            return self.rewritten(found.value, {})
        if name in _BUILTINS:
            return name
        raise NotCarried(f"it uses '{name}', which the file does not define in one place")


def _identity(value: Value) -> object:
    if isinstance(value, Known):
        return repr(value.value)
    if isinstance(value, Function | Class):
        return id(value.node)
    if isinstance(value, Dotted):
        return value.path
    if isinstance(value, Device):
        return value.where
    if isinstance(value, Parameter):
        return value.name
    if isinstance(value, Expression):
        return ast.dump(value.node)
    return id(getattr(value, "token", value))


def _import(name: str, path: str) -> str:
    head, _, last = path.rpartition(".")
    if path.startswith((".", "inductor.", "test_", "..")) or head.startswith("inductor"):
        raise NotCarried(f"it uses '{name}' of another test file ({path})")
    if not head:
        return f"import {path}" if name == path else f"import {path} as {name}"
    return f"from {head} import {last}" + ("" if name == last else f" as {name}")


def literal(found: Any) -> str:
    """Return a constant as Python; raise ``NotCarried`` for values without a literal."""
    if isinstance(found, dict):
        return "{" + ", ".join(f"{literal(key)}: {literal(value)}" for key, value in found.items()) + "}"
    if isinstance(found, list | tuple):
        inner = ", ".join(literal(item) for item in found)
        return f"[{inner}]" if isinstance(found, list) else f"({inner}{',' if len(found) == 1 else ''})"
    if isinstance(found, float) and (math.isinf(found) or math.isnan(found)):
        return f"float({str(found)!r})"
    if found is None or isinstance(found, str | bytes | int | float | bool):
        return repr(found)
    if isinstance(found, Dotted):
        return found.path
    raise NotCarried("a value that cannot be written down")


def conversions(module: Module) -> str:
    """Return the method calls that convert a module."""
    text = f".to(torch.{module.entry['dtype']})" if "dtype" in module.entry and "{{" not in module.entry["dtype"] else ""
    if "{{" in str(module.entry.get("dtype", "")):
        text = f".to(getattr(torch, {_python(module.entry['dtype'])}))"
    if module.device in ("gpu", "backend"):
        text += ".to(params.device)"
    return text + (".eval()" if module.entry.get("eval") else "")


def tensor_text(tensor: Tensor) -> str:
    """Return the Python that makes a tensor."""
    entry = dict(tensor.entry)
    if {"strides", "memory_format"} & entry.keys() or tensor.marks:
        raise NotCarried("a function that uses a tensor of the test with a layout of its own")
    dtype = entry.pop("dtype", None)
    words = [f"dtype=getattr(torch, {_python(dtype)})" if "{{" in str(dtype) else f"dtype=torch.{dtype}"] if dtype else []
    words += ["device=params.device"] if tensor.device in ("gpu", "backend") else []
    words += ["requires_grad=True"] if entry.pop("requires_grad", False) else []
    kind, given = next(iter(entry.items()))
    arguments = _arguments(kind, given, entry)
    return f"torch.{arguments[0]}({', '.join([*arguments[1:], *words])})"


def _arguments(kind: str, given: Any, entry: Mapping[str, Any]) -> list[str]:
    """Return the function of torch for a kind of input, and its arguments."""
    if kind == "values":
        return ["tensor", _python(given)]
    if kind == "full":
        return ["full", _python(given), _python(entry["value"])]
    if kind == "randint":
        return ["randint", _python(entry.get("low", 0)), _python(entry.get("high")), _python(given)]
    if kind == "arange":
        return ["arange", *(map(_python, given) if isinstance(given, list) else [_python(given)])]
    return [kind, _python(given)]


def _python(found: Any) -> str:
    """Return YAML data as Python; templates of parameters as ``params.NAME``."""
    if isinstance(found, list):
        return "[" + ", ".join(map(_python, found)) + "]"
    if isinstance(found, str) and found.startswith("{{"):
        return f"params.{found.strip('{} ')}"
    return repr(found)


class _Own(ast.NodeTransformer):
    """Replaces ``self.device`` of the test by the device of the case."""

    def __init__(self) -> None:
        self._inside = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        names = {argument.arg for argument in (*node.args.posonlyargs, *node.args.args)}
        self._inside += "self" in names
        self.generic_visit(node)
        self._inside -= "self" in names
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "self" and not self._inside:
            if node.attr not in ("device", "device_type"):
                raise NotCarried(f"it uses 'self.{node.attr}'")
            return ast.copy_location(ast.Attribute(ast.Name("params", ast.Load()), "device", ast.Load()), node)
        self.generic_visit(node)
        return node


def free_names(node: ast.AST) -> set[str]:
    """Return the names that Python reads and does not define itself."""
    loaded = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
    made = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}
    for part in ast.walk(node):
        if isinstance(part, ast.arguments):
            every = [*part.posonlyargs, *part.args, *part.kwonlyargs, *filter(None, (part.vararg, part.kwarg))]
            made |= {argument.arg for argument in every}
        elif isinstance(part, ast.FunctionDef | ast.ClassDef):
            made.add(part.name)
        elif isinstance(part, ast.Import | ast.ImportFrom):
            made |= {name.asname or name.name.partition(".")[0] for name in part.names}
        elif isinstance(part, ast.ExceptHandler) and part.name:
            made.add(part.name)
    return (loaded - made) | _of_defaults(node)


def _of_defaults(node: ast.AST) -> set[str]:
    """Return the names that defaults of methods and of the function itself read, which are not its own arguments."""
    functions = [part for part in (node, *getattr(node, "body", [])) if isinstance(part, ast.FunctionDef)]
    defaults = [default for part in functions for default in (*part.args.defaults, *part.args.kw_defaults) if default is not None]
    found = {part.id for default in defaults for part in ast.walk(default) if isinstance(part, ast.Name)}
    within = functions if isinstance(node, ast.ClassDef) else functions[:1]
    arguments = {argument.arg for part in within for argument in (*part.args.args, *part.args.kwonlyargs)}
    assigned = [part for part in getattr(node, "body", []) if isinstance(node, ast.ClassDef) and isinstance(part, ast.Assign)]
    same = {part.value.id for part in assigned if isinstance(part.value, ast.Name) and ast.unparse(part.targets[0]) == part.value.id}
    return found & arguments | same
