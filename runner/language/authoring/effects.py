"""Statements of a test that are calls: resets, assertions, compiled calls, helpers."""

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runner.language.authoring.assertions import assertion
from runner.language.authoring.binding import bind
from runner.language.authoring.blocks import context_word
from runner.language.authoring.configs import merge, patched
from runner.language.authoring.contexts import LIBRARY, dotted_call, entered
from runner.language.authoring.equivalence import node_of
from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.expressions import expression
from runner.language.authoring.filechecks import filecheck, is_filecheck
from runner.language.authoring.naming import dotted
from runner.language.authoring.reading import Reading, line_of
from runner.language.authoring.values import Compiled, Expression, Function, Known, Module, NotCarried, Step, Tensor, Value


def effect(node: ast.Call, reading: Reading) -> None:
    """Carry a call that is a statement over to the spec."""
    path = dotted(node.func, reading)
    own = ast.unparse(node.func)
    if (
        own in ("print", "super().setUp", "super().setUpClass", "super().tearDown")
        or own.endswith("TestCase.setUp")
        or path in _HARMLESS
        or own in _HARMLESS
    ):
        return
    if own == "self.skipTest":
        raise NotCarried("the test is skipped here")
    if isinstance(node.func, ast.Attribute) and node.func.attr == "enter_context" and len(node.args) == 1:
        _enter_context(node.args[0], reading)
    elif own.startswith("self.assert"):
        assertion(own.removeprefix("self."), node, reading)
    elif path == "torch.testing.assert_close" or own.endswith(".assert_close"):
        assertion("assert_close", node, reading)
    elif is_filecheck(node, reading):
        filecheck(node, reading)
    elif _reset(path, node, reading):
        return
    elif _registers(path, node, reading):
        reading.definitions.append(expression(node, reading))
    elif path.rpartition(".")[2] in ("mark_dynamic", "maybe_mark_dynamic") and path.startswith("torch._dynamo"):
        _mark_dynamic(node, reading)
    else:
        _other(node, reading)


def _enter_context(node: ast.expr, reading: Reading) -> None:
    """Enter a context for the rest of the test."""
    if any(step.kind == "call" for step in reading.steps):
        raise NotCarried("a context that is entered between calls")
    options = patched(node, reading)
    if options is not None:
        merge(reading.config, options)
        return
    word = context_word(node, reading) or entered(node, reading)
    if word is not None:
        reading.contexts.append(word)
        return
    if ast.unparse(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2] not in ("fresh_inductor_cache", "fresh_cache"):
        raise NotCarried("a context that is not understood")


_HARMLESS = frozenset(
    [
        *("torch.cuda.synchronize", "gc.collect", "torch.cuda.empty_cache", "warnings.filterwarnings", "warnings.simplefilter"),
        *("torch.cuda.reset_peak_memory_stats", "logging.getLogger", "sys.stdout.flush"),
        *("torch._logging.set_logs", "torch._dynamo.reset_code_caches"),
    ]
)


_RESETS: Mapping[str, tuple[str, Any]] = {
    "torch._dynamo.reset": ("reset", ["dynamo"]),
    "torch._dynamo.utils.counters.clear": ("clear_counters", {"only": "counters"}),
    "torch._inductor.metrics.reset": ("clear_counters", {"only": "metrics"}),
    "torch._inductor.utils.clear_inductor_caches": ("reset", ["inductor"]),
    "torch._inductor.utils.clear_caches": ("reset", ["inductor"]),
    "torch._inductor.codecache.FxGraphCache.clear": ("reset", ["fx_graph"]),
    "torch._functorch._aot_autograd.autograd_cache.AOTAutogradCache.clear": ("reset", ["aot_autograd"]),
    "torch._inductor.codecache.PyCodeCache.cache_clear": ("api", {"call": "torch._inductor.codecache.PyCodeCache.cache_clear"}),
    "torch._dynamo.testing.reset_rng_state": ("reset", ["rng"]),
    "torch.manual_seed": ("reset", ["rng"]),
    "torch.random.manual_seed": ("reset", ["rng"]),
    "torch.cuda.manual_seed": ("reset", ["rng"]),
    "torch.cuda.manual_seed_all": ("reset", ["rng"]),
    "random.seed": ("", None),
    "numpy.random.seed": ("", None),
}
"""What sets state back, and the step that does it."""


def _registers(path: str, node: ast.Call, reading: Reading) -> bool:
    """Whether a call defines an operator, or a part of one: the prelude does it before the first call of the spec."""
    if any(step.kind == "call" for step in reading.steps):
        return False
    if path.startswith("torch.library.") and path.rpartition(".")[2] in _REGISTERING:
        return True
    base = reading.scope.get(node.func.value.id) if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) else None
    return (
        isinstance(base, Expression)
        and dotted_call(base, reading) == LIBRARY
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("define", "impl")
    )


_REGISTERING = frozenset(["define", "impl", "register_fake", "impl_abstract", "register_autograd", "register_kernel"])


def _reset(path: str, node: ast.Call, reading: Reading) -> bool:
    """Carry a call that sets state back. Before the first call nothing is there to set back: each case has its own process."""
    if path not in _RESETS:
        return False
    kind, argument = _RESETS[path]
    if not kind or not any(step.kind in ("call", "backward") for step in reading.steps):
        return True
    last = reading.steps[-1]
    if kind == "reset" and last.kind == "reset" and not last.expects:
        last.arguments["what"] = list(dict.fromkeys([*last.arguments["what"], *argument]))
        return True
    arguments = {"what": argument} if kind == "reset" else dict(argument)
    reading.add(Step(kind, line_of(node), arguments))
    return True


def _mark_dynamic(node: ast.Call, reading: Reading) -> None:
    if len(node.args) != 2 or node.keywords:
        raise NotCarried("arguments of mark_dynamic")
    value, where = (evaluate(argument, reading) for argument in node.args)
    dims = where.value if isinstance(where, Known) else None
    dims = [dims] if isinstance(dims, int) else dims
    if not isinstance(value, Tensor) or not isinstance(dims, list | tuple):
        raise NotCarried("mark_dynamic of something other than an input")
    marks = tuple(dict.fromkeys([*value.marks, *dims]))
    _rebind(value, replace(value, marks=marks), reading)


def _rebind(old: Value, new: Value, reading: Reading) -> None:
    for name, value in reading.scope.items():
        if value is old:
            reading.scope[name] = new


def _root(node: ast.expr) -> ast.expr:
    """Return the name that a chain of methods begins from."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return node


def _library_call(node: ast.Call, reading: Reading) -> bool:
    """Carry a call of a library function with constants as a step; return whether it is one."""
    path = dotted(node.func, reading)
    if path.count(".") < 2 or not path.startswith("torch.") or path.startswith("torch.testing."):
        return False
    args = [evaluate(argument, reading) for argument in node.args]
    words = {word.arg: evaluate(word.value, reading) for word in node.keywords}
    plain = [value.value for value in (*args, *words.values()) if isinstance(value, Known)]
    if len(plain) != len(args) + len(words) or None in words or not all(isinstance(item, str | int | float | bool) for item in plain):
        return False
    arguments: dict[str, Any] = {"call": path}
    if args:
        arguments["args"] = plain[: len(args)]
    if words:
        arguments["kwargs"] = dict(zip(map(str, words), plain[len(args) :], strict=True))
    reading.add(Step("api", line_of(node), arguments))
    return True


def _other(node: ast.Call, reading: Reading) -> None:
    """Carry a call of a helper, of something compiled, or a method that changes an input."""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
        base = evaluate(node.func.value, reading)
        if isinstance(base, Expression) and len(node.args) < 2 and not node.keywords:
            reading.eager_backwards.append(ast.dump(node_of(base)))
            return
    value = evaluate(node, reading)
    changes = isinstance(node.func, ast.Attribute) and (isinstance(value, Module) or node.func.attr.endswith("_"))
    if changes and isinstance(value, Tensor | Module) and isinstance(node.func, ast.Attribute):
        bind(_root(node.func.value), value, reading)
        return
    if isinstance(value, Expression) and _library_call(node, reading):
        return
    called = value.node.func if isinstance(value, Expression) and isinstance(value.node, ast.Call) else None
    if isinstance(value, Expression) and isinstance(called, ast.Name) and isinstance(value.scope.get(called.id), Function | Module):
        reading.eager_calls.append((line_of(node), value))
        return
    if isinstance(value, Expression | Tensor | Module | Function | Compiled):
        raise NotCarried("a call whose effect is not understood")
