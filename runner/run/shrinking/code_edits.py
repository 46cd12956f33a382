"""Proposes smaller Python by its syntax tree: statements that go, calls that become an argument. Pure; text that is kept stays as it is."""

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a text that another text replaces."""

    start: int
    end: int
    new: str
    words: str
    old: str
    """What the part is now: where another edit has changed it, this one does nothing."""

    def within(self, text: str) -> str:
        """Return a text with the replacement."""
        if text[self.start : self.end] != self.old:
            return text
        return text[: self.start] + self.new + text[self.end :]


class _Text:
    """A text with its tree. Columns of a tree count bytes of UTF-8."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        """Return the offset of a place."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt | ast.arg) -> tuple[int, int]:
        """Return where a node stands; with its decorators."""
        first: ast.expr | ast.stmt | ast.arg = node
        decorators = getattr(node, "decorator_list", [])
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.at(first.lineno, first.col_offset)
        if decorators:
            start = self.text.rfind("@", 0, self.at(decorators[0].lineno, decorators[0].col_offset))
        return start, self.at(node.end_lineno, node.end_col_offset)

    def replaced(self, node: ast.expr | ast.stmt, new: str, words: str) -> Segment:
        """Return the edit that replaces a node."""
        start, end = self.span(node)
        return Segment(start, end, new, words, self.text[start:end])

    def source(self, node: ast.expr) -> str:
        """Return the text of an expression, in parentheses where it needs them anywhere."""
        start, end = self.span(node)
        text = self.text[start:end]
        return text if isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.Constant | ast.Subscript) else f"({text})"


def _read(text: str) -> _Text | None:
    try:
        return _Text(text)
    except (SyntaxError, ValueError):
        return None


def statements(text: str) -> list[Segment]:
    """Return the removal of each statement: outer ones before those within. The only one of a block becomes ``pass``."""
    found = _read(text)
    return [] if found is None else list(_removals(found, found.tree.body, is_top=True))


def _removals(text: _Text, body: list[ast.stmt], *, is_top: bool) -> Iterator[Segment]:
    for statement in body:
        if isinstance(statement, ast.Pass):
            continue
        words = f"without '{ast.unparse(statement).splitlines()[0][:60]}'"
        if not (is_top and isinstance(statement, ast.FunctionDef) and len(body) == 1):
            yield text.replaced(statement, "" if is_top else "pass", words)
        for inner in _blocks(statement):
            yield from _removals(text, inner, is_top=False)


def without_passes(text: str) -> str:
    """Return a text without the ``pass`` of blocks that have other statements, and without empty lines."""
    found = _read(text)
    if found is None:
        return text
    dropped: set[int] = set()
    for node in ast.walk(found.tree):
        for body in _blocks(node):
            passes = [one for one in body if isinstance(one, ast.Pass)]
            dropped.update(one.lineno for one in (passes if len(passes) < len(body) else passes[1:]))
    lines = text.splitlines(keepends=True)
    kept = [line for number, line in enumerate(lines, 1) if not (number in dropped and line.strip() == "pass")]
    joined = "".join(kept)
    shorter = "".join(line for line in kept if line.strip())
    return shorter if _same_tree(shorter, joined) else joined


def _same_tree(one: str, other: str) -> bool:
    """Whether two texts are the same program: an empty line within a string is part of it."""
    trees = [_read(text) for text in (one, other)]
    return all(tree is not None for tree in trees) and len({ast.dump(tree.tree) for tree in trees if tree is not None}) == 1


def _blocks(statement: ast.AST) -> Iterator[list[ast.stmt]]:
    for word in ("body", "orelse", "finalbody"):
        inner = getattr(statement, word, None)
        if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
            yield inner
    for handler in getattr(statement, "handlers", []):
        yield handler.body


def expressions(text: str, without: Collection[str] = ()) -> list[Segment]:
    """Return smaller expressions for calls, operators and subscripts: one of their own parts. ``without`` are top-level names to leave."""
    found = _read(text)
    if found is None:
        return []
    kept = [one for one in found.tree.body if getattr(one, "name", None) not in without]
    inside = [node for one in kept for node in ast.walk(one) if isinstance(node, ast.FunctionDef)]
    nodes = list(dict.fromkeys(node for function in inside for statement in function.body for node in ast.walk(statement)))
    return [
        found.replaced(node, found.source(part), f"'{ast.unparse(part)[:40]}' for '{ast.unparse(node)[:40]}'")
        for node in nodes
        if isinstance(node, ast.expr)
        for part in _parts(node)
    ]


def _parts(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.Call(func=function, args=arguments):
            own = [function.value] if isinstance(function, ast.Attribute) and not _is_module(function.value) else []
            return [*own, *(one for one in arguments if not isinstance(one, ast.Starred))]
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


def inlined(text: str) -> list[Segment]:
    """Return, for each name of a function that is bound once and used once, its value in the place of its use."""
    found = _read(text)
    if found is None:
        return []
    functions = [node for node in ast.walk(found.tree) if isinstance(node, ast.FunctionDef)]
    return [segment for function in functions for segment in _inlined(found, function)]


def _inlined(text: _Text, function: ast.FunctionDef) -> Iterator[Segment]:
    names: dict[str, list[ast.Name]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            names.setdefault(node.id, []).append(node)
    values = {id(one.value) for one in ast.walk(function) if isinstance(one, ast.Assign | ast.Return)}
    for statement in ast.walk(function):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if len(names[name]) == 2:
                use = max(names[name], key=lambda one: (one.lineno, one.col_offset))
                start, (begin, end) = text.span(statement)[0], text.span(use)
                if isinstance(use.ctx, ast.Load) and text.span(statement)[1] <= begin:
                    new = ast.get_source_segment(text.text, value) or "" if id(use) in values else text.source(value)
                    between = text.text[text.span(statement)[1] : begin]
                    words = f"'{ast.unparse(value)[:40]}' for the name {name}"
                    yield Segment(start, end, f"pass{between}{new}", words, text.text[start:end])


def _is_module(node: ast.expr) -> bool:
    """Whether an expression is a path that begins with torch: ``torch.nn.functional``."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("torch", "F", "math")


def parameters(text: str, entry: str | None) -> list[Segment]:
    """Return the removal of each plain parameter of a function, in order."""
    found = _read(text)
    defs = [] if found is None else [node for node in found.tree.body if isinstance(node, ast.FunctionDef)]
    chosen = [node for node in defs if entry is None or node.name == entry]
    if found is None or not chosen:
        return []
    given = [*chosen[-1].args.posonlyargs, *chosen[-1].args.args]
    segments = []
    for index, one in enumerate(given):
        start, end = found.span(one)
        if index + 1 < len(given):
            end = found.span(given[index + 1])[0]
        elif index:
            start = found.span(given[index - 1])[1]
        segments.append(Segment(start, end, "", f"without the parameter {one.arg}", found.text[start:end]))
    return segments
