"""``graph_breaks``: the graph breaks of a step, with their reasons."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from runner.core.protocol import Json
from runner.vocabulary.expectations.compile_facts import COMPILATION, Events


class GraphBreaks(Events):
    """``graph_breaks: {count: 1, reason: {contains: User-inserted graph break}}``."""

    __slots__ = ()
    kind: ClassVar[str] = "graph_breaks"
    what: ClassVar[str] = "graph breaks"


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the graph breaks of the case's own functions in the step."""
    return value(f"{COMPILATION}graph_breaks")
