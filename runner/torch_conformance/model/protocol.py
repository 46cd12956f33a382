"""The messages on the pipe between runner and worker, and the encoding of values that JSON lacks.

No torch.

The worker sends lines of JSON: ``{"phase": NAME}`` at the start of a phase, ``{"step": N}`` at the
start of a step, and once ``{"observation": {...}, "word": WORD}`` with the word that came with the
case. Floats that JSON lacks are ``{"$float": "nan" | "inf" | "-inf"}``, bytes ``{"$bytes":
BASE64}``, anything else ``{"$type": PATH, "$repr": TEXT}``.
"""

import base64
import itertools
import json
import math
from typing import Any

Json = Any
"""A value that JSON can say; what it cannot say is written as above."""

MAX_MESSAGE = 64 << 20
"""The maximum number of bytes that the runner reads from one worker."""

MAX_ATTACHMENT = 8 << 20
"""The maximum size of a file that a report attaches, in bytes."""

NO_ASSERTS = "PYTHONOPTIMIZE"
"""The environment variable with which Python leaves out asserts: what they claim cannot fail."""

THREADS = "TORCH_CONFORMANCE_THREADS"
"""The environment variable with the number of OpenMP threads of a worker."""

THREADS_OF_LIBRARIES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
"""The environment variables that are 1 while a worker starts, and have its number of threads in
what it starts.
"""

TARGET = "TORCH_CONFORMANCE_TARGET"
"""The environment variable with the target of a process that compiles for a GPU that the machine
may lack.
"""

SIMULATED = "TORCH_CONFORMANCE_SIMULATED"
"""The variable that names the folder for the C++ side of a simulated target, where a process has
torch for one.
"""

MODULE = "module:"
"""Begins the word of a zygote's warm-up that names a module; the others are kinds of device."""

WARM = "TORCH_CONFORMANCE_WARM"
"""The variable that names the folder of what earlier zygotes built while they warmed up."""

SERVICES_FILE = "services.json"
"""The file in a case's scratch folder with the addresses of its services.

It contains passwords and is never put into the run folder.
"""

MAX_DEPTH = 200
"""The maximum depth of nested maps and lists; all code that walks a message recurses no deeper."""


def encode(value: object) -> Json:
    """Return a value in the form of strict JSON."""
    match value:
        case bool() | None | str():
            return value
        case int():
            return (
                value
                if -(1 << 63) <= value < 1 << 64
                else {"$type": "builtins.int", "$repr": hex(value)[:200]}
            )
        case float():
            return value if math.isfinite(value) else {"$float": repr(value)}
        case bytes() | bytearray():
            return {"$bytes": base64.b64encode(value).decode("ascii")}
        case dict():
            return {
                key if isinstance(key, str) else repr(key): encode(item)
                for key, item in value.items()
            }
        case list() | tuple():
            return [encode(item) for item in value]
        case set() | frozenset():
            return sorted((encode(item) for item in value), key=repr)
    return {"$type": f"{type(value).__module__}.{type(value).__qualname__}", "$repr": _repr(value)}


def _repr(value: object) -> str:
    try:
        return repr(value)[:1000]
    except Exception as error:
        # __repr__ may be code of the spec and raise anything; a placeholder is shown
        return f"<no repr: {type(error).__name__}>"


_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def decode(value: object) -> Json:
    """Reverse ``encode`` for floats and bytes; a value with only a repr stays a map.

    Raise for forms that ``encode`` never writes.
    """
    if isinstance(value, dict):
        if set(value) == {"$float"}:
            return _FLOATS[value["$float"]]
        if set(value) == {"$bytes"}:
            return base64.b64decode(value["$bytes"], validate=True)
        return {key: decode(item) for key, item in value.items()}
    if isinstance(value, list):
        return [decode(item) for item in value]
    return value


def dumps(message: object) -> bytes:
    """Return one line of strict JSON."""
    return (
        json.dumps(message, allow_nan=False, ensure_ascii=True, separators=(",", ":")).encode(
            "ascii"
        )
        + b"\n"
    )


def loads(line: bytes) -> Json:
    """Parse one line of strict JSON; raise ``ValueError`` with the reason."""
    try:
        message = json.loads(line, parse_constant=finite, parse_float=finite)
    except RecursionError:
        raise ValueError("nested too deep") from None
    except ValueError:
        raise ValueError("not JSON") from None
    if _is_deeper(message, MAX_DEPTH):
        raise ValueError("nested too deep")
    return message


def finite(text: str) -> float:
    """Return the number of a text, which may be one of the constants that JSON does not have; raise
    ``ValueError`` for these.
    """
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite float")
    return number


def _is_deeper(value: object, limit: int) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        inner = itertools.chain.from_iterable(
            item.values() if isinstance(item, dict) else item for item in level
        )
        level = [item for item in inner if isinstance(item, dict | list)]
    return bool(level)
