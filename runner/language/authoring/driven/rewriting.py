"""The statements of a driven test: each assertion becomes a call that keeps what it is about."""

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from runner.language.authoring.driven import texts
from runner.language.authoring.driven.claims import Claim, claim_of, plain, truth
from runner.language.authoring.driven.conditions import Decision, decision
from runner.language.authoring.reading import Reading, line_of
from runner.language.authoring.values import NotCarried


@dataclass(frozen=True, slots=True)
class Site:
    """A place of the test where something is claimed."""

    line: int
    place: str
    claim: Claim
    when: Mapping[str, Any] | None


@dataclass(eq=False)
class Rewriter:
    """Rewrites functions of one test."""

    reading: Reading
    sites: list[Site] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    is_once: bool = True
    when: Mapping[str, Any] | None = None
    is_open: bool = False
    """Whether a condition that only the run decides is around the statement."""
    shared: str = ""
    """The place that assertions under such conditions share: one of them at least must be reached."""

    def function(self, node: ast.FunctionDef, *, once: bool) -> ast.FunctionDef:
        """Return a function that keeps what it asserts."""
        with self._at(once=once):
            node.body = self.body(node.body) or [ast.Pass()]
        return node

    @contextmanager
    def _at(self, *, once: bool, when: Mapping[str, Any] | None = None) -> Iterator[None]:
        outer = (self.is_once, self.when)
        self.is_once, self.when = self.is_once and once, when or self.when
        try:
            yield
        finally:
            self.is_once, self.when = outer

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return statements without assertions."""
        made: list[ast.stmt] = []
        for statement in statements:
            self.reading.spend()
            made += self._statement(statement)
        return made

    def _statement(self, statement: ast.stmt) -> list[ast.stmt]:
        if isinstance(statement, ast.Assert):
            return [self._site(truth(statement.test), statement)]
        if isinstance(statement, ast.Expr):
            return self._expression(statement)
        if isinstance(statement, ast.With):
            return self._with(statement)
        if isinstance(statement, ast.If):
            return self._if(statement)
        if isinstance(statement, ast.For | ast.While):
            with self._at(once=False):
                statement.body, statement.orelse = self.body(statement.body) or [ast.Pass()], self.body(statement.orelse)
            return [statement]
        if isinstance(statement, ast.Try):
            return [self._try(statement)]
        if isinstance(statement, ast.FunctionDef) and claims_within(statement):
            return [self._nested(statement)]
        self._without_claims(statement)
        return [statement]

    def _site(self, claim: Claim, node: ast.stmt) -> ast.stmt:
        line = line_of(node)
        self.counts[line] = self.counts.get(line, 0) + 1
        place = f"line_{line}" if self.counts[line] == 1 else f"line_{line}_{self.counts[line]}"
        made = claim if self.is_once and not self.is_open else claim.repeated()
        if self.is_open:
            made = claim.without_judge()
            place = self.shared = self.shared or place
        self.sites.append(Site(line, place, made, self.when))
        return ast.copy_location(ast.Expr(made.kept(place, again=not self.is_once or self.is_open)), node)

    def _expression(self, statement: ast.Expr) -> list[ast.stmt]:
        node = statement.value
        if isinstance(node, ast.Constant):
            return []
        if not isinstance(node, ast.Call):
            self._without_claims(statement)
            return [statement]
        own = ast.unparse(node.func)
        if own.startswith("super().") or own.endswith("TestCase.setUp"):
            if own.rpartition(".")[2] not in ("setUp", "tearDown", "setUpClass", "tearDownClass"):
                raise NotCarried(f"'{own}'")
            return []
        if own == "print":
            return []
        if own == "self.fail":
            made: ast.stmt = ast.Raise(ast.Call(ast.Name("AssertionError", ast.Load()), node.args[:1], []), None)
            return [ast.copy_location(made, statement)]
        if own == "self.skipTest":
            raise NotCarried("the test is skipped here")
        checks = texts.chain(node)
        if checks is not None:
            is_plain = self.is_once and not self.is_open
            claims = texts.claims_of(checks)
            return [self._site(claim if is_plain else texts.in_worker(claim, checks), statement) for claim in claims]
        word = own.rpartition(".")[2]
        if is_assertion(node.func) or own in ("torch.testing.assert_close", "assert_close"):
            return self._assertion(word, node, statement)
        self._without_claims(statement)
        return [statement]

    def _assertion(self, word: str, node: ast.Call, statement: ast.stmt) -> list[ast.stmt]:
        if word in _RAISES:
            if len(node.args) < _RAISES[word] + 1:
                raise NotCarried("an expected exception without a block")
            count = _RAISES[word]
            called = ast.Expr(ast.Call(node.args[count], node.args[count + 1 :], node.keywords))
            return self._raising(word, node, [ast.copy_location(called, statement)], None, statement)
        return [self._site(claim_of(word, node), statement)]

    def _with(self, statement: ast.With) -> list[ast.stmt]:
        for index, item in enumerate(statement.items):
            call = item.context_expr
            word = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
            if word == "subTest" or word in _RAISES:
                assert isinstance(call, ast.Call)
                rest = statement.items[index + 1 :]
                inner: list[ast.stmt] = [ast.copy_location(ast.With(rest, statement.body), statement)] if rest else statement.body
                made = self.body(inner) if word == "subTest" else self._raising(word, call, inner, item.optional_vars, statement)
                if index:
                    return [ast.copy_location(ast.With(statement.items[:index], made), statement)]
                return made
            self._without_claims(call)
        statement.body = self.body(statement.body) or [ast.Pass()]
        return [statement]

    def _raising(self, word: str, call: ast.Call, body: list[ast.stmt], name: ast.expr | None, statement: ast.stmt) -> list[ast.stmt]:
        """Return a block that keeps the text of the exception which it expects."""
        pattern = plain(call.args[1]) if word == "assertRaisesRegex" and len(call.args) > 1 else None
        if word == "assertRaisesRegex" and not isinstance(pattern, str):
            raise NotCarried("a pattern that is no constant")
        line = line_of(statement)
        text = f"raised_{line}_{self.counts.get(line, 0)}"
        bound = f"\n    {name.id} = type('Raised', (), {{'exception': error}})" if isinstance(name, ast.Name) else ""
        made = ast.parse(f"{text} = None\ntry:\n    pass\nexcept ValueError as error:\n    {text} = str(error){bound}").body
        block = made[1]
        assert isinstance(block, ast.Try)
        block.body, block.handlers[0].type = self.body(body) or [ast.Pass()], call.args[0]
        if pattern is not None and self.is_once and not self.is_open:
            claim = Claim(actual=ast.Name(text, ast.Load()), text={"matches": pattern})
        elif pattern is not None:
            found = ast.parse(f"__import__('re').search({pattern!r}, {text} or '') is not None", mode="eval").body
            claim = truth(found)
        else:
            claim = truth(ast.Compare(ast.Name(text, ast.Load()), [ast.IsNot()], [ast.Constant(None)]))
        return [*(ast.copy_location(part, statement) for part in made), self._site(claim, statement)]

    def _if(self, statement: ast.If) -> list[ast.stmt]:
        found = decision(statement, self.reading)
        if found is Decision.BODY:
            return self.body(statement.body)
        if found is Decision.ELSE:
            return self.body(statement.orelse)
        if not any(map(claims_within, (*statement.body, *statement.orelse))):
            statement.body, statement.orelse = self.body(statement.body) or [ast.Pass()], self.body(statement.orelse)
            return [statement]
        if not isinstance(found, str):
            return [self._open(statement)]
        other = "cpu" if found == "cuda" else "cuda"
        with self._at(once=True, when={"device": found}):
            statement.body = self.body(statement.body) or [ast.Pass()]
        with self._at(once=True, when={"device": other}):
            statement.orelse = self.body(statement.orelse)
        return [statement]

    def _open(self, statement: ast.If) -> ast.If:
        """Rewrite branches of which only the run decides."""
        outer, self.is_open = self.is_open, True
        try:
            statement.body, statement.orelse = self.body(statement.body) or [ast.Pass()], self.body(statement.orelse)
        finally:
            self.is_open = outer
        return statement

    def _try(self, statement: ast.Try) -> ast.Try:
        if any(claims_within(part) for handler in statement.handlers for part in handler.body):
            raise NotCarried("an assertion where an exception is handled")
        if statement.handlers and any(map(claims_within, statement.body)):
            raise NotCarried("an assertion whose exceptions are handled")
        statement.body = self.body(statement.body) or [ast.Pass()]
        statement.orelse, statement.finalbody = self.body(statement.orelse), self.body(statement.finalbody)
        return statement

    def _nested(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Rewrite a function within the test that asserts something: the test only calls it."""
        if node.decorator_list and not all("patch" in ast.unparse(part) for part in node.decorator_list):
            raise NotCarried("an assertion within a function that something else calls")
        node.body = self.function(node, once=False).body
        return node

    def _without_claims(self, node: ast.AST) -> None:
        if claims_within(node):
            raise NotCarried("an assertion at a place where nothing can be kept")


_RAISES: Mapping[str, int] = {"assertRaises": 1, "assertRaisesRegex": 2}
"""The assertions of exceptions, and how many of their arguments come before a function."""


_ASSERTION = re.compile(r"assert[A-Z]\w*|assert_(?:called|not_called|any_call|has_calls)\w*")


def is_assertion(node: ast.AST) -> bool:
    """Whether a function is an assertion of unittest, of whatever name the test has there, or one of a mock."""
    return isinstance(node, ast.Attribute) and bool(_ASSERTION.fullmatch(node.attr))


def claims_within(node: ast.AST) -> bool:
    """Whether Python asserts something."""
    for part in ast.walk(node):
        if isinstance(part, ast.Assert):
            return True
        if is_assertion(part):
            return True
        if isinstance(part, ast.Attribute) and part.attr in ("fail", "skipTest") and ast.unparse(part.value) == "self":
            return True
        if isinstance(part, ast.Name | ast.Attribute) and getattr(part, "id", getattr(part, "attr", "")) in ("assert_close", "FileCheck"):
            return True
    return False
