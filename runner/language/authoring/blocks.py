"""``with`` blocks of tests: options, contexts of calls, fresh caches, expected exceptions."""

import ast
import builtins
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from runner.language.authoring import configs
from runner.language.authoring.binding import bind
from runner.language.authoring.contexts import entered, library, own_manager, read_managed, resolved
from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.expressions import expression
from runner.language.authoring.naming import dotted
from runner.language.authoring.reading import Reading, line_of
from runner.language.authoring.tensors import device_of, dtype_text
from runner.language.authoring.values import Dotted, Entered, Known, NotCarried, Raised, Step

Read = Callable[[list[ast.stmt], Reading], None]


def read_with(statement: ast.With, reading: Reading, read: Read) -> None:
    """Read a block with the contexts around it."""
    raising: list[tuple[dict[str, Any], list[Step]]] = []
    with ExitStack() as stack:
        before = len(reading.steps)
        for index, item in enumerate(statement.items):
            manager = own_manager(item.context_expr, reading)
            if manager is not None:
                rest = statement.items[index + 1 :]
                body: list[ast.stmt] = [ast.copy_location(ast.With(rest, statement.body), statement)] if rest else statement.body
                read_managed(manager, item, body, reading)
                break
            found = _enter(item, reading, stack)
            if found is not None:
                raising.append(found)
        else:
            has_options = bool(reading.inner)
            read(statement.body, reading)
            if has_options and len(reading.steps) == before and _compiles(statement.body):
                raise NotCarried("options around torch.compile, and not around the call")
    for words, holder in raising:
        made = [step for step in reading.steps[before:] if step.kind in ("call", "backward")]
        if len(made) != 1 or reading.steps[-1] is not made[0]:
            raise NotCarried("an expected exception of something other than one compiled call")
        made[0].is_expected_to_raise = True
        holder.append(made[0])
        reading.expect(line_of(statement), {"raises": words}, made[0])


def _compiles(body: list[ast.stmt]) -> bool:
    words = {
        part.attr if isinstance(part, ast.Attribute) else part.id
        for statement in body
        for part in ast.walk(statement)
        if isinstance(part, ast.Attribute | ast.Name)
    }
    return bool(words & {"compile", "optimize"})


def _enter(item: ast.withitem, reading: Reading, stack: ExitStack) -> tuple[dict[str, Any], list[Step]] | None:
    """Enter a context; return the exception that it expects."""
    node = resolved(item.context_expr, reading)
    options = configs.patched(node, reading)
    if options is not None:
        reading.inner.append(options)
        stack.callback(reading.inner.pop)
        return None
    word = context_word(node, reading)
    if word is not None:
        reading.contexts.append(word)
        stack.callback(reading.contexts.pop)
        return None
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in ("assertRaises", "assertRaisesRegex"):
            return _raises(node, name, item, reading)
        if name in ("fresh_inductor_cache", "fresh_cache"):
            if reading.steps:
                reading.add(Step("fresh_cache", line_of(node)))
            return None
        if name in _HARMLESS:
            return None
    if isinstance(node, ast.Call) and dotted(node.func, reading) == "torch.device" and len(node.args) == 1 and item.optional_vars is None:
        _default_device(node, reading, stack)
        return None
    scoped = library(node, reading)
    if scoped is not None and item.optional_vars is not None:
        bind(item.optional_vars, scoped, reading)
        return None
    general = entered(node, reading) if item.optional_vars is None else None
    if general is not None:
        reading.contexts.append(general)
        stack.callback(reading.contexts.pop)
        return None
    raise NotCarried(f"the context '{ast.unparse(node)[:60]}'")


def _default_device(node: ast.Call, reading: Reading, stack: ExitStack) -> None:
    """Make tensors on a device by default, within calls too."""
    where = device_of(evaluate(node.args[0], reading))
    reading.devices.add(where)
    reading.contexts.append(Entered(expression(node, reading)))
    stack.callback(reading.contexts.pop)
    stack.callback(setattr, reading, "default_device", reading.default_device)
    reading.default_device = where


_HARMLESS = frozenset(["nullcontext", "subTest", "fork_rng", "catch_warnings", "preserve_rng_state"])


def _raises(node: ast.Call, name: str, item: ast.withitem, reading: Reading) -> tuple[dict[str, Any], list[Step]]:
    words: dict[str, Any] = {"type": exception_named(node.args[0], reading)}
    if name == "assertRaisesRegex":
        pattern = evaluate(node.args[1], reading)
        if not (isinstance(pattern, Known) and isinstance(pattern.value, str)):
            raise NotCarried("a pattern that is no constant")
        words["match"] = pattern.value
    holder: list[Step] = []
    if item.optional_vars is not None:
        bind(item.optional_vars, Raised(holder), reading)
    return words, holder


def exception_named(node: ast.expr, reading: Reading) -> str:
    """Return the path of an exception's class."""
    value = evaluate(node, reading)
    if isinstance(value, Dotted):
        return value.path
    if isinstance(node, ast.Name) and isinstance(getattr(builtins, node.id, None), type):
        return node.id
    raise NotCarried("an exception that is neither imported nor a builtin")


_GRAD = {"no_grad": "no_grad", "inference_mode": "inference_mode", "enable_grad": "enable_grad"}


def context_word(node: ast.expr, reading: Reading) -> Any:
    """Return a context of calls in the words of the language; None for others."""
    function = node.func if isinstance(node, ast.Call) else node
    path = dotted(function, reading)
    head, _, last = path.rpartition(".")
    if head in ("torch", "torch.autograd.grad_mode", "torch.autograd") and last in _GRAD:
        if isinstance(node, ast.Call) and (node.args or node.keywords):
            return None
        return _GRAD[last]
    is_own = ast.unparse(function) == "self.autocast"
    if (path in ("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast") or is_own) and isinstance(
        node, ast.Call
    ):
        return _autocast(node, path, reading)
    return None


def _autocast(node: ast.Call, path: str, reading: Reading) -> Any:
    words = {word.arg: word.value for word in node.keywords}
    words.pop("device_type", None)
    enabled = words.pop("enabled", None)
    if enabled is not None:
        value = evaluate(enabled, reading)
        if not (isinstance(value, Known) and value.value is True):
            raise NotCarried("autocast that is not always enabled")
    options = {"dtype": dtype_text(evaluate(words.pop("dtype"), reading))} if "dtype" in words else {}
    if words or len(node.args) > 1:
        raise NotCarried("arguments of autocast")
    if path == "torch.cuda.amp.autocast":
        reading.devices.add("gpu")
    if path == "torch.cpu.amp.autocast":
        reading.devices.add("cpu")
    return {"autocast": options}
