"""The statements and decorators of a test: options, loops over constants, compiled calls, parameters, and what only prepares them."""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from runner.tools.author.translator.assertions import assertion_of, read_assertion
from runner.tools.author.translator.python_file import DTYPES, GPU_NAMES
from runner.tools.author.translator.translation import (
    Code,
    Compiled,
    NotCarried,
    Remark,
    Result,
    SetUp,
    Step,
    Translation,
    Unknown,
    Value,
)

Options = dict[str, dict[str, Any]]

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
    "torch._functorch._aot_autograd.autograd_cache.AOTAutogradCache.clear": ("reset", ["aot_autograd"]),
    "torch._dynamo.utils.counters.clear": ("clear_counters", {"only": "counters"}),
    "torch._inductor.metrics.reset": ("clear_counters", {"only": "metrics"}),
}
_SETTERS = {
    "torch.set_float32_matmul_precision": "float32_matmul_precision",
    "torch.use_deterministic_algorithms": "deterministic",
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": "allow_fp16_reduced_precision_reduction",
    "torch.backends.cuda.matmul.allow_tf32": "allow_tf32",
}
_CONTEXTS = ("no_grad", "enable_grad", "inference_mode")
_FRESH = ("fresh_inductor_cache", "fresh_cache")
_ASSERT_TRUE = ast.parse("self.assertTrue", mode="eval").body
_MOST_ROUNDS = 16
_MOST_WORK = 2_000
_DEEPEST = 6


class Reader:
    """Reads statements into a translation."""

    def __init__(self, translation: Translation) -> None:
        self.translation = translation
        self.file = translation.file
        self.depth = 0
        self.work = 0
        """How many statements were read."""

    def read(self, statements: Sequence[ast.stmt]) -> None:
        """Read statements; a statement that cannot be carried is remembered, and those behind it are read."""
        for statement in statements:
            self.work += 1
            if self.work > _MOST_WORK:  # loops of a hostile file end
                raise NotCarried("the test is too large")
            try:
                self._statement(statement)
            except NotCarried as error:
                self.translation.lose(statement, str(error))

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Pass() | ast.Return(value=None) | ast.Expr(value=ast.Constant()) | ast.Global() | ast.Nonlocal():
                return
            case ast.With():
                self._with(statement, list(statement.items))
            case ast.For():
                self._for(statement)
            case ast.If() if skip(self.translation, statement):
                return
            case ast.If() if self._is_special(statement):
                raise NotCarried("a condition that is not known before the test runs")
            case ast.Assert():
                claim = ast.Call(func=_ASSERT_TRUE, args=[statement.test], keywords=[])
                read_assertion(self, ast.copy_location(claim, statement))
            case ast.Expr(value=ast.Call() as call):
                path = self.file.dotted(call.func)
                if path in _RESETS:
                    if any(step.kind == "call" for step in self.translation.steps):  # before the first call a new process has done it
                        self.translation.steps.append(Step(*_RESETS[path]))
                elif path in _SETTERS and len(call.args) == 1:
                    self.translation.torch_settings[_SETTERS[path]] = self.translation.literal(call.args[0])
                elif path.endswith("manual_seed") or ast.unparse(call.func).startswith(("super().", "print")):
                    return
                elif ast.unparse(call.func).endswith(".enter_context") and (options := self.options_of(call.args[0])) is not None:
                    for section, values in options.items():
                        self.translation.base_options.setdefault(section, {}).update(values)
                elif assertion_of(self, call):
                    read_assertion(self, call)
                elif self.value(call) is None:
                    self._prepare(statement)
            case ast.Assign(targets=[target]):
                self._assign(statement, target)
            case ast.FunctionDef():
                decorators = [part for part in statement.decorator_list if self._compile_options(part) is not None]
                if not decorators:
                    self._prepare(statement)
                    return
                if len(statement.decorator_list) > 1:
                    raise NotCarried("a compiled function with further decorators")
                plain = ast.FunctionDef(**{**dict(ast.iter_fields(statement)), "decorator_list": []})
                ast.copy_location(plain, statement)
                self.translation.set_up(plain)
                definition = self.translation.names[statement.name]
                assert isinstance(definition, SetUp)
                key = self._defined(definition, self._compile_options(decorators[0]) or {})
                self.translation.names[statement.name] = Compiled(key)
            case _:
                self._prepare(statement)

    # blocks

    def _with(self, statement: ast.With, items: list[ast.withitem]) -> None:
        if not items:
            self.read(statement.body)
            return
        node, target, rest = items[0].context_expr, items[0].optional_vars, items[1:]
        options = self.options_of(node)
        path = self.file.dotted(node.func) if isinstance(node, ast.Call) else ""
        word = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if options is not None:
            self.translation.block_options.append(options)
            self._with(statement, rest)
            self.translation.block_options.pop()
        elif path.removeprefix("torch.") in _CONTEXTS:
            self.translation.contexts.append(path.removeprefix("torch."))
            self._with(statement, rest)
            self.translation.contexts.pop()
        elif word in (*_FRESH, "subTest"):
            if self.translation.steps and word in _FRESH:
                self.translation.steps.append(Step("fresh_cache", {}))
            self._with(statement, rest)
        elif word in ("assertRaises", "assertRaisesRegex") and not rest and isinstance(node, ast.Call):
            # the last call of the block raises
            before = len(self.translation.steps)
            body = {"type": self.file.dotted(node.args[0]) or ast.unparse(node.args[0])}
            if len(node.args) > 1:
                body["match"] = str(self.translation.literal(node.args[1]))
            for part in statement.body:
                self._statement(part)
            if len(self.translation.steps) == before:
                raise NotCarried("an exception of something that is no compiled call")
            self.translation.expect({"raises": body})
            if isinstance(target, ast.Name):
                self.translation.names[target.id] = Unknown(statement.lineno)
        elif self._is_special(statement):
            raise NotCarried(f"the context '{ast.unparse(node)[:60]}'")
        else:
            self._prepare(statement)

    def _for(self, statement: ast.For) -> None:
        if not self._is_special(statement):
            self._prepare(statement)
            return
        rounds: list[ast.expr] | None = list(statement.iter.elts) if isinstance(statement.iter, ast.Tuple | ast.List) else None
        if isinstance(statement.iter, ast.Call) and ast.unparse(statement.iter.func) == "range":
            bounds = [self.translation.literal(part) for part in statement.iter.args]
            if all(isinstance(bound, int) and abs(bound) <= _MOST_ROUNDS for bound in bounds):
                rounds = [ast.Constant(value=number) for number in range(*bounds)]
        if rounds is None:
            raise NotCarried("a loop over what is not written out")
        is_cut_short = any(isinstance(part, ast.Continue | ast.Break) for part in ast.walk(statement))
        if is_cut_short or statement.orelse:
            raise NotCarried("a loop that is left early")
        if len(rounds) > _MOST_ROUNDS:
            raise NotCarried(f"a loop of more than {_MOST_ROUNDS} rounds")
        for item in rounds:
            bound = ast.Assign(targets=[statement.target], value=item, lineno=statement.lineno, col_offset=0)
            self._assign(bound, statement.target)
            self.read(statement.body)

    # statements

    def _assign(self, statement: ast.Assign, target: ast.expr) -> None:
        if isinstance(target, ast.Attribute) and (section := _section(self.file.dotted(target.value))):
            self.translation.base_options.setdefault(section[0], {})[section[1] + target.attr] = self.translation.yaml(statement.value)
            return
        if setting := _SETTERS.get(self.file.dotted(target)):
            self.translation.torch_settings[setting] = self.translation.literal(statement.value)
            return
        value = self.value(statement.value)
        if value is not None:
            self.bind(target, value)
        elif isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple) and len(target.elts) == len(statement.value.elts):
            for part, item in zip(target.elts, statement.value.elts, strict=True):
                self._assign(ast.Assign(targets=[part], value=item, lineno=statement.lineno, col_offset=0), part)
        else:
            self._prepare(statement)

    def bind(self, target: ast.expr, value: Value) -> None:
        """Give a value to the names of an assignment."""
        if isinstance(target, ast.Name):
            self.translation.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            for index, part in enumerate(target.elts):
                self.bind(part, self.part(value, index))
        else:
            raise NotCarried("an assignment to a part of a value")

    def part(self, value: Value, index: Any) -> Value:
        """Return a part of a value."""
        if isinstance(value, tuple) and isinstance(index, int) and index < len(value):
            return value[index]
        if isinstance(value, Code) and value.index is None and isinstance(index, int) and index >= 0:
            return Code(value.step, index)
        if isinstance(value, Result) and (isinstance(index, str) or (isinstance(index, int) and index >= 0)):
            return Result(value.step, f"{value.path}.{index}".strip("."))
        raise NotCarried("a part of a value that is not known")

    def _prepare(self, statement: ast.stmt) -> None:
        """Take over a statement that makes no compiled call and claims nothing."""
        if self._is_special(statement):
            raise NotCarried("a statement of this kind with a compiled call, a result or an assertion")
        leaves = ast.Return | ast.Raise | ast.Try | ast.While | ast.Delete | ast.AugAssign | ast.Break | ast.Continue
        is_definition = isinstance(statement, ast.FunctionDef | ast.ClassDef)
        if isinstance(statement, leaves) or (not is_definition and any(isinstance(part, leaves) for part in ast.walk(statement))):
            raise NotCarried("a statement of this kind")
        self.translation.set_up(statement)

    def _is_special(self, node: ast.AST) -> bool:
        """Whether code compiles, claims something, or uses what steps make."""
        names = self.translation.names
        for part in ast.walk(node):
            is_made = isinstance(part, ast.Name) and isinstance(names.get(part.id), Compiled | Result | Code | tuple)
            if is_made or isinstance(part, ast.Assert):
                return True
            if isinstance(part, ast.Call):
                path = self.file.dotted(part.func)
                method = self.own_method(part)
                if path in ("torch.compile", *_RESETS) or assertion_of(self, part) or (method is not None and method is not node):
                    return True
        return False

    # values

    def value(self, node: ast.expr) -> Value | None:
        """Return what steps, compilation or generated code an expression stands for; None for other expressions."""
        if isinstance(node, ast.Name):
            value = self.translation.names.get(node.id)
            if isinstance(value, Unknown):
                raise NotCarried(f"it uses '{node.id}' of line {value.line}, which is not carried")
            return None if isinstance(value, SetUp) else value
        if isinstance(node, ast.Subscript):
            whole = self.value(node.value)
            return None if whole is None else self.part(whole, self.translation.literal(node.slice))
        if not isinstance(node, ast.Call):
            return None
        path = self.file.dotted(node.func)
        if path == "torch.compile" and node.args:
            return self._compile(node.args[0], self._compile_options(node) or {})
        if isinstance(node.func, ast.Call) and self.file.dotted(node.func.func) == "torch.compile" and not node.func.args:
            return self._compile(node.args[0], self._compile_options(node.func) or {})
        if path.rpartition(".")[2] in ("run_and_get_code", "run_and_get_triton_code", "run_and_get_cpp_code") and node.args:
            function = self.value(node.args[0])
            if not isinstance(function, Compiled):
                raise NotCarried("code of a function that is not compiled in the test")
            step = self._step(function, node.args[1:], node.keywords)
            if not path.endswith("get_code"):
                return Code(step, 0) if path.endswith("triton_code") else (Result(step), Code(step, 0))
            return (Result(step), Code(step))
        method = self.own_method(node)
        if method is not None:
            # its body is read in the place of the call
            names = [argument.arg for argument in method.args.args if argument.arg != "self"]
            if self.depth > _DEEPEST or len(names) != len(node.args) or node.keywords or method.args.vararg or method.args.kwarg:
                raise NotCarried(f"a call of '{method.name}' whose arguments are not understood")
            values = {name: self._argument(argument, name) for name, argument in zip(names, node.args, strict=True)}
            outer, self.translation.names = self.translation.names, values
            self.depth += 1
            try:
                last = method.body[-1]
                self.read(method.body[:-1] if isinstance(last, ast.Return) else method.body)
                if not isinstance(last, ast.Return) or last.value is None:
                    return ()
                return self._argument(last.value, "returned")
            finally:
                self.depth -= 1
                self.translation.names = outer
        if isinstance(node.func, ast.Name | ast.Call) and isinstance(function := self.value(node.func), Compiled):
            return Result(self._step(function, node.args, node.keywords))
        return None

    def own_method(self, node: ast.Call) -> ast.FunctionDef | None:
        """Return the method of the test's class, or the function of the file, that is read in the place of its call."""
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "self":
            return self.file.method(self.translation.test.owner, node.func.attr)
        if isinstance(node.func, ast.Name) and node.func.id not in self.translation.names:
            definition = self.file.definitions.get(node.func.id)
            if isinstance(definition, ast.FunctionDef) and any(self.file.dotted(part) == "torch.compile" for part in ast.walk(definition)):
                return definition
        return None

    def _argument(self, node: ast.expr, name: str) -> Value:
        """Return the value of an argument; a function of the file keeps its name."""
        value = self.value(node)
        definition = self.file.definitions.get(node.id) if isinstance(node, ast.Name) and node.id not in self.translation.names else None
        if isinstance(definition, ast.FunctionDef):
            return SetUp(definition.name, self.translation.rewritten(definition))
        return self.translation.value_of(node, name) if value is None else value

    # compiled functions and their calls

    def _compile_options(self, node: ast.expr) -> dict[str, Any] | None:
        """Return the arguments of ``torch.compile``, as a call or as a decorator; None for other expressions."""
        if self.file.dotted(node) == "torch.compile":
            return {}
        if not isinstance(node, ast.Call) or self.file.dotted(node.func) != "torch.compile":
            return None
        options = {word.arg or "**": self.translation.yaml(word.value) for word in node.keywords}
        if options.get("backend") == "inductor":
            del options["backend"]
        if "**" in options or not isinstance(options.get("backend", ""), str):
            raise NotCarried("arguments of torch.compile that are no constants")
        return options

    def _compile(self, node: ast.expr, options: Mapping[str, Any]) -> Compiled:
        value = self._argument(node, "fn" if isinstance(node, ast.Lambda) else "mod")
        if not isinstance(value, SetUp):
            raise NotCarried("a function that is compiled twice")
        return Compiled(self._defined(value, options))

    def _defined(self, value: SetUp, options: Mapping[str, Any]) -> str:
        """Return the key of a function under test."""
        node = value.node
        if isinstance(node, ast.Lambda):
            body: list[ast.stmt] = [ast.Return(value=node.body)]
            node = ast.fix_missing_locations(ast.FunctionDef(name=value.name, args=node.args, body=body, decorator_list=[], lineno=0))
        if not isinstance(node, ast.FunctionDef):
            # ``Class(...)``, with methods of modules behind it, for a class that can be a module
            while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call):
                node = node.func.value
            if not isinstance(node, ast.Call) or not ast.unparse(node.func).rpartition(".")[2][:1].isupper():
                raise NotCarried("torch.compile of something that is neither a function nor a module")
            node = None
            self.translation.needed.add(value.name)
        if self.translation.functions and self.translation.compile_options != options:
            raise NotCarried("functions that are compiled with different options")
        self.translation.compile_options = options
        self.translation.functions.setdefault(value.name, node)
        return value.name

    def _step(self, function: Compiled, arguments: list[ast.expr], words: list[ast.keyword]) -> Step:
        """Add a call of a compiled function."""
        if not all(word.arg is None and self.translation.literal(word.value) == {} for word in words):
            raise NotCarried("a compiled call with keyword arguments")
        values: list[ast.expr] = []
        for argument in arguments:
            if not isinstance(argument, ast.Starred):
                values.append(argument)
                continue
            packed = self.translation.names.get(argument.value.id) if isinstance(argument.value, ast.Name) else None
            items = packed.node if isinstance(packed, SetUp) else argument.value
            if not isinstance(items, ast.Tuple | ast.List) or any(isinstance(part, ast.Starred) for part in items.elts):
                raise NotCarried("arguments that are not written out")
            if isinstance(packed, SetUp):
                indices = map(ast.Constant, range(len(items.elts)))
                values += [ast.Subscript(value=argument.value, slice=index, ctx=ast.Load()) for index in indices]
            else:
                values += items.elts
        rewritten: list[ast.expr | Result] = []
        for value in values:
            recorded = self.value(value)
            if recorded is not None and not isinstance(recorded, Result):
                raise NotCarried("an argument that is a compiled function or code")
            if isinstance(recorded, Result):
                self.translation.named(recorded.step)
                rewritten.append(recorded)
            elif isinstance(value, ast.Constant):
                rewritten.append(value)
            else:
                rewritten.append(ast.Name(id=self.translation.value_of(value, "value").name, ctx=ast.Load()))
        options: Options = {}
        for block in self.translation.block_options:
            for section, inner in block.items():
                options.setdefault(section, {}).update(inner)
        if self.translation.call_options not in (None, options):
            raise NotCarried("compiled calls under different options")
        self.translation.call_options = options
        step = Step("call", {}, [], function.function, rewritten, tuple(self.translation.contexts))
        self.translation.steps.append(step)
        return step

    # options

    def options_of(self, node: ast.expr) -> Options | None:
        """Return the options that a decorator or a context sets; None for others."""
        if not isinstance(node, ast.Call):
            return None
        path = self.file.dotted(node.func)
        head, _, last = path.rpartition(".")
        section = _section(head) if last == "patch" else None
        if section is not None:
            pairs: list[tuple[ast.expr, ast.expr]] = [(ast.Constant(value=word.arg), word.value) for word in node.keywords if word.arg]
            for part in (*node.args, *(word.value for word in node.keywords if word.arg is None)):
                if not isinstance(part, ast.Dict) or not all(part.keys):
                    raise NotCarried("options that are not written out")
                pairs += [(key, value) for key, value in zip(part.keys, part.values, strict=True) if key is not None]
            options = {}
            for key, value in pairs:
                name = str(self.translation.literal(key))
                try:
                    options[section[1] + name] = self.translation.yaml(value)
                except NotCarried as error:
                    self.translation.lose(value, f"the option '{name}': {error}")
            return {section[0]: options}
        if path == "unittest.mock.patch.dict" and len(node.args) == 2 and self.file.dotted(node.args[0]) == "os.environ":
            return {"env": self.translation.literal(node.args[1])}
        return None


def _section(path: str) -> tuple[str, str] | None:
    """Return the section of a module with options, and the beginning of the options' names; None for others."""
    for module, section in CONFIG_MODULES.items():
        if path == module or path.startswith(f"{module}."):
            return section, f"{path.removeprefix(module).strip('.')}.".lstrip(".")
    return None


# parameters and skips: the matrix, the backends and the requirements of a spec

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
            constants = [translation.literal(value) for value in values]
            is_plain = all(isinstance(value, str | int | float) for value in constants)
            translation.matrix[name] = constants if is_plain else [{"id": _id([value]), "value": value} for value in constants]
        translation.parameter(name, python, name)
    else:
        rows = [translation.literal(value) for value in values]
        if not all(isinstance(row, list) and len(row) == len(names) for row in rows):
            raise NotCarried("rows of values that are no constants")
        key = "_".join(names)
        translation.matrix[key] = [{"id": _id(row), "value": dict(zip(names, row, strict=True))} for row in rows]
        for name in names:
            translation.parameter(name, f"params.{key}[{name!r}]", f"{key}.{name}")


def _id(row: list[Any]) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", str(row)).strip("-") or "empty"
