"""The Python of a spec in a script: inline where its names are free, else executed from a literal in a namespace of its own."""

import ast
from collections.abc import Mapping
from typing import Any

from runner.plan.script.values import literal

RESERVED = frozenset({"params", "torch", "pytree", "sys", "os", "re", "gc", "copy", "types", "random", "tempfile", "weakref"}) | {
    *("contextlib", "functools", "importlib")
}
"""Names that the script itself uses and that a spec may only bind again by the same import."""

_OWN = "repro_"


class PythonBlocks:
    """Collects the Python of a case in order, and knows which names it binds."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.sources: list[str] = []
        """The Python of the spec as it is written there."""
        self.executes = False
        """Whether a block is executed from a literal."""
        self._taken: set[str] = set(RESERVED)

    def prelude(self, block: Mapping[str, Any]) -> None:
        """Add a block of which every later one sees the names."""
        text = block["text"]
        self.sources.append(text)
        names = _bound(text)
        if names is None or not _is_safe(text) or names & self._taken:
            self.texts.append(f"exec(compile({literal(text)}, {literal(_place(block))}, 'exec', dont_inherit=True), globals())")
            return
        self._taken |= names
        self.texts.append(text.rstrip("\n"))

    def function(self, block: Mapping[str, Any], entry: str) -> str:
        """Return the expression of a function. Its block sees the preludes, and no later block sees its names."""
        text = block["text"]
        self.sources.append(text)
        names = _bound(text)
        if names is None or entry not in names or not _is_safe(text) or names & self._taken:
            self.executes = True
            return f"repro_function({literal(text)}, {literal(_place(block))}, {literal(entry)})"
        self._taken |= names
        self.texts.append(text.rstrip("\n"))
        return entry


def _place(block: Mapping[str, Any]) -> str:
    return f"<{block['name']} of {block['file']}:{block['line']}>"


def _is_safe(text: str) -> bool:
    """Whether the text is one that a reader sees as Python reads it, and that cannot touch the script's own names."""
    if not all(char.isprintable() or char in "\n\t" for char in text):
        return False  # a character that hides or reorders others
    return not any(_touches(node) for node in ast.walk(ast.parse(text)))


def _touches(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom) and (node.module == "__future__" or any(alias.name == "*" for alias in node.names)):
        return True
    names = (getattr(node, word, None) for word in ("id", "name", "attr", "arg", "asname"))
    return any(isinstance(name, str) and name.startswith(_OWN) for name in names)


def _bound(text: str) -> set[str] | None:
    """Return the names that a block binds at its top; None where it is no Python. An import of a name that means the same is none."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    found: set[str] = set()
    for node in tree.body:
        found |= _names(node)
    return found


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import):
        names = {alias.asname or alias.name.partition(".")[0]: alias for alias in node.names}
        return {name for name, alias in names.items() if alias.asname not in (None, alias.name)}
    if isinstance(node, ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
