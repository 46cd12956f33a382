"""Assertions of a test as claims: what is kept while the test runs, and what is expected of it."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.language.authoring.driven.recorder import IS_WITHIN, KEEP, KEEP_EQUAL, KEEP_PAIR
from runner.language.authoring.values import NotCarried

Words = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What an assertion says: a pair, or one value with what is expected of it."""

    actual: ast.expr
    expected: ast.expr | None = None
    """The other value of a pair."""
    keep: str = KEEP_PAIR
    options: Words = field(default_factory=dict)
    """Arguments of the function that keeps a pair."""
    judge: Words = field(default_factory=dict)
    """Tolerances of a pair."""
    equals: Any = ...
    """The constant that one value equals."""
    text: Words | None = None
    """What a text has."""

    def kept(self, place: str, *, again: bool) -> ast.expr:
        """Return the call that keeps the values."""
        if self.expected is None:
            return _call(KEEP, [ast.Constant(place), self.actual], {})
        options = {**self.options, **({"again": True} if again else {})}
        return _call(self.keep, [ast.Constant(place), self.actual, self.expected], options)

    def expectation(self, name: str, when: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the expectation of the values that a name has."""
        condition = {"when": dict(when)} if when else {}
        if self.text is not None:
            return {"text": {**condition, "of": name, **self.text}}
        if self.expected is not None:
            return {"close": {**condition, "of": f"{name}.actual", "to": f"{name}.expected", **self.judge}}
        if when:
            raise NotCarried("equality under a condition on the device")
        return {"equals": {name: self.equals}}

    def repeated(self) -> "Claim":
        """Return the same claim where it is made several times."""
        if self.text is not None:
            raise NotCarried("a check of several texts at one place")
        if self.expected is not None:
            return self
        return Claim(actual=self.actual, expected=_literal(self.equals), keep=KEEP_EQUAL)

    def without_judge(self) -> "Claim":
        """Return the same claim without tolerances of its own: the worker says whether the values are within them."""
        made = self.repeated()
        if not made.judge or made.expected is None:
            return made
        words = [ast.keyword(name, ast.Constant(value)) for name, value in {**made.judge, **made.options}.items()]
        call = ast.Call(ast.Name(IS_WITHIN, ast.Load()), [made.actual, made.expected], words)
        return Claim(actual=call, expected=ast.Constant(value=True))


def _literal(value: Any) -> ast.expr:
    return ast.parse(repr(value), mode="eval").body


def _call(name: str, arguments: list[ast.expr], words: Mapping[str, Any]) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), arguments, [ast.keyword(key, ast.Constant(value)) for key, value in words.items()])


def truth(test: ast.expr, *, wanted: bool = True) -> Claim:
    """Return the claim that an expression is true, or false."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return truth(test.operand, wanted=not wanted)
    if wanted and isinstance(test, ast.Call) and ast.unparse(test.func) == "torch.allclose" and len(test.args) >= 2:
        return _allclose(test)
    return Claim(actual=ast.Call(ast.Name("bool", ast.Load()), [test], []), equals=wanted)


def _allclose(node: ast.Call) -> Claim:
    words = dict(zip(("rtol", "atol", "equal_nan"), node.args[2:], strict=False)) | {str(word.arg): word.value for word in node.keywords}
    judge = {"rtol": 1e-5, "atol": 1e-8, "equal_nan": False, **{name: _number(value) for name, value in words.items()}}
    return Claim(actual=node.args[0], expected=node.args[1], judge=judge)


def _number(node: ast.expr) -> Any:
    try:
        found = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError) as error:
        raise NotCarried("a tolerance that is no constant") from error
    if not isinstance(found, int | float):
        raise NotCarried("a tolerance that is no number")
    return found


def compared(kind: type[ast.cmpop]) -> Callable[[ast.Call], Claim]:
    """Return what makes claims of an assertion that compares its two arguments."""
    return lambda node: truth(ast.Compare(node.args[0], [kind()], [node.args[1]]))


def _equal(node: ast.Call) -> Claim:
    words = {str(word.arg): word.value for word in node.keywords}
    if len(node.args) == 1 and "second" in words:
        node.args.append(words.pop("second"))
    if len(node.args) < 2 or len(node.args) > 3 or (len(node.args) == 3 and not _is_text(node.args[2])):
        raise NotCarried("arguments of a comparison")
    computed = computed_tolerances(words)
    if computed:
        return within(node.args[:2], computed)
    actual, expected = node.args[:2] if plain(node.args[0]) is ... else reversed(node.args[:2])
    judge = tolerances(words)
    loose = [words.pop(name) for name in ("exact_dtype", "check_dtype") if name in words]
    unknown = set(words) - _HARMLESS
    if unknown:
        raise NotCarried(f"the argument '{min(unknown)}' of a comparison")
    constant = plain(expected)
    if constant is not ... and not judge:
        return Claim(actual=actual, equals=constant)
    options = {"exact_dtype": False} if any(isinstance(value, ast.Constant) and value.value is False for value in loose) else {}
    return Claim(actual=actual, expected=expected, keep=KEEP_EQUAL, options=options, judge=judge)


_HARMLESS = frozenset(["msg", "exact_device", "check_device", "check_stride", "exact_layout", "check_layout", "exact_is_coalesced"])


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def tolerances(words: dict[str, ast.expr]) -> Words:
    """Take the tolerances out of the keywords of a comparison."""
    found = {name: words.pop(name) for name in ("atol", "rtol") if name in words}
    judge: Words = {name: _number(node) for name, node in found.items() if not (isinstance(node, ast.Constant) and node.value is None)}
    if len(judge) == 1:
        raise NotCarried("one tolerance without the other")
    if "equal_nan" in words:
        judge["equal_nan"] = bool(_number(words.pop("equal_nan")))
    return judge


def computed_tolerances(words: Mapping[str, ast.expr]) -> dict[str, ast.expr]:
    """Return both tolerances where one of them is no constant; nothing otherwise."""
    found = {name: words[name] for name in ("atol", "rtol") if name in words}
    return found if len(found) == 2 and any(plain(node) is ... and not _is_number(node) for node in found.values()) else {}


def _is_number(node: ast.expr) -> bool:
    try:
        return isinstance(ast.literal_eval(node), int | float)
    except (ValueError, TypeError, SyntaxError):
        return False


def within(pair: list[ast.expr], computed: Mapping[str, ast.expr]) -> Claim:
    """Return the claim that values are close, with tolerances that only the run knows: the worker says whether they are."""
    words = [ast.keyword(name, node) for name, node in computed.items()]
    return Claim(actual=ast.Call(ast.Name(IS_WITHIN, ast.Load()), pair, words), equals=True)


def plain(node: ast.expr) -> Any:
    """Return a constant that YAML has and that is compared exactly; ... for other expressions."""
    try:
        found = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ...
    return found if _is_data(found) else ...


def _is_data(found: Any) -> bool:
    if isinstance(found, list | tuple):
        return bool(found) and all(map(_is_data, found)) and isinstance(found, list)
    return found is None or isinstance(found, bool | int | str)


def _close(node: ast.Call) -> Claim:
    words = {str(word.arg): word.value for word in node.keywords}
    if len(node.args) < 2:
        node.args += [words.pop(name) for name in ("actual", "expected") if name in words]
    computed = computed_tolerances(words)
    if computed and len(node.args) == 2:
        return within(node.args, computed)
    judge = {"equal_nan": False, **tolerances(words)}
    loose = [name for name in ("check_dtype", "check_device") if name in words]
    options = {"exact_dtype": False} if "check_dtype" in words else {}
    if len(node.args) != 2 or set(words) - _HARMLESS - set(loose):
        raise NotCarried("arguments of a comparison")
    return Claim(actual=node.args[0], expected=node.args[1], keep=KEEP_EQUAL if loose else KEEP_PAIR, options=options, judge=judge)


def _inline(node: ast.Call) -> Claim:
    words = {str(word.arg): plain(word.value) for word in node.keywords if word.arg != "skip"}
    if len(node.args) < 2 or not set(words) <= {"ignore_comments", "ignore_empty_lines"} or ... in words.values():
        raise NotCarried("arguments of assertExpectedInline")
    actual: ast.expr = ast.Call(ast.Name("str", ast.Load()), [node.args[0]], [])
    text = node.args[1]
    if any(words.values()):
        conditions = [_KEPT_LINES[name] for name, is_on in words.items() if is_on]
        actual, text = (_kept_lines(part, " and ".join(conditions)) for part in (actual, text))
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        return Claim(actual=actual, equals=text.value)
    return Claim(actual=actual, expected=text)


_KEPT_LINES = {"ignore_comments": "not line.strip().startswith('#')", "ignore_empty_lines": "line.strip() != ''"}


def _kept_lines(text: ast.expr, condition: str) -> ast.expr:
    """Return the lines of a text that a comparison looks at."""
    made = ast.parse(f"[line for line in text.split('\\n') if {condition}]", mode="eval").body
    assert isinstance(made, ast.ListComp)
    call = made.generators[0].iter
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Attribute)
    call.func.value = text
    return made


def _almost(node: ast.Call) -> Claim:
    words = {str(word.arg): word.value for word in node.keywords}
    places = words.get("places", node.args[2] if len(node.args) > 2 else ast.Constant(7))
    if "delta" in words:
        distance: ast.expr = _call("abs", [ast.BinOp(node.args[0], ast.Sub(), node.args[1])], {})
        return truth(ast.Compare(distance, [ast.LtE()], [words["delta"]]))
    rounded: ast.expr = _call("round", [ast.BinOp(node.args[0], ast.Sub(), node.args[1]), places], {})
    return truth(ast.Compare(rounded, [ast.Eq()], [ast.Constant(0)]))


def _is_none(kind: type[ast.cmpop]) -> Callable[[ast.Call], Claim]:
    return lambda node: truth(ast.Compare(node.args[0], [kind()], [ast.Constant(None)]))


def _instance(*, wanted: bool) -> Callable[[ast.Call], Claim]:
    return lambda node: truth(_call("isinstance", node.args[:2], {}), wanted=wanted)


def _regex(node: ast.Call) -> Claim:
    pattern = plain(node.args[1])
    if not isinstance(pattern, str):
        raise NotCarried("a pattern that is no constant")
    return Claim(actual=node.args[0], text={"matches": pattern})


CLAIMS: Mapping[str, Callable[[ast.Call], Claim]] = {
    **dict.fromkeys(
        ("assertEqual", "assertEquals", "assertListEqual", "assertTupleEqual", "assertDictEqual", "assertSequenceEqual"), _equal
    ),
    **dict.fromkeys(("assertSetEqual", "assertMultiLineEqual"), _equal),
    "assert_close": _close,
    "assertNotEqual": compared(ast.NotEq),
    "assertTrue": lambda node: truth(node.args[0]),
    "assertFalse": lambda node: truth(node.args[0], wanted=False),
    "assertGreater": compared(ast.Gt),
    "assertGreaterEqual": compared(ast.GtE),
    "assertLess": compared(ast.Lt),
    "assertLessEqual": compared(ast.LtE),
    "assertIn": compared(ast.In),
    "assertNotIn": compared(ast.NotIn),
    "assertIs": compared(ast.Is),
    "assertIsNot": compared(ast.IsNot),
    "assertIsNone": _is_none(ast.Is),
    "assertIsNotNone": _is_none(ast.IsNot),
    "assertIsInstance": _instance(wanted=True),
    "assertNotIsInstance": _instance(wanted=False),
    "assertAlmostEqual": _almost,
    "assertExpectedInline": _inline,
    "assertRegex": _regex,
    "assertZero": lambda node: truth(ast.Compare(node.args[0], [ast.Eq()], [ast.Constant(0)])),
    "assertNotZero": lambda node: truth(ast.Compare(node.args[0], [ast.NotEq()], [ast.Constant(0)])),
}
"""The assertions of unittest and of torch's TestCase, and the claim that each makes."""


def claim_of(name: str, node: ast.Call) -> Claim:
    """Return the claim of an assertion."""
    if name not in CLAIMS:
        raise NotCarried(f"the assertion '{name}'")
    if any(isinstance(argument, ast.Starred) for argument in node.args) or any(word.arg is None for word in node.keywords):
        raise NotCarried("an assertion whose arguments are unpacked")
    try:
        return CLAIMS[name](node)
    except IndexError as error:
        raise NotCarried(f"arguments of '{name}'") from error
