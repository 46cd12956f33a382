"""``recompiles``: how often dynamo compiled a function again in a step, and why."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from runner.core.protocol import Json
from runner.vocabulary.expectations.compile_facts import COMPILATION, Events


class Recompiles(Events):
    """``recompiles: {count: 1, reason: {contains: size mismatch at index 0}}``."""

    __slots__ = ()
    kind: ClassVar[str] = "recompiles"
    what: ClassVar[str] = "recompiles"


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the recompiles of the case's own functions in the step."""
    return value(f"{COMPILATION}recompiles")
