"""Names of a file's top level: what they stand for in its tests."""

import ast
import builtins

from runner.language.authoring import constants
from runner.language.authoring.naming import DTYPES, is_gpu_name
from runner.language.authoring.reading import Reading
from runner.language.authoring.values import Class, Device, Dotted, Expression, Function, Items, Known, NotCarried, Value


def of_file(name: str, reading: Reading) -> Value:
    """Return what a name of the file's top level stands for."""
    if name in reading.file.imports:
        path = reading.file.imports[name]
        return of_path(path, ast.Name(name), reading)
    found = reading.file.definitions.get(name)
    if isinstance(found, ast.FunctionDef):
        return Function(name, found, {})
    if isinstance(found, ast.ClassDef):
        return Class(found, {})
    if name in ("torch", "unittest", "itertools", "functools"):
        return Dotted(name)
    if name in reading.file.ambiguous:
        return _of_several(name, reading)
    if isinstance(found, ast.Assign) and len(found.targets) == 1 and isinstance(found.targets[0], ast.Name):
        return _assigned(name, found.value, reading)
    if found is None and len(reading.file.wildcards) == 1 and name not in constants.FUNCTIONS and name not in dir(builtins):
        return Dotted(f"{reading.file.wildcards[0]}.{name}")
    return Expression(ast.Name(name, ast.Load()), {})


def _of_several(name: str, reading: Reading) -> Value:
    """Return the value of a name that stands for the device; raise ``NotCarried`` for others with several values."""
    values = [
        part.value
        for part in ast.walk(reading.file.tree)
        if isinstance(part, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in part.targets)
    ]
    if all(
        (isinstance(value, ast.Constant) and value.value in ("cpu", "cuda", "xpu")) or is_gpu_name(ast.unparse(value)) for value in values
    ):
        reading.devices.add("backend")
        return Device("backend")
    raise NotCarried(f"it uses '{name}', which the file does not define in one place")


def _assigned(name: str, node: ast.expr, reading: Reading) -> Value:
    """Return the value of a top-level assignment: a constant, something imported, or the name itself."""
    if is_gpu_name(name) or name in ("device", "device_type", "DEVICE"):
        reading.devices.add("gpu")
        return Device("gpu")
    reading.depth += 1
    outer, reading.scope = reading.scope, {}
    try:
        if reading.depth < _DEEPEST:
            value = reading.rules.evaluate(node, reading)
            if isinstance(value, Known | Dotted | Items | Device):
                return value
    except NotCarried:
        pass
    finally:
        reading.depth -= 1
        reading.scope = outer
    return Expression(ast.Name(name, ast.Load()), {})


_DEEPEST = 12


def of_path(path: str, node: ast.expr, reading: Reading) -> Value:
    """Return what a dotted path stands for: a device, a dtype, or the path."""
    if is_gpu_name(path):
        reading.devices.add("gpu")
        return Device("gpu")
    head, _, last = path.rpartition(".")
    if head == "torch" and last in DTYPES:
        return Dotted(f"torch.{DTYPES[last]}")
    return Dotted(path)
