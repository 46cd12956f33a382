"""Python in specs, read by ``ast`` and never executed: syntax, the function that is meant, how many arguments it takes."""

import ast
import functools
import importlib.util
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.diagnostics import Diagnostic, Position, did_you_mean, one_of
from runner.language.source import DataPath, Document
from runner.model import CodeBlock


def block_at(document: Document, path: DataPath, name: str) -> CodeBlock:
    """Return the Python at ``path`` with the line on which it begins.

    The text of a literal block (``|``) begins on the line below its mark; a plain or quoted text on its own line.
    """
    mark = document.marks[path]
    text = str(document.value(path))
    literal = mark.style == "|"
    exact = literal or "\n" not in text.rstrip("\n")
    return CodeBlock(
        name=name, file=str(document.path.absolute()), line=mark.line + (1 if mark.style in ("|", ">") else 0), text=text, exact=exact
    )


@dataclass(frozen=True, slots=True)
class Parsed:
    """A block's syntax tree, or the diagnostic that says why there is none."""

    tree: ast.Module | None
    problem: Diagnostic | None


def parse(document: Document, path: DataPath, block: CodeBlock) -> Parsed:
    """Parse a block; a syntax error gets the line of the YAML file."""
    try:
        return Parsed(_tree(block.text), None)
    except SyntaxError as error:
        line, column = (error.lineno or 1), (error.offset or 1)
        return Parsed(None, _python_problem(document, path, block, line, column, error.msg))
    except (ValueError, RecursionError, MemoryError) as error:
        return Parsed(None, document.problem(path, f"this Python cannot be read: {error}", "write it more simply"))


@functools.lru_cache(maxsize=64)
def _tree(text: str) -> ast.Module:
    """Parse; the prelude of a folder's defaults is asked for by each of its specs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a SyntaxWarning is shown when the case runs
        return ast.parse(text)


def _python_problem(document: Document, path: DataPath, block: CodeBlock, line: int, column: int, text: str) -> Diagnostic:
    mark = document.marks[path]
    if not block.exact:
        return document.problem(path, f"Python syntax: {text} (line {line} of this text)", "write Python as a literal block: |")
    if mark.style == "|":
        position = Position(file=document.file, line=block.line + line - 1, column=column + _indent(document, block, line))
    else:
        position = Position(file=document.file, line=mark.line, column=mark.column + column - 1 + (1 if mark.style else 0))
    return Diagnostic(position=position, message=f"Python syntax: {text}", hint="this is Python, exactly as in a module")


def _indent(document: Document, block: CodeBlock, line: int) -> int:
    """Return by how many columns the YAML file indents the block."""
    try:
        written = document.path.read_text(encoding="utf-8").split("\n")[block.line + line - 2]
        own = block.text.split("\n")[line - 1]
    except (OSError, IndexError, UnicodeDecodeError):
        return 0
    return len(written.rstrip()) - len(own.rstrip()) if written.rstrip().endswith(own.strip()) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arity:
    """How many positional arguments a function takes; ``most`` is None for any number."""

    name: str
    least: int
    most: int | None

    def __str__(self) -> str:
        if self.most is None:
            return f"at least {self.least}"
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"

    def takes(self, count: int) -> bool:
        """Whether so many arguments may be given."""
        return count >= self.least and (self.most is None or count <= self.most)


def arity(function: ast.FunctionDef | ast.AsyncFunctionDef, *, method: bool = False) -> Arity:
    """Return the arity of a def; a method's first argument is not counted."""
    arguments = function.args
    positional = len(arguments.posonlyargs) + len(arguments.args) - (1 if method else 0)
    most = None if arguments.vararg else positional
    return Arity(name=function.name, least=max(positional - len(arguments.defaults), 0), most=most)


def top_level_functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the defs at the top of a block by name."""
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def top_level_names(tree: ast.Module) -> set[str]:
    """Return every name that the top of a module binds, also inside ``if`` and ``try``; ``*`` for a star import."""
    names: set[str] = set()
    for node in _statements(tree.body):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Import() | ast.ImportFrom():
                names.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
            case ast.Assign():
                names.update(leaf.id for target in node.targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


def _statements(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from _statements(getattr(node, field, []))
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                yield from _statements(handler.body)


def module_arity(tree: ast.Module, name: str) -> Arity | None:
    """Return the arity of ``forward`` of a class in a prelude; None where reading cannot tell."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "forward":
                    found = arity(item, method=True)
                    return Arity(name=f"{name}.forward", least=found.least, most=found.most)
    return None


def find_name(path: str, prelude: set[str]) -> tuple[str, str] | None:
    """Return (message, hint) when reading shows that a dotted path cannot be found; None when it can, or only a worker can tell.

    Looked up without import: the first part among the prelude's names, builtins and installed top-level packages, the rest
    in the package's own files as far as they say.
    """
    first, _, rest = path.replace(":", ".").partition(".")
    if first in prelude or "*" in prelude:
        return None
    if not rest:
        hint = did_you_mean(first, prelude) or (
            f"the prelude defines {one_of(prelude - _GIVEN)}" if prelude - _GIVEN else "define it in prelude:"
        )
        return f"no name '{first}' in the prelude", hint
    if not _is_installed(first):
        return f"no package '{first}' is installed", did_you_mean(
            first, [*prelude, "torch", "triton"]
        ) or "install it, or name it under requires: {module: ...}"
    return _find_in_files(first, path.replace(":", "."))


_GIVEN = {"torch", "params"}


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _find_in_files(package: str, path: str) -> tuple[str, str] | None:
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or []) if spec else []
    if not folders:
        return None
    place = Path(folders[0])
    parts = path.split(".")
    for index, part in enumerate(parts[1:], start=1):
        if (place / part).is_dir():
            place = place / part
            continue
        file = place / f"{part}.py"
        if file.is_file():
            return _find_in_module(file, ".".join(parts[: index + 1]), parts[index + 1 :])
        break
    return None  # bound by an __init__ or made at run time: only a worker can tell


def _find_in_module(file: Path, module: str, rest: list[str]) -> tuple[str, str] | None:
    if not rest:
        return None
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return None
    names = top_level_names(tree)
    if rest[0] in names or names & {"*", "__getattr__"}:
        return None
    return f"no name '{rest[0]}' in {module}", did_you_mean(rest[0], names) or "it may have moved: search torch's source"


def defined(trees: Mapping[str, ast.Module]) -> set[str]:
    """Return every name that a spec's preludes bind, and those that each worker adds."""
    names = set(_GIVEN)
    for tree in trees.values():
        names |= top_level_names(tree)
    return names
