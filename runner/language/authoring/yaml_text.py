"""YAML as people write it: short maps and lists on one line, Python in blocks."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

_WIDTH = 130
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./<>=-]*(?: [A-Za-z0-9_./'()-]+)*")
_RESERVED = re.compile(r"(?i)(true|false|null|yes|no|on|off|y|n|~|nan|inf)")


def text(value: str) -> str:
    """Return a string as a YAML scalar."""
    if _PLAIN.fullmatch(value) and not _RESERVED.fullmatch(value) and value.isascii():
        return value
    return json.dumps(value, ensure_ascii=True)


def scalar(value: Any) -> str:
    """Return a value that is neither a list nor a map."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return json.dumps(value)


def flow(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text(str(key))}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return scalar(value)


def block(value: Any, indent: int) -> str:
    """Return what stands behind ``KEY:``, on the same line where it is short."""
    pad = " " * indent
    if isinstance(value, str) and "\n" in value and not value.startswith((" ", "\n")) and value.isprintable() is False and _is_block(value):
        body = "\n".join(f"{pad}{line}" if line else "" for line in value.rstrip("\n").split("\n"))
        return f" |\n{body}"
    short = flow(value)
    if len(short) + indent <= _WIDTH and not _has_block(value):
        return f" {short}"
    if isinstance(value, Mapping):
        return "\n" + "\n".join(f"{pad}{text(str(key))}:{block(inner, indent + 2)}" for key, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "\n" + "\n".join(f"{pad}- {_item(inner, indent + 2)}" for inner in value)
    return f" {short}"


def _is_block(value: str) -> bool:
    return all(char in "\n" or char.isprintable() for char in value)


def _has_block(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_has_block(inner) for inner in value.values())
    if isinstance(value, list | tuple):
        return any(_has_block(inner) for inner in value)
    return isinstance(value, str) and "\n" in value and _is_block(value)


def _item(value: Any, indent: int) -> str:
    short = flow(value)
    if not isinstance(value, Mapping) or (len(short) + indent <= _WIDTH and not _has_block(value)):
        return short
    lines = [f"{text(str(key))}:{block(inner, indent + 2)}" for key, inner in value.items()]
    return f"\n{' ' * indent}".join(lines)


def document(spec: Mapping[str, Any]) -> str:
    """Return a spec as text."""
    return "".join(f"{key}:{block(value, 2)}\n" for key, value in spec.items())
