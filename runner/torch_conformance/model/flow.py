"""Writes values as YAML in flow style, on one line."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence

_PLAIN = re.compile(r"[A-Za-z_./^][A-Za-z0-9_./^ ()+*=@<>-]*(?<! )")
_OTHERWISE = frozenset(
    "true True TRUE false False FALSE null Null NULL .inf .Inf .INF .nan .NaN .NAN".split()
)
"""Words that YAML 1.2 does not read as text."""
_BREAKS = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Characters that JSON does not escape, and that are line ends or invalid in YAML, or invisible."""
_UNPRINTED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")
"""Characters that a literal block does not have: tabs, control characters, other line ends."""
_NUMBER = re.compile(r"\.[0-9]")


def flow(value: object) -> str:
    """Return a value as YAML on one line; what YAML cannot say as the text that Python gives it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return (
                repr(value)
                if math.isfinite(value)
                else ".nan"
                if math.isnan(value)
                else ".inf"
                if value > 0
                else "-.inf"
            )
        case int():
            return str(value)
        case Mapping():
            return (
                "{" + ", ".join(f"{flow(name)}: {flow(part)}" for name, part in value.items()) + "}"
            )
        case str():
            is_plain = (
                _PLAIN.fullmatch(value) is not None
                and value not in _OTHERWISE
                and _NUMBER.match(value) is None
            )
            return (
                value
                if is_plain
                else _BREAKS.sub(
                    lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False)
                )
            )
        case Sequence() | set() | frozenset():
            return "[" + ", ".join(map(flow, value)) + "]"
        case _:
            return flow(str(value))


def block(name: str, value: object) -> Iterator[str]:
    """Yield the lines of a key and its value: one, or where a text within it has several lines, as
    many as these take.
    """
    match value:
        case str() if _is_literal(value):
            yield f"{flow(name)}: {'|' if value.endswith(chr(10)) else '|-'}"
            yield from (
                f"  {line}" if line else "" for line in value.removesuffix("\n").split("\n")
            )
        case Mapping() if any(isinstance(part, str) and "\n" in part for part in value.values()):
            yield f"{flow(name)}:"
            for key, part in value.items():
                yield from (f"  {line}" for line in block(key, part))
        case _:
            yield f"{flow(name)}: {flow(value)}"


def _is_literal(text: str) -> bool:
    """Whether a literal block says a text of several lines as it is."""
    lines = text.removesuffix("\n").split("\n")
    whole = (
        lines[0] and lines[-1] and not lines[0].startswith(" ") and _UNPRINTED.search(text) is None
    )
    return "\n" in text and bool(whole) and not any(line.endswith(" ") for line in lines)
