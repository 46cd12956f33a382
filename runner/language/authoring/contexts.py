"""Context managers of a test: the file's own, which are read like helpers, and others, which calls of the spec enter."""

import ast
import copy
from collections.abc import Callable

from runner.language.authoring.binding import bind
from runner.language.authoring.calls import inline
from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.expressions import expression
from runner.language.authoring.naming import dotted
from runner.language.authoring.own_methods import own_function
from runner.language.authoring.reading import Block, Reading
from runner.language.authoring.values import Class, Dotted, Entered, Expression, Function, Known, NotCarried, Value

Read = Callable[[list[ast.stmt], Reading], None]


def own_manager(node: ast.expr, reading: Reading) -> Function | None:
    """Return the function of a context manager that the test's file defines with ``contextmanager``."""
    if not isinstance(node, ast.Call):
        return None
    found: object = None
    if isinstance(node.func, ast.Name):
        try:
            found = evaluate(node.func, reading)
        except NotCarried:
            return None
    elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "self":
        found = own_function(node.func.attr, reading)
    if not isinstance(found, Function) or isinstance(found.node, ast.Lambda):
        return None
    words = {ast.unparse(part).rpartition(".")[2] for part in found.node.decorator_list}
    return found if "contextmanager" in words else None


def read_managed(function: Function, item: ast.withitem, body: list[ast.stmt], reading: Reading) -> None:
    """Read the function of a context manager, with the block of the ``with`` where it yields."""
    assert isinstance(item.context_expr, ast.Call)
    if any(isinstance(part, ast.Return | ast.Yield) for statement in body for part in ast.walk(statement)):
        raise NotCarried("a block that returns, in a context manager of the file")
    block = Block(body, item.optional_vars, reading.scope)
    reading.blocks.append(block)
    try:
        inline(function, item.context_expr, reading)
    finally:
        reading.blocks.remove(block)
    if not block.is_read:
        raise NotCarried("a context manager of the file that is not understood")


def read_block(node: ast.Yield, reading: Reading, read: Read) -> None:
    """Read the block of the ``with`` statement whose context manager yields here."""
    block = reading.blocks[-1] if reading.blocks else None
    if block is None or block.is_read:
        raise NotCarried("a function that yields")
    value = Known(None) if node.value is None else evaluate(node.value, reading)
    inner, reading.scope, block.is_read = reading.scope, block.scope, True
    reading.blocks.remove(block)
    try:
        if block.target is not None:
            bind(block.target, value, reading)
        read(block.body, reading)
    finally:
        reading.blocks.append(block)
        reading.scope = inner


LIBRARY = "torch.library.Library"


def dotted_call(value: Expression, reading: Reading) -> str:
    """Return the path of the function whose call an expression is; empty for others."""
    return dotted(value.node.func, reading) if isinstance(value.node, ast.Call) else ""


def library(node: ast.expr, reading: Reading) -> Expression | None:
    """Return the library of operators that a context of torch makes for the block; a case keeps its own until it ends."""
    if not isinstance(node, ast.Call) or dotted(node.func, reading) != "torch.library._scoped_library":
        return None
    if any(isinstance(value, Expression) and dotted_call(value, reading) == LIBRARY for value in reading.scope.values()):
        raise NotCarried("a library of operators that is made again")
    function = ast.parse(LIBRARY, mode="eval").body
    return expression(ast.copy_location(ast.Call(function, node.args, node.keywords), node), reading)


def resolved(node: ast.expr, reading: Reading) -> ast.expr:
    """Return the call that made the context manager which a name stands for."""
    if not isinstance(node, ast.Name):
        return node
    value = reading.scope.get(node.id)
    if isinstance(value, Expression) and isinstance(value.node, ast.Call):
        return value.node
    return node


def entered(node: ast.expr, reading: Reading) -> Entered | None:
    """Return a context manager that calls of the spec enter as it stands in the test; None for others."""
    if not isinstance(node, ast.Call):
        return None
    path = dotted(node.func, reading)
    if path in _MOCKS or path.startswith(f"{_MOCK}.patch.object"):
        return _mock(path, node, reading)
    if not path.startswith(_CONTEXTS):
        return None
    return Entered(expression(node, reading))


_MOCK = "unittest.mock"
_MOCKS = (f"{_MOCK}.patch", f"{_MOCK}.patch.object")
_CONTEXTS = (
    *("torch.autograd.set_multithreading_enabled", "torch.autograd.set_detect_anomaly", "torch.nn.attention.sdpa_kernel"),
    *("torch.backends.", "torch.sparse.check_sparse_tensor_invariants", "torch.set_grad_enabled", "torch.autograd.set_grad_enabled"),
)
"""Contexts that change how torch computes, and tell the test nothing."""


def _is_alone(function: Function) -> bool:
    """Whether a function uses no variable of the test, which it could change."""
    inside = {part.id for part in ast.walk(function.node) if isinstance(part, ast.Name)}
    return not any(
        isinstance(function.scope.get(name), Value) and not isinstance(function.scope[name], Dotted | Function | Class) for name in inside
    )


def _mock(path: str, node: ast.Call, reading: Reading) -> Entered | None:
    """Return a replacement of something private of torch's compiler by a value of the test."""
    if path.endswith("object"):
        target = dotted(node.args[0], reading) if node.args else ""
        wanted = 3
    else:
        name = evaluate(node.args[0], reading) if node.args else None
        target = str(name.value) if isinstance(name, Known) else ""
        wanted = 2
    if len(node.args) != wanted or node.keywords or not target.startswith(("torch._inductor", "torch._dynamo", "torch._functorch")):
        return None
    value = evaluate(node.args[-1], reading)
    if isinstance(value, Function) and (isinstance(value.node, ast.Lambda) or not _is_alone(value)):
        raise NotCarried("a function in place of one of torch that uses variables of the test")
    return Entered(expression(copy.deepcopy(node), reading))
