"""``self.common(fn, inputs)``: the check of torch's own template of Inductor tests."""

import ast
from typing import Any

from runner.language.authoring.binding import unpacked
from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.own_methods import own_method
from runner.language.authoring.reading import Reading, line_of
from runner.language.authoring.values import Compiled, Function, Items, Known, Module, NotCarried, Result, Step, Value

_HARMLESS = frozenset(
    [
        "atol",
        "rtol",
        "check_lowp",
        "exact_dtype",
        "exact_stride",
        "nopython",
        "copy_to_cuda",
        "copy_to_gpu",
        "reference_in_float",
        "assert_equal",
    ]
)


def is_check_model(reading: Reading) -> bool:
    """Whether ``self.common`` is torch's check of a model, and no method of the file."""
    if own_method("common", reading) is not None:
        return False
    known = {"check_model", "check_model_gpu", "check_model_cuda", "run_and_get_cpp_code"}
    return bool(known & {*reading.file.definitions, *reading.file.imports}) or "CommonTemplate" in reading.file.definitions


_CHECKS = {"check_model": "cpu", "check_model_gpu": "gpu", "check_model_cuda": "gpu"}
"""Torch's checks of a model, and the device that each uses."""


def device_of_check(name: str, reading: Reading) -> str:
    """Return the device of a check that the test's class takes over from torch's tests; empty for other names."""
    if reading.test.owner is None:
        return ""
    for owner in reading.file.lineage(reading.test.owner):
        for part in owner.body:
            if isinstance(part, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in part.targets):
                source = part.value.id if isinstance(part.value, ast.Name) else ""
                path = reading.file.imports.get(source, "")
                return _CHECKS.get(path.rpartition(".")[2], "") if "inductor" in path else ""
    return ""


def common(node: ast.Call, reading: Reading, device: str = "backend") -> Value:
    """Carry a check of a model: the compiled result equals that of eager mode."""
    if len(node.args) != 2 or any(word.arg not in _HARMLESS for word in node.keywords):
        raise NotCarried("arguments of 'self.common' that are not understood")
    model = evaluate(node.args[0], reading)
    if isinstance(model, Compiled) or not isinstance(model, Function | Module):
        raise NotCarried("'self.common' of something that is neither a function nor a module of the file")
    words = {word.arg: _known(word.value, reading) for word in node.keywords}
    if words.get("assert_equal") is False:
        raise NotCarried("'self.common' without a comparison")
    if reading.is_common:
        reading.add(Step("reset", line_of(node), {"what": ["dynamo"]}))
    options: dict[str, Any] = {} if words.get("nopython") is False else {"fullgraph": True}
    reading.matrix.setdefault(" compile", []).append(options)
    if reading.matrix[" compile"][0] != options:
        raise NotCarried("checks with different arguments of torch.compile")
    step = Step("call", line_of(node), {}, model, tuple(_inputs(evaluate(node.args[1], reading))))
    reading.is_common = True
    reading.devices.add(device)
    reading.matrix.setdefault(" lowp", []).append(words.get("check_lowp", True))
    reading.add(step)
    reading.expect(line_of(node), {"close": {"to": "eager", **_tolerances(words)}}, step)
    return Result(step)


def _known(node: ast.expr, reading: Reading) -> Any:
    value = evaluate(node, reading)
    if not isinstance(value, Known):
        raise NotCarried("an argument of 'self.common' that is no constant")
    return value.value


def _inputs(value: Value) -> list[Value]:
    if isinstance(value, Items):
        return list(value.items)
    return unpacked(value)


def _tolerances(words: dict[str | None, Any]) -> dict[str, Any]:
    found = {str(name): words[name] for name in ("atol", "rtol") if words.get(name) is not None}
    if len(found) == 1:
        raise NotCarried("one tolerance without the other")
    return found
