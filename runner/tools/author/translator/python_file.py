"""A Python file with tests, as a syntax tree: its imports, its definitions, its tests."""

import ast
import builtins
import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

DTYPES = {
    **{name: name for name in ("float64", "float32", "float16", "bfloat16", "complex64", "complex128")},
    **{name: name for name in ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool")},
    **{f"float8_{kind}": f"float8_{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")},
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "int": "int32",
    "long": "int64",
    "short": "int16",
}
"""The dtypes of the language by torch's names for them."""

GPU_NAMES = frozenset(["GPU_TYPE", "DEVICE_TYPE"])
_ALWAYS_DEFINED = {*dir(builtins), "torch", "params", "self"}


@dataclass(frozen=True, slots=True)
class Test:
    """A test: its function and its class, if it has one."""

    function: ast.FunctionDef
    owner: ast.ClassDef | None

    @property
    def name(self) -> str:
        """``Class::test``, or ``test``."""
        return f"{self.owner.name}::{self.function.name}" if self.owner else self.function.name


@dataclass(frozen=True, slots=True)
class PythonFile:
    """The parts of a file that tests refer to."""

    name: str
    body: tuple[ast.stmt, ...]
    statements: tuple[ast.stmt, ...]
    """The statements of the top level, and those within its conditions and attempts."""
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    """What defines each name of the top level; the last one where there are several."""
    imports: dict[str, str] = field(default_factory=dict)
    """The dotted path of each imported name."""

    @classmethod
    def parse(cls, name: str, text: str) -> "PythonFile":
        """Parse; raises ``SyntaxError``, ``ValueError``, ``RecursionError`` or ``MemoryError`` for what is no Python."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the escapes in strings of the file
            tree = ast.parse(text)
        file = cls(name=name, body=tuple(tree.body), statements=tuple(_flat(tree.body)))
        for statement in file.statements:
            file.definitions.update(dict.fromkeys(bound_names(statement), statement))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                file.imports.update({alias.asname or alias.name: alias.name for alias in node.names})
            elif isinstance(node, ast.ImportFrom):
                file.imports.update({alias.asname or alias.name: f"{node.module or ''}.{alias.name}" for alias in node.names})
        return file

    def tests(self) -> list[Test]:
        """Return the tests, in the order of the file."""
        tests = []
        for statement in self.statements:
            if isinstance(statement, ast.FunctionDef) and statement.name.startswith("test"):
                tests.append(Test(statement, None))
            elif isinstance(statement, ast.ClassDef):
                methods = [part for part in statement.body if isinstance(part, ast.FunctionDef)]
                tests += [Test(method, statement) for method in methods if method.name.startswith("test")]
        return tests

    def method(self, owner: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
        """Return a method of a class, or of its bases in the file."""
        for part in owner.body if owner is not None else ():
            if isinstance(part, ast.FunctionDef) and part.name == name:
                return part
        bases = [self.definitions.get(base.id) for base in (owner.bases if owner is not None else ()) if isinstance(base, ast.Name)]
        methods = [self.method(base, name) for base in bases if isinstance(base, ast.ClassDef) and base is not owner]
        return next(filter(None, methods), None)

    def dotted(self, node: ast.AST) -> str:
        """Return the dotted path of an imported name or of an attribute of it; empty for other expressions."""
        if isinstance(node, ast.Attribute):
            head = self.dotted(node.value)
            return f"{head}.{node.attr}" if head else ""
        if not isinstance(node, ast.Name):
            return ""
        if node.id in self.imports:
            return self.imports[node.id]
        return node.id if node.id in ("torch", "unittest", "itertools", "functools") else ""

    def definitions_of(self, names: set[str]) -> list[ast.stmt]:
        """Return the statements of the top level that define names, with what they use in turn, in the order of the file."""
        waiting, seen = set(names), set[str]()
        while waiting:
            name = waiting.pop()
            seen.add(name)
            if name in self.definitions:
                waiting |= free_names(self.definitions[name]) - seen
        definitions = [self.definitions[name] for name in seen if name in self.definitions and name not in _ALWAYS_DEFINED]
        used: list[ast.stmt] = []
        for statement in self.statements:
            if any(statement is definition for definition in definitions):
                if isinstance(statement, ast.Import | ast.ImportFrom):  # of the used names alone
                    statement = copy.copy(statement)
                    statement.names = [alias for alias in statement.names if (alias.asname or alias.name.partition(".")[0]) in seen]
                used.append(statement)
        return used


def _flat(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in statements:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With) and "__main__" not in ast.dump(getattr(statement, "test", statement)):
            for part in ("body", "orelse", "finalbody"):
                yield from _flat(getattr(statement, part, []))


def bound_names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds where it stands."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        nodes = [node for target in targets for node in ast.walk(target)]
        return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return set()


def free_names(node: ast.AST) -> set[str]:
    """Return the names that code reads from outside of itself; not those that its functions bind."""
    names = {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else set[str]()
    for child in ast.iter_child_nodes(node):
        names |= free_names(child)
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        names -= own_names(node)
    return names - _ALWAYS_DEFINED


def own_names(function: ast.FunctionDef | ast.Lambda) -> set[str]:
    """Return the arguments of a function and the names that it assigns."""
    names = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    shared = {name for part in ast.walk(function) if isinstance(part, ast.Nonlocal | ast.Global) for name in part.names}
    stored = {part.id for part in ast.walk(function) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return names | (stored - shared)
