"""A Python file with tests as a syntax tree: its imports, its definitions, its tests; and what
skips and parameters say of a spec.
"""

import ast
import builtins
import copy
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

DTYPES = {
    **{
        name: name
        for name in ("float64", "float32", "float16", "bfloat16", "complex64", "complex128")
    },
    **{
        name: name
        for name in (
            "int64",
            "int32",
            "int16",
            "int8",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
            "bool",
        )
    },
    **{
        f"float8_{kind}": f"float8_{kind}"
        for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
    },
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


class NotCarried(Exception):
    """A part of the test that a spec does not get; the text says why."""


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
        """Parse; raises ``SyntaxError``, ``ValueError``, ``RecursionError`` or ``MemoryError`` for
        what is no Python.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the escapes in strings of the file
            tree = ast.parse(text)
        file = cls(name=name, body=tuple(tree.body), statements=tuple(_flat(tree.body)))
        for statement in file.statements:
            file.definitions.update(dict.fromkeys(bound_names(statement), statement))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                file.imports.update(
                    {alias.asname or alias.name: alias.name for alias in node.names}
                )
            elif isinstance(node, ast.ImportFrom):
                file.imports.update(
                    {
                        alias.asname or alias.name: f"{node.module or ''}.{alias.name}"
                        for alias in node.names
                    }
                )
        return file

    def tests(self) -> list[Test]:
        """Return the tests, in the order of the file."""
        tests = []
        for statement in self.statements:
            parts = statement.body if isinstance(statement, ast.ClassDef) else [statement]
            owner = statement if isinstance(statement, ast.ClassDef) else None
            tests += [
                Test(part, owner)
                for part in parts
                if isinstance(part, ast.FunctionDef) and part.name.startswith("test")
            ]
        return tests

    def method(self, owner: ast.ClassDef | None, name: str) -> list[ast.stmt]:
        """Return the body of a method of a class, or of its bases in the file; empty where there is
        none.
        """
        for part in owner.body if owner is not None else ():
            if isinstance(part, ast.FunctionDef) and part.name == name:
                return part.body
        bases = [
            self.definitions.get(base.id)
            for base in (owner.bases if owner is not None else ())
            if isinstance(base, ast.Name)
        ]
        bodies = [
            self.method(base, name)
            for base in bases
            if isinstance(base, ast.ClassDef) and base is not owner
        ]
        return next(filter(None, bodies), [])

    def dotted(self, node: ast.AST) -> str:
        """Return the dotted path of an imported name or of an attribute of it; empty for other
        expressions.
        """
        if isinstance(node, ast.Attribute):
            head = self.dotted(node.value)
            return f"{head}.{node.attr}" if head else ""
        if not isinstance(node, ast.Name):
            return ""
        return self.imports.get(node.id, node.id if node.id in ("torch", "unittest") else "")

    def definitions_of(self, names: set[str]) -> list[ast.stmt]:
        """Return the statements of the top level that define names, with what they use in turn, in
        the order of the file.
        """
        waiting, seen = set(names), set[str]()
        while waiting:
            name = waiting.pop()
            seen.add(name)
            if name in self.definitions:
                waiting |= free_names(self.definitions[name]) - seen
        used: list[ast.stmt] = []
        for statement in self.statements:
            if any(self.definitions.get(name) is statement for name in seen - _ALWAYS_DEFINED):
                if isinstance(statement, ast.Import | ast.ImportFrom):  # of the used names alone
                    statement = copy.copy(statement)
                    statement.names = [
                        alias
                        for alias in statement.names
                        if (alias.asname or alias.name.partition(".")[0]) in seen
                    ]
                used.append(statement)
        return used


def _flat(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in statements:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With) and "__main__" not in ast.dump(
            getattr(statement, "test", statement)
        ):
            for part in ("body", "orelse", "finalbody"):
                yield from _flat(getattr(statement, part, []))


def bound_names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds where it stands."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.With) and len(statement.body) == 1:  # of the test's own context
        return bound_names(statement.body[0])
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return {name for target in targets for name in stored_names(target)}
    return set()


def stored_names(node: ast.AST) -> set[str]:
    """Return the names to which code assigns."""
    return {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }


def free_names(node: ast.AST) -> set[str]:
    """Return the names that code reads from outside of itself; not those that its functions
    bind.
    """
    names = (
        {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else set[str]()
    )
    for child in ast.iter_child_nodes(node):
        names |= free_names(child)
    return (
        names
        - (own_names(node) if isinstance(node, ast.FunctionDef | ast.Lambda) else set())
        - _ALWAYS_DEFINED
    )


def own_names(function: ast.FunctionDef | ast.Lambda) -> set[str]:
    """Return the arguments of a function and the names that it assigns."""
    names = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    shared = {
        name
        for part in ast.walk(function)
        if isinstance(part, ast.Nonlocal | ast.Global)
        for name in part.names
    }
    return names | (stored_names(function) - shared)


# -- skips: the backends and the requirements of a spec --------------------------------------------

ALL = frozenset(["cpu", "cuda", "rocm"])
_GPUS = frozenset(["cuda", "rocm"])

_TRUE_ON: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        (
            "HAS_CUDA",
            "HAS_GPU",
            "TEST_CUDA",
            "RUN_CUDA",
            "RUN_GPU",
            "HAS_CUDA_AND_TRITON",
            "HAS_GPU_AND_TRITON",
        ),
        _GPUS,
    ),
    **dict.fromkeys(
        ("torch.cuda.is_available()", "HAS_TRITON", "has_triton()", "USE_CUDA_GRAPHS"), _GPUS
    ),
    **dict.fromkeys(("HAS_CPU", "IS_LINUX", "RUN_CPU"), ALL),
    **dict.fromkeys(
        ("IS_WINDOWS", "IS_MACOS", "IS_FBCODE", "TEST_WITH_ASAN", "is_fbcode()", "IS_ARM64"),
        frozenset[str](),
    ),
    **dict.fromkeys(("TEST_WITH_ROCM", "torch.version.hip", "IS_ROCM"), frozenset(["rocm"])),
    "torch.version.cuda": frozenset(["cuda"]),
}
"""The backends on which a name of torch's tests is true."""

DECORATORS: Mapping[str, tuple[frozenset[str], tuple[Any, ...]]] = {
    **dict.fromkeys(
        ("requires_gpu", "requires_cuda", "onlyCUDA", "requires_cuda_and_triton"),
        (frozenset(["cpu"]), ()),
    ),
    "requires_gpu_and_triton": (frozenset(["cpu"]), ("triton",)),
    "requires_triton": (frozenset(), ("triton",)),
    **dict.fromkeys(("skipIfRocm", "skipCUDAIfRocm"), (frozenset(["rocm"]), ())),
    "runOnRocm": (frozenset(["cuda", "cpu"]), ()),
    "onlyCPU": (_GPUS, ()),
    "requires_multigpu": (frozenset(["cpu"]), ({"gpus": ">=2"},)),
    **dict.fromkeys(
        (
            "skipIfXpu",
            "skipIfWindows",
            "serialTest",
            "slowTest",
            "skipIfTorchDynamo",
            "staticmethod",
        ),
        (frozenset(), ()),
    ),
    **dict.fromkeys(
        ("instantiate_parametrized_tests", "fresh_inductor_cache", "fresh_cache", "wraps"),
        (frozenset(), ()),
    ),
}
"""What decorators drop and require, by the last word of their names."""

CONDITION = re.compile(r"_?(skip|xfail|largeTensor|requires?|only|expectedFailure)", re.IGNORECASE)
"""The beginning of the names of other decorators that only restrict where a test runs."""


def backends_of_device(test: ast.expr) -> frozenset[str] | None:
    """Return the backends on which a condition is true; None for a condition about something
    else.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = backends_of_device(test.operand)
        return None if inner is None else ALL - inner
    if (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq | ast.NotEq)
    ):
        left, right = (ast.unparse(side).strip("'\"") for side in (test.left, test.comparators[0]))
        if left not in (
            "self.device",
            "device",
            "self.device_type",
            "device_type",
        ) or right not in ("cpu", "cuda", *GPU_NAMES):
            return None
        equal = frozenset(["cpu"]) if right == "cpu" else _GPUS
        return equal if isinstance(test.ops[0], ast.Eq) else ALL - equal
    text = ast.unparse(test)
    return _TRUE_ON.get(text, _TRUE_ON.get(text.rpartition(".")[2]))
