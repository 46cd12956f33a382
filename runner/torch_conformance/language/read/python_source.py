"""Python in specs, parsed and compiled but never executed: syntax, entry functions, and the names
that it binds and uses.
"""

import ast
import builtins
import dis
import functools
import glob
import importlib.util
import inspect
import os
import re
import symtable
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Set
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType
from typing import Any, Literal

from torch_conformance.language.read.yaml_source import read_bytes
from torch_conformance.model.case import CodeBlock
from torch_conformance.model.diagnostics import Diagnostic, InvalidSpecs, Position, nearest, one_of
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.values import frozen

_HEADER = re.compile(rb"[|>][-+1-9]*\s*(#.*)?\Z")


def block_at(document: Document, path: DataPath, name: str) -> CodeBlock:
    """Return the Python at ``path`` with its first line.

    The text of a literal block (``|``) begins on the line after its mark; a plain or quoted text on
    its own line.
    """
    mark = document.marks[path]
    text = str(document.value(path))
    line = mark.line
    if mark.style in ("|", ">"):
        # the mark may be an anchor on a line before the '|'
        lines = document.content.splitlines()
        line = 1 + next(
            (number for number in range(line, len(lines) + 1) if _HEADER.search(lines[number - 1])),
            line,
        )
    exact = mark.style == "|" or "\n" not in text.rstrip("\n")
    return CodeBlock(
        name=name, file=str(document.path.absolute()), line=line, text=text, exact=exact
    )


MAX_MODULE = 16 << 20
"""The maximum size of a module that is searched for a name, in bytes."""


def parse(
    document: Document, path: DataPath, name: str, problems: list[Diagnostic]
) -> tuple[CodeBlock, ast.Module | None]:
    """Return the Python at ``path`` with its syntax tree, or without one and with a problem at the
    line in the YAML file.
    """
    block = block_at(document, path, name)
    try:
        return block, _tree(block.text)
    except SyntaxError as error:
        line = error.lineno or 1
        unplaced = Diagnostic.of(
            "python-syntax" if block.exact else "python-syntax-in-text", reason=error.msg, line=line
        )
        position = place(document, path, block, line, error.offset or 1)
    except (ValueError, RecursionError, MemoryError) as error:
        unplaced = Diagnostic.of(
            "python-unreadable" if isinstance(error, ValueError) else "python-too-deep",
            reason=str(error),
        )
        position = document.position(path)
    problems.append(unplaced.at(position))
    return block, None


@functools.lru_cache(maxsize=64)
def _tree(text: str) -> ast.Module:
    """Parse Python. Cached, because each spec of a folder parses the prelude of the defaults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a SyntaxWarning is shown when the case runs
        tree = ast.parse(text)
        _compiled(
            tree
        )  # for errors that ast does not report: 'return' outside a function, a duplicate argument
        return tree


@functools.lru_cache(maxsize=64)
def _compiled(tree: ast.Module) -> CodeType:
    return compile(tree, "<spec>", "exec", dont_inherit=True)


def place(document: Document, path: DataPath, block: CodeBlock, line: int, column: int) -> Position:
    """Return the position in the file of a line and column of a text; the start of the text if YAML
    does not keep its lines.
    """
    mark = document.marks[path]
    if not block.exact:
        return document.position(path)
    if mark.style != "|":
        return Position(
            file=document.file,
            line=mark.line,
            column=mark.column + column - 1 + (1 if mark.style else 0),
        )
    try:
        # the columns by which the YAML file indents the block
        written = document.content.decode("utf-8-sig").split("\n")[block.line + line - 2].rstrip()
        text_line = block.text.split("\n")[line - 1].rstrip()
        indent = len(written) - len(text_line) if written.endswith(text_line.strip()) else 0
    except (IndexError, UnicodeDecodeError):
        indent = 0
    return Position(file=document.file, line=block.line + line - 1, column=column + indent)


@frozen
class Arity:
    """The number of positional arguments of a function; ``most`` is None for any number."""

    name: str
    least: int
    most: int | None
    names: tuple[str, ...] = ()
    """The positional arguments."""
    keywords: tuple[str, ...] = ()
    """Required keyword-only arguments."""
    optional: tuple[str, ...] = ()
    """Keyword-only arguments with a default."""
    without_name: int = 0
    """How many arguments are positional-only."""
    takes_any_name: bool = False

    def by_name(self, count: int) -> tuple[str, ...]:
        """Return what can be given by keyword in addition to so many positional ones."""
        return (*self.names[max(count, self.without_name) :], *self.keywords, *self.optional)

    def without(self, keywords: Collection[str]) -> "Arity":
        """Return what remains to be given by position in addition to arguments by keyword."""
        missing = [name not in keywords for name in self.names[: self.least]]
        least = max((i for i, is_missing in enumerate(missing) if is_missing), default=-1) + 1
        needed = tuple(name for name in self.keywords if name not in keywords)
        return replace(self, least=least, keywords=needed)

    def takes(self, count: int) -> bool:
        """Whether this number of arguments is valid."""
        return count >= self.least and (self.most is None or count <= self.most)


def arity(function: ast.FunctionDef | ast.AsyncFunctionDef, *, method: bool = False) -> Arity:
    """Return the arity of a def, without the first argument of a method."""
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][int(method) :]
    positional = len(names)
    most = None if arguments.vararg else positional
    needed = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    keywords = tuple(argument.arg for argument, default in needed if default is None)
    return Arity(
        name=function.name,
        least=max(positional - len(arguments.defaults), 0),
        most=most,
        names=tuple(names),
        keywords=keywords,
        optional=tuple(
            argument.arg for argument in arguments.kwonlyargs if argument.arg not in keywords
        ),
        without_name=max(len(arguments.posonlyargs) - int(method), 0),
        takes_any_name=arguments.kwarg is not None,
    )


def top_level_functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the top-level defs of a block by name."""
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


# -- global names ----------------------------------------------------------------------------------


ALWAYS = frozenset([*dir(builtins), "__file__", "__builtins__", "__class__", "__annotations__"])
"""Names that every module has."""


@dataclass(frozen=True, slots=True)
class FreeName:
    """A use of a name that no enclosing function binds."""

    name: str
    line: int
    column: int
    """From 0."""
    enclosing: frozenset[str]
    """The names of the enclosing functions and classes."""


def _uses_of_globals(tree: ast.Module, matches: Callable[[str], bool]) -> list[FreeName]:
    """Return the uses of the global names that match, in the order of the text.

    The compiler has decided which scope each name belongs to. Code without such a name is left out:
    ``dis`` is slow.
    """
    module = _compiled(tree)
    waiting: list[tuple[CodeType, frozenset[str]]] = [(module, frozenset())]
    free: dict[tuple[int, int], FreeName] = {}  # the code of a 'finally' is compiled twice
    for code, enclosing in waiting:
        is_class = code is not module and not code.co_flags & inspect.CO_OPTIMIZED
        instructions = (
            list(dis.get_instructions(code)) if is_class or any(map(matches, code.co_names)) else []
        )
        class_names = {
            item.argval
            for item in instructions
            if is_class and item.opname in ("STORE_NAME", "DELETE_NAME")
        }
        enclosing = enclosing.union(class_names, code.co_varnames, code.co_cellvars)
        for item in (
            item
            for item in instructions
            if item.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
        ):
            if matches(item.argval) and not (
                item.opname == "LOAD_NAME" and item.argval in class_names
            ):
                place = item.positions
                if place is not None and place.lineno is not None and place.col_offset is not None:
                    free.setdefault(
                        (place.lineno, place.col_offset),
                        FreeName(item.argval, place.lineno, place.col_offset, enclosing),
                    )
        waiting.extend(
            (constant, enclosing) for constant in code.co_consts if isinstance(constant, CodeType)
        )
    return [free[place] for place in sorted(free)]


@functools.lru_cache(maxsize=64)
def unknown_names(tree: ast.Module, defined: frozenset[str]) -> list[FreeName]:
    """Return the uses of global names that are not known, in the order of the text."""
    # a name with an underscore may be that of a private global in a class, which the compiler
    # writes with the name of the class
    attributes = {node.attr for node in nodes(tree)[ast.Attribute] if not node.attr.startswith("_")}
    attributes -= {node.id for node in nodes(tree)[ast.Name]}
    return _uses_of_globals(tree, lambda name: name not in defined and name not in attributes)


@functools.lru_cache(maxsize=64)
def top_level_names(tree: ast.Module) -> frozenset[str]:
    """Return the names that a module binds at its top, in any way and in any order; ``*`` for a
    star import.
    """
    scopes = [symtable.symtable(ast.unparse(tree), "<spec>", "exec")]
    names: set[str] = set()
    for scope in scopes:
        scopes.extend(scope.get_children())
        names.update(
            symbol.get_name()
            for symbol in scope.get_symbols()
            if (symbol.is_assigned() or symbol.is_imported())
            and (scope is scopes[0] or symbol.is_declared_global())
        )
    names.update("*" for node in nodes(tree)[ast.ImportFrom] if node.names[0].name == "*")
    return frozenset(names)


@functools.lru_cache(maxsize=16)
def nodes(tree: ast.Module) -> defaultdict[type, list[Any]]:
    """Return the nodes of a tree by their kind, those of a kind as ``ast.walk`` yields them.

    The checks of a spec share the answer.
    """
    by_kind = defaultdict[type, list[Any]](list)
    for node in ast.walk(tree):
        by_kind[type(node)].append(node)
    return by_kind


@functools.lru_cache(maxsize=16)
def binds_dynamically(tree: ast.Module) -> bool:
    """Whether the code may bind names in ways that the source does not show: exec, globals(), a
    star import, an assignment to a module.
    """
    for node in (
        node
        for kind in (ast.Call, ast.Attribute, ast.Name, ast.ImportFrom)
        for node in nodes(tree)[kind]
    ):
        match node:
            case (
                ast.Call(func=ast.Name(id="exec" | "globals" | "locals"))
                | ast.Call(func=ast.Name(id="vars"), args=[])
            ):
                return True
            case ast.Attribute(attr="modules", value=ast.Name(id="sys")):
                return True
            case (
                ast.Name(id="__builtins__")
                | ast.Attribute(value=ast.Name(id="builtins"), ctx=ast.Store())
            ):
                return True
            case (
                ast.ImportFrom(names=[ast.alias(name="*")])
                | ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id="builtins"), *_])
            ):
                return True
    return False


def guarded_names(tree: ast.Module) -> set[str]:
    """Return the names in ``try`` blocks that catch NameError: the code tests whether they
    exist.
    """
    caught = ("NameError", "Exception", "BaseException")
    guarded: set[str] = set()
    for node in nodes(tree)[ast.Try]:
        if any(
            handler.type is None
            or any(
                isinstance(leaf, ast.Name) and leaf.id in caught for leaf in ast.walk(handler.type)
            )
            for handler in node.handlers
        ):
            guarded.update(
                leaf.id
                for statement in node.body
                for leaf in ast.walk(statement)
                if isinstance(leaf, ast.Name)
            )
    return guarded


PARAMS = "params"


@functools.lru_cache(maxsize=16)
def uses_of_params(
    tree: ast.Module,
) -> tuple[tuple[int, int, Literal["attribute", "default", "whole"], str], ...]:
    """Return line, column, form and key of each use of ``params``: ``getattr(params, "a", None)``
    has a default, the whole has no key.
    """
    unread = {(use.line, use.column): use for use in _uses_of_globals(tree, PARAMS.__eq__)}
    uses: list[tuple[int, int, Literal["attribute", "default", "whole"], str]] = []
    for node in (*nodes(tree)[ast.Call], *nodes(tree)[ast.Attribute]) if unread else ():
        form: Literal["attribute", "default"] = "attribute"
        match node:
            case ast.Attribute(value=ast.Name() as name, attr=word) if not word.startswith("__"):
                pass
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr" as function),
                args=[ast.Name() as name, ast.Constant(value=str(word)), *default],
            ):
                form = "default" if default or function == "hasattr" else "attribute"
            case _:
                continue
        if unread.pop((name.lineno, name.col_offset), None) is not None:
            uses.append((node.lineno, node.col_offset, form, word))
    return (*uses, *((use.line, use.column, "whole", "") for use in unread.values()))


# -- arguments, and names elsewhere ----------------------------------------------------------------


def module_arity(tree: ast.Module, name: str) -> Arity | None:
    """Return the arity of ``forward`` of a class in a prelude; None if the source does not show
    it.
    """
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "forward":
                    forward = arity(item, method=True)
                    return replace(forward, name=f"{name}.forward")
    return None


def find_name(path: str, prelude: Set[str]) -> Diagnostic | None:
    """Return the problem if the source shows that a dotted path does not exist; None if it exists
    or only a worker can decide.

    Nothing is imported. The first part is looked up among the prelude's names and the installed
    top-level packages, the rest in the package's files as far as possible.
    """
    first, *rest = parts = path.replace(":", ".").split(".")
    if "*" in prelude or (first in prelude and not (first == "torch" and rest)):
        return None
    if not rest:
        is_builtin, of_prelude = hasattr(builtins, first), prelude - GIVEN
        near = "" if is_builtin else nearest(first, prelude)
        return Diagnostic.of(
            "unknown-prelude-name",
            word=first,
            builtin=first if is_builtin else "",
            near=near,
            allowed=one_of(of_prelude) if of_prelude else "",
        )
    if not is_installed(first):
        return Diagnostic.of(
            "no-package", word=first, near=nearest(first, [*prelude, "torch", "triton"])
        )
    if not (folders := _folders(first, tuple(sys.path))):
        return None
    place = Path(folders[0])
    for index, part in enumerate(rest, start=1):
        if (place / part).is_dir():
            place /= part
            continue
        file = place / f"{part}.py"
        # of a link out of the package, the names of the target are not shown
        if file.is_file() and Path(os.path.realpath(file)).is_relative_to(
            os.path.realpath(folders[0])
        ):
            return _find_in_module(file, ".".join(parts[: index + 1]), tuple(parts[index + 1 :]))
        break
    return None  # defined by an __init__ or at run time: only a worker can decide


GIVEN = frozenset({"torch", "params"})
"""The names that every worker adds to a prelude."""


def is_installed(name: str) -> bool:
    """Whether a top-level package is installed. Nothing is imported."""
    return _folders(name, tuple(sys.path)) is not None


@functools.cache
def _folders(package: str, search: tuple[str, ...]) -> tuple[str, ...] | None:
    """Cached ``find_spec``: return the folders of a package, none for a module; None if it is not
    installed.
    """
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    return None if spec is None else tuple(spec.submodule_search_locations or ())


def missing_module(path: str) -> Diagnostic | None:
    """Return what is wrong with the path of a module, by the files of its package; None where
    nothing is, or without the package.
    """
    first, *rest = path.split(".")
    if (folders := _folders(first, tuple(sys.path))) is None:
        return None  # a machine without the package: its cases are unavailable there
    if not folders:
        return Diagnostic.of("module-below-a-module", first=first, path=path) if rest else None
    place = Path(folders[0])
    for index, part in enumerate(rest, start=1):
        if (place / part).is_dir():
            place /= part
        elif index == len(rest) and any(place.glob(f"{glob.escape(part)}.*")):
            return None  # Python, or compiled
        else:
            submodules = sorted(
                {entry.name.partition(".")[0] for entry in place.iterdir()}
                - {"__init__", "__pycache__"}
            )
            return Diagnostic.of(
                "no-module",
                word=part,
                package=".".join([first, *rest[: index - 1]]),
                near=nearest(part, submodules),
            )
    return None


@functools.cache
def _find_in_module(file: Path, module: str, rest: tuple[str, ...]) -> Diagnostic | None:
    if not rest:
        return None
    try:
        text = read_bytes(file, limit=MAX_MODULE)
        # a search of the text finds nearly all existing names, a hundred times as fast as parsing
        if re.search(
            rb"\n(?:(?:def|class) %s\b|%s\b[^\n]*=)" % ((re.escape(rest[0].encode()),) * 2), text
        ):
            return None
        names = top_level_names(ast.parse(text))
    except (SyntaxError, ValueError, InvalidSpecs):
        return None  # too large, or not Python of this version: only a worker can decide
    if rest[0] in names or names & {"*", "__getattr__"}:
        return None
    return Diagnostic.of(
        "unknown-module-name", word=rest[0], module=module, near=nearest(rest[0], names)
    )


EXCEPTIONS = frozenset(
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
)
"""The names of the built-in exceptions."""
