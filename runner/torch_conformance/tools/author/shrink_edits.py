"""Proposes edits that make a document of a spec, and the Python in it, smaller.

Pure, without torch: every edit is tried by somebody else.

An edit is one or several changes of parts of the document, by path. Edits of one pass are
independent: any subset of them can be applied.
"""

import ast
import contextlib
import copy
import functools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch_conformance.language.read.document import walk
from torch_conformance.model.protocol import Json
from torch_conformance.tools.author.commands.explain import Document, without_idle_spies
from torch_conformance.vocabulary.inputs import kind_of
from torch_conformance.vocabulary.steps.step_base import referenced

Path = tuple[str | int, ...]


REMOVED = object()
"""The value in a ``Change`` that removes the part."""


class Node(NamedTuple):
    """A node of a block of Python, by its place in the walk of the tree, becomes one of the nodes
    below it; without ``part`` it is removed.
    """

    place: int
    part: int | None = None


class Change(NamedTuple):
    """One change: the part at a path gets a value, is removed, or, a block of Python, gets another
    node.
    """

    path: Path
    value: Any


class Edit(NamedTuple):
    """Changes that are made together."""

    words: str
    changes: tuple[Change, ...]


class Pass(NamedTuple):
    """One kind of edits; with ``together`` several are tried at once, as delta debugging does."""

    name: str
    propose: Callable[[Document], Iterable[Edit]]
    together: bool


def applied(document: Document, edits: Sequence[Edit]) -> Document:
    """Return a copy of a document with edits; a change of a part that is gone does nothing."""
    changed: Any = copy.deepcopy(document)
    changes = [change for edit in edits for change in edit.changes]
    nodes: dict[Path, list[Node]] = {}
    for path, value in changes:
        if isinstance(value, Node):
            nodes.setdefault(path, []).append(value)
    for path, replaced in nodes.items():
        owner = _owner(changed, path)
        walk = list(ast.walk(ast.parse(owner[path[-1]])))
        new = {
            walk[node.place]: None if node.part is None else walk[node.part] for node in replaced
        }
        owner[path[-1]] = f"{ast.unparse(_Replacing(new).visit(walk[0]))}\n"
    # later items of lists first, so that the paths of the others stay
    others = [change for change in changes if not isinstance(change.value, Node)]
    for path, value in sorted(others, key=operator.attrgetter("path"), reverse=True):
        with contextlib.suppress(KeyError, IndexError, TypeError):  # the part is gone
            owner = _owner(changed, path)
            owner[path[-1]]
            if value is REMOVED:
                del owner[path[-1]]
            else:
                owner[path[-1]] = copy.deepcopy(value)
    # a spec may leave out what became empty
    may_be_left_out = (*_SECTIONS, "context", "services", "prelude")
    tidy = {
        name: value
        for name, value in changed.items()
        if name not in may_be_left_out or (value.strip() if isinstance(value, str) else value)
    }
    tidy["steps"] = [
        {name: value for name, value in step.items() if name != "expect" or value}
        for step in changed.get("steps", [])
    ]
    return without_idle_spies(tidy)


def _owner(document: Json, path: Path) -> Json:
    """Return the map or list that has the part at a path."""
    return functools.reduce(operator.getitem, path[:-1], document)


class _Replacing(ast.NodeTransformer):
    """Puts nodes in the place of others; a block that becomes empty gets ``pass``."""

    def __init__(self, new: Mapping[ast.AST, ast.AST | None]) -> None:
        self._new = new

    def visit(self, node: ast.AST) -> Any:
        other = self._new.get(node, node)
        if other is None:
            return None
        if other is not node:
            return self.visit(other)
        self.generic_visit(node)
        body = getattr(node, "body", None)
        if body == [] and not isinstance(node, ast.Module):
            body.append(ast.Pass())
        return node


# -- what is removed -------------------------------------------------------------------------------


def _removal(words: str, *path: str | int) -> Edit:
    return Edit(f"without {words}", (Change(path, REMOVED),))


def _expectations(document: Document) -> Iterator[Edit]:
    for index, step in enumerate(document["steps"]):
        for number, expectation in enumerate(step.get("expect", [])):
            kind, body = next(iter(expectation.items()))
            yield _removal(f"{kind} of step {index + 1}", "steps", index, "expect", number)
            if (
                kind in ("counter", "metric", "equals", "differs")
                and isinstance(body, Mapping)
                and len(body) > 1
            ):
                yield from (
                    _removal(f"{kind} {name}", "steps", index, "expect", number, kind, name)
                    for name in body
                )


_SECTIONS = (
    "config dynamo_config functorch_config env compile let spies handlers matrix torch".split()
)


def _options(document: Document) -> list[Edit]:
    edits = [
        _removal(f"{section} {name}", section, name)
        for section in _SECTIONS
        for name in document.get(section, {})
        if name != "seed"
    ]
    edits += [
        _removal(f"context {index + 1}", "context", index)
        for index in range(len(document.get("context", [])))
    ]
    edits += [_removal(word, word) for word in ("isolation", "services") if word in document]
    for index, step in enumerate(document["steps"]):
        above: Path = ("steps", index)
        edits += [
            _removal(f"{word} of step {index + 1}", *path, word)
            for path, part in ((above, step), *_arguments(above, step))
            for word in "repeat when context as side_effects strict loss".split()
            if word in part
        ]
    return edits


def _arguments(above: Path, step: Document) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the path and the arguments of a step where they are a map."""
    kind, arguments = next(iter(step.items()))
    if isinstance(arguments, Mapping):
        yield (*above, kind), arguments


# -- Python ----------------------------------------------------------------------------------------


def _functions(document: Document) -> dict[Path, Any]:
    """Return the functions of a document by their paths, also those that are modules."""
    functions = document.get("functions", {}).items()
    return {
        ("function",): document.get("function"),
        **{("functions", name): function for name, function in functions},
    }


def _blocks(document: Document) -> Iterator[tuple[Path, list[Any]]]:
    """Yield the path of each block of Python, and its nodes in the order of ``ast.walk``."""
    texts = {("prelude",): document.get("prelude"), **_functions(document)}
    for index, step in enumerate(document["steps"]):
        texts["steps", index, "script", "code"] = step.get("script", {}).get("code")
    for path, text in texts.items():
        if isinstance(text, str):
            with contextlib.suppress(SyntaxError, ValueError):
                yield path, list(ast.walk(ast.parse(text)))


def _statements(document: Document) -> Iterator[Edit]:
    """Propose the removal of each statement, outer ones before those within; the only function of a
    block stays.
    """
    for path, nodes in _blocks(document):
        body = nodes[0].body
        required = body if len(body) == 1 and isinstance(body[0], ast.FunctionDef) else []
        for place, node in enumerate(nodes):
            if (
                isinstance(node, ast.stmt)
                and not isinstance(node, ast.Pass)
                and node not in required
            ):
                words = (
                    f"{'.'.join(map(str, path))}: without "
                    f"'{ast.unparse(node).splitlines()[0][:60]}'"
                )
                yield Edit(words, (Change(path, Node(place)),))


def _expressions(document: Document) -> Iterator[Edit]:
    """Propose one of its parts for each expression, but not in what options and contexts name:
    another fault there could fail in the same way.
    """
    function_names = {
        str(name).partition(".")[0] for key in _OPTIONS for name in referenced(document.get(key))
    }
    for path, nodes in _blocks(document):
        functions = [
            node
            for top in nodes[0].body
            if getattr(top, "name", None) not in function_names
            for node in ast.walk(top)
            if isinstance(node, ast.FunctionDef)
        ]
        for node in dict.fromkeys(
            node
            for function in functions
            for statement in function.body
            for node in ast.walk(statement)
        ):
            for part in _parts(node) if isinstance(node, ast.expr) else ():
                words = (
                    f"{'.'.join(map(str, path))}: '{ast.unparse(part)[:40]}' for "
                    f"'{ast.unparse(node)[:40]}'"
                )
                change = Change(path, Node(nodes.index(node), nodes.index(part)))
                yield Edit(words, (change,))


def _aliases(document: Document) -> Iterator[Edit]:
    """Propose, for each ``b = a``, the name ``a`` wherever ``b`` is read, without that statement.

    Neither name may be bound again.
    """
    for path, nodes in _blocks(document):
        name_nodes = [node for node in nodes if isinstance(node, ast.Name)]
        assigned = [node.id for node in name_nodes if not isinstance(node.ctx, ast.Load)]
        assigned += [node.arg for node in nodes if isinstance(node, ast.arg)]
        for place, node in enumerate(nodes):
            match node:
                case ast.Assign(
                    targets=[ast.Name(id=alias)], value=ast.Name(id=name) as source
                ) if assigned.count(alias) == 1 and assigned.count(name) == 1:
                    part = nodes.index(source)
                    changes = [
                        Change(path, Node(nodes.index(other), part))
                        for other in name_nodes
                        if other.id == alias and isinstance(other.ctx, ast.Load)
                    ]
                    words = f"{'.'.join(map(str, path))}: '{name}' for '{alias}'"
                    yield Edit(words, (Change(path, Node(place)), *changes))


def _parts(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.Call(func=function, args=arguments):
            parts = [part for part in arguments if not isinstance(part, ast.Starred)]
            if isinstance(function, ast.Attribute) and not _MODULE.fullmatch(
                ast.unparse(function.value)
            ):
                parts.insert(0, function.value)
            return parts
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.IfExp(body=body, orelse=other):
            return [body, other]
        case ast.Subscript(value=value):
            return [value]
        case ast.Tuple(elts=elements) | ast.List(elts=elements) if isinstance(node.ctx, ast.Load):
            return list(elements)
    return []


_MODULE = re.compile(r"(?:torch|F|math)(?:\.\w+)*")
"""A path in a module, such as ``torch.nn.functional``: no value that could replace a call."""

_OPTIONS = ("config", "dynamo_config", "functorch_config", "compile", "context")


def _inputs(document: Document) -> Iterator[Edit]:
    """Propose to drop an input together with the parameter that takes it."""
    nodes = dict(_blocks(document)).get(("function",), [])
    parameters: list[ast.arg] = []
    for node in nodes[0].body if nodes else ():
        if isinstance(node, ast.FunctionDef) and document.get("entry") in (None, node.name):
            parameters = [*node.args.posonlyargs, *node.args.args]
    for index in range(len(document.get("inputs", []))):
        taken = [
            Change(("function",), Node(nodes.index(parameter)))
            for parameter in parameters[index : index + 1]
        ]
        yield Edit(f"without input {index + 1}", (Change(("inputs", index), REMOVED), *taken))


# -- inputs and shapes -----------------------------------------------------------------------------

_SHAPES = "rand randn zeros ones full randint strides".split()


def _described(document: Document) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the path and the map of each input, wherever it is."""
    roots: dict[Path, Any] = {(section,): document.get(section) for section in ("inputs", "let")}
    for index, step in enumerate(document["steps"]):
        for path, arguments in _arguments(("steps", index), step):
            roots |= {(*path, word): arguments.get(word) for word in ("inputs", "args", "kwargs")}
    for root, value in roots.items():
        yield from (
            (path, item)
            for path, item in walk(value, root)
            if isinstance(item, Mapping) and kind_of(item) is not None
        )


def _shapes(document: Document) -> list[Edit]:
    """Propose a smaller number for each size at all of its places, the smallest first; then at
    single places.

    Sizes are in shapes, and among the arguments of modules, which must fit them.
    """
    roots: dict[Path, Any] = {
        (*path, word): entry.get(word)
        for path, entry in _described(document)
        for word in (*_SHAPES, "jagged")
    }
    for path, function in _functions(document).items():
        if isinstance(function, Mapping):
            roots |= {(*path, word): function.get(word) for word in ("args", "kwargs")}
    sizes: dict[int, list[Path]] = {}
    for root, value in roots.items():
        for path, item in walk(value, root):
            if type(item) is int and item > 1:
                sizes.setdefault(item, []).append(path)
    together, single = [], []
    for size, paths in sorted(sizes.items(), reverse=True):
        smaller = sorted(
            {
                number
                for number in (1, 2, 3, 4, 8, size // 8, size // 4, size // 2, size - 1)
                if 0 < number < size
            }
        )
        together += [
            Edit(f"{number} for each {size}", tuple(Change(path, number) for path in paths))
            for number in smaller
        ]
        if len(paths) > 1:
            single += [
                Edit(f"{number} for {size}", (Change(path, number),))
                for path in paths
                for number in smaller[:2]
            ]
    return together + single


def _dtypes(document: Document) -> Iterator[Edit]:
    """Propose float32 for another floating dtype of an input, and its strides gone."""
    for path, entry in _described(document):
        if entry.get("dtype") in ("float64", "bfloat16", "float16"):
            words = f"float32 for {entry['dtype']}"
            yield Edit(words, (Change((*path, "dtype"), "float32"),))
        if "strides" in entry:
            yield _removal("strides", *path, "strides")


PASSES: tuple[Pass, ...] = (
    Pass(
        "steps",
        lambda document: [
            _removal(f"step {n + 1}", "steps", n) for n in range(len(document["steps"]))
        ],
        together=True,
    ),
    Pass("expectations", _expectations, together=True),
    Pass("options", _options, together=True),
    Pass("statements", _statements, together=True),
    Pass("expressions", _expressions, together=False),
    Pass("aliases", _aliases, together=False),
    Pass("inputs", _inputs, together=False),
    Pass("shapes", _shapes, together=False),
    Pass("dtypes", _dtypes, together=False),
)
"""The passes in their order: what takes most with it comes first."""
