"""The table of all expectations. A new kind needs a class in the module of its family, entries below, a schema definition and a test."""

from collections.abc import Callable, Mapping
from typing import Any

from runner.core.expectation import Expectation
from runner.core.protocol import Json
from runner.vocabulary.expectations import again, close, compilation, compiled_kernels, samples, texts, values
from runner.vocabulary.expectations.again import BatchInvariant, Candidates, Deterministic, Poisoned, Repeat
from runner.vocabulary.expectations.choices import Choices
from runner.vocabulary.expectations.close import Close
from runner.vocabulary.expectations.compilation import GraphBreaks, GraphOfStage, Guards, Kernels, Recompiles
from runner.vocabulary.expectations.compiled_kernels import Metadata, Resources
from runner.vocabulary.expectations.counters import Calls, Counter, GeneratedFiles, Metric, RemoteCache, Runs
from runner.vocabulary.expectations.filecheck import FileCheck
from runner.vocabulary.expectations.raises import Raises
from runner.vocabulary.expectations.texts import Exit, Log, Text
from runner.vocabulary.expectations.values import Dead, Differs, Equals, Strides

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
    "equals": values.measure_equality,
    "differs": values.measure_equality,
    "strides": values.measure_strides,
    "text": texts.measure_text,
    "log": texts.measure_log,
    "dead": values.measure_dead,
    "kernels": compilation.measure_kernels,
    "graph": compilation.measure_graph,
    "guards": compilation.measure_guards,
    "recompiles": compilation.measure_recompiles,
    "graph_breaks": compilation.measure_graph_breaks,
    samples.KIND: samples.measure,
    "resources": compiled_kernels.measure_resources,
    "metadata": compiled_kernels.measure_metadata,
}
"""Measurements in the worker, by kind. Kinds that use only the facts of every step are absent."""

REPEATS: Mapping[str, Repeat] = {
    "deterministic": again.repeat_deterministic,
    "batch_invariant": again.repeat_batch_invariant,
    "poisoned": again.repeat_poisoned,
    "candidates": again.repeat_candidates,
}
"""Measurements in the worker that call the function of the step again, by kind. They run after the last step."""

ALWAYS_MEASURED = ("log", "dead", "kernels", "graph", "guards", "recompiles", "graph_breaks")
"""Kinds that need no result and are measured after an exception too."""
