"""Finds the free names of Python, by ``ast``: names that are looked up among the globals.

The order of execution is ignored: a name that is bound anywhere at the top counts as bound.
"""

import ast
import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

ALWAYS = frozenset([*dir(builtins), "__file__", "__builtins__", "__class__"])
"""Names that every module has."""

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_FUNCTION, *_COMPREHENSION, ast.ClassDef)
_BINDS_DYNAMICALLY = frozenset(["exec", "globals", "locals"])


@dataclass(frozen=True, slots=True)
class FreeName:
    """A name that is looked up among the globals, with names that may have been meant."""

    node: ast.Name
    nearby: frozenset[str] = field(default_factory=frozenset)
    """The other local names of the enclosing functions and classes."""
    is_of_class: bool = False
    """Whether an enclosing class binds the name; methods and comprehensions in it do not have access."""


@lru_cache(maxsize=16)
def free_names(tree: ast.Module) -> tuple[FreeName, ...]:
    """Return every use of a name that no enclosing function binds, in the order of statements. The checks of a spec share the answer."""
    return tuple(_below(tree, ()))


@lru_cache(maxsize=16)
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Return the nodes of a tree, as ``ast.walk`` yields them. The checks of a spec share the answer."""
    return tuple(ast.walk(tree))


def binds_dynamically(tree: ast.Module) -> bool:
    """Whether the code may bind names in ways that the source does not show: exec, globals(), a star import, an assignment to a module."""
    for node in nodes(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in _BINDS_DYNAMICALLY:
                return True
            case ast.Call(func=ast.Name(id="vars"), args=[]) | ast.Attribute(attr="modules", value=ast.Name(id="sys")):
                return True
            case ast.Name(id="__builtins__") | ast.Attribute(value=ast.Name(id="builtins"), ctx=ast.Store()):
                return True
            case ast.ImportFrom(names=[ast.alias(name="*")]):
                return True
            case ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id="builtins"), *_]):
                return True
    return False


def bound_anywhere(tree: ast.Module) -> set[str]:
    """Return the names that the top binds in any way, and those that functions declare ``global``."""
    at_top = {name for statement in tree.body for name, _ in _bindings(statement)}
    return at_top | {name for node in nodes(tree) if isinstance(node, ast.Global) for name in node.names}


def guarded_names(tree: ast.Module) -> set[str]:
    """Return the names in ``try`` blocks that catch NameError: the code tests whether they exist."""
    found: set[str] = set()
    for node in nodes(tree):
        if isinstance(node, ast.Try) and any(_catches_name_error(handler) for handler in node.handlers):
            found.update(leaf.id for statement in node.body for leaf in ast.walk(statement) if isinstance(leaf, ast.Name))
    return found


def _catches_name_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    return any(isinstance(leaf, ast.Name) and leaf.id in ("NameError", "Exception", "BaseException") for leaf in ast.walk(handler.type))


@dataclass(frozen=True, slots=True)
class _Local:
    """The names that a function, a class or a comprehension binds, and those that it declares global."""

    bound: frozenset[str]
    of_module: frozenset[str]
    is_class: bool


def _below(node: ast.AST, around: tuple[_Local, ...]) -> Iterator[FreeName]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _SCOPES):
            yield from _scope(child, around)
        elif isinstance(child, ast.Name):
            if isinstance(child.ctx, ast.Load) and not _is_local(child.id, around):
                nearby = frozenset().union(*(local.bound for local in around)) - {child.id}
                yield FreeName(child, nearby, any(local.is_class and child.id in local.bound for local in around))
        else:
            yield from _below(child, around)


def _is_local(name: str, around: tuple[_Local, ...]) -> bool:
    for distance, local in enumerate(reversed(around)):
        if local.is_class and distance > 0:
            continue  # methods have no access to names of the class
        if name in local.of_module:
            return False
        if name in local.bound:
            return True
    return False


def _scope(node: ast.AST, around: tuple[_Local, ...]) -> Iterator[FreeName]:
    """Yield the free names of a scope: first those of parts outside of it (decorators, defaults, the first iterable), then its own."""
    outside, inside = _parts(node)
    type_parameters = frozenset(str(getattr(parameter, "name", "")) for parameter in getattr(node, "type_params", []))
    outer = (*around, _Local(type_parameters, frozenset(), is_class=False)) if type_parameters else around
    for part in outside:
        yield from _free_in(part, outer)
    inner = (*outer, _local_of(node, inside))
    for part in inside:
        yield from _free_in(part, inner)


def _free_in(part: ast.AST, around: tuple[_Local, ...]) -> Iterator[FreeName]:
    yield from _below(ast.Module(body=[part], type_ignores=[]), around)  # type: ignore[list-item]  # only walked: any node will do


def _parts(node: ast.AST) -> tuple[list[ast.AST], list[ast.AST]]:
    match node:
        case ast.Lambda():
            return _defaults(node.args), [node.body]
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            annotations = [argument.annotation for argument in _arguments(node.args) if argument.annotation]
            returns = [node.returns] if node.returns else []
            return [*node.decorator_list, *_defaults(node.args), *annotations, *returns], list(node.body)
        case ast.ClassDef():
            return [*node.decorator_list, *node.bases, *node.keywords], list(node.body)
        case ast.DictComp():
            return [node.generators[0].iter], [*_rest(node.generators), node.key, node.value]
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
            return [node.generators[0].iter], [*_rest(node.generators), node.elt]
    return [], []


def _rest(generators: list[ast.comprehension]) -> list[ast.AST]:
    first, *others = generators
    return [first.target, *first.ifs, *others]


def _defaults(arguments: ast.arguments) -> list[ast.AST]:
    return [*arguments.defaults, *(default for default in arguments.kw_defaults if default is not None)]


def _arguments(arguments: ast.arguments) -> list[ast.arg]:
    more = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *more]


def _local_of(node: ast.AST, inside: Iterable[ast.AST]) -> _Local:
    bound: set[str] = set()
    of_module: set[str] = set()
    if isinstance(node, _FUNCTION):
        bound.update(argument.arg for argument in _arguments(node.args))
    for part in inside:
        for name, is_global in _bindings(part):
            (of_module if is_global else bound).add(name)
    return _Local(frozenset(bound - of_module), frozenset(of_module), isinstance(node, ast.ClassDef))


def _bindings(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield each name that a node binds in its own scope, and whether it is declared global. Nested scopes are left out."""
    match node:
        case ast.Global(names=names):
            yield from ((name, True) for name in names)
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name, False
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from ((alias.asname or alias.name.split(".")[0], False) for alias in aliases)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name, False
        case ast.MatchMapping(rest=str(name)) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name, False
    if isinstance(node, _COMPREHENSION):
        # an assignment expression binds in the enclosing function
        yield from ((leaf.target.id, False) for leaf in ast.walk(node) if isinstance(leaf, ast.NamedExpr))
    elif not isinstance(node, _SCOPES):
        for child in ast.iter_child_nodes(node):
            yield from _bindings(child)
