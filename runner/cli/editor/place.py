"""Where a cursor stands in a spec that may be unfinished: the keys around it, by indentation and brackets."""

import re
from collections.abc import Sequence

_KEY = re.compile(r"^(?P<indent>\s*(?:- +)*)(?P<key>[A-Za-z_][\w.]*)\s*:(?=\s|$)")
_WORD = re.compile(r"[\w.-]*")
_LONGEST = 2000
"""Longer lines are not looked at beyond this."""


def word_at(line: str, column: int) -> str:
    """Return the word around a column: a name with dots."""
    line = line[:_LONGEST]
    for found in _WORD.finditer(line):
        if found.start() <= column <= found.end() and found.group():
            return found.group()
    return ""


def keys_around(lines: Sequence[str], number: int, column: int) -> list[str]:
    """Return the keys that enclose a place, the outermost first."""
    before = lines[number][:column][:_LONGEST] if number < len(lines) else ""
    inner = _open_keys(before)
    found = _KEY.match(before)
    indent = len(found.group("indent")) if found else len(before) - len(before.lstrip(" -"))
    if (found and not inner and before.rstrip() != before[: found.end()].rstrip()) or (
        found and before[found.end() :].strip() == "" and not inner
    ):
        inner = [found.group("key")]
    outer: list[str] = []
    for line in reversed(lines[max(0, number - 2000) : number]):
        above = _KEY.match(line[:_LONGEST])
        if above and len(above.group("indent")) < indent:
            outer.append(above.group("key"))
            indent = len(above.group("indent").split("-", 1)[0])
        if indent == 0:
            break
    return [*reversed(outer), *inner]


def _open_keys(text: str) -> list[str]:
    """Return the keys whose values are open in a line: ``a: {b: [`` has two."""
    stack: list[str] = []
    key = ""
    quote = ""
    for found in re.finditer(r"[A-Za-z_][\w.]*(?=\s*:)|[\[\]{}\"',]", text):
        sign = found.group()
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in "[{":
            stack.append(key)
            key = ""
        elif sign in "]}":
            if stack:
                stack.pop()
        elif sign == ",":
            key = ""
        else:
            key = sign
    return [name for name in (*stack, key) if name]
