"""The table of all expectations. A new kind needs a module here, an entry below, a schema definition and a test."""

from collections.abc import Callable, Mapping
from typing import Any

from runner.core.protocol import Json
from runner.vocabulary.expectations import close, dead, equality, log, samples, strides, text
from runner.vocabulary.expectations.base import EAGER, OUTPUT, BadExpectation, Expectation, Judgement, Raised, StepFacts
from runner.vocabulary.expectations.calls import Calls
from runner.vocabulary.expectations.close import Close
from runner.vocabulary.expectations.counter import Counter
from runner.vocabulary.expectations.dead import Dead
from runner.vocabulary.expectations.equality import Differs, Equals
from runner.vocabulary.expectations.exit import Exit
from runner.vocabulary.expectations.filecheck import FileCheck
from runner.vocabulary.expectations.generated_files import GeneratedFiles
from runner.vocabulary.expectations.log import Log
from runner.vocabulary.expectations.metric import Metric
from runner.vocabulary.expectations.raises import Raises
from runner.vocabulary.expectations.remote_cache import RemoteCache
from runner.vocabulary.expectations.runs import Runs
from runner.vocabulary.expectations.strides import Strides
from runner.vocabulary.expectations.text import Text

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
"""The class of each expectation, by its key in a spec."""

MEASURES: Mapping[str, Callable[[Mapping[str, Any], Callable[[str], Any]], Json]] = {
    "close": close.measure,
    "equals": equality.measure,
    "differs": equality.measure,
    "strides": strides.measure,
    "text": text.measure,
    "log": log.measure,
    "dead": dead.measure,
    samples.KIND: samples.measure,
}
"""Measurements in the worker, by kind. Kinds that use only the facts of every step are absent."""

ALWAYS_MEASURED = ("log", "dead")
"""Kinds that need no result and are measured after an exception too."""

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
