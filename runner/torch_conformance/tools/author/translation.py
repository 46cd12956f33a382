"""What is made of the statements of a Python test, which is not executed.

A statement of the test makes options, a compiled function, a step or an expectation; any other one
prepares values, and goes into the prelude as it is, where it runs before the first call. So none
that could change a value may stand behind a call.
"""

import ast
import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch_conformance.tools.author.python_tests import (
    ALL,
    CONDITION,
    DECORATORS,
    DTYPES,
    GPU_NAMES,
    NotCarried,
    PythonFile,
    Test,
    backends_of_device,
    bound_names,
    free_names,
    own_names,
    stored_names,
)

CONFIG_MODULES = {
    "torch._inductor.config": "config",
    "torch._dynamo.config": "dynamo_config",
    "torch._functorch.config": "functorch_config",
}
"""The modules with options, and the section of a spec for each."""

_RESETS: Mapping[str, tuple[str, Any]] = {
    "torch._dynamo.reset": ("reset", ["dynamo"]),
    "torch.compiler.reset": ("reset", ["dynamo"]),
    "torch._inductor.utils.clear_inductor_caches": ("reset", ["inductor"]),
    "torch._inductor.utils.clear_caches": ("reset", ["inductor"]),
    "torch._inductor.codecache.FxGraphCache.clear": ("reset", ["fx_graph"]),
    "torch._inductor.codecache.PyCodeCache.cache_clear": ("reset", ["code"]),
    "torch._functorch._aot_autograd.autograd_cache.AOTAutogradCache.clear": (
        "reset",
        ["aot_autograd"],
    ),
    "torch._dynamo.utils.counters.clear": ("clear_counters", {"only": "counters"}),
    "torch._inductor.metrics.reset": ("clear_counters", {"only": "metrics"}),
}
_SETTERS = {
    "torch.set_float32_matmul_precision": "float32_matmul_precision",
    "torch.use_deterministic_algorithms": "deterministic",
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": "allow_fp16_reduced_precision_reduction",  # noqa: E501 - a word without a break
    "torch.backends.cuda.matmul.allow_tf32": "allow_tf32",
}
_CONTEXTS = ("torch.no_grad", "torch.enable_grad", "torch.inference_mode")
_FRESH = ("fresh_inductor_cache", "fresh_cache")
_COMPARISONS = {
    "assertGreater": ast.Gt,
    "assertGreaterEqual": ast.GtE,
    "assertLess": ast.Lt,
    "assertLessEqual": ast.LtE,
}
_CLOSE = ("assertEqual", "assert_close", "assert_allclose")
_SAME: Mapping[str, Mapping[str, Any]] = {
    "allclose": {"rtol": 1e-5, "atol": 1e-8},
    "same": {"rtol": 1e-4, "atol": 1e-4},
    "equal": {"exact": True},
}
"""Functions that say whether two values are equal, with their tolerances."""
_DEEPEST = 5

_EVERY_FILE = "CHECK: AOT ID: ["
"""A line that begins every generated file: a check of what is not there needs something that is."""

_DIRECTIVES = {
    "check": "CHECK",
    "check_not": "CHECK-NOT",
    "check_same": "CHECK-SAME",
    "check_next": "CHECK-NEXT",
    "check_dag": "CHECK-DAG",
}

Options = dict[str, dict[str, Any]]
Node = TypeVar("Node", bound=ast.AST)


@dataclass(frozen=True, slots=True, order=True)
class Remark:
    """What is said of a line of the test: that it is not carried, or what differs."""

    line: int
    text: str


# -- what names of the test stand for --------------------------------------------------------------


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


Value = Compiled | Result | Code | Unknown | tuple["Value", ...]
_MADE = (Compiled, Result, Code, tuple)
"""The kinds of values that steps and compilation make."""


def _part(value: Value, index: Any) -> Value:
    if isinstance(value, tuple) and isinstance(index, int) and index < len(value):
        return value[index]
    if isinstance(value, Code) and value.index is None and isinstance(index, int) and index >= 0:
        return Code(value.step, index)
    if isinstance(value, Result) and (
        isinstance(index, str) or (isinstance(index, int) and index >= 0)
    ):
        return Result(value.step, f"{value.path}.{index}".strip("."))
    raise NotCarried("a part of a value that is not known")


class Translation:
    """A spec while it is made from a test."""

    def __init__(self, file: PythonFile, test: Test) -> None:
        self.file, self.test = file, test
        self.names: dict[str, Value] = {}
        """What names of the test stand for that are no values of the prelude."""
        self.setup: list[ast.stmt] = []
        """The statements of the test in the prelude."""
        self.values: dict[str, tuple[ast.expr | ast.FunctionDef | None, int]] = {}
        """What each name of ``setup`` is bound to (None: not to one expression), and how many
        statements there were then.
        """
        self.templates: dict[str, str] = {}
        """The parameters of the test, as expressions of the matrix."""
        self.functions: dict[str, ast.FunctionDef | None] = {}
        """The definitions of the functions under test; None for a module, whose name in the prelude
        is its key.
        """
        self.compile_options: dict[str, Any] = {}
        self.steps: list[Step] = []
        self.needed: set[str] = set()
        """Names of the prelude that the spec itself mentions."""
        self.options: Options = {}
        self.block_options: list[Options] = []
        self.call_options: Options | None = None
        """The options under which the compiled calls are made; None before the first."""
        self.torch_settings: dict[str, Any] = {}
        self.contexts: list[str] = []
        self.matrix: dict[str, list[Any]] = {}
        self.devices: set[str] = set()
        """What the test names: any, gpu."""
        self.dropped: set[str] = set()
        self.requires: list[Any] = []
        self.lost: set[Remark] = set()
        self.notes: set[Remark] = set()
        """Differences that claim no less."""

    def lose(self, node: ast.AST, reason: str) -> None:
        """Remember that a part is not carried; what it binds is unknown from here on."""
        line = getattr(node, "lineno", self.test.function.lineno)
        words = (
            " ".join(ast.unparse(node).split("\n")[0].split())[:90]
            if isinstance(node, ast.stmt | ast.expr)
            else ""
        )
        self.lost.add(Remark(line, f"{words}: {reason}" if words else reason))
        if isinstance(node, ast.stmt):
            self.names.update(dict.fromkeys(bound_names(node) | stored_names(node), Unknown(line)))

    @property
    def has_called(self) -> bool:
        """Whether a compiled function was called."""
        return any(step.kind == "call" for step in self.steps)

    # -- the test ----------------------------------------------------------------------------------

    def read_test(self) -> None:
        """Read the options of the file, the set-up, the decorators and the body of the test."""
        arguments = {argument.arg for argument in self.test.function.args.args} - {"self"}
        for name in arguments & {"device", "device_type"}:
            self._parameter(name, "params.device", "device")
            self.devices.add("any")
        # what the file and the set-up of the class set for all tests
        self.read(
            [
                part
                for part in self.file.body
                if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Attribute)
            ]
        )
        for method in ("setUpClass", "setUp"):
            self.read(self.file.method(self.test.owner, method))
        for decorator in reversed(
            [
                *(self.test.owner.decorator_list if self.test.owner else ()),
                *self.test.function.decorator_list,
            ]
        ):
            try:
                options = self._options_of(decorator)
                if options is None:
                    self._read_decorator(decorator)
                for section, values in (options or {}).items():
                    self.options.setdefault(section, {}).update(values)
            except NotCarried as error:
                self.lose(decorator, str(error))
        self.read(self.test.function.body)
        if unknown := arguments - self.values.keys() - self.names.keys():
            raise NotCarried(f"the parameter '{min(unknown)}' without values")
        if not self.has_called:
            raise NotCarried("no call of a compiled function was understood")
        if not any(step.expects for step in self.steps):
            if self.lost:
                raise NotCarried("none of its assertions was understood")
            self.steps[-1].expects.append({"runs": {}})

    def _read_decorator(self, node: ast.expr) -> None:
        arguments = node.args if isinstance(node, ast.Call) else []
        word = ast.unparse(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]
        if word in DECORATORS:
            dropped, requires = DECORATORS[word]
            self.dropped |= dropped
            self.requires += [entry for entry in requires if entry not in self.requires]
        elif word in ("skipIf", "skipif", "skipUnless") and arguments:
            self._drop(
                node,
                ast.UnaryOp(op=ast.Not(), operand=arguments[0])
                if word == "skipUnless"
                else arguments[0],
            )
        elif word == "parametrize" and len(arguments) == 2:
            self._parametrize(str(self.literal(arguments[0])), arguments[1])
        elif CONDITION.match(word):
            self.notes.add(
                Remark(
                    node.lineno,
                    f"the test has @{ast.unparse(node)[:80]}; the spec has no such condition",
                )
            )
        else:
            self.lose(node, "a decorator that is not understood")

    def _drop(self, node: ast.expr | ast.stmt, test: ast.expr) -> None:
        """Leave out the backends on which a test is skipped."""
        backends = backends_of_device(test)
        if backends is None:
            self.notes.add(
                Remark(
                    node.lineno,
                    f"the test is skipped where {ast.unparse(test)[:80]}; the spec is not",
                )
            )
        elif backends == ALL:
            raise NotCarried("the test is always skipped")
        else:
            self.dropped |= backends

    def _parametrize(self, name: str, listed: ast.expr) -> None:
        if not isinstance(listed, ast.Tuple | ast.List) or "," in name:
            raise NotCarried("values that are not written out, or of several parameters")
        if name == "device":
            kinds = {
                "cpu" if isinstance(value, ast.Constant) and value.value == "cpu" else "gpu"
                for value in listed.elts
            }
            self.devices.discard("any")  # of the parameter: these are its values
            self.devices.add("any" if len(kinds) == 2 else kinds.pop())
            return
        dtypes = [
            DTYPES.get(self.file.dotted(value).removeprefix("torch.")) for value in listed.elts
        ]
        self.matrix[name] = (
            dtypes if all(dtypes) else [self.literal(value) for value in listed.elts]
        )
        if not all(isinstance(value, str | int | float) for value in self.matrix[name]):
            raise NotCarried("values that YAML writes in another way")
        self._parameter(
            name, f"getattr(torch, params.{name})" if all(dtypes) else f"params.{name}", name
        )

    def _parameter(self, name: str, python: str, template: str) -> None:
        self.templates[name] = template
        self.setup.append(ast.parse(f"{name} = {python}").body[0])
        self.values[name] = None, len(self.setup)

    # -- statements --------------------------------------------------------------------------------

    def read(self, statements: Sequence[ast.stmt]) -> None:
        """Read statements; a statement that cannot be carried is remembered, and those behind it
        are read.
        """
        for statement in statements:
            try:
                self._statement(statement)
            except NotCarried as error:
                self.lose(statement, str(error))

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case (
                ast.Pass()
                | ast.Return(value=None)
                | ast.Expr(value=ast.Constant())
                | ast.Global()
                | ast.Nonlocal()
            ):
                return
            case ast.With():
                self._with(statement, list(statement.items))
            case ast.If(orelse=[]) if ast.unparse(statement.body[-1]).split("(")[0].rpartition(".")[
                2
            ] in ("SkipTest", "skipTest", "skip"):
                self._drop(statement, statement.test)
            case ast.If() if self._is_special(statement):
                raise NotCarried("a condition that is not known before the test runs")
            case ast.Assert():
                _true(self, statement.test, is_true=True)
            case ast.Expr(value=ast.Call() as call):
                self._call(statement, call)
            case ast.Assign(targets=[ast.Attribute() as target]) if section := _section(
                self.file.dotted(target.value)
            ):
                self.options.setdefault(section[0], {})[section[1] + target.attr] = self.yaml(
                    statement.value
                )
            case ast.Assign(targets=[target]) if setting := _SETTERS.get(self.file.dotted(target)):
                self.torch_settings[setting] = self.literal(statement.value)
            case ast.Assign(targets=[target]) if (value := self.value(statement.value)) is not None:
                self._bind(target, value)
            case ast.FunctionDef(decorator_list=[decorator]) if (
                options := self._compile_options(decorator)
            ) is not None:
                plain = ast.FunctionDef(
                    **{**dict(ast.iter_fields(statement)), "decorator_list": []}
                )
                self._set_up(ast.copy_location(plain, statement))
                self.names[statement.name] = self._compiled(
                    ast.Name(id=statement.name, ctx=ast.Load()), options
                )
            case _:
                self._set_up(statement)

    def _call(self, statement: ast.stmt, call: ast.Call) -> None:
        path, text = self.file.dotted(call.func), ast.unparse(call.func)
        if path in _RESETS:
            if self.has_called:  # before the first call a new process has done it
                self.steps.append(Step(*_RESETS[path]))
        elif path in _SETTERS and len(call.args) == 1:
            self.torch_settings[_SETTERS[path]] = self.literal(call.args[0])
        elif path.endswith("manual_seed") or text.startswith(("super().", "print")):
            return
        elif (
            text.endswith(".enter_context")
            and (options := self._options_of(call.args[0])) is not None
        ):
            for section, values in options.items():
                self.options.setdefault(section, {}).update(values)
        elif name := assertion_of(self, call):
            _read_assertion(self, name, call)
        elif self.value(call) is None:
            self._set_up(statement)

    def _with(self, statement: ast.With, items: list[ast.withitem]) -> None:
        if not items:
            self.read(statement.body)
            return
        node, rest = items[0].context_expr, items[1:]
        path = self.file.dotted(node.func) if isinstance(node, ast.Call) else ""
        word = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if (options := self._options_of(node)) is not None:
            self.block_options.append(options)
            self._with(statement, rest)
            self.block_options.pop()
        elif path in _CONTEXTS:
            self.contexts.append(path.removeprefix("torch."))
            self._with(statement, rest)
            self.contexts.pop()
        elif word in (*_FRESH, "subTest"):
            if self.steps and word in _FRESH:
                self.steps.append(Step("fresh_cache", {}))
            self._with(statement, rest)
        elif self._is_special(statement):
            raise NotCarried(f"the context '{ast.unparse(node)[:60]}'")
        else:
            self._set_up(statement)

    def _bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            for index, part in enumerate(target.elts):
                self._bind(part, _part(value, index))
        else:
            raise NotCarried("an assignment to a part of a value")

    def _set_up(self, statement: ast.stmt) -> None:
        """Take a statement over into the prelude, which runs before the first call."""
        if self._is_special(statement):
            raise NotCarried(
                "a statement of this kind with a compiled call, a result or an assertion"
            )
        leaves = (
            ast.Return
            | ast.Raise
            | ast.Try
            | ast.While
            | ast.Delete
            | ast.AugAssign
            | ast.Break
            | ast.Continue
        )
        is_definition = isinstance(statement, ast.FunctionDef | ast.ClassDef)
        if isinstance(statement, leaves) or (
            not is_definition and any(isinstance(part, leaves) for part in ast.walk(statement))
        ):
            raise NotCarried("a statement of this kind")
        binds = bound_names(statement)
        if self.has_called and (not binds or binds & self.values.keys()):
            raise NotCarried("it may change values between two calls")
        if not isinstance(statement, ast.Import | ast.ImportFrom) and binds & (
            self.file.definitions.keys() | self.file.imports.keys()
        ):
            raise NotCarried("it gives a name of the file another meaning")
        tree = _Portable(self).visit(copy.deepcopy(statement))
        expression: ast.expr | ast.FunctionDef | None = (
            tree if isinstance(tree, ast.FunctionDef) else None
        )
        if (
            isinstance(tree, ast.Assign)
            and isinstance(tree.targets[0], ast.Name)
            and len(tree.targets) == 1
        ):
            expression = tree.value
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
            for context in reversed(self.contexts):
                tree = ast.With(
                    items=[
                        ast.withitem(context_expr=ast.parse(f"torch.{context}()", mode="eval").body)
                    ],
                    body=[tree],
                )
        self.setup.append(ast.fix_missing_locations(tree))
        for name in binds | stored_names(statement):
            self.names.pop(name, None)
            self.values[name] = (
                (expression if name in binds and name not in self.values else None),
                len(self.setup),
            )

    def value_of(self, node: ast.expr, word: str) -> str:
        """Return the name of an expression in the prelude; it gets one where it has none."""
        if isinstance(node, ast.Name) and not isinstance(self.names.get(node.id), Unknown):
            return node.id
        taken = (
            self.values.keys()
            | self.file.definitions.keys()
            | self.file.imports.keys()
            | {"torch", "params"}
        )
        name = next(
            name
            for name in (word, *(f"{word}_{number}" for number in range(2, 1000)))
            if name not in taken
        )
        value = ast.fix_missing_locations(_Portable(self).visit(copy.deepcopy(node)))
        self.setup.append(
            ast.fix_missing_locations(
                ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=value, lineno=0)
            )
        )
        self.values[name] = value, len(self.setup)
        return name

    def _is_special(self, node: ast.AST) -> bool:
        """Whether code compiles, claims something, or uses what steps make."""
        for part in ast.walk(node):
            if isinstance(part, ast.Assert) or (
                isinstance(part, ast.Name) and isinstance(self.names.get(part.id), _MADE)
            ):
                return True
            if isinstance(part, ast.Call):
                definition = (
                    self.file.definitions.get(part.func.id)
                    if isinstance(part.func, ast.Name)
                    else None
                )
                compiles = definition is not None and any(
                    self.file.dotted(inner) == "torch.compile" for inner in ast.walk(definition)
                )
                if (
                    compiles
                    or self.file.dotted(part.func) in ("torch.compile", *_RESETS)
                    or assertion_of(self, part)
                ):
                    return True
        return False

    # -- values ------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value | None:
        """Return what steps, compilation or generated code an expression stands for; None for other
        expressions.
        """
        if isinstance(node, ast.Name):
            value = self.names.get(node.id)
            if isinstance(value, Unknown):
                raise NotCarried(f"it uses '{node.id}' of line {value.line}, which is not carried")
            return value
        if isinstance(node, ast.Subscript):
            whole = self.value(node.value)
            return None if whole is None else _part(whole, self.literal(node.slice))
        if not isinstance(node, ast.Call):
            return None
        path = self.file.dotted(node.func)
        if path == "torch.compile" and node.args:
            return self._compiled(node.args[0], self._compile_options(node) or {})
        if path.rpartition(".")[2] == "run_and_get_code" and node.args:
            function = self.value(node.args[0])
            if not isinstance(function, Compiled):
                raise NotCarried("code of a function that is not compiled in the test")
            step = self._step(function, node.args[1:], node.keywords)
            return (Result(step), Code(step))
        if isinstance(node.func, ast.Name | ast.Call) and isinstance(
            function := self.value(node.func), Compiled
        ):
            return Result(self._step(function, node.args, node.keywords))
        return None

    def _compile_options(self, node: ast.expr) -> dict[str, Any] | None:
        """Return the arguments of ``torch.compile``, as a call or as a decorator; None for other
        expressions.
        """
        if self.file.dotted(node) == "torch.compile":
            return {}
        if not isinstance(node, ast.Call) or self.file.dotted(node.func) != "torch.compile":
            return None
        options = {word.arg or "**": self.yaml(word.value) for word in node.keywords}
        if options.pop("backend", "inductor") != "inductor" or "**" in options:
            raise NotCarried(
                "arguments of torch.compile that are not written out, or another backend of dynamo"
            )
        return options

    def _compiled(self, node: ast.expr, options: dict[str, Any]) -> Compiled:
        """Return a function or a module under test, compiled with these options."""
        if self.value(node) is not None:
            raise NotCarried("a function that is compiled twice")
        key = (
            node.id
            if isinstance(node, ast.Name)
            else self.value_of(node, "fn" if isinstance(node, ast.Lambda) else "mod")
        )
        made: Any = self.values[key][0] if key in self.values else self.file.definitions.get(key)
        if isinstance(made, ast.Lambda):
            body: list[ast.stmt] = [ast.Return(value=made.body)]
            made = ast.fix_missing_locations(
                ast.FunctionDef(name=key, args=made.args, body=body, decorator_list=[], lineno=0)
            )
        elif isinstance(made, ast.FunctionDef) and key not in self.values:
            made = _Portable(self).visit(copy.deepcopy(made))
        elif not isinstance(made, ast.FunctionDef):
            # ``Class(...)``, with methods of modules behind it, for a class that can be a module
            while (
                isinstance(made, ast.Call)
                and isinstance(made.func, ast.Attribute)
                and isinstance(made.func.value, ast.Call)
            ):
                made = made.func.value
            if (
                not isinstance(made, ast.Call)
                or not ast.unparse(made.func).rpartition(".")[2][:1].isupper()
            ):
                raise NotCarried(
                    "torch.compile of something that is neither a function nor a module"
                )
            made = None
            self.needed.add(key)
        if self.functions and self.compile_options != options:
            raise NotCarried("functions that are compiled with different options")
        self.compile_options = options
        self.functions.setdefault(key, made)
        return Compiled(key)

    def _step(
        self, function: Compiled, arguments: list[ast.expr], words: list[ast.keyword]
    ) -> Step:
        """Add a call of a compiled function."""
        if words:
            raise NotCarried("a compiled call with keyword arguments")
        values: list[ast.expr | Result] = []
        for argument in arguments:
            if isinstance(argument, ast.Starred):
                packed = (
                    self.values.get(argument.value.id, (None, 0))[0]
                    if isinstance(argument.value, ast.Name)
                    else None
                )
                if not isinstance(packed, ast.Tuple | ast.List):
                    raise NotCarried("arguments that are not written out")
                parts = [
                    ast.Subscript(argument.value, ast.Constant(index), ast.Load())
                    for index in range(len(packed.elts))
                ]
                values += [
                    ast.Name(id=self.value_of(part, "value"), ctx=ast.Load()) for part in parts
                ]
            elif isinstance(recorded := self.value(argument), Result):
                self.named(recorded.step)
                values.append(recorded)
            elif recorded is not None:
                raise NotCarried("an argument that is a compiled function or code")
            else:
                is_plain = isinstance(argument, ast.Constant)
                values.append(
                    argument
                    if is_plain
                    else ast.Name(id=self.value_of(argument, "value"), ctx=ast.Load())
                )
        options: Options = {}
        for block_options in self.block_options:
            for section, inner in block_options.items():
                options.setdefault(section, {}).update(inner)
        if self.call_options not in (None, options):
            raise NotCarried("compiled calls under different options")
        self.call_options = options
        self.steps.append(Step("call", {}, [], function.function, values, tuple(self.contexts)))
        return self.steps[-1]

    def _options_of(self, node: ast.expr) -> Options | None:
        """Return the options that a decorator or a context sets; None for others."""
        head, _, last = self.file.dotted(
            node.func if isinstance(node, ast.Call) else node
        ).rpartition(".")
        section = _section(head) if last == "patch" else None
        if section is None or not isinstance(node, ast.Call):
            return None
        pairs: list[tuple[ast.expr, ast.expr]] = [
            (ast.Constant(value=word.arg), word.value) for word in node.keywords if word.arg
        ]
        for part in (*node.args, *(word.value for word in node.keywords if word.arg is None)):
            if not isinstance(part, ast.Dict) or not all(part.keys):
                raise NotCarried("options that are not written out")
            pairs += [
                (key, value)
                for key, value in zip(part.keys, part.values, strict=True)
                if key is not None
            ]
        options = {}
        for key, value in pairs:
            name = str(self.literal(key))
            try:
                options[section[1] + name] = self.yaml(value)
            except NotCarried as error:
                self.lose(value, f"the option '{name}': {error}")
        return {section[0]: options}

    def literal(self, node: ast.AST) -> Any:
        """Return the value of a constant expression."""
        if isinstance(node, ast.Name):
            value, _ = self.values.get(node.id, (None, 0))
            definition = self.file.definitions.get(node.id)
            if isinstance(value, ast.expr):
                return self.literal(value)
            if (
                node.id not in self.values
                and isinstance(definition, ast.Assign)
                and isinstance(definition.targets[0], ast.Name)
            ):
                return self.literal(definition.value)
        if isinstance(node, ast.Tuple | ast.List):
            return [self.literal(item) for item in node.elts]
        try:
            return ast.literal_eval(ast.unparse(node))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
            raise NotCarried("a value that is no constant") from error

    def yaml(self, node: ast.expr) -> Any:
        """Return a constant, or a template over the parameters of the test."""
        if isinstance(node, ast.Dict) and all(node.keys):
            return {
                self.literal(key): self.yaml(item)
                for key, item in zip(node.keys, node.values, strict=True)
                if key
            }
        if isinstance(node, ast.Tuple | ast.List):
            return [self.yaml(item) for item in node.elts]
        names = free_names(node)
        if (
            not names
            or not names <= self.templates.keys()
            or any(isinstance(part, ast.Call | ast.Subscript) for part in ast.walk(node))
        ):
            return self.literal(node)
        expression = copy.deepcopy(node)
        for part in ast.walk(expression):
            if isinstance(part, ast.Name):
                part.id = self.templates[part.id]
        return f"{{{{ {ast.unparse(expression)} }}}}"

    def source(self, node: ast.expr) -> str:
        """Return the text of an argument; of a copy that of the original, of a value of the prelude
        that of its expression.
        """
        for _ in range(_DEEPEST):
            match (
                self.values.get(node.id, (None, 0))[0] if isinstance(node, ast.Name) else None
            ) or node:
                case ast.Call(func=ast.Attribute(value=original, attr="clone" | "detach"), args=[]):
                    node = original
        return ast.unparse(node)

    # -- steps -------------------------------------------------------------------------------------

    def expect(self, body: Mapping[str, Any], step: Step | None = None) -> None:
        """Add an expectation to a step, the last one by default."""
        if step is None:
            self.steps += [] if self.steps else [Step("clear_counters", {})]
            step = self.steps[-1]
        step.expects.append(body)

    def named(self, step: Step) -> str:
        """Return the name of a step's result, for later steps."""
        if "as" not in step.value:
            step.value["as"] = (
                f"result_{sum('as' in other.value for other in self.steps if isinstance(other.value, dict)) + 1}"  # noqa: E501 - Python 3.11 breaks no line within a field
            )
        return str(step.value["as"])

    def prelude(self) -> list[ast.stmt]:
        """Return the Python that the spec needs: definitions of the file, then statements of the
        test that make or change a value of it.
        """
        own = self.needed | {
            name for node in filter(None, self.functions.values()) for name in free_names(node)
        }
        chosen: list[ast.stmt] = []
        for statement in reversed(self.setup):
            mentioned = {part.id for part in ast.walk(statement) if isinstance(part, ast.Name)}
            if (bound_names(statement) or mentioned) & own:
                # a statement that binds nothing changes what it mentions
                chosen.append(statement)
                own |= mentioned
        names = own | {name for node in chosen for name in free_names(node)}
        return [*self.file.definitions_of(names - self.values.keys()), *chosen[::-1]]


def _section(path: str) -> tuple[str, str] | None:
    """Return the section of a module with options, and the beginning of the options' names; None
    for others.
    """
    for module, section in CONFIG_MODULES.items():
        if path == module or path.startswith(f"{module}."):
            return section, f"{path.removeprefix(module).strip('.')}.".lstrip(".")
    return None


class _Portable(ast.NodeTransformer):
    """Python of the test as Python of the prelude: with the device of the case, and without what
    the test or a step makes.
    """

    def __init__(self, translation: Translation) -> None:
        self._translation = translation
        self._shadowed: set[str] = set()

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._translation.names.get(node.id)
        if node.id in self._shadowed or isinstance(node.ctx, ast.Store):
            return node
        if node.id in GPU_NAMES and node.id not in self._translation.values:
            return self._device("gpu")
        if isinstance(value, Unknown):
            raise NotCarried(f"it uses '{node.id}' of line {value.line}, which is not carried")
        if value is not None or node.id == "self":
            raise NotCarried(
                f"it computes with '{node.id}', which a step makes"
                if value
                else "it uses the test itself"
            )
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if (
            isinstance(node.value, ast.Name)
            and node.value.id == "self"
            and "self" not in self._shadowed
        ):
            if node.attr in ("device", "device_type"):
                return self._device("any")
            raise NotCarried(f"it uses 'self.{node.attr}'")
        if node.attr in ("counters", "metrics") and self._translation.file.dotted(node).startswith(
            "torch._"
        ):
            raise NotCarried("it reads counters of torch")
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        path = self._translation.file.dotted(node.func)
        if path == "torch.compile":
            raise NotCarried("it compiles in the middle of an expression")
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and not path:
            node = ast.Call(
                func=ast.Attribute(value=node.func.value, attr="to", ctx=ast.Load()),
                args=[self._device("gpu")],
                keywords=[],
            )
        if path == "torch.device" and len(node.args) == 1 and _is_gpu(node.args[0]):
            return self._device("gpu")
        node.args = [self._device("gpu") if _is_gpu(part) else part for part in node.args]
        for word in node.keywords:
            word.value = self._device("gpu") if _is_gpu(word.value) else word.value
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if (
            len(node.body) > 1
            and isinstance(node.body[0], ast.Expr)
            and isinstance(node.body[0].value, ast.Constant)
        ):
            node.body = node.body[1:]
        node.decorator_list = [self.visit(part) for part in node.decorator_list]
        return self._within(node, own_names(node))

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._within(node, {"self"})

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._within(node, own_names(node))

    def _within(self, node: ast.AST, names: set[str]) -> ast.AST:
        before, self._shadowed = self._shadowed, self._shadowed | names
        try:
            return self.generic_visit(node)
        finally:
            self._shadowed = before

    def _device(self, kind: str) -> ast.expr:
        self._translation.devices.add(kind)
        return ast.Attribute(
            value=ast.Name(id="params", ctx=ast.Load()), attr="device", ctx=ast.Load()
        )


def _is_gpu(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in ("cuda", "cuda:0", "xpu")


# -- assertions as expectations: comparisons with eager and with other values, counters, generated c


def assertion_of(t: Translation, call: ast.Call) -> str:
    """Return the name of the assertion that a call is; empty for other calls."""
    word = t.file.dotted(call.func).rpartition(".")[2]
    if (
        isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "self"
    ):
        return (
            call.func.attr if call.func.attr.startswith(("assert", "check_model", "common")) else ""
        )
    return word if word in _CLOSE else "FileCheck" if _directives(call) else ""


def _read_assertion(t: Translation, name: str, call: ast.Call) -> None:
    """Add the expectations of an assertion."""
    match name, call.args:
        case "FileCheck", [code]:
            checks = [
                check for directive in _directives(call) for check in _checks_of(t, directive)
            ]
            _expect_code(
                t,
                code,
                [_EVERY_FILE, *checks]
                if all(check.startswith("CHECK-NOT") for check in checks)
                else checks,
            )
        case "assertTrue" | "assertFalse", [test, *_]:
            _true(t, test, is_true=name == "assertTrue")
        case "assertIn" | "assertNotIn", [left, right, *_]:
            _true(
                t,
                ast.Compare(left=left, ops=[ast.In()], comparators=[right]),
                is_true=name == "assertIn",
            )
        case _, [left, right, *_] if name in _CLOSE:
            _equal(t, left, right, _tolerances(t, call))
        case _, [left, right, *_] if name in _COMPARISONS:
            _counted(t, left, _COMPARISONS[name](), right)
        case _:
            raise NotCarried("an assertion of this kind")


def _true(t: Translation, test: ast.expr, *, is_true: bool) -> None:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            _true(t, operand, is_true=not is_true)
        case ast.Call(args=[left, right, *_]) if (
            is_true and (word := t.file.dotted(test.func).rpartition(".")[2]) in _SAME
        ):
            _equal(t, left, right, _tolerances(t, test, _SAME[word]))
        case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as operator], comparators=[right]):
            text, is_in = pattern(t.literal(left)), isinstance(operator, ast.In) == is_true
            _expect_code(
                t, right, [f"CHECK: {text}"] if is_in else [_EVERY_FILE, f"CHECK-NOT: {text}"]
            )
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if is_true:
            _counted(t, left, operator, right)
        case _:
            raise NotCarried("an assertion about a value that the language cannot name")


def _tolerances(
    t: Translation, call: ast.Call, default: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    words = {str(word.arg): word.value for word in call.keywords}
    tolerances = {
        **(default or {}),
        **{name: t.literal(word) for name, word in words.items() if name in ("atol", "rtol")},
    }
    if "tol" in words:
        tolerances |= dict.fromkeys(("atol", "rtol"), t.literal(words["tol"]))
    tolerances = {name: value for name, value in tolerances.items() if value is not None}
    if unknown := sorted(
        words.keys()
        - {"atol", "rtol", "tol", "msg", "equal_nan", "exact_device", "exact_dtype", "check_device"}
    ):
        raise NotCarried(f"the argument '{unknown[0]}' of a comparison")
    if len(tolerances) == 1 and "exact" not in tolerances:
        raise NotCarried("one tolerance without the other")
    return {"exact": True} if tolerances and not any(tolerances.values()) else tolerances


def _equal(t: Translation, left: ast.expr, right: ast.expr, tolerances: dict[str, Any]) -> None:
    """Expect that two values are close, or that a count has a value."""
    if any(_count_of(t, side) for side in (left, right)):
        _counted(t, left, ast.Eq(), right)
        return
    values = [t.value(side) for side in (left, right)]
    results = [value for value in values if isinstance(value, Result)]
    if len(results) == 2:
        earlier, later = sorted(results, key=lambda result: t.steps.index(result.step))
        names = (
            f"output.{later.path}".strip("."),
            f"{t.named(earlier.step)}.{earlier.path}".strip("."),
        )
        t.expect({"close": {"of": names[0], "to": names[1], **tolerances}}, later.step)
        return
    if len(results) != 1:
        raise NotCarried("a comparison without the result of a compiled call")
    result = results[0]
    other = right if values[0] is result else left
    reference = "eager"
    if not _is_eager(t, result, other):
        if not isinstance(other, ast.Name) and not free_names(other):
            raise NotCarried("a comparison with a constant")
        reference = t.value_of(other, "expected")
        t.needed.add(reference)
    part = {"of": f"output.{result.path}"} if result.path else {}
    to = f"eager.{result.path}" if result.path and reference == "eager" else reference
    t.expect({"close": {**part, "to": to, **tolerances}}, result.step)


def _is_eager(t: Translation, result: Result, other: ast.expr) -> bool:
    """Whether an expression calls the function of a step in eager mode, with the same arguments or
    copies of them.
    """
    node: ast.expr = other
    path = ""
    if any(name in t.names for name in free_names(other)):
        return False
    since = len(t.setup)
    for _ in range(_DEEPEST):
        value, position = (
            t.values.get(node.id, (None, 0)) if isinstance(node, ast.Name) else (None, 0)
        )
        if isinstance(value, ast.expr):
            node, since = value, position
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            path = ".".join(filter(None, (str(node.slice.value), path)))
            node = node.value
    if (
        not isinstance(node, ast.Call)
        or node.keywords
        or path != result.path
        or ast.unparse(node.func) != result.step.function
    ):
        return False
    if any(
        not bound_names(later) and free_names(later) & free_names(node) for later in t.setup[since:]
    ):
        # it may change an argument
        return False
    arguments = [part for part in result.step.arguments if isinstance(part, ast.expr)]
    return len(arguments) == len(result.step.arguments) and [*map(t.source, node.args)] == [
        *map(t.source, arguments)
    ]


def _count_of(t: Translation, node: ast.expr) -> tuple[str, str] | None:
    """Return the kind and the name of a counter or metric; None for other expressions."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Subscript):
        is_counter = t.file.dotted(node.value.value) == "torch._dynamo.utils.counters"
        return (
            ("counter", f"{t.literal(node.value.slice)}.{t.literal(node.slice)}")
            if is_counter
            else None
        )
    path = t.file.dotted(node)
    return (
        ("metric", path.removeprefix("torch._inductor.metrics."))
        if path.startswith("torch._inductor.metrics.")
        else None
    )


def _counted(t: Translation, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> None:
    """Expect a count."""
    is_flipped = _count_of(t, left) is None
    if (count := _count_of(t, right if is_flipped else left)) is None:
        raise NotCarried("an assertion about a value that the language cannot name")
    value: Any = t.yaml(left if is_flipped else right)
    if not isinstance(operator, ast.Eq):
        bounds: Mapping[type[ast.cmpop], tuple[str, int]]
        bounds = {ast.Gt: ("min", 1), ast.GtE: ("min", 0), ast.Lt: ("max", -1), ast.LtE: ("max", 0)}
        if type(operator) not in bounds or not isinstance(value, int):
            raise NotCarried("a bound of a count that is no constant")
        word, more = bounds[type(operator)]
        value = (
            {"max" if word == "min" else "min": value - more}
            if is_flipped
            else {word: value + more}
        )
    t.expect({count[0]: {count[1]: value}})


def _directives(call: ast.Call) -> list[ast.Call]:
    """Return the directives of ``FileCheck()...run(code)``, in order; empty for other calls."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "run"):
        return []
    directives: list[ast.Call] = []
    inner = call.func.value
    while (
        isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Attribute)
        and inner.func.attr != "FileCheck"
    ):
        directives.insert(0, inner)
        inner = inner.func.value
    return (
        directives
        if isinstance(inner, ast.Call) and ast.unparse(inner.func).rpartition(".")[2] == "FileCheck"
        else []
    )


def _checks_of(t: Translation, directive: ast.Call) -> list[str]:
    """Return the lines of FileCheck that one directive stands for."""
    name = directive.func.attr if isinstance(directive.func, ast.Attribute) else ""
    values = [t.literal(argument) for argument in directive.args]
    words = {word.arg: t.literal(word.value) for word in directive.keywords}
    if name in _DIRECTIVES and len(values) == 1 and not words:
        return [f"{_DIRECTIVES[name]}: {pattern(values[0])}"]
    if name == "check_count" and set(words) <= {"count", "exactly"} and values:
        count, exactly = [
            *values[1:],
            *(words[key] for key in ("count", "exactly") if key in words),
            False,
        ][:2]
        text = pattern(values[0])
        return ([f"CHECK-COUNT-{count}: {text}"] if int(count) else []) + (
            [f"CHECK-NOT: {text}"] if exactly else []
        )
    raise NotCarried(f"the FileCheck directive '{name}'")


def pattern(text: Any) -> str:
    """Return a literal text as a pattern of FileCheck."""
    if not isinstance(text, str) or "\n" in text or "\r" in text or not text.strip():
        raise NotCarried("a text of several lines, or of none, in the generated code")
    escaped = (
        text.replace("{{", "{{[{][{]}}").replace("[[", "{{\\[\\[}}").replace("]]", "{{\\]\\]}}")
    )
    return re.sub(
        r"^[ \t]+|[ \t]+$", lambda blanks: f"{{{{[[:space:]]{{{len(blanks[0])}}}}}}}", escaped
    )


def _expect_code(t: Translation, code: ast.expr, checks: list[str]) -> None:
    value = t.value(code)
    if not isinstance(value, Code):
        raise NotCarried("a text that is no generated code")
    if value.index is None:
        raise NotCarried("an assertion about a list of generated codes")
    t.expect(
        {
            "filecheck": {
                "text": "whole",
                "code": value.index,
                "checks": "".join(f"{check}\n" for check in checks),
            }
        },
        value.step,
    )
