"""YAML 1.2 scalars: which texts are null, booleans or numbers."""

import math
import re
from typing import Any

MAX_DIGITS = 100
"""The maximum of a whole number. Python does not print numbers with more than 4,300 digits; arithmetic in templates stays below that."""


_NULL = {"", "~", "null", "Null", "NULL"}


_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


_INT = re.compile(r"[-+]?[0-9]+\Z")


_OCT = re.compile(r"0o[0-7]+\Z")


_HEX = re.compile(r"0x[0-9a-fA-F]+\Z")


_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")


_INF = re.compile(r"[-+]?\.(inf|Inf|INF)\Z")


_NAN = {".nan", ".NaN", ".NAN"}


def resolve(text: str) -> Any:
    """Return the YAML 1.2 core value of a plain scalar; raise ``ValueError`` for a number with too many digits."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if text[0] not in "+-.0123456789":
        return text
    if len(text) > MAX_DIGITS and (_INT.match(text) or _OCT.match(text) or _HEX.match(text)):
        raise ValueError(text)
    if _INT.match(text):
        return int(text)
    if _OCT.match(text):
        return int(text[2:], 8)
    if _HEX.match(text):
        return int(text[2:], 16)
    if _FLOAT.match(text):
        return float(text)
    if _INF.match(text):
        return -math.inf if text.startswith("-") else math.inf
    return math.nan if text in _NAN else text
