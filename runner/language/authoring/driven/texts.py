"""``FileCheck`` of torch's tests as expectations of a text that the test has."""

import ast
import re
from typing import Any

from runner.language.authoring.driven.claims import Claim, plain, truth
from runner.language.authoring.driven.recorder import HAS_DIRECTIVES
from runner.language.authoring.values import NotCarried

_WORD = "FileCheck"


def chain(node: ast.expr) -> list[ast.Call] | None:
    """Return the calls of ``FileCheck()...run(code)``, in order, the last is ``run``; None for other expressions."""
    calls: list[ast.Call] = []
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        calls.insert(0, node)
        node = node.func.value
    is_made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == _WORD
    if calls and isinstance(calls[0].func, ast.Attribute) and calls[0].func.attr == _WORD:
        calls, is_made = calls[1:], True  # torch.testing.FileCheck()
    if not is_made or not calls or not isinstance(calls[-1].func, ast.Attribute) or calls[-1].func.attr != "run":
        return None
    return calls


def uses_filecheck(node: ast.AST) -> bool:
    """Whether Python names FileCheck."""
    return any(getattr(part, "id", getattr(part, "attr", "")) == _WORD for part in ast.walk(node))


def claims_of(calls: list[ast.Call]) -> list[Claim]:
    """Return what a chain claims of its text."""
    if len(calls[-1].args) != 1:
        raise NotCarried("a FileCheck that is run in an unknown way")
    code = calls[-1].args[0]
    if len(calls) == 1:
        raise NotCarried("a FileCheck without directives")
    try:
        directives = [_directive(call) for call in calls[:-1]]
    except NotCarried:
        return [_computed(calls)]
    if all(kind == "check_not" for kind, _, _ in directives):
        return [truth(ast.Compare(ast.Constant(text), [ast.NotIn()], [code])) for _, text, _ in directives]
    if len(directives) == 1:
        return [Claim(actual=code, text=_single(*directives[0]))]
    return [Claim(actual=code, text={"matches": pattern(directives)})]


def in_worker(claim: Claim, calls: list[ast.Call]) -> Claim:
    """Return a claim of a text in a form that a place can make several times: the worker says whether the directives match."""
    return claim if claim.text is None else _computed(calls)


def _computed(calls: list[ast.Call]) -> Claim:
    """Return the claim of a FileCheck whose texts only the run knows."""
    directives: list[ast.expr] = []
    for call in calls[:-1]:
        assert isinstance(call.func, ast.Attribute)
        name, given = call.func.attr, [*call.args, *(word.value for word in call.keywords)]
        names = ["text", *("count", "exactly")[: len(call.args) - 1], *(str(word.arg) for word in call.keywords)]
        words = dict(zip(names, given, strict=False))
        if name not in _POSITIVE | {"check_count"} or len(words) != len(given) or set(words) - {"text", "count", "exactly"}:
            raise NotCarried(f"the FileCheck directive '{name}'")
        count: ast.expr = words.get("count", ast.Constant(1))
        if plain(words.get("exactly", ast.Constant(value=False))) is True:
            count = ast.UnaryOp(ast.USub(), count)
        directives.append(ast.Tuple([ast.Constant(name), words["text"], count], ast.Load()))
    arguments = [calls[-1].args[0], ast.List(directives, ast.Load())]
    return Claim(actual=ast.Call(ast.Name(HAS_DIRECTIVES, ast.Load()), arguments, []), equals=True)


Directive = tuple[str, str, int]
"""The name, the text and, with ``check_count``, how often; as a negative number where it is exactly so often."""


def _directive(node: ast.Call) -> Directive:
    assert isinstance(node.func, ast.Attribute)
    name, words = node.func.attr, {str(word.arg): plain(word.value) for word in node.keywords}
    given = [plain(argument) for argument in node.args]
    if not given or not isinstance(given[0], str) or ... in [*given, *words.values()]:
        raise NotCarried("a FileCheck directive that is no constant")
    if name in _POSITIVE and len(given) == 1 and not words:
        return name, given[0], 1
    if name == "check_count":
        count = given[1] if len(given) > 1 else words.pop("count", None)
        exactly = given[2] if len(given) > 2 else words.pop("exactly", False)
        if isinstance(count, int) and not words and count >= 0:
            if count == 0:
                return ("check_not", given[0], 1) if exactly else ("", "", 0)
            return name, given[0], -count if exactly else count
    raise NotCarried(f"the FileCheck directive '{name}'")


_POSITIVE = frozenset(["check", "check_not", "check_same", "check_next", "check_regex"])


def _single(kind: str, text: str, count: int) -> dict[str, Any]:
    if kind == "check_regex":
        return {"matches": text}
    if kind == "check_count":
        return {"contains": text, "count": -count if count < 0 else {"min": count}}
    return {"contains": text}


def pattern(directives: list[Directive]) -> str:
    """Return a regular expression that finds the directives one after the other, each at its first place, as FileCheck does."""
    made, forbidden = r"\A", list[str]()
    for kind, text, count in directives:
        if not kind:
            continue
        wanted = text if kind == "check_regex" else re.escape(text)
        if kind == "check_not":
            forbidden.append(wanted)
            continue
        for _ in range(abs(count)):
            made += _next(kind, wanted, forbidden)
            forbidden = []
        if count < 0:
            forbidden.append(wanted)
    rest = "|".join(forbidden)
    return f"{made}(?![\\s\\S]*(?:{rest}))" if forbidden else made


def _next(kind: str, wanted: str, forbidden: list[str]) -> str:
    """Return the part of a pattern that goes to the next match."""
    rest = f"(?!{'|'.join(forbidden)})" if forbidden else ""
    if kind == "check_same":
        return f"(?>(?:{rest}[^\\n])*?{wanted})"
    if kind == "check_next":
        return f"(?>[^\\n]*\\n(?:{rest}[^\\n])*?{wanted})"
    return f"(?>(?:{rest}[\\s\\S])*?{wanted})"
