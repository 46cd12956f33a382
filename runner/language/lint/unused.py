"""Rules of names that a spec makes and nothing uses. A name that stands as a word anywhere else in the spec counts as used."""

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from runner.language.check.python import binds_dynamically
from runner.language.lint.base import Finding, Rule, Scene, Spec
from runner.language.read import python
from runner.language.read.document import DataPath, Document

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _words(value: object, path: DataPath, without: DataPath) -> Iterator[str]:
    """Yield the words of all keys and texts of a value, except those at one path."""
    if path == without:
        return
    if isinstance(value, str):
        yield from _WORD.findall(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            if (*path, key) != without:
                yield from _WORD.findall(str(key))
            yield from _words(item, (*path, key), without)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _words(item, (*path, index), without)


def _is_used(name: str, spec: Spec, without: DataPath) -> bool:
    documents = (*spec.anatomy.spec.defaults, spec.document)
    return any(name in _words(_meant(one), (), without if one is spec.document else ("no such path",)) for one in documents)


def _meant(document: Document) -> dict[str, Any]:
    """Return the data of a file without what is written for people."""
    return {key: value for key, value in document.data.items() if key not in ("summary", "covers", "tags")}


def unused_value(scene: Scene) -> Iterator[Finding]:
    """Yield values of ``let`` that nothing names."""
    for spec in scene.specs:
        for name, value in spec.anatomy.data.get("let", {}).items():
            path: DataPath = ("let", name)
            if not (isinstance(value, dict) and "close" in value) and not _is_used(name, spec, path):
                yield _finding("unused-value", spec, path, f"nothing uses the value '{name}'", "remove it, or name it where it is meant")


def unused_function(scene: Scene) -> Iterator[Finding]:
    """Yield entries of ``functions`` that no step calls."""
    for spec in scene.specs:
        names = spec.anatomy.data.get("functions", {})
        for name in names if len(names) > 1 else ():
            path: DataPath = ("functions", name)
            if not _is_used(name, spec, path):
                yield _finding(
                    "unused-function", spec, path, f"no step calls the function '{name}'", f"call it: call: {{function: {name}}}"
                )


def _finding(rule: str, spec: Spec, path: DataPath, message: str, hint: str) -> Finding:
    return Finding(rule=rule, position=spec.document.position(path, key=True), message=message, hint=hint)


def unused_prelude_name(scene: Scene) -> Iterator[Finding]:
    """Yield functions, classes and constants of a prelude that nothing uses: in its spec, or in all specs that inherit it."""
    shared: dict[str, tuple[Document, ast.Module, list[Spec]]] = {}
    for spec in scene.specs:
        for document in (*spec.anatomy.spec.defaults, spec.document):
            tree = spec.anatomy.prelude_trees.get(str(document.path.absolute()))
            if tree is not None:
                shared.setdefault(document.file, (document, tree, []))[2].append(spec)
    for document, tree, specs in shared.values():
        own = document is specs[0].document
        if binds_dynamically(tree) or not (own or scene.is_complete(document)):
            continue
        words = _uses(tree) | {word for spec in specs for word in _others(spec, document)}
        for name, line in _definitions(tree):
            if name not in words:
                block = next(one for one in specs[0].anatomy.preludes if one.file == str(document.path.absolute()))
                place = python.place(document, ("prelude",), block, line, 1)
                what = "in the spec" if own else f"in the {len(specs)} specs that inherit the prelude"
                message = f"nothing {what} uses '{name}'"
                yield Finding(rule="unused-prelude-name", position=place, message=message, hint="remove it, or name it where it is meant")


def _others(spec: Spec, document: Document) -> Iterable[str]:
    """Yield the words of a spec and its defaults, except those of one file's prelude."""
    for one in (*spec.anatomy.spec.defaults, spec.document):
        yield from _words(_meant(one), (), ("prelude",) if one.file == document.file else ("no such path",))


def _definitions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names that a prelude defines at its top with their lines; those with a decorator may be used by it."""
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name, decorator_list=[]) | ast.ClassDef(name=name, decorator_list=[], keywords=[]):
                yield name, statement.lineno
            case ast.Assign(targets=[ast.Name(id=name)]) if not name.startswith("__"):
                yield name, statement.lineno
            case ast.ImportFrom(names=aliases):
                yield from ((alias.asname or alias.name, statement.lineno) for alias in aliases if alias.name != "*")


def _uses(tree: ast.Module) -> set[str]:
    """Return the names that a prelude itself uses, each outside of its own definition, and the words of its texts."""
    found: set[str] = set()
    for statement in tree.body:
        own = getattr(statement, "name", None)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id != own:
                found.add(node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(_WORD.findall(node.value))
    return found


RULES = (
    Rule(
        id="unused-prelude-name",
        summary="A function, class, constant or import of a prelude that nothing uses",
        why="The reader looks for what it does to the claim. A check that was meant to be called is often lost this way. A prelude of "
        "`_defaults.yaml` is compared with all specs that inherit it, and only where all of them are linted. What has a decorator, and "
        "`import NAME`, may act by itself and is not reported.",
        bad="prelude: |\n  def is_right(found): return found > 0\nexpect: [{close: {to: eager}}]",
        good="prelude: |\n  def is_right(found): return bool((found > 0).all())\n"
        "steps:\n  - {call: {}, expect: [{close: {to: eager}}]}\n"
        "  - {api: {call: is_right, args: [{ref: output}], as: right}, expect: [{equals: {right: true}}]}",
        check=unused_prelude_name,
    ),
    Rule(
        id="unused-value",
        summary="A value of `let` that nothing names",
        why="The worker makes it in each case, and nothing is claimed of it. A value with `close` may be made for what it does.",
        bad="let: {factor: {value: 3}}\ninputs: [{rand: [4]}, {rand: [4]}]",
        good="let: {factor: {value: 3}}\ninputs: [{rand: [4]}, {ref: factor}]",
        check=unused_value,
    ),
    Rule(
        id="unused-function",
        summary="An entry of `functions` that no step calls",
        why="The spec seems to claim something of it. (That nothing is expected of a spy is an error of `validate`.)",
        bad="functions: {one: 'def one(x, y): return x + y', two: 'def two(x, y): return x * y'}\n"
        "steps: [{call: {function: one}, expect: [{close: {to: eager}}]}]",
        good="functions: {one: 'def one(x, y): return x + y', two: 'def two(x, y): return x * y'}\n"
        "steps:\n  - {call: {function: one}, expect: [{close: {to: eager}}]}\n"
        "  - {call: {function: two}, expect: [{close: {to: eager}}]}",
        check=unused_function,
    ),
)
