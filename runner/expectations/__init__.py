"""Every kind of expectation, in one table. A new one is a module here, an entry below, its schema entry and its test."""

from collections.abc import Callable, Mapping
from typing import Any

from runner.expectations import close, dead, equality, log, strides, text
from runner.expectations.base import EAGER, OUTPUT, BadExpectation, Expectation, Judgement, Raised, StepFacts
from runner.expectations.calls import Calls
from runner.expectations.close import Close
from runner.expectations.counter import Counter
from runner.expectations.dead import Dead
from runner.expectations.equality import Differs, Equals
from runner.expectations.exit import Exit
from runner.expectations.filecheck import FileCheck
from runner.expectations.generated_files import GeneratedFiles
from runner.expectations.log import Log
from runner.expectations.metric import Metric
from runner.expectations.raises import Raises
from runner.expectations.remote_cache import RemoteCache
from runner.expectations.runs import Runs
from runner.expectations.strides import Strides
from runner.expectations.text import Text
from runner.model import Json

EXPECTATIONS: Mapping[str, type[Expectation]] = {
    "close": Close,
    "counter": Counter,
    "metric": Metric,
    "filecheck": FileCheck,
    "raises": Raises,
    "equals": Equals,
    "differs": Differs,
    "strides": Strides,
    "generated_files": GeneratedFiles,
    "runs": Runs,
    "calls": Calls,
    "exit": Exit,
    "text": Text,
    "log": Log,
    "dead": Dead,
    "remote_cache": RemoteCache,
}
"""The word of the language, and the class that it builds."""

MEASURES: Mapping[str, Callable[[Mapping[str, Any], Callable[[str], Any]], Json]] = {
    "close": close.measure,
    "equals": equality.measure,
    "differs": equality.measure,
    "strides": strides.measure,
    "text": text.measure,
    "log": log.measure,
    "dead": dead.measure,
}
"""What the worker measures for a kind; kinds that every step's facts suffice for are absent."""

ALWAYS_MEASURED = ("log", "dead")
"""Kinds that ask for no result, and are measured also after an exception."""

__all__ = [
    "ALWAYS_MEASURED",
    "EAGER",
    "EXPECTATIONS",
    "MEASURES",
    "OUTPUT",
    "BadExpectation",
    "Expectation",
    "Judgement",
    "Raised",
    "StepFacts",
]
