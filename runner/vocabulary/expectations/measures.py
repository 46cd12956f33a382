"""The measurements of expectations. Only a worker imports this module."""

from collections.abc import Callable, Mapping
from typing import Any

from runner.model.protocol import Json
from runner.vocabulary.expectations import (
    additional_calls,
    close_measure,
    compilation,
    compiled_kernels,
    emitted,
    raises,
    sample_results,
    texts,
    values,
)
from runner.vocabulary.expectations.additional_calls import Repeat
from runner.vocabulary.expectations.compilation import COMPILATION

MEASURES: Mapping[str, Callable[[Mapping[str, Any], Callable[[str], Any]], Json]] = {
    "close": close_measure.measure,
    "equals": values.measure_equality,
    "differs": values.measure_equality,
    "raises": raises.measure,
    "strides": values.measure_strides,
    "filecheck": emitted.measure_words,
    "text": texts.measure_text,
    "log": texts.measure_log,
    "dead": values.measure_dead,
    "kernels": lambda arguments, value: value(f"{COMPILATION}kernels"),
    "graph": compilation.measure_graph,
    "guards": lambda arguments, value: value(f"{COMPILATION}guards"),
    "recompiles": lambda arguments, value: value(f"{COMPILATION}recompiles"),
    "graph_breaks": lambda arguments, value: value(f"{COMPILATION}graph_breaks"),
    sample_results.KIND: sample_results.measure,
    "resources": compiled_kernels.measure_resources,
    "metadata": compiled_kernels.measure_metadata,
}
"""Measurements in the worker, by kind. Kinds that use only the facts of every step are absent."""

REPEATS: Mapping[str, Repeat] = {
    "deterministic": additional_calls.repeat_deterministic,
    "batch_invariant": additional_calls.repeat_batch_invariant,
    "poisoned": additional_calls.repeat_poisoned,
    "candidates": additional_calls.repeat_candidates,
}
"""Measurements in the worker that call the function of the step again, by kind. They run after the last step."""

ALWAYS_MEASURED = ("raises", "filecheck", "log", "dead", "kernels", "graph", "guards", "recompiles", "graph_breaks")
"""Kinds that need no result and are measured after an exception too."""
