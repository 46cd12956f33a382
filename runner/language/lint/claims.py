"""Rules of specs: claims that stand twice, points without a case, loose tolerances, and names that nothing uses."""

import ast
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from runner.core.case import Case, Expected
from runner.language.check.python import binds_dynamically
from runner.language.lint.base import Finding, Rule, Scene, Spec
from runner.language.read import matrix, python
from runner.language.read.anatomy import SOURCE
from runner.language.read.document import DataPath, Document
from runner.language.text_edits import CannotEdit, Layout
from runner.vocabulary.expectations.close import DEFAULTS, Close, Judge, default_tolerance

# -- claims that stand twice ------------------------------------------------------------------------------------------

_TOLD = ("summary", "covers", "tags", "timeout", "on_request", "isolation", "exclusive")
"""Keys that do not change what a spec claims."""


def same_body(scene: Scene) -> Iterator[Finding]:
    """Yield each spec that claims of the same function the same as another one, with other words."""
    first: dict[str, Spec] = {}
    for spec in scene.specs:
        other = first.setdefault(_body(spec), spec)
        if other is not spec:
            message = f"{other.id} claims the same of the same function ({other.document.position(())})"
            hint = "remove one of them, and give its 'covers' to the other"
            yield Finding(rule="same-body", position=spec.document.position(()), message=message, hint=hint)


def _body(spec: Spec) -> str:
    """Return the content of a spec without its words, with Python as its syntax tree, so that comments and blanks do not count."""
    anatomy = spec.anatomy
    data: dict[str, Any] = {key: value for key, value in anatomy.data.items() if key not in _TOLD}
    data["backends"] = sorted(data["backends"])
    for function in anatomy.functions.values():
        if function.tree is not None and len(function.path) == 1:
            data[str(function.path[0])] = ast.dump(function.tree)
        elif function.tree is not None:
            data["functions"] = {**data["functions"], function.name: ast.dump(function.tree)}
    preludes = [ast.dump(tree) for tree in anatomy.prelude_trees.values()]
    inherited = [{key: value for key, value in one.data.items() if key not in ("tags", "prelude")} for one in anatomy.spec.defaults]
    data.pop("prelude", None)
    return json.dumps([data, preludes, inherited], sort_keys=True, default=str)


# -- points without a case --------------------------------------------------------------------------------------------


def unreachable_point(scene: Scene) -> Iterator[Finding]:
    """Yield values of the matrix and backends that no case has."""
    for spec in scene.specs:
        if SOURCE in spec.anatomy.data:
            continue  # its cases come from a table
        yield from _without_case(spec)


def _without_case(spec: Spec) -> Iterator[Finding]:
    document = spec.document
    hint = "remove it, or exclude less"
    backends = {case.backend for case in spec.cases}
    for index, name in enumerate(document.data["backends"]):
        if name not in backends:
            message = f"every point of the backend '{name}' is excluded"
            yield Finding(rule="unreachable-point", position=document.position(("backends", index)), message=message, hint=hint)
    axes, _ = matrix.axes(document)
    for axis in axes:
        for index, (value, label) in enumerate(zip(axis.values, axis.labels, strict=True)):
            if not any(_is(case.params.get(axis.key), value) for case in spec.cases):
                place = document.position(("matrix", axis.key, index) if axis.key in document.data.get("matrix", {}) else (axis.key,))
                message = f"every point with {axis.key} = {label} is excluded"
                yield Finding(rule="unreachable-point", position=place, message=message, hint=hint)


def _is(one: object, other: object) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


# -- loose tolerances -------------------------------------------------------------------------------------------------

OVER_DEFAULT = 1000
"""How many times the default of its dtypes a tolerance may be without a reason: 1e-3 for float32 is usual in PyTorch's tests."""


def loose_tolerance(scene: Scene) -> Iterator[Finding]:
    """Yield tolerances far above the default of every dtype of the case, of which neither a covered test nor a comment says why."""
    for spec in scene.specs:
        found: dict[tuple[int, int], tuple[Expected, float, tuple[str, ...]]] = {}
        for case, expected in ((one, judged) for one in spec.cases for step in one.steps for judged in step.expectations):
            if isinstance(expected.check, Close):
                dtypes = _dtypes(case)
                times = _times(expected, dtypes)
                place = (expected.position.line, expected.position.column)
                if times > OVER_DEFAULT and times > found.get(place, (None, 0.0))[1]:
                    found[place] = (expected, times, dtypes)
        if not found or _has_origin(spec):
            continue
        reasons = _lines_with_reasons(spec)
        for expected, times, dtypes in found.values():
            if expected.position.line not in reasons:
                message = f"the tolerance is {times:.0f} times the default of {' and '.join(dtypes)}, and nothing says why"
                hint = "remove atol and rtol, so that errors are compared with eager's own; or say the reason in a comment"
                yield Finding(rule="loose-tolerance", position=expected.position, message=message, hint=hint)


def _times(expected: Expected, dtypes: tuple[str, ...]) -> float:
    """Return how many times the default a tolerance is: the smaller figure of the two, because the default allows both."""
    check = expected.check
    if not isinstance(check, Close) or check.judge_kind is not Judge.TOLERANCE or check.atol is None or check.rtol is None:
        return 0.0
    rtol, atol = default_tolerance(*dtypes)
    return max(check.rtol / rtol, check.atol / atol) if rtol and atol else 0.0


_DTYPE = re.compile(r"(?<![a-z0-9])(b?float(?:16|32|64)|complex(?:64|128)|half|double)(?![a-z0-9_])")
_OTHER = {"half": "float16", "double": "float64"}


def _dtypes(case: Case) -> tuple[str, ...]:
    """Return the floating dtypes that a case names anywhere; float32 where an input names none."""
    texts = [str(case.body.inputs), str(case.body.let), str(dict(case.params)), str(case.body.context)]
    texts += [block.text for block in case.body.blocks]
    named = {_OTHER.get(word, word) for text in texts for word in _DTYPE.findall(text)} & set(DEFAULTS)
    if not named or any(isinstance(one, dict) and "dtype" not in one for one in case.body.inputs):
        named.add("float32")
    return tuple(sorted(named))


def _has_origin(spec: Spec) -> bool:
    """Whether a test of PyTorch that the spec restates gives the tolerance."""
    return bool(spec.anatomy.data.get("covers")) or any("restates " in text for _, text in _comments(spec))


def _comments(spec: Spec) -> list[tuple[int, str]]:
    try:
        return [(comment.line, comment.text) for comment in Layout(spec.document).comments()]
    except CannotEdit:
        return []


def _lines_with_reasons(spec: Spec) -> set[int]:
    """Return the lines that have a comment, and those below lines that are comments alone."""
    found: set[int] = set()
    rows = spec.document.content.decode("utf-8", "replace").split("\n")
    for line, text in _comments(spec):
        if text.startswith("# lint:"):
            continue  # a suppression is about a rule, also where it names another one
        found.add(line)
        below = line
        while below < len(rows) and rows[below - 1].strip().startswith("#"):
            below += 1
        found.add(below)
    return found


# -- unused names -----------------------------------------------------------------------------------------------------

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
        id="same-body",
        summary="Two specs claim the same of the same function, on the same backends",
        why="The second one costs time and finds nothing. A change of one of them leaves the other behind. Comments, form, summary, "
        "tags and `covers` do not make a difference; inputs, options and expectations do.",
        bad="# two files with these lines\nfunction: 'def fn(x): return x.relu()'\nexpect: [{close: {to: eager}}]",
        good="# one file with the 'covers' of both",
        check=same_body,
    ),
    Rule(
        id="unreachable-point",
        summary="A value of the matrix or a backend has no case",
        why="The spec seems to claim something of it, and nothing is ever run.",
        bad="matrix: {dtype: [float16, float32]}\nexclude: [{dtype: float16, reason: no float16 convolution on CPU}]",
        good="matrix: {dtype: [float32]}",
        check=unreachable_point,
    ),
    Rule(
        id="loose-tolerance",
        summary=f"A tolerance is more than {OVER_DEFAULT} times the default of the dtypes, and nothing says why",
        why="Without `atol` and `rtol`, the error is compared with eager's own against a float64 reference, which is tighter. "
        "A reason is a comment on the line or above it, or an upstream test under `covers` (or `restates` in a comment), whose tolerance "
        "the spec has.",
        bad="expect: [{close: {to: eager, atol: 0.01, rtol: 0.01}}]",
        good="expect: [{close: {to: eager}}]",
        check=loose_tolerance,
    ),
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
