"""A Python file with tests as a syntax tree, and what is known of one test while its statements are read."""

import ast
import builtins
import copy
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

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


# -- a spec while it is made ------------------------------------------------------------------------------------------


_GPU_TEXTS = frozenset(["cuda", "cuda:0", "xpu"])


Node = TypeVar("Node", bound=ast.AST)


class NotCarried(Exception):
    """A part of the test that a spec does not get; the text says why."""


@dataclass(frozen=True, slots=True, order=True)
class Remark:
    """What is said of a line of the test: that it is not carried, or what differs."""

    line: int
    text: str


@dataclass(eq=False)
class Step:
    """A step of the spec. A call has its function and arguments."""

    kind: str
    value: Any
    expects: list[Mapping[str, Any]] = field(default_factory=list)
    function: str = ""
    arguments: list["ast.expr | Result"] = field(default_factory=list)
    contexts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SetUp:
    """A value that Python of the prelude makes, under this name."""

    name: str
    node: ast.expr | ast.FunctionDef | None = None
    """What the name was bound to; None where that is more than one expression."""
    position: int = 0
    """How many statements of the prelude came before."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled function, by its key in ``Translation.functions``."""

    function: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a step returned, or a part of it."""

    step: Step
    path: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """Generated code: that of one file by its index, or the list of all."""

    step: Step
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that a line makes which was not carried."""

    line: int


Value = SetUp | Compiled | Result | Code | Unknown | tuple["Value", ...]


@dataclass(eq=False)
class Translation:
    """A spec while it is made from a test."""

    file: PythonFile
    test: Test
    names: dict[str, Value] = field(default_factory=dict)
    """What the names of the test stand for where the reading is."""
    values: dict[str, SetUp] = field(default_factory=dict)
    """The values of the prelude by their names there."""
    setup: list[ast.stmt] = field(default_factory=list)
    functions: dict[str, ast.FunctionDef | None] = field(default_factory=dict)
    """The definitions of the functions under test by key; None for a module, which has its key as name in the prelude."""
    compile_options: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of ``torch.compile``, the same for all functions."""
    steps: list[Step] = field(default_factory=list)
    needed: set[str] = field(default_factory=set)
    """Names of the prelude that the spec itself mentions."""
    base_options: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The options of the whole test, by section of the spec."""
    block_options: list[Mapping[str, Mapping[str, Any]]] = field(default_factory=list)
    call_options: dict[str, dict[str, Any]] | None = None
    """The options under which the compiled calls are made; None before the first."""
    torch_settings: dict[str, Any] = field(default_factory=dict)
    contexts: list[str] = field(default_factory=list)
    matrix: dict[str, list[Any]] = field(default_factory=dict)
    templates: dict[str, str] = field(default_factory=dict)
    """Parameters of the test by their names in the prelude, as expressions of the matrix."""
    devices: set[str] = field(default_factory=set)
    """What the test names: any, gpu."""
    dropped: set[str] = field(default_factory=set)
    """Backends that skips of the test leave out."""
    requires: list[Any] = field(default_factory=list)
    lost: set[Remark] = field(default_factory=set)
    notes: set[Remark] = field(default_factory=set)
    """Differences that claim no less."""
    changes: dict[str, int] = field(default_factory=dict)
    """How many statements of the prelude there were when one may have changed a value."""

    def lose(self, node: ast.AST, reason: str) -> None:
        """Remember that a part is not carried; what it binds is unknown from here on."""
        line = getattr(node, "lineno", self.test.function.lineno)
        words = " ".join(ast.unparse(node).split("\n")[0].split())[:90] if isinstance(node, ast.stmt | ast.expr) else ""
        self.lost.add(Remark(line, f"{words}: {reason}" if words else reason))
        if isinstance(node, ast.stmt):
            stored = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
            self.names.update(dict.fromkeys(bound_names(node) | stored, Unknown(line)))

    # Python for the prelude

    def fresh(self, name: str) -> str:
        """Return a name that nothing in the prelude has yet."""
        taken = self.values.keys() | self.file.definitions.keys() | self.file.imports.keys() | {"torch", "params"}
        candidates = [name, *(f"{name}_{number}" for number in range(2, 1000))]
        return next(candidate for candidate in candidates if candidate not in taken)

    def rewritten(self, node: Node) -> Node:
        """Return Python for the prelude: with its names, and with the device of the case."""
        tree = _Rewriter(self).visit(copy.deepcopy(node))
        rewritten: Node = ast.fix_missing_locations(tree)
        return rewritten

    def set_up(self, statement: ast.stmt) -> None:
        """Take a statement over into the prelude, which runs before the first call."""
        binds = bound_names(statement)
        is_import = isinstance(statement, ast.Import | ast.ImportFrom)
        is_late = any(step.kind == "call" for step in self.steps)
        tree = self.rewritten(statement)
        used = {part.id for step in self.steps for part in step.arguments if isinstance(part, ast.Name)} | self.needed
        if is_late and not binds and (free_names(tree) & used or not free_names(tree) & self.values.keys()):
            raise NotCarried("it may change values between two calls")
        if binds and not is_import:
            aliases = {name: self.fresh(name) for name in binds}
            if isinstance(tree, ast.Assign) and isinstance(statement, ast.Assign):
                tree.targets = copy.deepcopy(statement.targets)
            if isinstance(tree, ast.FunctionDef | ast.ClassDef):
                tree.name = aliases[tree.name]
            elif isinstance(tree, ast.Assign | ast.AnnAssign):
                targets = tree.targets if isinstance(tree, ast.Assign) else [tree.target]
                for part in (part for target in targets for part in ast.walk(target)):
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                        part.id = aliases[part.id]
            is_plain = isinstance(tree, ast.Assign) and isinstance(tree.targets[0], ast.Name)
            node = tree if isinstance(tree, ast.FunctionDef) else tree.value if isinstance(tree, ast.Assign) and is_plain else None
            for name, alias in aliases.items():
                self.names[name] = self._keep(alias, node)
        else:
            stored = {part.id for part in ast.walk(statement) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
            for name in stored | binds:
                if not isinstance(self.names.get(name), SetUp):
                    self.names[name] = self._keep(name, None)
            changed = free_names(tree) | {value.name for name in stored if isinstance(value := self.names[name], SetUp)}
            self.changes.update(dict.fromkeys(changed, len(self.setup) + 1))
        for context in reversed(self.contexts):
            if not isinstance(tree, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
                items = [ast.withitem(context_expr=ast.parse(f"torch.{context}()", mode="eval").body)]
                tree = ast.With(items=items, body=[tree])
        self.setup.append(ast.fix_missing_locations(tree))

    def value_of(self, node: ast.expr, name: str) -> SetUp:
        """Make an expression a value of the prelude."""
        if isinstance(node, ast.Name) and isinstance(value := self.names.get(node.id), SetUp):
            return value
        value = self._keep(self.fresh(name), self.rewritten(node))
        assert isinstance(value.node, ast.expr)
        target = ast.Name(id=value.name, ctx=ast.Store())
        self.setup.append(ast.fix_missing_locations(ast.Assign(targets=[target], value=value.node, lineno=0)))
        return value

    def needed_setup(self) -> list[ast.stmt]:
        """Return the statements of the prelude that the spec depends on: those that bind, or may change, a value that is needed."""
        names = self.needed | {name for node in filter(None, self.functions.values()) for name in free_names(node)}
        chosen = []
        for statement in reversed(self.setup):
            inner = statement.body[0] if isinstance(statement, ast.With) and len(statement.body) == 1 else statement
            mentioned = {part.id for part in ast.walk(statement) if isinstance(part, ast.Name)}
            if (bound_names(inner) or mentioned) & names:  # a statement that binds nothing changes what it mentions
                chosen.append(statement)
                names |= mentioned
        return chosen[::-1]

    def parameter(self, name: str, python: str, template: str) -> None:
        """Define a parameter of the test, which is a key of the matrix."""
        alias = self.fresh(name)
        self.names[name] = self._keep(alias, None)
        self.templates[alias] = template
        self.setup.append(ast.parse(f"{alias} = {python}").body[0])

    def _keep(self, alias: str, node: ast.expr | ast.FunctionDef | None) -> SetUp:
        value = SetUp(alias, node, len(self.setup))
        self.values[alias] = value
        return value

    # constants

    def literal(self, node: ast.AST, *, is_prelude: bool = False) -> Any:
        """Return the value of a constant expression of the test, or of the prelude."""
        if isinstance(node, ast.Name):
            value = self.values.get(node.id) if is_prelude else self.names.get(node.id)
            definition = self.file.definitions.get(node.id)
            if isinstance(value, SetUp) and isinstance(value.node, ast.expr) and value.position >= self.changes.get(value.name, 0):
                return self.literal(value.node, is_prelude=True)
            if value is None and isinstance(definition, ast.Assign) and isinstance(definition.targets[0], ast.Name):
                return self.literal(definition.value)
        if isinstance(node, ast.Tuple | ast.List):
            return [self.literal(item, is_prelude=is_prelude) for item in node.elts]
        try:
            return ast.literal_eval(ast.unparse(node))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
            raise NotCarried("a value that is no constant") from error

    def yaml(self, node: ast.expr, *, is_prelude: bool = False) -> Any:
        """Return a constant, or a template over the parameters of the test."""
        if isinstance(node, ast.Dict) and all(node.keys):
            return {self.literal(key): self.yaml(item) for key, item in zip(node.keys, node.values, strict=True) if key}
        if isinstance(node, ast.Tuple | ast.List):
            return [self.yaml(item, is_prelude=is_prelude) for item in node.elts]
        values = {name: self.values.get(name) if is_prelude else self.names.get(name) for name in free_names(node)}
        templates = {name: self.templates.get(value.name) for name, value in values.items() if isinstance(value, SetUp)}
        if not templates or not all(templates.values()) or any(isinstance(part, ast.Call | ast.Subscript) for part in ast.walk(node)):
            return self.literal(node, is_prelude=is_prelude)
        expression = copy.deepcopy(node)
        for part in ast.walk(expression):
            if isinstance(part, ast.Name):
                part.id = templates.get(part.id) or part.id
        return f"{{{{ {ast.unparse(expression)} }}}}"

    # steps

    def expect(self, body: Mapping[str, Any], step: Step | None = None) -> None:
        """Add an expectation to a step, the last one by default."""
        if step is None:
            self.steps += [] if self.steps else [Step("clear_counters", {})]
            step = self.steps[-1]
        step.expects.append(body)

    def named(self, step: Step) -> str:
        """Return the name of a step's result, for later steps."""
        if "as" not in step.value:
            step.value["as"] = f"result_{sum('as' in other.value for other in self.steps if isinstance(other.value, dict)) + 1}"
        return str(step.value["as"])


class _Rewriter(ast.NodeTransformer):
    """Python of the test as Python of the prelude."""

    def __init__(self, translation: Translation) -> None:
        self.translation = translation
        self.shadowed: set[str] = set()

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.translation.names.get(node.id)
        if node.id in self.shadowed or (isinstance(node.ctx, ast.Store) and not isinstance(value, SetUp)):
            return node
        if node.id in GPU_NAMES and value is None:
            return self._device("gpu")
        if isinstance(value, Unknown):
            raise NotCarried(f"it uses '{node.id}' of line {value.line}, which is not carried")
        if isinstance(value, SetUp):
            return ast.Name(id=value.name, ctx=node.ctx)
        if value is not None:
            raise NotCarried(f"it computes with '{node.id}', which a step makes")
        if node.id == "self":
            raise NotCarried("it uses the test itself")
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "self" and "self" not in self.shadowed:
            if node.attr in ("device", "device_type"):
                return self._device("any")
            raise NotCarried(f"it uses 'self.{node.attr}'")
        if node.attr in ("counters", "metrics") and self.translation.file.dotted(node).startswith("torch._"):
            raise NotCarried("it reads counters of torch")
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self.translation.file.dotted(node.func) == "torch.compile":
            raise NotCarried("it compiles in the middle of an expression")
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and not self.translation.file.dotted(node.func):
            node = ast.Call(func=ast.Attribute(value=node.func.value, attr="to", ctx=ast.Load()), args=[self._device("gpu")], keywords=[])
        if self.translation.file.dotted(node.func) == "torch.device" and len(node.args) == 1 and _is_gpu(node.args[0]):
            return self._device("gpu")
        node.args = [self._device("gpu") if _is_gpu(part) else part for part in node.args]
        for word in node.keywords:
            if _is_gpu(word.value):
                word.value = self._device("gpu")
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if len(node.body) > 1 and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant):
            node.body = node.body[1:]
        node.decorator_list = [self.visit(part) for part in node.decorator_list]
        return self._within(node, own_names(node))

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._within(node, {"self"})

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._within(node, own_names(node))

    def _within(self, node: ast.AST, names: set[str]) -> ast.AST:
        before = self.shadowed
        self.shadowed = before | names
        try:
            return self.generic_visit(node)
        finally:
            self.shadowed = before

    def _device(self, kind: str) -> ast.expr:
        self.translation.devices.add(kind)
        return ast.Attribute(value=ast.Name(id="params", ctx=ast.Load()), attr="device", ctx=ast.Load())


def _is_gpu(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in _GPU_TEXTS


# -- parameters and skips: the matrix, the backends and the requirements of a spec ---------------------------------------

_ALL = frozenset(["cpu", "cuda", "rocm"])
_GPUS = frozenset(["cuda", "rocm"])

_TRUE_ON: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("HAS_CUDA", "HAS_GPU", "TEST_CUDA", "RUN_CUDA", "RUN_GPU", "HAS_CUDA_AND_TRITON", "HAS_GPU_AND_TRITON"), _GPUS),
    **dict.fromkeys(("torch.cuda.is_available()", "HAS_TRITON", "has_triton()", "USE_CUDA_GRAPHS"), _GPUS),
    **dict.fromkeys(("HAS_CPU", "IS_LINUX", "RUN_CPU"), _ALL),
    **dict.fromkeys(("IS_WINDOWS", "IS_MACOS", "IS_FBCODE", "TEST_WITH_ASAN", "is_fbcode()", "IS_ARM64"), frozenset[str]()),
    **dict.fromkeys(("TEST_WITH_ROCM", "torch.version.hip", "IS_ROCM"), frozenset(["rocm"])),
    "torch.version.cuda": frozenset(["cuda"]),
}
"""The backends on which a name of torch's tests is true."""

_DECORATORS: Mapping[str, tuple[frozenset[str], tuple[Any, ...]]] = {
    **dict.fromkeys(("requires_gpu", "requires_cuda", "onlyCUDA", "requires_cuda_and_triton"), (frozenset(["cpu"]), ())),
    "requires_gpu_and_triton": (frozenset(["cpu"]), ("triton",)),
    "requires_triton": (frozenset(), ("triton",)),
    **dict.fromkeys(("skipIfRocm", "skipCUDAIfRocm"), (frozenset(["rocm"]), ())),
    "runOnRocm": (frozenset(["cuda", "cpu"]), ()),
    "onlyCPU": (_GPUS, ()),
    "requires_multigpu": (frozenset(["cpu"]), ({"gpus": ">=2"},)),
    **dict.fromkeys(("skipIfXpu", "skipIfWindows", "serialTest", "slowTest", "skipIfTorchDynamo", "staticmethod"), (frozenset(), ())),
}
"""What decorators drop and require, by the last word of their names."""


def backends_of_device(test: ast.expr) -> frozenset[str] | None:
    """Return the backends on which a condition is true; None for a condition about something else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = backends_of_device(test.operand)
        return None if inner is None else _ALL - inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.NotEq):
        left, right = (ast.unparse(side).strip("'\"") for side in (test.left, test.comparators[0]))
        if left not in ("self.device", "device", "self.device_type", "device_type") or right not in ("cpu", "cuda", *GPU_NAMES):
            return None
        equal = frozenset(["cpu"]) if right == "cpu" else _GPUS
        return equal if isinstance(test.ops[0], ast.Eq) else _ALL - equal
    text = ast.unparse(test)
    return _TRUE_ON.get(text, _TRUE_ON.get(text.rpartition(".")[2]))


def skip(translation: Translation, statement: ast.If) -> bool:
    """Take ``if CONDITION: skip`` over as dropped backends; False for other conditions."""
    last = statement.body[-1]
    call = last.exc if isinstance(last, ast.Raise) else last.value if isinstance(last, ast.Expr) else None
    word = ast.unparse(call.func).rpartition(".")[2] if isinstance(call, ast.Call) else ""
    if statement.orelse or word not in ("SkipTest", "skipTest", "skip"):
        return False
    _drop(translation, statement, statement.test)
    return True


def _drop(translation: Translation, node: ast.expr | ast.stmt, test: ast.expr) -> None:
    backends = backends_of_device(test)
    if backends is None:
        translation.notes.add(Remark(node.lineno, f"the test is skipped where {ast.unparse(test)[:80]}; the spec is not"))
    elif backends == _ALL:
        raise NotCarried("the test is always skipped")
    else:
        translation.dropped |= backends


def read_decorator(translation: Translation, node: ast.expr) -> None:
    """Take a decorator of a test or of its class over."""
    function = node.func if isinstance(node, ast.Call) else node
    word = ast.unparse(function).rpartition(".")[2]
    arguments = node.args if isinstance(node, ast.Call) else []
    if word in _DECORATORS:
        dropped, requires = _DECORATORS[word]
        translation.dropped |= dropped
        translation.requires += [entry for entry in requires if entry not in translation.requires]
    elif word in ("skipIf", "skipif", "skipUnless") and arguments:
        _drop(translation, node, ast.UnaryOp(op=ast.Not(), operand=arguments[0]) if word == "skipUnless" else arguments[0])
    elif word == "parametrize" and len(arguments) == 2:
        _parametrize(translation, arguments)
    elif re.match(r"_?(skip|xfail|largeTensor|requires?|only|expectedFailure)", word, re.IGNORECASE):
        translation.notes.add(Remark(node.lineno, f"the test has @{ast.unparse(node)[:80]}; the spec has no such condition"))
    elif word not in ("instantiate_parametrized_tests", "fresh_inductor_cache", "fresh_cache", "wraps"):
        translation.lose(node, "a decorator that is not understood")


def _parametrize(translation: Translation, arguments: list[ast.expr]) -> None:
    names = translation.literal(arguments[0])
    names = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)
    if not isinstance(arguments[1], ast.Tuple | ast.List):
        raise NotCarried("values that are not written out")
    values = arguments[1].elts
    if names == ["device"]:
        kinds = {"cpu" if isinstance(value, ast.Constant) and value.value == "cpu" else "gpu" for value in values}
        translation.devices.discard("any")  # of the parameter: these are its values
        translation.devices.add("any" if len(kinds) == 2 else kinds.pop())
    elif len(names) == 1:
        name, python = names[0], f"params.{names[0]}"
        dtypes = [DTYPES.get(translation.file.dotted(value).removeprefix("torch.")) for value in values]
        if all(dtypes):
            translation.matrix[name], python = dtypes, f"getattr(torch, params.{name})"
        else:
            translation.matrix[name] = [translation.literal(value) for value in values]
            if not all(isinstance(value, str | int | float) for value in translation.matrix[name]):
                raise NotCarried("values that YAML writes in another way")
        translation.parameter(name, python, name)
    else:
        raise NotCarried("several parameters in one list")
