"""Checks the Python of a spec: undefined names, and ``params`` that are not keys of the matrix."""

import ast
import builtins
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal

from runner.language.check.functions import prelude_names
from runner.language.read import python_source
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath, Document
from runner.language.read.matrix import TARGETS
from runner.model.case import CodeBlock
from runner.model.diagnostics import Diagnostic, did_you_mean, unknown
from runner.model.targets import AXIS

PARAMS = "params"
OF_EVERY_CASE = ("backend", "device")
"""The attributes of ``params`` besides the keys of the matrix."""


def blocks(anatomy: Anatomy) -> Iterator[tuple[Document, DataPath, CodeBlock, ast.Module]]:
    """Yield every block of a spec without syntax errors; those of preludes come first, and may be of defaults."""
    documents = [document for document in (*anatomy.defaults, anatomy.document) if "prelude" in document.data]
    for document, code in zip(documents, anatomy.preludes, strict=True):
        if (tree := anatomy.prelude_trees.get(code.file)) is not None:
            yield document, ("prelude",), code, tree
    for function in (*anatomy.functions.values(), *anatomy.scripts.values()):
        if function.block is not None and function.tree is not None:
            yield anatomy.document, function.path, function.block, function.tree


def python_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield the problems of undefined names, and of wrong uses of ``params``."""
    keys = [*anatomy.data.get("matrix", {}), *OF_EVERY_CASE, *([AXIS] if TARGETS in anatomy.data else [])]
    known = prelude_names(anatomy)
    trees = list(anatomy.prelude_trees.values())
    is_open = "*" in known or any(map(binds_dynamically, trees))
    known = known.union(*map(bound_anywhere, trees))
    as_references = {*anatomy.data.get("let", {}), *(step.parsed.bound for step in anatomy.steps)}
    for document, path, code, tree in blocks(anatomy):
        problems: list[tuple[ast.expr, str, str]] = []
        own = known | bound_anywhere(tree) | guarded_names(tree)
        for node, nearby in () if is_open or binds_dynamically(tree) or "*" in own else free_names(tree):
            name = node.id
            if name in own or name in ALWAYS:
                continue
            own.add(name)  # reported once
            if name in keys:
                hint = f"a key of the matrix is read as params.{name}"
            elif name in as_references:
                hint = f"pass a value of let or a result as an argument, {{ref: {name}}}, or as a parameter of a script"
            elif python_source.is_installed(name):
                hint = "import it"
            else:
                hint = did_you_mean(name, [*sorted(set().union(*nearby) - {name}), *sorted(own - {name}), *sorted(ALWAYS)])
            problems.append((node, f"undefined name '{name}'", hint or "define it here or in prelude:, or import it"))
        for use, form, word in uses_of_params(tree):
            if form == "attribute" and word not in keys and document is anatomy.document:
                # a shared prelude may use keys that only some of its specs have
                message, hint = unknown("matrix key", word, keys)
                problems.append((use, f"{message} in params", hint))
        for expression, message, hint in problems:
            position = python_source.place(document, path, code, expression.lineno, expression.col_offset + 1)
            yield Diagnostic(position=position, message=message, hint=hint, code="python-name")


@lru_cache(maxsize=16)
def uses_of_params(tree: ast.Module) -> tuple[tuple[ast.expr, Literal["attribute", "default", "whole"], str], ...]:
    """Return each use of ``params`` with its form and its key: ``getattr(params, "a", None)`` has a default, as a whole it has no key."""
    unread = {id(node): node for node, _ in free_names(tree) if node.id == PARAMS}
    uses: list[tuple[ast.expr, Literal["attribute", "default", "whole"], str]] = []
    for node in nodes(tree):  # a call comes before the attribute that it calls
        match node:
            case ast.Attribute(value=ast.Name() as name, attr=word) if id(name) in unread and not word.startswith("__"):
                uses.append((node, "attribute", word))
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr" as function), args=[ast.Name() as name, ast.Constant(value=str(word)), *default]
            ) if id(name) in unread:
                uses.append((node, "default" if default or function == "hasattr" else "attribute", word))
            case _:
                continue
        del unread[id(name)]
    return (*uses, *((name, "whole", "") for name in unread.values()))


def keys_read(anatomy: Anatomy) -> set[str] | None:
    """Return the keys of ``params`` that the Python of a spec uses; None if it may use all of them."""
    if len(anatomy.prelude_trees) < len({block.file for block in anatomy.preludes}):
        return None
    if any(function.block is not None and function.tree is None for function in (*anatomy.functions.values(), *anatomy.scripts.values())):
        return None
    uses = [(form, word) for *_, tree in blocks(anatomy) for _, form, word in uses_of_params(tree)]
    return None if any(not word for _, word in uses) else {word for _, word in uses}


# -- free names: those that are looked up among the globals, whatever the order of execution --------------------------


ALWAYS = frozenset([*dir(builtins), "__file__", "__builtins__", "__class__"])
"""Names that every module has."""

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_Scope = tuple[set[str], set[str], bool]
"""The names that a function, a class or a comprehension binds, those that it declares global, and whether it is a class."""


@lru_cache(maxsize=16)
def free_names(tree: ast.Module) -> tuple[tuple[ast.Name, tuple[set[str], ...]], ...]:
    """Return every use of a name that no enclosing function binds, in the order of the text, with the names of each scope around it."""
    free: list[tuple[ast.Name, tuple[set[str], ...]]] = []

    def visit(node: ast.AST, around: tuple[_Scope, ...]) -> None:
        if isinstance(node, ast.Name):
            readable = (scope for scope in reversed(around) if scope is around[-1] or not scope[2])
            nearest = next((scope for scope in readable if node.id in scope[0] or node.id in scope[1]), None)
            if isinstance(node.ctx, ast.Load) and (nearest is None or node.id in nearest[1]):
                free.append((node, tuple(bound for bound, _, _ in around)))
            return
        outside: list[ast.AST]
        inside: list[ast.AST]
        if isinstance(node, _COMPREHENSION):
            first, *others = node.generators
            results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            outside, inside = [first.iter], [first.target, *first.ifs, *others, *results]
        elif isinstance(node, (*_FUNCTION, ast.ClassDef)):
            inside = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
            outside = [child for child in ast.iter_child_nodes(node) if child not in inside]
            if type_parameters := {str(parameter.name) for parameter in getattr(node, "type_params", [])}:
                around = (*around, (type_parameters, set(), False))
        else:
            for child in ast.iter_child_nodes(node):
                visit(child, around)
            return
        for part in outside:
            visit(part, around)
        parameters = [] if isinstance(node, (*_COMPREHENSION, ast.ClassDef)) else [*ast.iter_child_nodes(node.args)]
        inner = (*around, (*_bindings([*parameters, *inside]), isinstance(node, ast.ClassDef)))
        for part in inside:
            visit(part, inner)

    visit(tree, ())
    return tuple(sorted(free, key=lambda use: (use[0].lineno, use[0].col_offset)))


def _bindings(parts: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """Return the names that statements bind in their own scope, and those that they declare global. Nested scopes are left out."""
    bound: set[str] = set()
    of_module: set[str] = set()
    remaining = [*parts]
    while remaining:
        node = remaining.pop()
        match node:
            case ast.Global(names=names):
                of_module.update(names)
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                bound.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                bound.update(alias.asname or alias.name.split(".")[0] for alias in aliases)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                bound.add(name)
            case ast.MatchMapping(rest=str(name)) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
        if isinstance(node, _COMPREHENSION):
            # an assignment expression binds in the enclosing function
            bound.update(leaf.target.id for leaf in ast.walk(node) if isinstance(leaf, ast.NamedExpr))
        elif not isinstance(node, (*_FUNCTION, ast.ClassDef)):
            remaining.extend(ast.iter_child_nodes(node))
    return bound, of_module


@lru_cache(maxsize=16)
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Return the nodes of a tree, as ``ast.walk`` yields them. The checks of a spec share the answer."""
    return tuple(ast.walk(tree))


@lru_cache(maxsize=16)
def binds_dynamically(tree: ast.Module) -> bool:
    """Whether the code may bind names in ways that the source does not show: exec, globals(), a star import, an assignment to a module."""
    for node in nodes(tree):
        match node:
            case ast.Call(func=ast.Name(id="exec" | "globals" | "locals")) | ast.Call(func=ast.Name(id="vars"), args=[]):
                return True
            case ast.Attribute(attr="modules", value=ast.Name(id="sys")):
                return True
            case ast.Name(id="__builtins__") | ast.Attribute(value=ast.Name(id="builtins"), ctx=ast.Store()):
                return True
            case ast.ImportFrom(names=[ast.alias(name="*")]) | ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id="builtins"), *_]):
                return True
    return False


@lru_cache(maxsize=16)
def bound_anywhere(tree: ast.Module) -> set[str]:
    """Return the names that the top binds in any way, and those that functions declare ``global``."""
    return _bindings(tree.body)[0].union(*(node.names for node in nodes(tree) if isinstance(node, ast.Global)))


def guarded_names(tree: ast.Module) -> set[str]:
    """Return the names in ``try`` blocks that catch NameError: the code tests whether they exist."""
    caught = ("NameError", "Exception", "BaseException")
    guarded: set[str] = set()
    for node in nodes(tree):
        if isinstance(node, ast.Try) and any(
            handler.type is None or any(isinstance(leaf, ast.Name) and leaf.id in caught for leaf in ast.walk(handler.type))
            for handler in node.handlers
        ):
            guarded.update(leaf.id for statement in node.body for leaf in ast.walk(statement) if isinstance(leaf, ast.Name))
    return guarded
