"""Options of torch that a test sets: ``config.patch`` in its forms, assignments, and settings of torch itself."""

import ast
from typing import Any

from runner.language.authoring.evaluate import evaluate
from runner.language.authoring.naming import CONFIG_MODULES, dotted
from runner.language.authoring.reading import Reading
from runner.language.authoring.values import Dotted, Function, Known, NotCarried, Parameter, Value

Options = dict[str, dict[str, Any]]
"""Options by section."""


def patched(node: ast.expr, reading: Reading) -> Options | None:
    """Return the options that a decorator or a context manager sets; None for others."""
    if not isinstance(node, ast.Call):
        return None
    path = dotted(node.func, reading)
    head, _, last = path.rpartition(".")
    if last == "patch" and section_of(head):
        section, prefix = section_of(head) or ("", "")
        return {section: {prefix + name: value for name, value in _patch(node, reading).items()}}
    if path == "unittest.mock.patch.dict" and len(node.args) == 2 and dotted(node.args[0], reading) == "os.environ" and not node.keywords:
        return {"env": _environment(evaluate(node.args[1], reading))}
    if path.endswith("patch.object") and node.args:
        return _patch_object(node, reading)
    return None


def _environment(value: Value) -> dict[str, Any]:
    """Return variables of the environment that a test sets."""
    found = value.value if isinstance(value, Known) else None
    if not isinstance(found, dict) or not all(isinstance(item, str) for item in found.values()):
        raise NotCarried("variables of the environment that are no constants")
    return {str(name): item for name, item in found.items()}


def section_of(path: str) -> tuple[str, str] | None:
    """Return the section of a module with options, and the beginning of the options' names; None for others."""
    for module, section in CONFIG_MODULES.items():
        if path == module:
            return section, ""
        if path.startswith(f"{module}."):
            return section, path.removeprefix(f"{module}.") + "."
    return None


def _patch(node: ast.Call, reading: Reading) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if len(node.args) == 2:
        name = evaluate(node.args[0], reading)
        if not isinstance(name, Known):
            raise NotCarried("an option whose name is no constant")
        made[str(name.value)] = option_value(evaluate(node.args[1], reading))
    elif node.args:
        given = evaluate(node.args[0], reading)
        if not (isinstance(given, Known) and isinstance(given.value, dict)):
            raise NotCarried("options that are no constants")
        made.update({str(name): option_value(value if isinstance(value, Value) else Known(value)) for name, value in given.value.items()})
    for word in node.keywords:
        if word.arg is None:
            inner = evaluate(word.value, reading)
            if not (isinstance(inner, Known) and isinstance(inner.value, dict)):
                raise NotCarried("options that are no constants")
            made.update(
                {str(name): option_value(value if isinstance(value, Value) else Known(value)) for name, value in inner.value.items()}
            )
        else:
            made[word.arg] = option_value(evaluate(word.value, reading))
    return made


def _patch_object(node: ast.Call, reading: Reading) -> Options | None:
    if len(node.args) < 3 or node.keywords:
        return None
    found = section_of(dotted(node.args[0], reading))
    name = evaluate(node.args[1], reading)
    if found is None or not (isinstance(name, Known) and isinstance(name.value, str)):
        return None
    section, prefix = found
    return {section: {prefix + name.value: option_value(evaluate(node.args[2], reading))}}


def option_value(value: Value) -> Any:
    """Return the value of an option as YAML has it."""
    if isinstance(value, Parameter) and not value.is_dtype:
        return value.template
    if isinstance(value, Known) and _is_plain(value.value):
        return value.value
    if isinstance(value, Function) and not isinstance(value.node, ast.Lambda):
        return value
    raise NotCarried("an option whose value is no constant")


def _is_plain(found: Any) -> bool:
    if isinstance(found, list | tuple):
        return all(_is_plain(item) for item in found)
    if isinstance(found, dict):
        return all(isinstance(name, str) and _is_plain(item) for name, item in found.items())
    return found is None or isinstance(found, str | int | float | bool)


def assigned(target: ast.expr, value: ast.expr, reading: Reading) -> Options | None:
    """Return the options that an assignment sets; None for other assignments."""
    if not isinstance(target, ast.Attribute):
        return None
    found = section_of(dotted(target.value, reading))
    if found is None:
        return None
    section, prefix = found
    return {section: {prefix + target.attr: option_value(evaluate(value, reading))}}


_SETTINGS = {
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": "allow_fp16_reduced_precision_reduction",
    "torch.backends.cuda.matmul.allow_tf32": "allow_tf32",
    "torch.backends.cudnn.allow_tf32": "allow_tf32",
}

_SETTERS = {
    "torch.set_float32_matmul_precision": "float32_matmul_precision",
    "torch.use_deterministic_algorithms": "deterministic",
    "torch.set_default_dtype": "default_dtype",
}


def torch_setting(node: ast.stmt, reading: Reading) -> dict[str, Any] | None:
    """Return what a statement sets in torch as a whole, in the words of the key ``torch``; None for other statements."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        name = _SETTINGS.get(dotted(node.targets[0], reading))
        return None if name is None else {name: _setting(node.value, reading)}
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and len(node.value.args) == 1 and not node.value.keywords:
        name = _SETTERS.get(dotted(node.value.func, reading))
        return None if name is None else {name: _setting(node.value.args[0], reading)}
    return None


def _setting(node: ast.expr, reading: Reading) -> Any:
    value = evaluate(node, reading)
    if isinstance(value, Known) and isinstance(value.value, bool | str):
        return value.value
    if isinstance(value, Dotted) and value.path.startswith("torch."):
        return value.path.removeprefix("torch.")
    raise NotCarried("a setting of torch that is no constant")


def merge(into: Options, options: Options) -> None:
    """Add options to others."""
    for section, given in options.items():
        into.setdefault(section, {}).update(given)
