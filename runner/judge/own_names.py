"""The names that a spec gives to things of its own: in generated code they show nothing of a backend.

A spec can define an operator, a kernel or an attribute with any name, and generated code repeats it. Names that a spec only uses, such as
``torch.mm``, are not its own. Pure: the Python of a spec is parsed, not executed.
"""

import ast
import re
from collections.abc import Iterator

from runner.core.case import Case

_REGISTERING = frozenset(
    (
        *("Library", "custom_op", "define", "impl", "triton_op"),
        *("add_module", "register_buffer", "register_module", "register_parameter", "setattr"),
    )
)
"""Functions whose arguments name an operator or an attribute."""

_SCHEMA = re.compile(r"[\w.]+::[\w.]+|[\w.]+\(.*\)\s*->", re.DOTALL)
"""How a text begins that names an operator: with its namespace, or as a schema."""

_WORD = re.compile(r"[^\W\d]\w*")


def own_names(case: Case) -> frozenset[str]:
    """Return the names that the Python of a case defines. Code that is no Python, which a worker will report, defines none."""
    found: set[str] = set()
    for block in case.body.blocks:
        try:
            tree = ast.parse(block.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # what Python raises for texts that it cannot parse
            continue
        for node in ast.walk(tree):
            found.update(_defined(node))
    return frozenset(found)


def without(text: str, names: frozenset[str]) -> str:
    """Return generated code in which these names, also where a suffix follows, are blanks of the same length."""
    if not names:
        return text
    alternatives = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    return re.sub(rf"(?<!\w)(?:{alternatives})(?![^\W_])", lambda match: " " * len(match[0]), text)


def _defined(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.alias(name=name, asname=str() as other) if other != name.rpartition(".")[2]:
            yield other
        case ast.Constant(value=str() as text) if found := _SCHEMA.match(text):
            yield from _WORD.findall(found[0].partition("(")[0])
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments) if name in _REGISTERING:
            for argument in arguments:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield from _WORD.findall(argument.value.partition("(")[0])
