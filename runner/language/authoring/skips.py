"""Parameters and skips of tests: the matrix, the backends and the requirements of a spec."""

import ast
import re
from collections.abc import Mapping
from typing import Any

from runner.language.authoring.translation import DTYPES, GPU_NAMES, NotCarried, Translation

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


def backends_of_device(translation: Translation, test: ast.expr) -> frozenset[str] | None:
    """Return the backends on which a condition is true; None for a condition about something else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = backends_of_device(translation, test.operand)
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


def _drop(translation: Translation, node: ast.AST, test: ast.expr) -> None:
    backends = backends_of_device(translation, test)
    if backends is None:
        translation.note(node, f"the test is skipped where {ast.unparse(test)[:80]}; the spec is not")
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
        translation.note(node, f"the test has @{ast.unparse(node)[:80]}; the spec has no such condition")
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
        _parameter(translation, names[0], values)
    else:
        rows = [translation.literal(value) for value in values]
        if not all(isinstance(row, list) and len(row) == len(names) for row in rows):
            raise NotCarried("rows of values that are no constants")
        key = "_".join(names)
        translation.matrix[key] = [{"id": _id(row), "value": dict(zip(names, row, strict=True))} for row in rows]
        for name in names:
            translation.parameter(name, f"params.{key}[{name!r}]", f"{key}.{name}")


def _parameter(translation: Translation, name: str, values: list[ast.expr]) -> None:
    dtypes = [DTYPES.get(translation.file.dotted(value).removeprefix("torch.")) for value in values]
    if all(dtypes):
        translation.matrix[name] = dtypes
        translation.parameter(name, f"getattr(torch, params.{name})", name)
        return
    constants = [translation.literal(value) for value in values]
    is_plain = all(isinstance(value, str | int | float) for value in constants)
    translation.matrix[name] = constants if is_plain else [{"id": _id([value]), "value": value} for value in constants]
    translation.parameter(name, f"params.{name}", name)


def _id(row: list[Any]) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", str(row)).strip("-") or "empty"
