"""Checks the Python of a spec: undefined names, and ``params`` that are not keys of the matrix."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from runner.core.case import CodeBlock
from runner.core.diagnostics import Diagnostic, did_you_mean, unknown
from runner.core.targets import AXIS
from runner.language.backends import Backends
from runner.language.check.free_names import ALWAYS, binds_dynamically, bound_anywhere, free_names, guarded_names, nodes
from runner.language.check.functions import prelude_names
from runner.language.read import python
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath, Document
from runner.language.read.matrix import TARGETS

PARAMS = "params"
OF_EVERY_CASE = ("backend", "device")
"""The attributes of ``params`` besides the keys of the matrix."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of Python with its position, and whether it is shared by several specs."""

    document: Document
    path: DataPath
    code: CodeBlock
    tree: ast.Module
    is_shared: bool = False
    is_prelude: bool = False

    def problem(self, node: ast.expr, message: str, hint: str) -> Diagnostic:
        """Return a diagnostic at a node."""
        position = python.place(self.document, self.path, self.code, node.lineno, node.col_offset + 1)
        return Diagnostic(position=position, message=message, hint=hint)


def blocks(anatomy: Anatomy) -> Iterator[Block]:
    """Yield every block of a spec without syntax errors."""
    documents = [document for document in (*anatomy.spec.defaults, anatomy.document) if "prelude" in document.data]
    for document, code in zip(documents, anatomy.preludes, strict=True):
        if (tree := anatomy.prelude_trees.get(code.file)) is not None:
            shared = document is not anatomy.document
            yield Block(document, ("prelude",), code, tree, is_shared=shared, is_prelude=True)
    for function in anatomy.functions.values():
        if function.block is not None and function.tree is not None:
            yield Block(anatomy.document, function.path, function.block, function.tree)
    for script in anatomy.scripts.values():
        if script.block is not None and script.tree is not None:
            yield Block(anatomy.document, script.path, script.block, script.tree)


def python_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of undefined names, and of wrong uses of ``params``."""
    keys = [*anatomy.data.get("matrix", {}), *OF_EVERY_CASE, *([AXIS] if TARGETS in anatomy.data else [])]
    known = prelude_names(anatomy)
    trees = list(anatomy.prelude_trees.values())
    is_open = "*" in known or any(map(binds_dynamically, trees))
    for tree in trees:
        known |= bound_anywhere(tree)
    for block in blocks(anatomy):
        if not is_open and not binds_dynamically(block.tree):
            yield from _undefined(anatomy, block, known, keys)
        yield from _wrong_params(block, keys)


def _undefined(anatomy: Anatomy, block: Block, known: set[str], keys: list[str]) -> Iterator[Diagnostic]:
    own = known if block.is_prelude else known | bound_anywhere(block.tree)
    own = own | guarded_names(block.tree)
    if "*" in own:
        return
    for free in free_names(block.tree):
        name = free.node.id
        if name in own or name in ALWAYS:
            continue
        own = own | {name}  # reported once
        of_class = f"a name of a class is read as self.{name} or CLASS.{name}" if free.is_of_class else ""
        hint = of_class or _hint(anatomy, name, keys) or did_you_mean(name, [*sorted(free.nearby), *sorted(own - {name}), *sorted(ALWAYS)])
        yield block.problem(free.node, f"undefined name '{name}'", hint or "define it here or in prelude:, or import it")


def _hint(anatomy: Anatomy, name: str, keys: list[str]) -> str:
    if name in keys:
        return f"a key of the matrix is read as params.{name}"
    results = [step.parsed.bound for step in anatomy.steps]
    if name in anatomy.data.get("let", {}) or name in results:
        return f"pass a value of let or a result as an argument, {{ref: {name}}}, or as a parameter of a script"
    return "import it" if python.is_installed(name) else ""


def _wrong_params(block: Block, keys: list[str]) -> Iterator[Diagnostic]:
    free = {id(found.node) for found in free_names(block.tree) if found.node.id == PARAMS}
    for node in nodes(block.tree):
        match node:
            case ast.Subscript(value=ast.Name() as name, slice=key) if id(name) in free:
                yield block.problem(node, "params has attributes and no items", _as_attribute(key))
            case ast.Call(func=ast.Attribute(value=ast.Name() as name, attr="get"), args=[key, *_]) if (
                id(name) in free and "get" not in keys
            ):
                free.discard(id(name))
                yield block.problem(node, "params has attributes and no items", _as_attribute(key))
            case ast.Attribute(value=ast.Name() as name, attr=word) if id(name) in free:
                yield from _unknown_key(block, node, word, keys)
            case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name() as name, ast.Constant(value=str(word))]) if id(name) in free:
                yield from _unknown_key(block, node, word, keys)


def _as_attribute(key: ast.expr) -> str:
    word = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else "NAME"
    return f"write params.{word}" if word.isidentifier() else "write params.NAME"


def _unknown_key(block: Block, node: ast.expr, word: str, keys: list[str]) -> Iterator[Diagnostic]:
    # a shared block may use keys that only some of its specs have
    if word not in keys and not word.startswith("__") and not block.is_shared:
        message, hint = unknown("matrix key", word, keys)
        yield block.problem(node, f"{message} in params", hint)


def keys_read(anatomy: Anatomy) -> set[str] | None:
    """Return the keys of ``params`` that the Python of a spec uses; None if it may use all of them."""
    if len(anatomy.prelude_trees) < len({block.file for block in anatomy.preludes}):
        return None
    if any(function.block is not None and function.tree is None for function in (*anatomy.functions.values(), *anatomy.scripts.values())):
        return None
    found: set[str] = set()
    for block in blocks(anatomy):
        read = _read(block.tree)
        if read is None:
            return None
        found |= read
    return found


def _read(tree: ast.Module) -> set[str] | None:
    found: set[str] = set()
    by_name: dict[int, str] = {}
    for node in nodes(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="params") as name, attr="get"), args=[ast.Constant(value=str(word)), *_]):
                by_name[id(name)] = word
            case ast.Attribute(value=ast.Name(id="params") as name, attr=word) if id(name) in by_name:
                pass
            case ast.Attribute(value=ast.Name(id="params") as name, attr=word) if not word.startswith("__"):
                by_name[id(name)] = word
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[ast.Name(id="params") as name, ast.Constant(value=str(word)), *_]):
                by_name[id(name)] = word
    for free in free_names(tree):
        if free.node.id == PARAMS:
            if id(free.node) not in by_name:
                return None  # params is passed on as a whole
            found.add(by_name[id(free.node)])
    return found
