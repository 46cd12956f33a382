"""The table of all expectations. A new kind needs a module here, an entry below, a schema definition and a test."""

from collections.abc import Callable, Mapping
from typing import Any

from runner.core.protocol import Json
from runner.vocabulary.expectations import (
    batch_invariant,
    candidates,
    close,
    dead,
    deterministic,
    equality,
    graph,
    graph_breaks,
    guards,
    kernels,
    log,
    metadata,
    poisoned,
    recompiles,
    resources,
    samples,
    strides,
    text,
)
from runner.vocabulary.expectations.again import Repeat
from runner.vocabulary.expectations.base import EAGER, OUTPUT, BadExpectation, Expectation, Judgement, Raised, StepFacts
from runner.vocabulary.expectations.batch_invariant import BatchInvariant
from runner.vocabulary.expectations.calls import Calls
from runner.vocabulary.expectations.candidates import Candidates
from runner.vocabulary.expectations.choices import Choices
from runner.vocabulary.expectations.close import Close
from runner.vocabulary.expectations.counter import Counter
from runner.vocabulary.expectations.dead import Dead
from runner.vocabulary.expectations.deterministic import Deterministic
from runner.vocabulary.expectations.equality import Differs, Equals
from runner.vocabulary.expectations.exit import Exit
from runner.vocabulary.expectations.filecheck import FileCheck
from runner.vocabulary.expectations.generated_files import GeneratedFiles
from runner.vocabulary.expectations.graph import GraphOfStage
from runner.vocabulary.expectations.graph_breaks import GraphBreaks
from runner.vocabulary.expectations.guards import Guards
from runner.vocabulary.expectations.kernels import Kernels
from runner.vocabulary.expectations.log import Log
from runner.vocabulary.expectations.metadata import Metadata
from runner.vocabulary.expectations.metric import Metric
from runner.vocabulary.expectations.poisoned import Poisoned
from runner.vocabulary.expectations.raises import Raises
from runner.vocabulary.expectations.recompiles import Recompiles
from runner.vocabulary.expectations.remote_cache import RemoteCache
from runner.vocabulary.expectations.resources import Resources
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
    "kernels": Kernels,
    "graph": GraphOfStage,
    "guards": Guards,
    "recompiles": Recompiles,
    "graph_breaks": GraphBreaks,
    "deterministic": Deterministic,
    "batch_invariant": BatchInvariant,
    "poisoned": Poisoned,
    "candidates": Candidates,
    "choices": Choices,
    "resources": Resources,
    "metadata": Metadata,
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
    "kernels": kernels.measure,
    "graph": graph.measure,
    "guards": guards.measure,
    "recompiles": recompiles.measure,
    "graph_breaks": graph_breaks.measure,
    samples.KIND: samples.measure,
    "resources": resources.measure,
    "metadata": metadata.measure,
}
"""Measurements in the worker, by kind. Kinds that use only the facts of every step are absent."""

REPEATS: Mapping[str, Repeat] = {
    "deterministic": deterministic.repeat,
    "batch_invariant": batch_invariant.repeat,
    "poisoned": poisoned.repeat,
    "candidates": candidates.repeat,
}
"""Measurements in the worker that call the function of the step again, by kind. They run after the last step."""

ALWAYS_MEASURED = ("log", "dead", "kernels", "graph", "guards", "recompiles", "graph_breaks")
"""Kinds that need no result and are measured after an exception too."""

__all__ = [
    "ALWAYS_MEASURED",
    "EAGER",
    "EXPECTATIONS",
    "MEASURES",
    "OUTPUT",
    "REPEATS",
    "BadExpectation",
    "Expectation",
    "Judgement",
    "Raised",
    "StepFacts",
]
