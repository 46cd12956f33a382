"""The statements of a test: options, compiled calls, assertions, and what only prepares them."""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from runner.tools.author.translator.translation import (
    Code,
    Compiled,
    NotCarried,
    Result,
    SetUp,
    Step,
    Translation,
    Unknown,
    Value,
    free_names,
    skip,
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


class Reader:
    """Reads statements into a translation."""

    def __init__(self, translation: Translation) -> None:
        self.translation = translation
        self.file = translation.file

    def read(self, statements: Sequence[ast.stmt]) -> None:
        """Read statements; a statement that cannot be carried is remembered, and those behind it are read."""
        for statement in statements:
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
        node, rest = items[0].context_expr, items[1:]
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
        elif self._is_special(statement):
            raise NotCarried(f"the context '{ast.unparse(node)[:60]}'")
        else:
            self._prepare(statement)

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
                if path in ("torch.compile", *_RESETS) or assertion_of(self, part) or self._compiles(part):
                    return True
        return False

    def _compiles(self, call: ast.Call) -> bool:
        """Whether a call is one of a function of the file that compiles: it is not carried."""
        definition = self.file.definitions.get(call.func.id) if isinstance(call.func, ast.Name) else None
        return definition is not None and any(self.file.dotted(part) == "torch.compile" for part in ast.walk(definition))

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
        if path.rpartition(".")[2] == "run_and_get_code" and node.args:
            function = self.value(node.args[0])
            if not isinstance(function, Compiled):
                raise NotCarried("code of a function that is not compiled in the test")
            step = self._step(function, node.args[1:], node.keywords)
            return (Result(step), Code(step))
        if isinstance(node.func, ast.Name | ast.Call) and isinstance(function := self.value(node.func), Compiled):
            return Result(self._step(function, node.args, node.keywords))
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
        if "**" in options or "backend" in options:
            raise NotCarried("arguments of torch.compile that are not written out, or another backend of dynamo")
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
        if words:
            raise NotCarried("a compiled call with keyword arguments")
        values: list[ast.expr] = []
        for argument in arguments:
            if not isinstance(argument, ast.Starred):
                values.append(argument)
                continue
            packed = self.translation.names.get(argument.value.id) if isinstance(argument.value, ast.Name) else None
            if not isinstance(packed, SetUp) or not isinstance(packed.node, ast.Tuple | ast.List):
                raise NotCarried("arguments that are not written out")
            indices = map(ast.Constant, range(len(packed.node.elts)))
            values += [ast.Subscript(value=argument.value, slice=index, ctx=ast.Load()) for index in indices]
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
        return None


def _section(path: str) -> tuple[str, str] | None:
    """Return the section of a module with options, and the beginning of the options' names; None for others."""
    for module, section in CONFIG_MODULES.items():
        if path == module or path.startswith(f"{module}."):
            return section, f"{path.removeprefix(module).strip('.')}.".lstrip(".")
    return None


# -- assertions as expectations: comparisons with eager and with other values, counters, generated code ------------------

_COMPARISONS = {"assertGreater": ast.Gt, "assertGreaterEqual": ast.GtE, "assertLess": ast.Lt, "assertLessEqual": ast.LtE}
_FUNCTIONS = ("assert_close", "assert_allclose")
_SAME: Mapping[str, Mapping[str, Any]] = {
    "allclose": {"rtol": 1e-5, "atol": 1e-8},
    "same": {"rtol": 1e-4, "atol": 1e-4},
    "equal": {"exact": True},
}
"""Functions that say whether two values are equal, with their tolerances."""


def assertion_of(reader: Reader, call: ast.Call) -> str:
    """Return the name of the assertion that a call is; empty for other calls."""
    path = reader.translation.file.dotted(call.func)
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
        return call.func.attr if call.func.attr.startswith(("assert", "check_model", "common")) else ""
    if path.rpartition(".")[2] in _FUNCTIONS:
        return path.rpartition(".")[2]
    return "FileCheck" if _directives(call) else ""


def read_assertion(reader: Reader, call: ast.Call) -> None:
    """Add the expectations of an assertion."""
    name, arguments = assertion_of(reader, call), call.args
    match name:
        case "FileCheck":
            checks = [check for directive in _directives(call) for check in _checks_of(reader.translation, directive)]
            if all(check.startswith("CHECK-NOT") for check in checks):
                checks.insert(0, _EVERY_FILE)
            _expect_code(reader, arguments[0], checks)
        case "assertEqual" | "assert_close" | "assert_allclose" if len(arguments) >= 2:
            _equal(reader, arguments[0], arguments[1], _tolerances(reader, call))
        case "assertTrue" | "assertFalse" if arguments:
            _true(reader, arguments[0], is_true=name == "assertTrue")
        case "assertIn" | "assertNotIn" if len(arguments) >= 2:
            _true(reader, ast.Compare(left=arguments[0], ops=[ast.In()], comparators=[arguments[1]]), is_true=name == "assertIn")
        case _ if name in _COMPARISONS and len(arguments) >= 2:
            _counted(reader.translation, arguments[0], _COMPARISONS[name](), arguments[1])
        case _:
            raise NotCarried("an assertion of this kind")


def _true(reader: Reader, test: ast.expr, *, is_true: bool) -> None:
    translation = reader.translation
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        _true(reader, test.operand, is_true=not is_true)
    elif isinstance(test, ast.Call) and is_true and len(test.args) >= 2:
        word = translation.file.dotted(test.func).rpartition(".")[2]
        if word not in _SAME:
            raise NotCarried("an assertion about a value that the language cannot name")
        tolerances = _tolerances(reader, test, _SAME[word])
        _equal(reader, test.args[0], test.args[1], tolerances)
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, operator, right = test.left, test.ops[0], test.comparators[0]
        if isinstance(operator, ast.In | ast.NotIn):
            text = pattern(reader.translation.literal(left))
            is_in = isinstance(operator, ast.In) == is_true
            _expect_code(reader, right, [f"CHECK: {text}"] if is_in else [_EVERY_FILE, f"CHECK-NOT: {text}"])
        elif is_true:
            _counted(reader.translation, left, operator, right)
        else:
            raise NotCarried("an assertion that a comparison is false")
    else:
        raise NotCarried("an assertion about a value that the language cannot name")


# comparisons of values


def _tolerances(reader: Reader, call: ast.Call, default: Mapping[str, Any] | None = None) -> dict[str, Any]:
    words = {str(word.arg): word.value for word in call.keywords}
    tolerances = dict(default or {})
    tolerances |= {name: reader.translation.literal(word) for name, word in words.items() if name in ("atol", "rtol")}
    if "tol" in words:
        tolerances |= dict.fromkeys(("atol", "rtol"), reader.translation.literal(words["tol"]))
    tolerances = {name: value for name, value in tolerances.items() if value is not None}
    if unknown := sorted(words.keys() - {"atol", "rtol", "tol", "msg", "equal_nan", "exact_device", "exact_dtype", "check_device"}):
        raise NotCarried(f"the argument '{unknown[0]}' of a comparison")
    if len(tolerances) == 1 and "exact" not in tolerances:
        raise NotCarried("one tolerance without the other")
    return {"exact": True} if tolerances and not any(tolerances.values()) else tolerances


def _equal(reader: Reader, left: ast.expr, right: ast.expr, tolerances: dict[str, Any]) -> None:
    """Expect that two values are close, or that a count has a value."""
    translation = reader.translation
    if any(_count_of(translation, side) for side in (left, right)):
        _counted(reader.translation, left, ast.Eq(), right)
        return
    values = [reader.value(side) for side in (left, right)]
    results = [value for value in values if isinstance(value, Result)]
    if len(results) == 2:
        earlier, later = sorted(results, key=lambda result: translation.steps.index(result.step))
        body = {"of": _path(translation, later), "to": _path(translation, earlier, is_later=True)}
        translation.expect({"close": {**body, **tolerances}}, later.step)
        return
    if len(results) != 1:
        raise NotCarried("a comparison without the result of a compiled call")
    result = results[0]
    other = right if values[0] is result else left
    if _is_eager(translation, result, other):
        body = {"to": "eager"} if not result.path else {"of": f"output.{result.path}", "to": f"eager.{result.path}"}
    else:
        if not isinstance(other, ast.Name) and not free_names(other):
            raise NotCarried("a comparison with a constant")
        reference = translation.value_of(other, "expected").name
        translation.needed.add(reference)
        body = {"of": _path(translation, result), "to": reference} if result.path else {"to": reference}
    translation.expect({"close": {**body, **tolerances}}, result.step)


def _path(translation: Translation, result: Result, *, is_later: bool = False) -> str:
    """Return the name of a result or of a part of it, in the expectations of its step or of a later one."""
    return f"{translation.named(result.step) if is_later else 'output'}.{result.path}".strip(".")


def _is_eager(translation: Translation, result: Result, other: ast.expr) -> bool:
    """Whether an expression calls the function of a step in eager mode, with the same arguments or copies of them."""
    arguments = [part for part in result.step.arguments if isinstance(part, ast.expr)]
    try:
        expression = translation.rewritten(other)
    except NotCarried:
        return False
    position, path = len(translation.setup), ""
    for _ in range(_DEEPEST):
        value = translation.values.get(expression.id) if isinstance(expression, ast.Name) else None
        if value is not None and isinstance(value.node, ast.expr):
            expression, position = value.node, value.position
        elif isinstance(expression, ast.Subscript) and isinstance(index := expression.slice, ast.Constant):
            expression, path = expression.value, ".".join(filter(None, (str(index.value), path)))
    if not isinstance(expression, ast.Call) or expression.keywords or path != result.path or len(arguments) < len(result.step.arguments):
        return False
    is_changed = any(translation.changes.get(name, 0) > position for name in free_names(expression))
    if is_changed or ast.unparse(expression.func) != result.step.function:
        return False
    return [_source(translation, part) for part in expression.args] == [_source(translation, part) for part in arguments]


def _source(translation: Translation, node: ast.expr) -> str:
    """Return the text of an argument; of a copy that of the original."""
    for _ in range(_DEEPEST):
        value = translation.values.get(node.id) if isinstance(node, ast.Name) else None
        match value.node if value is not None else node:
            case ast.Call(func=ast.Attribute(value=original, attr="clone" | "detach"), args=[]):
                node = original
    return ast.unparse(node)


_DEEPEST = 5


# counts


def _count_of(translation: Translation, node: ast.expr) -> tuple[str, str] | None:
    """Return the kind and the name of a counter or metric; None for other expressions."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Subscript):
        if translation.file.dotted(node.value.value) != "torch._dynamo.utils.counters":
            return None
        return "counter", f"{translation.literal(node.value.slice)}.{translation.literal(node.slice)}"
    path = translation.file.dotted(node)
    return ("metric", path.removeprefix("torch._inductor.metrics.")) if path.startswith("torch._inductor.metrics.") else None


def _counted(translation: Translation, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> None:
    """Expect a count."""
    is_flipped = _count_of(translation, left) is None
    count = _count_of(translation, right if is_flipped else left)
    if count is None:
        raise NotCarried("an assertion about a value that the language cannot name")
    value: Any = translation.yaml(left if is_flipped else right)
    if not isinstance(operator, ast.Eq):
        bounds: Mapping[type[ast.cmpop], tuple[str, int]]
        bounds = {ast.Gt: ("min", 1), ast.GtE: ("min", 0), ast.Lt: ("max", -1), ast.LtE: ("max", 0)}
        if type(operator) not in bounds or not isinstance(value, int):
            raise NotCarried("a bound of a count that is no constant")
        word, more = bounds[type(operator)]
        value = {"max" if word == "min" else "min": value - more} if is_flipped else {word: value + more}
    translation.expect({count[0]: {count[1]: value}})


# generated code

_EVERY_FILE = "CHECK: AOT ID: ["
"""A line that begins every generated file: a check of what is not there needs something that is."""

_DIRECTIVES = {"check": "CHECK", "check_not": "CHECK-NOT", "check_same": "CHECK-SAME", "check_next": "CHECK-NEXT", "check_dag": "CHECK-DAG"}


def _directives(call: ast.Call) -> list[ast.Call]:
    """Return the directives of ``FileCheck()...run(code)``, in order; empty for other calls."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "run"):
        return []
    directives: list[ast.Call] = []
    inner = call.func.value
    while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr != "FileCheck":
        directives.insert(0, inner)
        inner = inner.func.value
    return directives if isinstance(inner, ast.Call) and ast.unparse(inner.func).rpartition(".")[2] == "FileCheck" else []


def _checks_of(translation: Translation, directive: ast.Call) -> list[str]:
    """Return the lines of FileCheck that one directive stands for."""
    name = directive.func.attr if isinstance(directive.func, ast.Attribute) else ""
    values = [translation.literal(argument) for argument in directive.args]
    words = {word.arg: translation.literal(word.value) for word in directive.keywords}
    if name in _DIRECTIVES and len(values) == 1 and not words:
        return [f"{_DIRECTIVES[name]}: {pattern(values[0])}"]
    if name == "check_count" and set(words) <= {"count", "exactly"} and values:
        count, exactly = [*values[1:], *(words[key] for key in ("count", "exactly") if key in words), False][:2]
        text = pattern(values[0])
        return ([f"CHECK-COUNT-{count}: {text}"] if int(count) else []) + ([f"CHECK-NOT: {text}"] if exactly else [])
    raise NotCarried(f"the FileCheck directive '{name}'")


def pattern(text: Any) -> str:
    """Return a literal text as a pattern of FileCheck."""
    if not isinstance(text, str) or "\n" in text or "\r" in text or not text.strip():
        raise NotCarried("a text of several lines, or of none, in the generated code")
    escaped = text.replace("{{", "{{[{][{]}}").replace("[[", "{{\\[\\[}}").replace("]]", "{{\\]\\]}}")
    return re.sub(r"^[ \t]+|[ \t]+$", lambda blanks: f"{{{{[[:space:]]{{{len(blanks[0])}}}}}}}", escaped)


def _expect_code(reader: Reader, code: ast.expr, checks: list[str]) -> None:
    value = reader.value(code)
    if not isinstance(value, Code):
        raise NotCarried("a text that is no generated code")
    if value.index is None:
        raise NotCarried("an assertion about a list of generated codes")
    body = {"text": "whole", "code": value.index, "checks": "".join(f"{check}\n" for check in checks)}
    reader.translation.expect({"filecheck": body}, value.step)
