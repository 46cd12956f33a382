"""Helpers of torch's tests and of Python's library that a test calls, and what they return."""

import ast
from collections.abc import Callable
from dataclasses import replace

from runner.language.authoring.binding import unpacked
from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.reading import Reading, line_of
from runner.language.authoring.values import Codes, Counting, Items, Known, Module, NotCarried, Tensor, Value


def _environment(node: ast.Call, reading: Reading) -> Value:
    """Return what a variable of the environment is when it is not set."""
    values = [evaluate(argument, reading) for argument in node.args]
    reading.note(line_of(node), f"read with the default of {ast.unparse(node)}")
    return values[1] if len(values) > 1 else Known(None)


def _deepcopy(node: ast.Call, reading: Reading) -> Value:
    value = evaluate(node.args[0], reading)
    return replace(value) if isinstance(value, Tensor | Module) else value


def _run_and_get_code(node: ast.Call, reading: Reading) -> Value:
    before = len(reading.steps)
    result = _run_wrapped(node, reading)
    made = [step for step in reading.steps[before:] if step.kind in ("call", "backward")]
    if len(made) != 1:
        raise NotCarried("the code of several compiled calls")
    return Items((result, Codes(made[0])))


def _counting(node: ast.Call, reading: Reading) -> Value:
    """Return a backend that counts: ``frame_count`` is the number of graphs that it was given."""
    backend = evaluate(node.args[0], reading) if len(node.args) == 1 else None
    if node.keywords or not (isinstance(backend, Known) and backend.value == "inductor"):
        raise NotCarried("a counting backend other than that around inductor")
    return Counting("inductor")


def _only_code(node: ast.Call, reading: Reading) -> Value:
    made = unpacked(_run_and_get_code(node, reading))[1]
    assert isinstance(made, Codes)
    return Codes(made.step, None, is_list=False)


def _result_and_code(node: ast.Call, reading: Reading) -> Value:
    result, made = unpacked(_run_and_get_code(node, reading))
    assert isinstance(made, Codes)
    return Items((result, Codes(made.step, None, is_list=False)))


def _run_wrapped(node: ast.Call, reading: Reading) -> Value:
    """Return the result of calling the first argument with the others."""
    inner = ast.copy_location(ast.Call(node.args[0], node.args[1:], node.keywords), node)
    made = reading.rules.call_of(evaluate(node.args[0], reading), inner, reading)
    return made if made is not None else Known(None)


PATHS: dict[str, Callable[[ast.Call, Reading], Value]] = {
    "os.environ.get": _environment,
    "os.getenv": _environment,
    "copy.deepcopy": _deepcopy,
    "copy.copy": _deepcopy,
}


WORDS: dict[str, Callable[[ast.Call, Reading], Value]] = {
    "run_and_get_code": _run_and_get_code,
    "CompileCounterWithBackend": _counting,
    "run_and_get_triton_code": _only_code,
    "run_and_get_cpp_code": _result_and_code,
}
"""Helpers of torch's tests, by the last word of their paths."""
