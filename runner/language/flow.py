"""Values as a spec would write them: YAML on one line."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_./^][A-Za-z0-9_./^ ()+*=@<>-]*(?<! )")
_OTHERWISE = frozenset(
    ["true", "True", "TRUE", "false", "False", "FALSE", "null", "Null", "NULL", ".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN"]
)
"""Words that YAML 1.2 takes for no text."""
_NUMBER = re.compile(r"\.[0-9]")


def flow(value: Any) -> str:
    """Return a value as YAML on one line; what YAML cannot say as the text that Python gives it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return _number(value)
        case int():
            return str(value)
        case Mapping():
            return "{" + ", ".join(f"{flow(name)}: {flow(part)}" for name, part in value.items()) + "}"
        case str():
            return value if _is_plain(value) else json.dumps(value, ensure_ascii=False)
        case Sequence() | set() | frozenset():
            return "[" + ", ".join(map(flow, value)) + "]"
        case _:
            return flow(str(value))


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None and text not in _OTHERWISE and _NUMBER.match(text) is None
