"""Conditions of a driven test that every machine of the spec decides alike, skips, and conditions on the device."""

import ast
import enum

from runner.language.authoring import conditions
from runner.language.authoring.facts import decided
from runner.language.authoring.naming import atom
from runner.language.authoring.reading import Reading
from runner.language.authoring.statements import device_of_condition
from runner.language.authoring.values import Known, NotCarried


class Decision(enum.Enum):
    """What is known of a condition."""

    BODY = "body"
    ELSE = "else"
    OPEN = "open"


def decision(statement: ast.If, reading: Reading) -> Decision | str:
    """Return which branch of a statement runs; the device where the condition holds, or that it is open."""
    known = _known(statement.test, reading)
    if known is not None:
        return Decision.BODY if known else Decision.ELSE
    if _skips(statement.body) and not statement.orelse:
        effect = conditions.effect_of(statement.test)
        if not effect.is_known:
            raise NotCarried("a skip under a condition that is not known here")
        conditions.apply(effect, reading, statement, ast.unparse(statement.test)[:80])
        return Decision.ELSE
    return device_of_condition(statement.test) or Decision.OPEN


def _known(test: ast.expr, reading: Reading) -> bool | None:
    """Return the value of a condition on parameters and on the machine; None where a variable of the test may decide it."""
    word = atom(test)
    names = {part.id for part in ast.walk(test) if isinstance(part, ast.Name)}
    own = names - reading.scope.keys()
    if word not in ("true", "false") and not (names and not own) and not all(_is_atom(name) for name in own):
        return None
    if any(isinstance(part, ast.Call | ast.Attribute) and not atom(part) for part in ast.walk(test)):
        return None
    try:
        value = decided(test, reading)
    except NotCarried:
        return None
    return bool(value.value) if isinstance(value, Known) else None


def _is_atom(name: str) -> bool:
    return bool(atom(ast.Name(name))) or name in ("torch", "config")


def _skips(body: list[ast.stmt]) -> bool:
    text = ast.unparse(body[-1]) if body else ""
    return len(body) == 1 and ("SkipTest" in text or "skipTest(" in text)
