"""Checks the Python of a spec: undefined names, and ``params`` that are not keys of the matrix."""

import ast
import builtins
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from runner.core.case import CodeBlock
from runner.core.diagnostics import Diagnostic, did_you_mean, unknown
from runner.core.targets import AXIS
from runner.language.backends import Backends
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
        return Diagnostic(position=position, message=message, hint=hint, code="python-name")


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


# -- free names: those that are looked up among the globals, whatever the order of execution --------------------------


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


@lru_cache(maxsize=16)
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
