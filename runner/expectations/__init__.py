"""Every kind of expectation, in one table. A new one is a module here, an entry below, its schema entry and its test."""

from collections.abc import Callable, Mapping
from typing import Any

from runner.expectations import close, equality, strides
from runner.expectations.base import EAGER, OUTPUT, BadExpectation, Expectation, Judgement, Raised, StepFacts
from runner.expectations.close import Close
from runner.expectations.counter import Counter
from runner.expectations.equality import Differs, Equals
from runner.expectations.filecheck import FileCheck
from runner.expectations.generated_files import GeneratedFiles
from runner.expectations.metric import Metric
from runner.expectations.raises import Raises
from runner.expectations.runs import Runs
from runner.expectations.strides import Strides
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
}
"""The word of the language, and the class that it builds."""

MEASURES: Mapping[str, Callable[[Mapping[str, Any], Callable[[str], Any]], Json]] = {
    "close": close.measure,
    "equals": equality.measure,
    "differs": equality.measure,
    "strides": strides.measure,
}
"""What the worker measures for a kind; kinds that every step's facts suffice for are absent."""

__all__ = ["EAGER", "EXPECTATIONS", "MEASURES", "OUTPUT", "BadExpectation", "Expectation", "Judgement", "Raised", "StepFacts"]
