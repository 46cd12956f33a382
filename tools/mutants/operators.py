"""Mutants of one module's source: what can be changed, in a fixed order, and the source with one
change made.

Only code inside of functions is changed: a module's own statements ran when it was imported.
Changes that can only alter texts for people (logs, warnings, messages of exceptions, docstrings,
``__repr__``) are left out and counted.
"""

import ast
import difflib
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}

LOGS = frozenset(
    "log why logger logging warnings perf_hint_log trace_structured CompileEventLogger "
    "signpost_event set_feature_use"
    " dynamo_timed get_metrics_context get_chromium_event_logger torch_log record_function "
    "print".split()
)
"""Names that a call for people begins with, or that are last before its arguments."""

FOR_PEOPLE = re.compile(
    r"(__(repr|str|format)__|_?(log|print|debug|trace_log)(_.*)?|.*_(debug_str|debug|repr|logs?|report)|debug_.*)$"
)
"""Functions that make texts for people: nothing in them is changed."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Change = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module.

    ``number`` is its place among the mutants of the module's source.
    """

    module: str
    number: int
    kind: str
    function: str
    """The qualified name of the outermost function that holds it."""
    line: int

    @property
    def name(self) -> str:
        return f"{self.module}:{self.line}:{self.kind}:{self.number}"


def mutants(module: str, source: str) -> list[Mutant]:
    """Return all mutants of a source, function by function; the same source gives the same list."""
    return [
        Mutant(module, number, kind, function, line)
        for number, (kind, function, line) in enumerate(_places(source))
    ]


@lru_cache(maxsize=32)
def _places(source: str) -> tuple[tuple[str, str, int], ...]:
    return tuple((kind, function, line) for kind, function, line, _ in _sites(_tree(source)))


def mutated(tree: ast.Module, number: int, expected: tuple[str, int] | None = None) -> ast.Module:
    """Make one change in a tree, and return it; the lines are those of the source.

    ``expected`` is the kind and the line that the change must have: numbers differ where the
    operators or the source changed.
    """
    for place, (kind, _, line, change) in enumerate(_sites(tree)):
        if place == number:
            if expected not in (None, (kind, line)):
                raise LookupError(f"mutant {number} is {kind} in line {line}, and not {expected}")
            change()
            return ast.fix_missing_locations(tree)
    raise LookupError(f"the source has no mutant {number}")


def difference(source: str, mutant: Mutant) -> str:
    """Return the lines in which a mutant differs, as a unified diff of its function without
    context.
    """
    function = _function(_tree(source), mutant)
    first, text = _place_and_text(source, function)
    changed = ast.parse(text)  # a tenth of the time of a deep copy
    for place, (*_, change) in enumerate(_sites(changed), first):
        if place == mutant.number:
            change()
            break
    lines = list(
        difflib.unified_diff(text.splitlines(), ast.unparse(changed).splitlines(), n=0, lineterm="")
    )[2:]
    return "\n".join(line for line in lines if not line.startswith("@@"))


@lru_cache(maxsize=32)
def _tree(source: str) -> ast.Module:
    """Return the parsed tree of a source. It is cached: do not change it."""
    return ast.parse(source)


@lru_cache(maxsize=256)
def _place_and_text(source: str, function: Function) -> tuple[int, str]:
    """Return the number of the first mutant of a function, and the function's text."""
    last = function.end_lineno or function.lineno
    first = next(
        mutant.number for mutant in mutants("", source) if function.lineno <= mutant.line <= last
    )
    return first, ast.unparse(function)


def _function(tree: ast.Module, mutant: Mutant) -> Function:
    for name, function in _functions(tree, ""):
        last = function.end_lineno or function.lineno
        if name == mutant.function and function.lineno <= mutant.line <= last:
            return function
    raise LookupError(mutant.name)


def lines_of(source: str, mutant: Mutant) -> range:
    """Return the lines of the function that a mutant changes."""
    function = _function(_tree(source), mutant)
    return range(function.lineno, (function.end_lineno or function.lineno) + 1)


def only(tree: ast.Module, function: str) -> ast.Module:
    """Return what compiles the functions of one qualified name, and little else: their classes, and
    imports from the future.
    """
    return ast.Module(body=list(_kept(tree.body, function.split("."))), type_ignores=[])


def _kept(statements: Sequence[ast.stmt], path: Sequence[str]) -> Iterator[ast.stmt]:
    for statement in statements:
        if isinstance(statement, ast.ClassDef) and statement.name == path[0] and len(path) > 1:
            if body := list(_kept(statement.body, path[1:])):
                statement.body = body
                yield statement
        elif isinstance(statement, Function):
            if [statement.name] == list(path):
                yield statement
        elif isinstance(statement, ast.If | ast.Try | ast.With) or (
            isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        ):
            yield statement


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    """Yield the outermost functions: those of the module and of its classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.If | ast.Try | ast.With):
            yield from _functions(child, prefix)


def _sites(tree: ast.Module) -> Iterator[tuple[str, str, int, Change]]:
    for name, function in _functions(tree, ""):
        if FOR_PEOPLE.match(name.rpartition(".")[2]):
            continue
        for statements in _blocks(function):
            for statement in list(statements):
                if not _for_people(statement):
                    for kind, line, change in (
                        *_of_statement(statement, statements),
                        *_of_expressions(statement),
                    ):
                        yield kind, name, line, change


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield each list of statements below a node, outer ones first."""
    for field in ("body", "orelse", "finalbody"):
        statements = getattr(node, field, None)
        if isinstance(statements, list):
            yield statements
            for statement in statements:
                yield from _blocks(statement)
    for handler in getattr(node, "handlers", []):
        yield from _blocks(handler)
    for case in getattr(node, "cases", []):
        yield from _blocks(case)


def _for_people(statement: ast.stmt) -> bool:
    """Whether a statement writes or raises a text, and nothing else."""
    if isinstance(statement, ast.Raise | ast.Assert):
        return True
    if not isinstance(statement, ast.Expr):
        return False
    if isinstance(statement.value, ast.Constant):
        return True
    return _calls_for_people(statement.value)


def _calls_for_people(node: ast.AST) -> bool:
    """Whether an expression is a call whose result or effect is a text, a trace or a time for
    people.
    """
    if not isinstance(node, ast.Call):
        return False
    first, *rest = _dotted(node.func)
    last = rest[-1] if rest else first
    return (
        first in LOGS
        or "_log" in first
        or last in LOGS
        or last in ("lint", "warning", "debug", "info", "isEnabledFor", "getEffectiveLevel")
    )


def _dotted(node: ast.expr) -> list[str]:
    """Return the names of ``a.b.c``; what is not a name is an empty text."""
    if isinstance(node, ast.Attribute):
        return [*_dotted(node.value), node.attr]
    return [node.id if isinstance(node, ast.Name) else ""]


def _of_statement(statement: ast.stmt, block: list[ast.stmt]) -> Iterator[tuple[str, int, Change]]:
    if isinstance(statement, ast.AugAssign | ast.Delete) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    ):
        yield "drop-statement", statement.lineno, _drop(block, statement)
    if isinstance(statement, ast.If):
        leaves = isinstance(statement.body[-1], ast.Return | ast.Continue | ast.Break)
        if leaves and not statement.orelse:
            yield (
                "drop-guard",
                statement.lineno,
                _set(statement, "test", lambda: ast.Constant(value=False)),
            )
        if statement.orelse and not isinstance(statement.orelse[0], ast.If):
            yield "swap-branches", statement.lineno, _swap(statement)


def _of_expressions(statement: ast.stmt) -> Iterator[tuple[str, int, Change]]:
    for node in _expressions(statement):
        line = getattr(node, "lineno", statement.lineno)
        if (
            isinstance(node, ast.Compare)
            and len(node.ops) == 1
            and type(node.ops[0]) in COMPARISONS
        ):
            other = COMPARISONS[type(node.ops[0])]
            yield "compare", line, _set(node, "ops", lambda other=other: [other()])
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _is_text(node):
            yield "arithmetic", line, _set(node, "op", ARITHMETIC[type(node.op)])
        elif isinstance(node, ast.BoolOp):
            other_op = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield "and-or", line, _set(node, "op", other_op)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            # not x becomes not not x, which is its truth
            negated = partial(ast.UnaryOp, op=ast.Not(), operand=node.operand)
            yield "not", line, _set(node, "operand", negated)
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
            value = (not node.value) if isinstance(node.value, bool) else node.value + 1
            yield "constant", line, _set(node, "value", lambda value=value: value)
        elif isinstance(node, ast.IfExp):
            yield "swap-branches", line, _swap(node)
        elif isinstance(node, ast.Call):
            for place, keyword in enumerate(node.keywords):
                if keyword.arg is not None:
                    yield "drop-argument", line, partial(node.keywords.__delitem__, place)


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of one statement, without those of the statements and functions inside
    of it, and without texts.
    """
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop(0)
        if node is not statement and not isinstance(
            node, ast.withitem | ast.keyword | ast.comprehension | ast.arguments
        ):
            yield node
        if isinstance(node, Function | ast.ClassDef):
            continue
        waiting[:0] = [child for child in _below(node) if not _is_left_out(child)]


def _below(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is directly below a node, without annotations of types."""
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            yield from (
                child
                for child in (value if isinstance(value, list) else [value])
                if isinstance(child, ast.AST)
            )


def _is_text(node: ast.BinOp) -> bool:
    """Whether an operation visibly joins texts or lists: its change would fail wherever it is
    executed.
    """
    sides = (node.left, node.right)
    return any(isinstance(side, ast.JoinedStr | ast.List | ast.Tuple) for side in sides) or any(
        isinstance(side, ast.Constant) and isinstance(side.value, str | bytes) for side in sides
    )


def _is_left_out(node: ast.AST) -> bool:
    statements = ast.stmt | ast.ExceptHandler | ast.match_case
    return isinstance(
        node, statements | ast.JoinedStr | ast.expr_context | ast.operator | ast.cmpop
    ) or _calls_for_people(node)


def _drop(block: list[ast.stmt], statement: ast.stmt) -> Change:
    return lambda: block.__setitem__(
        block.index(statement), ast.copy_location(ast.Pass(), statement)
    )


def _set(node: ast.AST, field: str, make: Callable[[], object]) -> Change:
    return lambda: setattr(node, field, make())


def _swap(node: ast.If | ast.IfExp) -> Change:
    return lambda: vars(node).update(body=node.orelse, orelse=node.body)


def sample(
    mutants: Sequence[Mutant], number: int, seed: int, *, each: bool = False
) -> list[Mutant]:
    """Return ``number`` mutants, of all or of each module, drawn without repetition; the same seed
    draws the same ones.
    """
    groups: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        groups.setdefault(mutant.module if each else "", []).append(mutant)
    drawn = [
        mutant
        for group in groups.values()
        for mutant in random.Random(seed).sample(group, min(number, len(group)))
    ]
    return sorted(drawn, key=lambda mutant: (mutant.module, mutant.number))
