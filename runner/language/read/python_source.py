"""Python in specs, parsed by ``ast`` and never executed: syntax, the entry function, and its number of arguments."""

import ast
import builtins
import functools
import glob
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from runner.language.read.document import DataPath, Document
from runner.language.read.yaml_source import read_bytes
from runner.model.case import CodeBlock
from runner.model.diagnostics import Diagnostic, InvalidSpecs, Position, did_you_mean, one_of

_HEADER = re.compile(rb"[|>][-+1-9]*\s*(#.*)?\Z")


def block_at(document: Document, path: DataPath, name: str) -> CodeBlock:
    """Return the Python at ``path`` with its first line.

    The text of a literal block (``|``) begins on the line after its mark; a plain or quoted text on its own line.
    """
    mark = document.marks[path]
    text = str(document.value(path))
    line = mark.line
    if mark.style in ("|", ">"):
        # the mark may be an anchor on a line before the '|'
        lines = document.content.splitlines()
        line = 1 + next((number for number in range(line, len(lines) + 1) if _HEADER.search(lines[number - 1])), line)
    exact = mark.style == "|" or "\n" not in text.rstrip("\n")
    return CodeBlock(name=name, file=str(document.path.absolute()), line=line, text=text, exact=exact)


MAX_MODULE = 16 << 20
"""The maximum size of a module that is searched for a name, in bytes."""


def parse(document: Document, path: DataPath, name: str, problems: list[Diagnostic]) -> tuple[CodeBlock, ast.Module | None]:
    """Return the Python at ``path`` with its syntax tree, or without one and with a problem at the line in the YAML file."""
    block = block_at(document, path, name)
    try:
        return block, _tree(block.text)
    except SyntaxError as error:
        if block.exact:
            position = place(document, path, block, error.lineno or 1, error.offset or 1)
            message, hint = f"Python syntax: {error.msg}", "this is Python, exactly as in a module"
        else:
            position = document.position(path)
            message, hint = f"Python syntax: {error.msg} (line {error.lineno or 1} of this text)", "write Python as a literal block: |"
    except (ValueError, RecursionError, MemoryError) as error:
        position = document.position(path)
        message, hint = f"this Python cannot be read: {str(error) or 'it is nested too deep'}", "write it more simply"
    problems.append(Diagnostic(position=position, message=message, hint=hint, code="python-syntax"))
    return block, None


@functools.lru_cache(maxsize=64)
def _tree(text: str) -> ast.Module:
    """Parse Python. Cached, because each spec of a folder parses the prelude of the defaults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a SyntaxWarning is shown when the case runs
        tree = ast.parse(text)
        # compiled only for errors that ast does not report ('return' outside a function, a duplicate argument)
        compile(tree, "<spec>", "exec", dont_inherit=True)
        return tree


def place(document: Document, path: DataPath, block: CodeBlock, line: int, column: int) -> Position:
    """Return the position in the file of a line and column of a text; the start of the text if YAML does not keep its lines."""
    mark = document.marks[path]
    if not block.exact:
        return document.position(path)
    if mark.style != "|":
        return Position(file=document.file, line=mark.line, column=mark.column + column - 1 + (1 if mark.style else 0))
    try:
        # the columns by which the YAML file indents the block
        written = document.content.decode("utf-8-sig").split("\n")[block.line + line - 2].rstrip()
        own = block.text.split("\n")[line - 1].rstrip()
        indent = len(written) - len(own) if written.endswith(own.strip()) else 0
    except (IndexError, UnicodeDecodeError):
        indent = 0
    return Position(file=document.file, line=block.line + line - 1, column=column + indent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arity:
    """The number of positional arguments of a function; ``most`` is None for any number."""

    name: str
    least: int
    most: int | None
    keywords: tuple[str, ...] = ()
    """Required keyword-only arguments. Inputs are positional, so they cannot be given."""

    def __str__(self) -> str:
        if self.most is None:
            return f"at least {_arguments(self.least)}"
        return _arguments(self.least) if self.least == self.most else f"{self.least} to {_arguments(self.most)}"

    def takes(self, count: int) -> bool:
        """Whether this number of arguments is valid."""
        return count >= self.least and (self.most is None or count <= self.most)


def _arguments(count: int) -> str:
    return "1 argument" if count == 1 else f"{count} arguments"


def arity(function: ast.FunctionDef | ast.AsyncFunctionDef, *, method: bool = False) -> Arity:
    """Return the arity of a def, without the first argument of a method."""
    arguments = function.args
    positional = len(arguments.posonlyargs) + len(arguments.args) - (1 if method else 0)
    most = None if arguments.vararg else positional
    needed = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    keywords = tuple(argument.arg for argument, default in needed if default is None)
    return Arity(name=function.name, least=max(positional - len(arguments.defaults), 0), most=most, keywords=keywords)


def top_level_functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the top-level defs of a block by name."""
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


@functools.lru_cache(maxsize=64)
def top_level_names(tree: ast.Module) -> frozenset[str]:
    """Return all names that a module binds at the top, also inside ``if``, ``for``, ``try``; ``*`` for a star import."""
    names: set[str] = set()
    nodes: list[ast.AST] = [*tree.body]
    while nodes:
        match node := nodes.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Import() | ast.ImportFrom():
                names.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                pass  # a scope of its own
            case _:
                nodes.extend(ast.iter_child_nodes(node))
    return frozenset(names)


def module_arity(tree: ast.Module, name: str) -> Arity | None:
    """Return the arity of ``forward`` of a class in a prelude; None if the source does not show it."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "forward":
                    forward = arity(item, method=True)
                    return replace(forward, name=f"{name}.forward")
    return None


def find_name(path: str, prelude: set[str]) -> tuple[str, str] | None:
    """Return (message, hint) if the source shows that a dotted path does not exist; None if it exists or only a worker can decide.

    Nothing is imported. The first part is looked up among the prelude's names and the installed top-level packages, the rest in the
    package's files as far as possible.
    """
    first, _, rest = path.replace(":", ".").partition(".")
    if "*" in prelude or (first in prelude and not (first == "torch" and rest)):
        return None
    if not rest:
        hint = (f"write builtins.{first}" if hasattr(builtins, first) else did_you_mean(first, prelude)) or (
            f"the prelude defines {one_of(prelude - _GIVEN)}" if prelude - _GIVEN else "define it in prelude:"
        )
        return f"no name '{first}' in the prelude", hint
    if not is_installed(first):
        return f"no package '{first}' is installed", did_you_mean(
            first, [*prelude, "torch", "triton"]
        ) or "install it, put its folder on PYTHONPATH, or name it under requires: {module: ...}"
    if not (folders := _folders(first, tuple(sys.path))):
        return None
    place = Path(folders[0])
    parts = path.replace(":", ".").split(".")
    for index, part in enumerate(parts[1:], start=1):
        if (place / part).is_dir():
            place /= part
            continue
        file = place / f"{part}.py"
        # of a link out of the package, the names of the target are not shown
        if file.is_file() and Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folders[0])):
            return _find_in_module(file, ".".join(parts[: index + 1]), tuple(parts[index + 1 :]))
        break
    return None  # defined by an __init__ or at run time: only a worker can decide


_GIVEN = {"torch", "params"}


def is_installed(name: str) -> bool:
    """Whether a top-level package is installed. Nothing is imported."""
    return _folders(name, tuple(sys.path)) is not None


@functools.cache
def _folders(package: str, search: tuple[str, ...]) -> tuple[str, ...] | None:
    """Cached ``find_spec``: return the folders of a package, none for a module; None if it is not installed."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    return None if spec is None else tuple(spec.submodule_search_locations or ())


def missing_module(path: str) -> tuple[str, str] | None:
    """Return what is wrong with the path of a module, by the files of its package; None where nothing is, or without the package."""
    first, *rest = path.split(".")
    folders = _folders(first, tuple(sys.path))
    if folders is None:
        return None  # a machine without the package: its cases are unavailable there
    if not folders:
        return (f"'{first}' is a module and has no module '{path}'", f"write {first}") if rest else None
    place = Path(folders[0])
    for index, part in enumerate(rest, start=1):
        if (place / part).is_dir():
            place /= part
        elif index == len(rest) and any(place.glob(f"{glob.escape(part)}.*")):
            return None  # Python, or compiled
        else:
            there = sorted({entry.name.partition(".")[0] for entry in place.iterdir()} - {"__init__", "__pycache__"})
            package = ".".join([first, *rest[: index - 1]])
            return f"no module '{part}' in {package}", did_you_mean(
                part, there
            ) or "name a module of the package, or install another version"
    return None


@functools.cache
def _find_in_module(file: Path, module: str, rest: tuple[str, ...]) -> tuple[str, str] | None:
    if not rest:
        return None
    try:
        text = read_bytes(file, limit=MAX_MODULE)
        # a search of the text finds nearly all existing names, a hundred times as fast as parsing
        if re.search(rb"^(?:def|class) %s\b|^%s\b[^\n]*=" % ((re.escape(rest[0].encode()),) * 2), text, re.MULTILINE):
            return None
        tree = ast.parse(text)
    except (SyntaxError, ValueError, InvalidSpecs):
        return None  # too large, or not Python of this version: only a worker can decide
    names = top_level_names(tree)
    if rest[0] in names or names & {"*", "__getattr__"}:
        return None
    return f"no name '{rest[0]}' in {module}", did_you_mean(rest[0], names) or "it may have moved: search torch's source"


def exceptions() -> list[str]:
    """Return the names of the built-in exceptions."""
    return [name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)]


def defined(trees: Mapping[str, ast.Module]) -> set[str]:
    """Return all names that a spec's preludes bind, and those that every worker adds."""
    return _GIVEN.union(*map(top_level_names, trees.values()))
